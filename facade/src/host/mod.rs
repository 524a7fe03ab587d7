//! The host's side: lines from stdin, JSON-RPC messages, lines to stdout.
//!
//! Nothing here knows tools or relays. What leaves is always whole lines of JSON-RPC.

pub mod input;
pub mod message;
pub mod output;
pub mod separators;
