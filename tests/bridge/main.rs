//! The contract, sentence by sentence, against the real programs and a real relay over real HTTP.
//!
//! One binary for all of it, so that it is linked once; one module a subject.

mod diagnose;
mod network;
mod outcome;
mod relay_bodies;
mod relay_faults;
mod relay_repeats;
mod relay_requests;
mod relay_status;
mod results;
mod sign_and_resubmit;
mod tool_table;
