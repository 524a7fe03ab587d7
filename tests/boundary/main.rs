//! The claims of THREAT_MODEL.md against the real programs: as root, who looks everywhere, as an ordinary
//! user, and as a peer that owns the facade's end of the signer's socket.
//!
//! One binary for all of it, so that it is linked once; one module a subject. The programs of another
//! build are tested where `TINYAGENT_PROGRAM_DIR` names their directory.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

mod arguments;
mod body_binding;
mod document;
mod frames;
mod looking_in;
mod memory;
mod peer;
mod processes;
mod properties;
mod red_team;
mod report;
mod requests;
mod scan;
mod support;
mod wire;
