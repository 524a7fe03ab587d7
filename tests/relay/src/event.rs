//! NIP-01 events as the relay sees them: reading, recomputing the id, checking the BIP-340 signature.
//!
//! Written without the product's own protocol crate, so that a mistake there is not repeated here. It also
//! holds a key type with which tests sign their own requests; it never holds a key of the product.

use secp256k1::{Keypair, SecretKey, XOnlyPublicKey, schnorr};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A signed event (NIP-01). Unknown keys are refused, as are events written as arrays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Lower-case hex SHA-256 of the canonical form.
    pub id: String,
    /// Lower-case hex x-only public key.
    pub pubkey: String,
    /// Seconds since the epoch.
    pub created_at: u64,
    /// The kind.
    pub kind: u64,
    /// The tags, each a non-empty list in well-formed events.
    pub tags: Vec<Vec<String>>,
    /// The content.
    pub content: String,
    /// Lower-case hex BIP-340 signature over the id.
    pub sig: String,
}

/// An event before its signature: what a write tool returns as `unsigned`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// The kind.
    pub kind: u64,
    /// Seconds since the epoch.
    pub created_at: u64,
    /// The tags.
    pub tags: Vec<Vec<String>>,
    /// The content.
    pub content: String,
}

impl Event {
    /// Reads one event from JSON text, which must be an object.
    pub fn parse(text: &str) -> Result<Event, String> {
        if !text.trim_start().starts_with('{') {
            return Err("the event is not a JSON object".into());
        }
        serde_json::from_str(text).map_err(|error| format!("the event cannot be read: {error}"))
    }

    /// Checks that id and signature belong to the other fields.
    pub fn verify(&self) -> Result<(), String> {
        let expected = event_id(&self.pubkey, self.created_at, self.kind, &self.tags, &self.content);
        if self.id != hex(&expected) {
            return Err("the event id is not the hash of the event".into());
        }
        let key: [u8; 32] =
            unhex(&self.pubkey).ok_or("the event pubkey is not 32 bytes of lower-case hex")?;
        let sig: [u8; 64] = unhex(&self.sig).ok_or("the event sig is not 64 bytes of lower-case hex")?;
        let key = XOnlyPublicKey::from_byte_array(key).map_err(|_| "the event pubkey is not on the curve")?;
        schnorr::verify(&schnorr::Signature::from_byte_array(sig), &expected, &key)
            .map_err(|_| "the event signature is invalid".into())
    }

    /// The first value of the first tag with this name.
    pub fn tag(&self, name: &str) -> Option<&str> {
        let named = self.tags.iter().find(|tag| tag.len() > 1 && tag[0] == name);
        named.map(|tag| tag[1].as_str())
    }

    /// The first value of every tag with this name, in order.
    pub fn tags_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.tags
            .iter()
            .filter(move |tag| tag.first().is_some_and(|n| n == name))
            .filter_map(|tag| Some(tag.get(1)?.as_str()))
    }
}

/// The id of NIP-01: SHA-256 of `[0,pubkey,created_at,kind,tags,content]` in its canonical JSON form.
pub fn event_id(pubkey: &str, created_at: u64, kind: u64, tags: &[Vec<String>], content: &str) -> [u8; 32] {
    let mut text = String::with_capacity(content.len() + 256);
    text.push_str("[0,");
    quote(&mut text, pubkey);
    text.push_str(&format!(",{created_at},{kind},["));
    for (index, tag) in tags.iter().enumerate() {
        text.push_str(if index == 0 { "[" } else { ",[" });
        for (index, value) in tag.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            quote(&mut text, value);
        }
        text.push(']');
    }
    text.push_str("],");
    quote(&mut text, content);
    text.push(']');
    Sha256::digest(text.as_bytes()).into()
}

/// Seven short escapes, `\u00xx` for the other C0 controls, everything else verbatim (NIP-01).
fn quote(out: &mut String, value: &str) {
    out.push('"');
    for c in value.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A secret key of a test or of the relay's seeded authors. It has no `Debug`.
#[derive(Clone)]
pub struct Key(Keypair);

impl Key {
    /// A fresh random key.
    pub fn random() -> Key {
        loop {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).expect("the system has randomness");
            if let Some(key) = Key::from_bytes(bytes) {
                return key;
            }
        }
    }

    /// The key with these 32 bytes; `None` for zero and for values past the curve order.
    pub fn from_bytes(bytes: [u8; 32]) -> Option<Key> {
        SecretKey::from_secret_bytes(bytes).ok().map(|secret| Key(Keypair::from_secret_key(&secret)))
    }

    /// The secret in lower-case hex, for a child's environment.
    pub fn secret_hex(&self) -> String {
        hex(&self.0.to_secret_bytes())
    }

    /// The public key in lower-case hex.
    pub fn public_hex(&self) -> String {
        hex(&self.0.x_only_public_key().0.to_byte_array())
    }

    /// Signs a template.
    pub fn sign(&self, template: Template) -> Event {
        let Template { kind, created_at, tags, content } = template;
        let pubkey = self.public_hex();
        let id = event_id(&pubkey, created_at, kind, &tags, &content);
        let mut aux = [0; 32];
        getrandom::fill(&mut aux).expect("the system has randomness");
        let sig = hex(&schnorr::sign_with_aux_rand(&id, &self.0, &aux).to_byte_array());
        Event { id: hex(&id), pubkey, created_at, kind, tags, content, sig }
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [DIGITS[usize::from(b >> 4)] as char, DIGITS[usize::from(b & 15)] as char])
        .collect()
}

/// Bytes from lower-case hex of exactly this length.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

/// Lower-case hex SHA-256.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Event, Key, Template, event_id, hex};

    /// The expected value was computed apart from this code, by Python's hashlib over the text of NIP-01.
    #[test]
    fn the_id_is_the_hash_of_nip_01s_form() {
        let tags = [vec!["e".to_owned(), "x".to_owned()], vec!["t".to_owned(), "a\0b".to_owned()]];
        let content = "Zürich 🦀\n\"\\\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}\u{2028}<&/>";
        let id = event_id(&"a".repeat(64), 1_700_000_000, 1, &tags, content);
        assert_eq!(hex(&id), "2cd5ea964d7298e52be322e7a61e385af46a4b3a137e556684223d78cc486f5b");
    }

    #[test]
    fn only_a_whole_and_true_event_is_read() {
        let template = Template { kind: 1, created_at: 7, tags: vec![], content: "x".into() };
        let event = Key::random().sign(template);
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(Event::parse(&text).unwrap().verify(), Ok(()));
        let values = serde_json::json!([event.id, event.pubkey, 7, 1, [], "x", event.sig]).to_string();
        let more = text.replacen('{', "{\"more\":1,", 1);
        let twice = text.replacen('{', "{\"kind\":1,", 1);
        for bad in [values, more, twice, text.replace("\"kind\":1,", ""), String::new()] {
            assert!(Event::parse(&bad).is_err(), "{bad}");
        }
    }
}
