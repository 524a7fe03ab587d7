//! The bodies of requests to the relay. Both processes build them with these functions from the same
//! approved request, so what the signer hashes is what the facade sends, byte for byte.
//!
//! The host's arguments are placed as checked JSON text inside a frame whose every other key is ours.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::VERSION;
use crate::event::{SignedEvent, push_string};
use crate::policy::{Approved, Call, GrantQuery, Listing, Publication};
use crate::relay_url::RelayUrl;

/// The MCP revision that the relay speaks, also a header of each request.
pub const RELAY_PROTOCOL_VERSION: &str = "2026-07-28";

/// Where a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST <relay>/mcp`.
    Mcp,
    /// `POST <relay>/manage/rpc` (NIP-86).
    Manage,
}

impl Endpoint {
    /// The full URL at this relay.
    pub fn url(self, relay: &RelayUrl) -> String {
        match self {
            Endpoint::Mcp => relay.mcp(),
            Endpoint::Manage => relay.manage(),
        }
    }
}

/// A request body in at most three pieces, so that large arguments are never copied for it.
#[derive(Debug)]
pub struct Body<'a> {
    endpoint: Endpoint,
    head: String,
    arguments: &'a str,
    tail: Cow<'static, str>,
}

impl Body<'_> {
    /// Where it is sent.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// The pieces, to be sent one after the other: ours, the host's arguments, ours.
    pub fn pieces(&self) -> [&str; 3] {
        [&self.head, self.arguments, &self.tail]
    }

    /// SHA-256 of the whole, as a proof's `payload` tag carries it.
    pub fn payload(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for piece in self.pieces() {
            hash.update(piece.as_bytes());
        }
        hash.finalize().into()
    }
}

impl Approved<Listing<'_>> {
    /// The `tools/list` body.
    pub fn body(&self) -> Body<'static> {
        let mut head = opening(self.id, "tools/list");
        if let Some(cursor) = &self.cursor {
            head.push_str("\"cursor\":");
            push_string(&mut head, cursor);
            head.push(',');
        }
        push_meta(&mut head);
        head.push_str("}}");
        Body { endpoint: Endpoint::Mcp, head, arguments: "", tail: Cow::Borrowed("") }
    }
}

impl<'a> Approved<Call<'a>> {
    /// The `tools/call` body.
    pub fn body(&self) -> Body<'a> {
        let arguments = self.arguments.text();
        Body { endpoint: Endpoint::Mcp, head: call_head(self), arguments, tail: Cow::Borrowed("}}") }
    }
}

impl<'a> Approved<Publication<'a>> {
    /// The `tools/call` body with the signed event as the arguments' last key.
    pub fn body(&self, event: &SignedEvent) -> Body<'a> {
        let arguments = self.call.arguments.text().strip_suffix('}').unwrap_or_default();
        let comma = if self.call.arguments.is_empty() { "" } else { "," };
        let tail = format!("{comma}\"event\":{}}}}}}}", event.to_json());
        Body { endpoint: Endpoint::Mcp, head: call_head(&self.call), arguments, tail: Cow::Owned(tail) }
    }
}

impl Approved<GrantQuery<'_>> {
    /// The NIP-86 `browsegrant` body; a key stands in it only when asked for.
    pub fn body(&self) -> Body<'static> {
        let mut head = String::from("{\"method\":\"browsegrant\",\"params\":[{");
        if let Some(rooms) = &self.rooms {
            head.push_str("\"rooms\":[");
            for (i, room) in rooms.iter().enumerate() {
                if i > 0 {
                    head.push(',');
                }
                push_string(&mut head, room);
            }
            head.push_str(if self.kinds.is_some() { "]," } else { "]" });
        }
        if let Some(kinds) = &self.kinds {
            let kinds: Vec<String> = kinds.iter().map(u64::to_string).collect();
            head.push_str(&format!("\"kinds\":[{}]", kinds.join(",")));
        }
        head.push_str("}]}");
        Body { endpoint: Endpoint::Manage, head, arguments: "", tail: Cow::Borrowed("") }
    }
}

fn call_head(call: &Call<'_>) -> String {
    let mut head = opening(call.id, "tools/call");
    head.extend(["\"name\":\"", call.tool.name, "\","]);
    push_meta(&mut head);
    head.push_str(",\"arguments\":");
    head
}

fn opening(id: u64, method: &str) -> String {
    let mut head = String::with_capacity(320);
    head.extend([
        "{\"jsonrpc\":\"2.0\",\"id\":",
        &id.to_string(),
        ",\"method\":\"",
        method,
        "\",\"params\":{",
    ]);
    head
}

/// What the revision asks of every request (contract 4).
fn push_meta(head: &mut String) {
    head.extend([
        "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"",
        RELAY_PROTOCOL_VERSION,
        "\",\"io.modelcontextprotocol/clientInfo\":{\"name\":\"tinyagent\",\"version\":\"",
        VERSION,
        "\"},\"io.modelcontextprotocol/clientCapabilities\":{}}",
    ]);
}
