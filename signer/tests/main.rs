//! The signer alone, as its peer, its owner and an attacker see it: the real program over its socket,
//! its standard streams, its files and /proc.
//!
//! One binary for all of it, so that it is linked once; one module a subject.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod answers;
mod audit_log;
mod degradation;
mod ending;
mod isolation;
mod listening;
mod program;
mod start;
mod stdio;
mod units;
