//! What facade and signer must agree on, byte for byte.
//!
//! The tool catalog and its kinds, the policy decision, the bodies sent to the relay, NIP-01 and
//! NIP-98 events, and the messages between the two processes. No I/O, no keys, no async.

pub mod bind;
pub mod body;
pub mod catalog;
pub mod event;
pub mod frame;
pub mod hex;
pub mod json;
pub mod key_env;
pub mod label;
pub mod message;
pub mod policy;
pub mod proof;
pub mod relay_url;
pub mod report;
pub mod template;

/// The version of both programs. Facade and signer build bodies alike only when it is equal, so the
/// facade refuses a signer of another one.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
