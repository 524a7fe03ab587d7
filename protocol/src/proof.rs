//! The NIP-98 event that authorises one request to the relay.
//!
//! It is built from the sealed policy's URL and a [`Body`], which only an approved request gives, so
//! there is no way to ask for a proof of other bytes or of another URL.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::body::Body;
use crate::event::{PublicKey, SignedEvent, UnsignedEvent};
use crate::hex;
use crate::policy::Policy;

/// The kind of NIP-98.
pub const PROOF_KIND: u64 = 27235;

/// The unsigned proof of one POST of `body`. The nonce keeps two equal requests of one second apart,
/// since a relay accepts an event id once (contract 4).
pub fn proof(
    policy: &Policy,
    body: &Body<'_>,
    pubkey: PublicKey,
    nonce: [u8; 16],
    now: u64,
) -> UnsignedEvent {
    let tag = |name: &str, value: String| vec![name.to_owned(), value];
    let tags = vec![
        tag("u", body.endpoint().url(policy.relay())),
        tag("method", "POST".into()),
        tag("payload", hex::encode(&body.payload())),
        tag("nonce", hex::encode(&nonce)),
    ];
    UnsignedEvent { pubkey, created_at: now, kind: PROOF_KIND, tags, content: String::new() }
}

/// The value of the `Authorization` header that carries a proof: standard padded Base64.
pub fn authorization(proof: &SignedEvent) -> String {
    const SCHEME: &str = "Nostr ";
    let json = proof.to_json();
    let mut value = String::with_capacity(SCHEME.len() + json.len().div_ceil(3) * 4);
    value.push_str(SCHEME);
    STANDARD.encode_string(json, &mut value);
    value
}
