//! The headers that mirror a request's body (MCP 2026-07-28, transport).

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tinyagent_protocol::json::Json;

/// The largest integer that a header may carry: what every JSON implementation reads exactly.
const SAFE_INTEGER: i64 = (1 << 53) - 1;

/// A value as a header carries it: as it is, or as `=?base64?…?=` where it is not plain ASCII.
pub fn encoded(value: &str) -> Cow<'_, str> {
    let plain = value.bytes().all(|b| (0x20..0x7f).contains(&b) || b == b'\t');
    let trimmed = value.trim_matches([' ', '\t']).len() == value.len();
    let looks_encoded = value.len() >= 11 && value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && trimmed && !looks_encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("=?base64?{}?=", STANDARD.encode(value)))
}

/// A header that a tool's schema asks to be filled from an argument (`x-mcp-header`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParameter {
    /// The header's name, `Mcp-Param-…`.
    pub header: String,
    /// The keys that lead to the argument.
    pub path: Vec<String>,
}

/// Why a tool's `x-mcp-header` annotations cannot be honoured, so that the tool is left out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// Not a header name.
    #[error("x-mcp-header is not a header name at {0}")]
    Name(String),
    /// The property is no string, integer or boolean.
    #[error("x-mcp-header stands at {0}, whose type is not string, integer or boolean")]
    Type(String),
    /// Two properties ask for one header.
    #[error("x-mcp-header {0} is used twice")]
    Repeated(String),
    /// It stands where no argument can be found by it.
    #[error("x-mcp-header stands outside of properties")]
    Place,
}

/// The headers that an input schema asks for, in its order.
///
/// # Errors
/// [`HeaderFault`] for the first annotation that the revision calls invalid.
pub fn parameters(schema: Json<'_>) -> Result<Vec<HeaderParameter>, HeaderFault> {
    let mut found = Vec::new();
    let mut pending = vec![(schema, Vec::new())];
    while let Some((schema, path)) = pending.pop() {
        for (key, value) in schema.members() {
            match &*key {
                "properties" if value.is_object() => {
                    for (name, property) in value.members() {
                        let path: Vec<String> = path.iter().cloned().chain([name.into_owned()]).collect();
                        if let Some(annotation) = property.get("x-mcp-header") {
                            found.push(parameter(annotation, property, &path)?);
                        }
                        pending.push((property, path));
                    }
                }
                "x-mcp-header" if path.is_empty() => return Err(HeaderFault::Place),
                "x-mcp-header" | "properties" => {}
                _ if mentions_annotation(value) => return Err(HeaderFault::Place),
                _ => {}
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    match found.iter().find(|p| !seen.insert(p.header.to_ascii_lowercase())) {
        Some(repeated) => Err(HeaderFault::Repeated(repeated.header.clone())),
        None => Ok(found),
    }
}

fn parameter(
    annotation: Json<'_>,
    property: Json<'_>,
    path: &[String],
) -> Result<HeaderParameter, HeaderFault> {
    let place = || tinyagent_protocol::policy::shown(&path.join("."));
    let name =
        annotation.as_exact_str().filter(|name| is_token(name)).ok_or_else(|| HeaderFault::Name(place()))?;
    let kind = property.get("type").and_then(Json::as_exact_str);
    if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
        return Err(HeaderFault::Type(place()));
    }
    Ok(HeaderParameter { header: format!("Mcp-Param-{name}"), path: path.to_vec() })
}

/// RFC 9110's token, at most 64 characters.
fn is_token(name: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(token)
}

/// Whether an annotation hides in a part of the schema that is not a plain property.
fn mentions_annotation(schema: Json<'_>) -> bool {
    let mut pending = vec![schema];
    while let Some(json) = pending.pop() {
        for (key, value) in json.members() {
            if key == "x-mcp-header" {
                return true;
            }
            pending.push(value);
        }
        pending.extend(json.elements());
    }
    false
}

impl HeaderParameter {
    /// The header's value for these arguments; none where the argument is absent, null, or not one of
    /// the header's types.
    pub fn value(&self, arguments: Json<'_>) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |json, key| json.get(key))?;
        if let Some(text) = value.as_str() {
            return Some(encoded(&text).into_owned());
        }
        if let Some(flag) = value.as_bool() {
            return Some(flag.to_string());
        }
        let integer: i64 = value.text().parse().ok()?;
        (integer.abs() <= SAFE_INTEGER).then(|| integer.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(text: &'static str) -> Result<Vec<HeaderParameter>, HeaderFault> {
        parameters(Json::check(text.as_bytes()).expect("valid").0)
    }

    #[test]
    fn encodes_what_a_header_cannot_carry() {
        assert_eq!(encoded("list_rooms"), "list_rooms");
        for other in ["é", " x", "x ", "a\nb", "=?base64?eA==?="] {
            assert!(encoded(other).starts_with("=?base64?") && encoded(other).len() > 11, "{other:?}");
        }
    }

    #[test]
    fn collects_annotations_along_properties_alone() {
        let found = schema(
            r#"{"type":"object","properties":{"room":{"type":"string","x-mcp-header":"Room"},
            "in":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}}}}"#,
        )
        .expect("valid");
        let (arguments, _) = Json::check(br#"{"room":"z\u00fc","in":{"n":-5}}"#).expect("valid");
        let values: Vec<_> = found.iter().map(|p| (p.header.as_str(), p.value(arguments))).collect();
        assert_eq!(values[0], ("Mcp-Param-Room", Some("=?base64?esO8?=".into())));
        assert_eq!(values[1], ("Mcp-Param-N", Some("-5".into())));
        let (none, _) = Json::check(br#"{"room":null,"in":{"n":9007199254740993}}"#).expect("valid");
        assert!(found.iter().all(|p| p.value(none).is_none()));
    }

    #[test]
    fn refuses_each_invalid_annotation() {
        for text in [
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":5}}}"#,
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            r#"{"x-mcp-header":"A"}"#,
            r#"{"properties":{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}}"#,
        ] {
            assert!(schema(text).is_err(), "{text}");
        }
        assert_eq!(schema(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#), Ok(vec![]));
    }
}
