//! The claims of THREAT_MODEL.md against the real programs, as root, as their own user and as a peer
//! that owns the facade's end of the signer's socket.
//!
//! One binary for all of it, so that it is linked once; one module a subject.
#![cfg(target_os = "linux")]
