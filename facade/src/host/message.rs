//! One line of the host as a JSON-RPC 2.0 message (contract 2).

use std::borrow::Cow;

use tinyagent_protocol::json::{Fields, Json};

use super::separators::escaped;

/// The longest id that is echoed, in bytes. Hosts use numbers and short strings.
const MAX_ID_BYTES: usize = 64 << 10;

/// JSON-RPC: the line is not one JSON object.
pub const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the object is not a request.
pub const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: no such method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: the parameters are not the method's.
pub const INVALID_PARAMS: i32 = -32602;
/// JSON-RPC: the request is valid and is not carried out.
pub const INTERNAL_ERROR: i32 = -32603;

/// A request's id as the host wrote it, a string or a number, so that it is echoed digit by digit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(String);

impl Id {
    /// The id if the value may be one.
    pub fn new(json: Json<'_>) -> Option<Self> {
        let text = json.text();
        let valid = json.is_number() || json.as_exact_str().is_some();
        (valid && text.len() <= MAX_ID_BYTES).then(|| Self(escaped(text).into_owned()))
    }

    /// The id as JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A request's parameters, in which no key is repeated.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// The parameters, of any type.
    pub json: Json<'a>,
    /// `name` of tools/call.
    pub name: Option<Json<'a>>,
    /// `arguments` of tools/call.
    pub arguments: Option<Json<'a>>,
    /// `_meta` of any request.
    pub meta: Option<Json<'a>>,
}

/// A message that the host sent.
#[derive(Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// Its id.
        id: Id,
        /// The method's name.
        method: Cow<'a, str>,
        /// The parameters, of any type.
        params: Option<Params<'a>>,
    },
    /// Wants none.
    Notification {
        /// The method's name.
        method: Cow<'a, str>,
        /// The parameters, of any type.
        params: Option<Json<'a>>,
    },
    /// An answer to a request that we never send.
    Response,
    /// Gets an error.
    Invalid {
        /// The request's id where it has a valid one.
        id: Option<Id>,
        /// The JSON-RPC error code.
        code: i32,
        /// The JSON-RPC error message.
        message: String,
    },
}

impl<'a> Message<'a> {
    /// Reads one line without its line end.
    pub fn parse(line: &'a [u8]) -> Self {
        let json = match Json::check(line) {
            Ok((json, _)) if json.is_object() => json,
            Ok((json, _)) if json.is_array() => {
                return invalid(
                    None,
                    PARSE_ERROR,
                    "Parse error: batches are not supported; send one message a line",
                );
            }
            Ok(_) => return invalid(None, PARSE_ERROR, "Parse error: a message is one JSON object"),
            Err(error) => return invalid(None, PARSE_ERROR, format!("Parse error: {error}")),
        };
        let Fields { values: [id, version, method, params], repeated } =
            json.fields(["id", "jsonrpc", "method", "params"]);
        if method.is_none() && json.members().any(|(key, _)| key == "result" || key == "error") {
            return Message::Response;
        }
        let raw_id = id.filter(|_| repeated.as_deref() != Some("id"));
        let id = raw_id.and_then(Id::new);
        if let Some(key) = repeated {
            let key = tinyagent_protocol::policy::shown(&key);
            return invalid(id, INVALID_REQUEST, format!("Invalid Request: the key \"{key}\" is repeated"));
        }
        if raw_id.is_some() && id.is_none() {
            return invalid(None, INVALID_REQUEST, "Invalid Request: id must be a string or a number");
        }
        if version.and_then(Json::as_str).as_deref() != Some("2.0") {
            return invalid(id, INVALID_REQUEST, "Invalid Request: jsonrpc must be \"2.0\"");
        }
        let Some(method) = method.and_then(Json::as_str) else {
            return invalid(id, INVALID_REQUEST, "Invalid Request: method must be a string");
        };
        let Some(id) = id else { return Message::Notification { method, params } };
        let Some(json) = params else { return Message::Request { id, method, params: None } };
        let Fields { values: [name, arguments, meta], repeated } =
            json.fields(["name", "arguments", "_meta"]);
        if let Some(key) = repeated {
            let key = tinyagent_protocol::policy::shown(&key);
            return invalid(
                Some(id),
                INVALID_REQUEST,
                format!("Invalid Request: the key \"{key}\" is repeated in params"),
            );
        }
        Message::Request { id, method, params: Some(Params { json, name, arguments, meta }) }
    }
}

fn invalid<'a>(id: Option<Id>, code: i32, message: impl Into<String>) -> Message<'a> {
    Message::Invalid { id, code, message: message.into() }
}
