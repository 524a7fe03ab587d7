//! `POST <prefix>/mcp`: the checks in the order in which the relay makes them, and its error table.
//!
//! The order is method 405, Origin 403, body size 413, proof 401, Accept 406, Content-Type 415, message 400,
//! unknown method 404, then the mirrored headers and `_meta`. Errors before the message is read carry no id.

use crate::answer::Answer;
use crate::message::{Malformed, Rpc};
use crate::param_headers;
use crate::request::{Request, Unread};
use crate::server::{Server, lock};
use crate::tools;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The revision that the relay serves.
pub const PROTOCOL_VERSION: &str = "2026-07-28";

const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;
const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
/// The relay's own code for a request that is refused as HTTP.
const REFUSED: i64 = -32000;

/// How long a tool table may be kept, in milliseconds.
const TABLE_TTL_MS: u64 = 60_000;

/// An error that names no request.
fn refused(status: u16, message: &str) -> Answer {
    Answer::rpc_error(status, None, REFUSED, message, None)
}

/// The 401 of a missing or invalid token.
pub(crate) fn unauthorized(message: &str) -> Answer {
    refused(401, message).header("WWW-Authenticate", "Nostr realm=\"tiny\"")
}

/// Answers a request for `/mcp`.
pub(crate) fn answer(server: &Server, request: &Request) -> Answer {
    if request.method != "POST" {
        return refused(405, "only POST is served here").header("Allow", "POST");
    }
    let host = request.header("host").unwrap_or_default();
    let own_origin = format!("{}://{host}", server.scheme());
    if request.headers_named("origin").any(|origin| !origin.eq_ignore_ascii_case(&own_origin)) {
        return refused(403, "the Origin is another site");
    }
    if request.unread == Some(Unread::TooLarge) {
        return refused(413, "the body is larger than the relay accepts").header("Connection", "close");
    }
    let Some(proof) = &request.proof else {
        return unauthorized(request.proof_error.as_deref().unwrap_or("authorization required"));
    };
    let accepts = |value: &str| media_types(value).any(|kind| kind == "application/json");
    if !request.headers_named("accept").any(accepts) {
        return refused(406, "Accept must include application/json");
    }
    if request.header("content-type").and_then(|value| media_types(value).next()).as_deref()
        != Some("application/json")
    {
        return refused(415, "Content-Type must be application/json");
    }
    match (&request.rpc, &request.malformed) {
        (Some(rpc), _) => dispatch(server, request, rpc, &proof.pubkey),
        (None, Some(Malformed::NotAMessage { id, why })) => {
            Answer::rpc_error(400, Some(id.as_deref().unwrap_or("null")), INVALID_REQUEST, why, None)
        }
        (None, Some(Malformed::NotJson(why))) => {
            Answer::rpc_error(400, Some("null"), PARSE_ERROR, &format!("the body is not JSON: {why}"), None)
        }
        (None, None) => Answer::rpc_error(400, Some("null"), PARSE_ERROR, "there is no body", None),
    }
}

/// The media types of an `Accept` or `Content-Type` value, lower-cased and without parameters.
fn media_types(value: &str) -> impl Iterator<Item = String> + '_ {
    value.split(',').map(|part| part.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

fn dispatch(server: &Server, request: &Request, rpc: &Rpc, caller: &str) -> Answer {
    let Some(id) = rpc.id.as_deref() else {
        return match mirrored(request, rpc) {
            Err(why) => Answer::rpc_error(400, None, HEADER_MISMATCH, &why, None),
            Ok(()) => Answer::new(202),
        };
    };
    let error = |status, code, message: &str| Answer::rpc_error(status, Some(id), code, message, None);
    if !matches!(rpc.method.as_str(), "server/discover" | "tools/list" | "tools/call") {
        return error(404, METHOD_NOT_FOUND, &format!("Method not found: {}", rpc.method));
    }
    let version = request.header("mcp-protocol-version").unwrap_or_default();
    if let Err(why) = mirrored(request, rpc) {
        return error(400, HEADER_MISMATCH, &why);
    }
    if version != PROTOCOL_VERSION {
        let data = json!({"supported": [PROTOCOL_VERSION], "requested": version});
        let message = format!("protocol version {version} is not served here");
        return Answer::rpc_error(400, Some(id), UNSUPPORTED_VERSION, &message, Some(data));
    }
    if !rpc.meta.as_ref().is_some_and(|meta| meta.protocol_version.is_some() && meta.client_capabilities) {
        return error(
            400,
            INVALID_PARAMS,
            "params._meta must carry io.modelcontextprotocol/protocolVersion and /clientCapabilities",
        );
    }
    let success = |result: String| Answer::json_text(200, request.result_text(&result));
    match rpc.method.as_str() {
        "server/discover" => success(discovery().to_string()),
        "tools/list" => match list(server, rpc) {
            Some(result) => success(result.to_string()),
            None => error(400, INVALID_PARAMS, "the cursor was not given out by this relay"),
        },
        _ => call(server, request, rpc, caller).map_or_else(|(code, why)| error(400, code, &why), success),
    }
}

/// Checks that the headers say what the body says.
fn mirrored(request: &Request, rpc: &Rpc) -> Result<(), String> {
    let version = only_header(request, "MCP-Protocol-Version")?;
    let body_version = rpc.meta.as_ref().and_then(|meta| meta.protocol_version.as_deref());
    if body_version.is_some_and(|of_body| of_body != version) {
        return Err("MCP-Protocol-Version differs from params._meta".into());
    }
    if only_header(request, "Mcp-Method")? != rpc.method {
        return Err("Mcp-Method differs from method".into());
    }
    if rpc.method == "tools/call" {
        let name = decode_header(only_header(request, "Mcp-Name")?).ok_or("Mcp-Name cannot be decoded")?;
        if rpc.tool.as_ref().is_some_and(|tool| *tool != name) {
            return Err("Mcp-Name differs from params.name".into());
        }
    }
    Ok(())
}

fn only_header<'a>(request: &'a Request, name: &'a str) -> Result<&'a str, String> {
    let mut values = request.headers_named(name);
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(format!("{name} is missing")),
        _ => Err(format!("{name} is given more than once")),
    }
}

/// A header value that may be written as `=?base64?…?=`.
pub(crate) fn decode_header(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
    }
}

fn discovery() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [PROTOCOL_VERSION],
        "capabilities": {"tools": {}},
        "serverInfo": tools::server_info(),
        "ttlMs": TABLE_TTL_MS,
        "cacheScope": "private",
    })
}

fn list(server: &Server, rpc: &Rpc) -> Option<Value> {
    let state = lock(&server.state);
    let (entries, next) = state.table.page(rpc.cursor.as_deref())?;
    let mut result = json!({
        "resultType": "complete",
        "tools": entries,
        "ttlMs": TABLE_TTL_MS,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": tools::server_info()},
    });
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    Some(result)
}

fn call(server: &Server, request: &Request, rpc: &Rpc, caller: &str) -> Result<String, (i64, String)> {
    let invalid = |why: &str| (INVALID_PARAMS, why.to_owned());
    let name = rpc.tool.as_deref().ok_or(invalid("params.name is missing"))?;
    let arguments = request.arguments().unwrap_or("{}");
    let arguments = if arguments == "null" { "{}" } else { arguments };
    if !arguments.starts_with('{') {
        return Err(invalid("params.arguments is not an object"));
    }
    let mut state = lock(&server.state);
    if let Some(schema) = state.table.listed_schema(name) {
        param_headers::check(schema, arguments, request).map_err(|why| (HEADER_MISMATCH, why))?;
    }
    let host = request.header("host").unwrap_or_default();
    let url = format!("{}://{host}{}", server.scheme(), server.options.prefix);
    tools::call(&mut state, caller, name, arguments, &url, server.now())
        .ok_or_else(|| invalid(&format!("Unknown tool: {name}")))
}
