//! The development relay: strict where the real one is strict, in memory, and scriptable.
//!
//! It serves the MCP endpoint, `/readyz`, the NIP-11 document and the NIP-86 method `browsegrant` over real
//! HTTP, checks every request as the relay does, records it byte for byte, and lets a test replace any answer
//! by another one, or by a fault. It shares no code with the product.
//!
//! ```
//! use std::time::Duration;
//! use tinyagent_relay::{Answer, Gate, Key, Matcher, Options, Relay, Reply, Step};
//!
//! let relay = Relay::start(Options { body_limit: 4096, ..Options::default() });
//!
//! // The next tools/list is redirected, every list_rooms waits, the second read_room is cut off.
//! relay.script(Matcher::rpc("tools/list"), Reply::http(Answer::new(307).header("Location", "http://x/")));
//! let gate = Gate::new();
//! relay.script_always(Matcher::tool("list_rooms"), Reply::hold(&gate));
//! relay.script(
//!     Matcher::tool("read_room").nth(2),
//!     Reply::from_answer(|_, answer| {
//!         let bytes = answer.to_bytes("Thu, 01 Jan 1970 00:00:00 GMT");
//!         Reply::steps([Step::Write(bytes[..40].to_vec()), Step::Reset])
//!     }),
//! );
//!
//! // … start the program under test with relay.url(), or be the client:
//! let key = Key::random();
//! relay.script(Matcher::tool("read_job"), Reply::result(serde_json::json!({"content": []})));
//! let answer = tinyagent_relay::client::call(&relay.url(), &key, "read_job", "{\"n\":1E+2}");
//! assert_eq!(answer.status, 200);
//!
//! let calls = relay.calls_of("read_job");
//! assert_eq!(calls[0].arguments(), Some("{\"n\":1E+2}"));
//! assert_eq!(calls[0].proof.as_ref().unwrap().pubkey, key.public_hex());
//! assert!(relay.wait_for(1, Duration::from_secs(5)));
//! # gate.open();
//! ```
//!
//! Scripts are tried oldest first, and the first that matches counts: give special ones before general ones.
//! A proof that came with a scripted request is checked and used up all the same.

mod access;
mod answer;
mod certificates;
pub mod client;
pub mod clock;
mod event;
pub mod faults;
mod hostile;
mod http;
mod http2;
pub mod manage;
mod mcp;
mod message;
mod nip98;
mod param_headers;
mod proxy;
mod relay;
mod request;
mod routes;
mod script;
mod server;
mod store;
mod tls;
mod tools;

pub use access::{Grant, GrantState, Membership, Role};
pub use answer::{Answer, Framing};
pub use certificates::Authority;
pub use event::{Event, Key, Template, event_id, hex, sha256_hex, unhex};
pub use faults::Sse;
pub use hostile::Served;
pub use mcp::PROTOCOL_VERSION;
pub use message::Rpc;
pub use nip98::{HTTP_AUTH_KIND, PROOF_WINDOW_SECONDS, authorization, header_value, proof_template};
pub use proxy::{Proxied, Proxy};
pub use relay::{AcceptFault, Idle, Options, Relay};
pub use request::{Request, Unread};
pub use script::{Gate, Matcher, Reply, Step};
pub use store::Room;
pub use tls::Tls;
