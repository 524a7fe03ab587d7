//! The process that holds the key, and signs nothing that it did not build and approve itself.
//!
//! Blocking, one thread, no network code. It reads the key, closes itself in, and answers the
//! typed requests of one session after the other.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

mod audit;
mod custody;
mod hardening;
mod inbox;
mod inherited;
mod listening;
mod options;
mod rate;
mod run;
mod session;
mod stdio;
mod sys;

pub use options::command;
pub use run::main;
