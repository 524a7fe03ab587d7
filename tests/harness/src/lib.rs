//! Drives the real `tinyagent` as a host would, and insists on what holds in every test.
//!
//! Whatever a test is about, when its [`Host`] ends the harness has checked that stdout held nothing but
//! whole JSON-RPC lines, that each id was answered once at the most, that the key stands nowhere in the
//! output, and that no process of ours is left.
//!
//! ```no_run
//! use tinyagent_harness::Host;
//! use tinyagent_relay::{Options, Relay};
//!
//! let relay = Relay::start(Options::default());
//! let mut host = Host::start(&relay);
//! let answer = host.call("read_room", r#"{"id":"general"}"#);
//! assert_eq!(answer["result"]["isError"], false);
//! assert_eq!(host.end().code, Some(0));
//! ```

pub mod catalog;
mod host;
mod install;
mod process;
mod service;

pub use host::{Ended, Host, HostOptions, Input, Stderr};
pub use install::{copy_program, write_script};
pub use process::{children, environ, is_alive, program, run, signer_of, status_field, wait_gone};
pub use service::Service;

use std::time::Duration;

/// The key of the tests, as hex.
pub const KEY: &str = "0707070707070707070707070707070707070707070707070707070707070707";

/// Its public key.
pub const PUBKEY: &str = "989c0b76cb563971fdc9bef31ec06c3560f3249d6ee9e5d83c57625596e05f6f";

/// The variable that holds it.
pub const KEY_VARIABLE: &str = "TINY_PRIVATE_KEY";

/// How long a test waits for what must come; generous, because machines are noisy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A request line without its end.
pub fn request(id: impl Into<serde_json::Value>, method: &str, params: &str) -> String {
    let id: serde_json::Value = id.into();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// A tools/call line without its end, the arguments exactly as given.
pub fn call(id: impl Into<serde_json::Value>, tool: &str, arguments: &str) -> String {
    request(id, "tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
}

/// A ping line without its end.
pub fn ping(id: impl Into<serde_json::Value>) -> String {
    let id: serde_json::Value = id.into();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)
}

/// The initialize line of most hosts, with the id 0.
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#;

/// The notification that follows it.
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
