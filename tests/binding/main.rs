//! What a host calls for is what is signed: `--bind-arguments` with the real programs, against the honest
//! and the hostile development relay, and one signer that serves many facades without mixing them up.

#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

mod agent;
mod calls;
mod dice;
mod honest;
mod hostile;
mod many;
