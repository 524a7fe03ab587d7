//! One JSON-RPC message out of a body, read the way the relay's own parser reads it: member names are matched
//! without regard to case and the last of two equal names counts. A look-alike or doubled key that a client
//! lets through therefore does here what it would do in the field. Values are kept as written, never re-encoded.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// The parts of a JSON-RPC message that the relay acts on.
#[derive(Clone, Debug)]
pub struct Rpc {
    /// The method.
    pub method: String,
    /// The id as written; `None` for a notification.
    pub id: Option<String>,
    /// `params.name` of a `tools/call`.
    pub tool: Option<String>,
    /// `params.cursor` of a `tools/list`.
    pub cursor: Option<String>,
    pub(crate) arguments: Option<Range<usize>>,
    pub(crate) meta: Option<Meta>,
}

/// The keys of `params._meta` that the protocol revision demands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meta {
    pub protocol_version: Option<String>,
    pub client_capabilities: bool,
}

/// Why a body is no message.
#[derive(Clone, Debug)]
pub(crate) enum Malformed {
    /// Not JSON: -32700.
    NotJson(String),
    /// JSON, but not one JSON-RPC request or notification: -32600, with the id where it is valid.
    NotAMessage { id: Option<String>, why: &'static str },
}

/// Reads a body.
pub(crate) fn parse(body: &[u8]) -> Result<Rpc, Malformed> {
    let bad = |id: &Option<String>, why| Malformed::NotAMessage { id: id.clone(), why };
    let top: Members =
        serde_json::from_slice(body).map_err(|_| match serde_json::from_slice::<&RawValue>(body) {
            Ok(_) => bad(&None, "the body is not one JSON object"),
            Err(error) => Malformed::NotJson(error.to_string()),
        })?;
    let id = top.get("id").map(|raw| raw.get().to_owned());
    if id
        .as_ref()
        .is_some_and(|id| !id.starts_with(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']))
    {
        return Err(bad(&None, "the id is neither a string nor a number"));
    }
    if top.string("jsonrpc").as_deref() != Some("2.0") {
        return Err(bad(&id, "jsonrpc is not \"2.0\""));
    }
    let method = top.string("method").ok_or(bad(&id, "there is no method"))?;
    let params = match top.get("params") {
        None => Members::default(),
        Some(raw) if raw.get() == "null" => Members::default(),
        Some(raw) => Members::of(raw).ok_or(bad(&id, "params is not an object"))?,
    };
    let place = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - body.as_ptr() as usize;
        start..start + raw.get().len()
    };
    let meta = params.get("_meta").and_then(Members::of).map(|meta| Meta {
        protocol_version: meta.string("io.modelcontextprotocol/protocolVersion"),
        client_capabilities: meta
            .get("io.modelcontextprotocol/clientCapabilities")
            .is_some_and(|raw| raw.get().starts_with('{')),
    });
    Ok(Rpc {
        tool: params.string("name").filter(|_| method == "tools/call"),
        cursor: params.string("cursor"),
        arguments: params.get("arguments").map(place),
        meta,
        id,
        method,
    })
}

/// The members of one JSON object in order, values as written.
#[derive(Default)]
pub(crate) struct Members<'a>(pub Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    pub fn of(raw: &'a RawValue) -> Option<Members<'a>> {
        serde_json::from_str(raw.get()).ok()
    }

    /// The last member whose name is this one but for case.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(key, _)| same_name(key, name)).map(|(_, value)| *value)
    }

    fn string(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }
}

/// Whether two member names are one to a parser that folds case (including U+017F and U+212A).
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_lowercase().next().unwrap_or(c),
    };
    a == b || a.chars().map(fold).eq(b.chars().map(fold))
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<String, &RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::{Malformed, parse};

    #[test]
    fn the_last_look_alike_counts_as_in_the_field() {
        let body = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}"#;
        assert_eq!(parse(body).unwrap().tool.as_deref(), Some("b"));
        let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"argument\u{17f}\":{\"x\":1}}}";
        let rpc = parse(body.as_bytes()).unwrap();
        assert_eq!(&body[rpc.arguments.unwrap()], "{\"x\":1}");
    }

    #[test]
    fn what_is_not_one_message_is_told_apart() {
        for body in ["", "{", "{}{}", "[1,", "\u{1}"] {
            assert!(matches!(parse(body.as_bytes()), Err(Malformed::NotJson(_))), "{body}");
        }
        for body in [
            "[]",
            "5",
            "{}",
            r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,
            r#"{"jsonrpc":"1.0","method":"x"}"#,
        ] {
            assert!(matches!(parse(body.as_bytes()), Err(Malformed::NotAMessage { .. })), "{body}");
        }
    }
}
