//! Nostr events (NIP-01): the text that is hashed, the id, and the event as JSON.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::hex;
use crate::json::{Json, words};

/// Room for an event with a few short tags, as proofs are.
const EVENT_BYTES: usize = 640;

/// An x-only public key, shown and parsed as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKey {
    /// Parses 64 lower-case hex digits. Whether it is a point of the curve, the signer knows.
    pub fn parse(text: &str) -> Option<Self> {
        hex::decode(text).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

/// The hash that is signed; shown as 64 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId(pub [u8; 32]);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// An event before it has a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsignedEvent {
    /// Whose event it is.
    pub pubkey: PublicKey,
    /// Seconds since 1970.
    pub created_at: u64,
    /// The kind.
    pub kind: u64,
    /// The tags.
    pub tags: Vec<Vec<String>>,
    /// The content.
    pub content: String,
}

impl UnsignedEvent {
    /// The id of NIP-01: SHA-256 of `[0,pubkey,created_at,kind,tags,content]`.
    pub fn id(&self) -> EventId {
        let mut text = String::with_capacity(EVENT_BYTES + self.content.len());
        let (created_at, kind) = (self.created_at.to_string(), self.kind.to_string());
        text.extend(["[0,\"", &hex::encode(&self.pubkey.0), "\",", &created_at, ",", &kind, ","]);
        push_tags(&mut text, &self.tags);
        text.push(',');
        push_string(&mut text, &self.content);
        text.push(']');
        EventId(Sha256::digest(text.as_bytes()).into())
    }

    /// The event with its signature. Nothing is verified here.
    pub fn with_signature(self, id: EventId, sig: [u8; 64]) -> SignedEvent {
        SignedEvent { id, event: self, sig }
    }
}

/// An event with its id and signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedEvent {
    /// Its id.
    pub id: EventId,
    /// What was signed.
    pub event: UnsignedEvent,
    /// The BIP-340 signature of the id.
    pub sig: [u8; 64],
}

impl SignedEvent {
    /// The event as the one JSON text that both processes write for it.
    pub fn to_json(&self) -> String {
        let event = &self.event;
        let mut out = String::with_capacity(EVENT_BYTES + event.content.len());
        let (created_at, kind) = (event.created_at.to_string(), event.kind.to_string());
        out.extend([
            "{\"id\":\"",
            &hex::encode(&self.id.0),
            "\",\"pubkey\":\"",
            &hex::encode(&event.pubkey.0),
        ]);
        out.extend(["\",\"created_at\":", &created_at, ",\"kind\":", &kind, ",\"tags\":"]);
        push_tags(&mut out, &event.tags);
        out.push_str(",\"content\":");
        push_string(&mut out, &event.content);
        out.extend([",\"sig\":\"", &hex::encode(&self.sig), "\"}"]);
        out
    }

    /// Reads an event of exactly the seven keys of NIP-01; `None` for anything else.
    pub fn parse(json: Json<'_>) -> Option<Self> {
        let (mut id, mut pubkey, mut created_at, mut kind, mut all_tags, mut content, mut sig) =
            (None, None, None, None, None, None, None);
        if json.repeated_key().is_some() {
            return None;
        }
        for (key, value) in json.members() {
            match &*key {
                "id" => id = hex::decode(&value.as_exact_str()?).map(EventId),
                "pubkey" => pubkey = PublicKey::parse(&value.as_exact_str()?),
                "created_at" => created_at = value.as_u64(),
                "kind" => kind = value.as_u64(),
                "tags" => all_tags = tags(value),
                "content" => content = Some(value.as_exact_str()?.into_owned()),
                "sig" => sig = hex::decode(&value.as_exact_str()?),
                _ => return None,
            }
        }
        let event = UnsignedEvent {
            pubkey: pubkey?,
            created_at: created_at?,
            kind: kind?,
            tags: all_tags?,
            content: content?,
        };
        Some(Self { id: id?, event, sig: sig? })
    }
}

/// An array of non-empty arrays of strings, every string of whole characters; `None` for anything else.
pub fn tags(json: Json<'_>) -> Option<Vec<Vec<String>>> {
    let tag = |tag: Json<'_>| {
        let strings: Option<Vec<String>> = tag.elements().map(|s| s.as_exact_str().map(Into::into)).collect();
        strings.filter(|strings| tag.is_array() && !strings.is_empty())
    };
    json.is_array().then(|| json.elements().map(tag).collect()).flatten()
}

/// Appends the tags as JSON without white space.
pub fn push_tags(out: &mut String, tags: &[Vec<String>]) {
    out.push('[');
    for (i, tag) in tags.iter().enumerate() {
        out.push_str(if i == 0 { "[" } else { ",[" });
        for (j, item) in tag.iter().enumerate() {
            if j > 0 {
                out.push(',');
            }
            push_string(out, item);
        }
        out.push(']');
    }
    out.push(']');
}

/// Appends a JSON string as NIP-01 hashes it: seven short escapes, every other character verbatim,
/// except the remaining C0 controls, which go as lower-case `\u00xx` (contract 5).
pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    let bytes = text.as_bytes();
    let (mut from, mut at) = (0, 0);
    loop {
        at = next_escaped(bytes, at);
        out.push_str(&text[from..at]);
        let Some(byte) = bytes.get(at) else { break };
        let short = match byte {
            b'\n' => "\\n",
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            _ => "",
        };
        at += 1;
        from = at;
        if short.is_empty() {
            out.push_str(&format!("\\u{byte:04x}"));
        } else {
            out.push_str(short);
        }
    }
    out.push('"');
}

/// Whether a JSON string has some of this text only escaped.
pub(crate) fn needs_escape(text: &str) -> bool {
    next_escaped(text.as_bytes(), 0) < text.len()
}

/// Where the next character stands that a JSON string has only escaped; the end where there is none.
fn next_escaped(bytes: &[u8], at: usize) -> usize {
    let is_escaped = |b: &u8| *b < 0x20 || matches!(b, b'"' | b'\\');
    words::find(bytes, at, usize::MAX, words::escaped).unwrap_or_else(|at| {
        bytes[at..].iter().position(is_escaped).map_or(bytes.len(), |further| at + further)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_seven_characters_short_other_controls_long_and_nothing_else() {
        let mut out = String::new();
        push_string(&mut out, "\n\"\\\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}\u{2028}<>&/é🦀");
        assert_eq!(out, "\"\\n\\\"\\\\\\r\\t\\b\\f\\u0000\\u001f\u{7f}\u{2028}<>&/é🦀\"");
    }

    #[test]
    fn an_event_survives_its_own_json() {
        let event = UnsignedEvent {
            pubkey: PublicKey([7; 32]),
            created_at: 1_700_000_000,
            kind: 9,
            tags: vec![vec!["h".into(), "general".into()], vec!["-".into()]],
            content: "a\u{1}\"b".into(),
        };
        let id = event.id();
        let signed = event.with_signature(id, [3; 64]);
        let text = signed.to_json();
        let (json, _) = Json::check(text.as_bytes()).expect("valid");
        assert_eq!(SignedEvent::parse(json), Some(signed));
    }
}
