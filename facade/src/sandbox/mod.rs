//! What the facade gives up before it reads a byte from the host or the relay.
//!
//! Each measure stands in a file of its own, tests its effect, and reports honestly where the kernel or a
//! container profile does not offer it. Nothing here ever stops the program: whether a missing measure is
//! fatal is for the caller to say (`--require-hardening`).

mod core_dumps;

pub use core_dumps::forbid_core_dumps;
