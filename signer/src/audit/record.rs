//! One record as it is written: who asked for what, what was decided, which hashes it concerns.
//!
//! It names requests, tools, kinds and hashes; content, arguments and keys have no field here.

use std::borrow::Cow;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tinyagent_protocol::event::{EventId, PublicKey};
use tinyagent_protocol::policy::Rule;
use tinyagent_protocol::{VERSION, hex};

/// What the first record of a start gives as the hash before it.
pub const CHAIN_START: [u8; 32] = [0; 32];

/// The name of the record that begins a start's chain.
pub const START: &str = "start";

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The signer started.
    Started,
    /// The request was granted and, where it asks for one, the signature made.
    Signed,
    /// The request was refused.
    Refused(Rule),
}

/// What a record tells of a request.
#[derive(Debug, Default)]
pub struct Entry<'a> {
    /// The request's name.
    pub request: &'static str,
    /// The client's label, normalised.
    pub client: Option<String>,
    /// The tool's name.
    pub tool: Option<Cow<'a, str>>,
    /// The template's kind.
    pub kind: Option<u64>,
    /// The id of the published event.
    pub event: Option<EventId>,
    /// The id of the proof.
    pub proof: Option<EventId>,
    /// SHA-256 of the body that the proof is for, in hex as the proof's `payload` tag has it.
    pub body: Option<String>,
    /// The public key, in the record of a start.
    pub pubkey: Option<PublicKey>,
}

/// A record's JSON, in this order.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: u64,
    request: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pubkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<u64>,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    previous: String,
}

impl Entry<'_> {
    /// The record that begins a start's chain.
    pub fn start(public: PublicKey) -> Self {
        Self { request: START, pubkey: Some(public), ..Self::default() }
    }

    /// The record with its line end.
    pub fn line(&self, sequence: u64, decision: Decision, time: u64, previous: &[u8; 32]) -> String {
        let (decision, rule) = match decision {
            Decision::Started => ("started", None),
            Decision::Signed => ("signed", None),
            Decision::Refused(rule) => ("refused", Some(rule.tag())),
        };
        let line = Line {
            seq: sequence,
            time,
            request: self.request,
            version: self.pubkey.map(|_| VERSION),
            pubkey: self.pubkey.map(|public| public.to_string()),
            client: self.client.as_deref(),
            tool: self.tool.as_deref(),
            kind: self.kind,
            decision,
            rule,
            event: self.event.map(|id| id.to_string()),
            proof: self.proof.map(|id| id.to_string()),
            body: self.body.as_deref(),
            previous: hex::encode(previous),
        };
        // Strings and numbers alone are serialised, which cannot fail; an empty line would break
        // the chain, which verification reports.
        let mut line = serde_json::to_string(&line).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// The hash that the record after `line` carries; without the line's end.
pub fn chain_hash(line: &[u8]) -> [u8; 32] {
    Sha256::digest(line).into()
}
