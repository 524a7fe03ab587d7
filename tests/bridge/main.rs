//! The contract, sentence by sentence, against the real programs and a real relay over real HTTP.
//!
//! One binary for all of it, so that it is linked once; one module a subject.

mod bech32;
mod cancellation;
mod command_line;
mod commands;
mod concurrency;
mod diagnose;
mod diagnose_grants;
mod ends;
mod framing;
mod lifecycle;
mod messages;
mod negotiation;
mod network;
mod outcome;
mod param_headers;
mod proxies;
mod relay_bodies;
mod relay_faults;
mod relay_repeats;
mod relay_requests;
mod relay_status;
mod relay_streams;
mod results;
mod separate_signer;
mod sign_and_resubmit;
mod support;
mod table_fetches;
mod templates;
mod tool_table;
mod tools;
mod warm_connection;
