//! The unsigned event that a relay returns for signing (contract 5).
//!
//! Recognition is lenient about extra keys, which a relay may add, and strict about the four that are
//! signed. Between the two processes only the strict form travels.

use crate::event::{PublicKey, UnsignedEvent, push_string, push_tags, tags};
use crate::json::Json;

/// The largest template text, in bytes (contract 5).
pub const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// An unsigned event without an author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The kind.
    pub kind: u64,
    /// The tags.
    pub tags: Vec<Vec<String>>,
    /// The content.
    pub content: String,
    /// Seconds since 1970; the signer's clock fills an absent one.
    pub created_at: Option<u64>,
}

/// What a relay's `structuredContent.unsigned` turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recognized {
    /// No template; the result passes unchanged.
    Other,
    /// A template that cannot be signed as written: repeated keys, half characters, numbers or a text
    /// too large.
    Unsignable,
    /// A template.
    Template(Template),
}

impl Template {
    /// Reads the value at `structuredContent.unsigned` of a successful result.
    pub fn recognize(unsigned: Json<'_>) -> Recognized {
        if !unsigned.is_object() {
            return Recognized::Other;
        }
        let is_signed = |key: &str| matches!(key, "kind" | "tags" | "content" | "created_at");
        let repeated = unsigned.repeated_key();
        if repeated.as_deref().is_some_and(is_signed) {
            return Recognized::Unsignable;
        }
        let (kind, all_tags, content) = (unsigned.get("kind"), unsigned.get("tags"), unsigned.get("content"));
        let (Some(kind), Some(all_tags), Some(content)) = (kind, all_tags, content) else {
            return Recognized::Other;
        };
        let created_at = unsigned.get("created_at");
        let has_shape = kind.is_digits()
            && is_tag_list(all_tags)
            && content.is_string()
            && created_at.is_none_or(|at| at.is_digits());
        if !has_shape {
            return Recognized::Other;
        }
        let signable = || {
            if repeated.is_some() || unsigned.text().len() > MAX_TEMPLATE_BYTES {
                return None;
            }
            let created_at = match created_at {
                Some(at) => Some(at.as_u64()?),
                None => None,
            };
            let content = content.as_exact_str()?.into_owned();
            Some(Self { kind: kind.as_u64()?, tags: tags(all_tags)?, content, created_at })
        };
        signable().map_or(Recognized::Unsignable, Recognized::Template)
    }

    /// Reads the strict form of the wire: the four keys, each once, `created_at` optional, nothing else.
    pub fn from_wire(json: Json<'_>) -> Option<Self> {
        let known = |key: &str| matches!(key, "kind" | "tags" | "content" | "created_at");
        if !json.is_object() || !json.members().all(|(key, _)| known(&key)) {
            return None;
        }
        match Self::recognize(json) {
            Recognized::Template(template) => Some(template),
            _ => None,
        }
    }

    /// Appends the strict form of the wire.
    pub fn push_json(&self, out: &mut String) {
        out.push_str(&format!("{{\"kind\":{},\"tags\":", self.kind));
        push_tags(out, &self.tags);
        out.push_str(",\"content\":");
        push_string(out, &self.content);
        if let Some(at) = self.created_at {
            out.push_str(&format!(",\"created_at\":{at}"));
        }
        out.push('}');
    }

    /// The event to sign: as written, an absent time filled with `now`.
    pub fn event(&self, pubkey: PublicKey, now: u64) -> UnsignedEvent {
        UnsignedEvent {
            pubkey,
            created_at: self.created_at.unwrap_or(now),
            kind: self.kind,
            tags: self.tags.clone(),
            content: self.content.clone(),
        }
    }

    /// Whether a tag of this name is present.
    pub fn has_tag(&self, name: &str) -> bool {
        self.tags.iter().any(|tag| tag.first().is_some_and(|first| first == name))
    }
}

/// The shape of a tag list, whether or not its strings are whole characters.
fn is_tag_list(json: Json<'_>) -> bool {
    let mut tags = json.elements();
    json.is_array()
        && tags.all(|tag| {
            tag.is_array() && tag.elements().next().is_some() && tag.elements().all(Json::is_string)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recognize(text: &str) -> Recognized {
        Template::recognize(Json::check(text.as_bytes()).expect("valid JSON").0)
    }

    #[test]
    fn takes_the_four_signed_keys_and_ignores_the_rest() {
        let text = r#"{"id":"x","pubkey":"y","kind":9,"tags":[["h","general"]],"content":"\u00e9\/","created_at":5,"sig":1}"#;
        let Recognized::Template(template) = recognize(text) else { panic!("not recognised") };
        assert_eq!(template.content, "é/");
        assert_eq!(template.created_at, Some(5));
        let mut wire = String::new();
        template.push_json(&mut wire);
        let (json, _) = Json::check(wire.as_bytes()).expect("valid");
        assert_eq!(Template::from_wire(json), Some(template));
    }

    #[test]
    fn what_is_no_template_passes_and_what_is_a_broken_one_does_not() {
        for other in [
            "null",
            "[]",
            "{}",
            r#"{"kind":"9","tags":[],"content":""}"#,
            r#"{"kind":9.0,"tags":[],"content":""}"#,
            r#"{"kind":-1,"tags":[],"content":""}"#,
            r#"{"kind":9,"tags":{},"content":""}"#,
            r#"{"kind":9,"tags":[[]],"content":""}"#,
            r#"{"kind":9,"tags":[["a",1]],"content":""}"#,
            r#"{"kind":9,"tags":[],"content":null}"#,
            r#"{"kind":9,"tags":[],"content":"","created_at":null}"#,
            r#"{"kind":9,"tags":[],"content":"","created_at":-5}"#,
            r#"{"Kind":9,"tags":[],"content":""}"#,
        ] {
            assert_eq!(recognize(other), Recognized::Other, "{other}");
        }
        for broken in [
            r#"{"kind":9,"kind":1,"tags":[],"content":""}"#,
            r#"{"kind":"x","kin\u0064":9,"tags":[],"content":""}"#,
            r#"{"kind":9,"tags":[],"content":"","x":1,"x":2}"#,
            r#"{"kind":9,"tags":[],"content":"\ud800"}"#,
            r#"{"kind":9,"tags":[["h","\udc00"]],"content":""}"#,
            r#"{"kind":99999999999999999999,"tags":[],"content":""}"#,
            r#"{"kind":9,"tags":[],"content":"","created_at":99999999999999999999}"#,
        ] {
            assert_eq!(recognize(broken), Recognized::Unsignable, "{broken}");
        }
        let large = format!(r#"{{"kind":9,"tags":[],"content":"{}"}}"#, "x".repeat(MAX_TEMPLATE_BYTES));
        assert_eq!(recognize(&large), Recognized::Unsignable);
    }

    #[test]
    fn the_wire_form_has_no_fifth_key() {
        let json = |text: &'static str| Json::check(text.as_bytes()).expect("valid").0;
        assert!(Template::from_wire(json(r#"{"kind":9,"tags":[],"content":""}"#)).is_some());
        assert!(Template::from_wire(json(r#"{"kind":9,"tags":[],"content":"","id":"x"}"#)).is_none());
        assert!(Template::from_wire(json(r#"[9,[],"",5]"#)).is_none());
    }
}
