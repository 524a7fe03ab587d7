//! The process that talks to the host and to the relay, and never holds the key.
//!
//! Data flows one way: stdin line, request, policy, signer, relay, bounds, stdout line.

mod bridge;
mod cli;
mod diagnose;
mod failure;
mod host;
pub mod launch;
mod log;
mod relay;
mod result;
mod run;
pub mod sandbox;
mod server;
mod signer;
mod sys;

pub use cli::command;
pub use run::main;
