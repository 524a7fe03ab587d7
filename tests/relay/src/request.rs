//! What the relay remembers of a request: every byte as it came, and what was read out of it.

use crate::event::Event;
use crate::message::{Malformed, Members, Rpc};
use serde_json::Value;
use std::time::Instant;

/// One request as it arrived. Requests of one relay are numbered from 0 in order of arrival.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its place among all requests of this relay.
    pub number: usize,
    /// The connection it came on, numbered from 0 in order of acceptance.
    pub connection: u64,
    /// When its last byte had been read.
    pub arrived: Instant,
    /// `POST`, `GET`, …
    pub method: String,
    /// The target as written: path and query.
    pub target: String,
    /// The headers in order, names as spelled (HTTP/2 spells them in lower case).
    pub headers: Vec<(String, String)>,
    /// The head byte for byte, including the empty line; empty for HTTP/2.
    pub head: Vec<u8>,
    /// The body after removal of chunked framing; empty where it was refused unread.
    pub body: Vec<u8>,
    /// Why the body was not read whole.
    pub unread: Option<Unread>,
    /// Whether it came over HTTP/2.
    pub http2: bool,
    /// The NIP-98 event, where it proved a key for exactly this request.
    pub proof: Option<Event>,
    /// Why the `Authorization` header proves nothing; `None` with a proof or without a header.
    pub proof_error: Option<String>,
    /// The JSON-RPC message of the body, where there is one.
    pub rpc: Option<Rpc>,
    pub(crate) malformed: Option<Malformed>,
}

/// Why a body was not read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is larger than the body limit.
    TooLarge,
    /// A scripted reply was due before it.
    Scripted,
}

impl Request {
    /// The value of the first header with this name, compared without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The values of every header with this name, in order.
    pub fn headers_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.headers
            .iter()
            .filter(move |(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The path, without a query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The tool of a `tools/call`.
    pub fn tool(&self) -> Option<&str> {
        self.rpc.as_ref()?.tool.as_deref()
    }

    /// The JSON-RPC method.
    pub fn rpc_method(&self) -> Option<&str> {
        Some(self.rpc.as_ref()?.method.as_str())
    }

    /// The JSON-RPC id as written, or `null`.
    pub fn rpc_id(&self) -> &str {
        self.rpc.as_ref().and_then(|rpc| rpc.id.as_deref()).unwrap_or("null")
    }

    /// The arguments of a `tools/call` exactly as they were written.
    pub fn arguments(&self) -> Option<&str> {
        std::str::from_utf8(&self.body[self.rpc.as_ref()?.arguments.clone()?]).ok()
    }

    /// One top-level argument exactly as it was written; the name is matched without regard to case.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let members: Members = serde_json::from_str(self.arguments()?).ok()?;
        members.get(name).map(|raw| raw.get())
    }

    /// The event of a resubmission, unchecked.
    pub fn event(&self) -> Option<Event> {
        Event::parse(self.argument("event")?).ok()
    }

    /// The body as JSON; numbers beyond 64 bits lose digits here, [`Request::arguments`] does not.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// A JSON-RPC answer to this request with the result as given, which may be any text.
    pub fn result_text(&self, result: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, self.rpc_id())
    }

    /// One line that says what came: the signing key by its first eight characters, never a body.
    pub(crate) fn summary(&self) -> String {
        let key = self.proof.as_ref().map_or("unsigned", |proof| &proof.pubkey[..8]);
        let call = match (self.rpc_method(), self.tool()) {
            (Some(method), Some(tool)) => format!(" {method} {tool}"),
            (Some(method), None) => format!(" {method}"),
            (None, _) => String::new(),
        };
        let event = self.event().map(|event| format!(" event of kind {}", event.kind)).unwrap_or_default();
        let Request { method, target, connection, body, .. } = self;
        format!("{method} {target}{call}{event} ({} bytes, key {key}, connection {connection})", body.len())
    }
}
