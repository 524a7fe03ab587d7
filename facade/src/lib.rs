//! The process that talks to the host and to the relay, and never holds the key.
//!
//! Data flows one way: stdin line, request, policy, signer, relay, bounds, stdout line. What reads foreign
//! bytes is public, so that benches and fuzz targets reach it.

mod bridge;
mod cli;
mod config;
mod diagnose;
pub mod failure;
pub mod host;
pub mod launch;
mod log;
pub mod relay;
pub mod result;
mod run;
pub mod sandbox;
mod server;
mod signer;
mod sys;
mod watchdog;

pub use cli::command;
pub use run::main;
