//! The relay's side: HTTP requests, their headers, and what an answer means.
//!
//! Nothing here decides what may be asked; a request arrives with its proof, and leaves as a result
//! or as one of the contract's failures.

pub mod answer;
pub mod body;
pub mod client;
pub mod connection;
pub mod headers;
pub mod proxy;
pub mod sse;
mod stream;
pub mod tls;
