//! What facade and signer must agree on, byte for byte.
//!
//! The tool catalog and its kinds, the policy decision, the bodies sent to the relay, NIP-01 and
//! NIP-98 events, and the messages between the two processes. No I/O, no keys, no async.

pub mod report;
