//! Every raw system call and foreign function of the signer, each behind a safe function.
//!
//! This is the only module of the crate that may use what the compiler cannot check; each such
//! block argues why it holds. It decides nothing: custody, hardening and the session do.
#![allow(unsafe_code)]

pub mod curve;
pub mod environ;
pub mod memory;
pub mod process;
pub mod socket;
pub mod stack;
