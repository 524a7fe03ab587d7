//! NIP-98: whether an `Authorization` header proves a key for exactly this method, URL and body, now, and for
//! the first time. Tests make proofs of their own with [`authorization`]; nothing here signs for the product.

use crate::event::{Event, Key, Template, sha256_hex};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The kind of an HTTP authorization event (NIP-98).
pub const HTTP_AUTH_KIND: u64 = 27235;
/// How far a proof's time may lie from the relay's clock, in seconds (the relay's own bound).
pub const PROOF_WINDOW_SECONDS: u64 = 60;

/// What a proof must be bound to.
pub(crate) struct Bound<'a> {
    pub method: &'a str,
    pub scheme: &'a str,
    pub host: &'a str,
    pub target: &'a str,
    pub body: &'a [u8],
    pub now: u64,
}

/// The ids of the proofs already accepted, kept as long as they could be accepted again.
#[derive(Default)]
pub(crate) struct SeenProofs {
    ids: HashMap<String, u64>,
    pruned: u64,
}

impl SeenProofs {
    fn first_time(&mut self, event: &Event, now: u64) -> bool {
        if now > self.pruned + PROOF_WINDOW_SECONDS {
            self.pruned = now;
            self.ids.retain(|_, created_at| *created_at + 2 * PROOF_WINDOW_SECONDS >= now);
        }
        self.ids.insert(event.id.clone(), event.created_at).is_none()
    }
}

/// Checks the whole proof, and then that its id is new.
pub(crate) fn check(header: Option<&str>, bound: &Bound, seen: &Mutex<SeenProofs>) -> Result<Event, String> {
    let header = header.ok_or("authorization required")?;
    let token = header.strip_prefix("Nostr ").ok_or("the Authorization scheme is not Nostr")?;
    let bytes = STANDARD.decode(token).map_err(|_| "the token is not padded standard base64")?;
    let text = String::from_utf8(bytes).map_err(|_| "the token is not UTF-8")?;
    let event = Event::parse(&text)?;
    if event.kind != HTTP_AUTH_KIND {
        return Err(format!("the token's kind is {}, not {HTTP_AUTH_KIND}", event.kind));
    }
    if !event.content.is_empty() {
        return Err("the token's content is not empty".into());
    }
    if event.created_at.abs_diff(bound.now) > PROOF_WINDOW_SECONDS {
        return Err("the token is not within a minute of the relay's clock".into());
    }
    same_url(only(&event, "u")?, bound)?;
    if only(&event, "method")? != bound.method {
        return Err("the token is for another method".into());
    }
    if only(&event, "payload")? != sha256_hex(bound.body) {
        return Err("the token's payload is not the hash of the body".into());
    }
    event.verify()?;
    if !seen.lock().unwrap_or_else(PoisonError::into_inner).first_time(&event, bound.now) {
        return Err("the token was used before".into());
    }
    Ok(event)
}

/// The value of a tag that must occur exactly once.
fn only<'a>(event: &'a Event, name: &'a str) -> Result<&'a str, String> {
    let mut values = event.tags_named(name);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(format!("the token has no {name} tag")),
        _ => Err(format!("the token has more than one {name} tag")),
    }
}

/// Scheme and host without regard to case, path and query exactly; a default port is not stripped.
fn same_url(url: &str, bound: &Bound) -> Result<(), String> {
    let other = || format!("the token is for another URL ({url})");
    let (scheme, rest) = url.split_once("://").ok_or_else(other)?;
    let (host, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let same = scheme.eq_ignore_ascii_case(bound.scheme)
        && host.eq_ignore_ascii_case(bound.host)
        && target == bound.target;
    if same { Ok(()) } else { Err(other()) }
}

/// The template of a proof for this request, with a random `nonce` tag.
pub fn proof_template(method: &str, url: &str, body: &[u8], created_at: u64) -> Template {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).expect("the system has randomness");
    let tag = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let tags = vec![
        tag("u", url),
        tag("method", method),
        tag("payload", &sha256_hex(body)),
        tag("nonce", &crate::event::hex(&nonce)),
    ];
    Template { kind: HTTP_AUTH_KIND, created_at, tags, content: String::new() }
}

/// The `Authorization` value for a signed proof.
pub fn header_value(event: &Event) -> String {
    format!("Nostr {}", STANDARD.encode(serde_json::to_string(event).expect("an event is plain JSON")))
}

/// A fresh `Authorization` value for this request, by this key, at the present time.
pub fn authorization(key: &Key, method: &str, url: &str, body: &[u8]) -> String {
    header_value(&key.sign(proof_template(method, url, body, crate::clock::unix_now())))
}
