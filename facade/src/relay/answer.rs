//! What the relay's HTTP answer to a JSON-RPC request means (contract 4).
//!
//! A result is given only where the whole chain holds: status, one JSON object, the id that was sent,
//! exactly one of result and error. Everything else is one of the contract's failures.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{DATE, HeaderMap, LOCATION, RETRY_AFTER};
use tinyagent_protocol::body::RELAY_PROTOCOL_VERSION;
use tinyagent_protocol::json::{Fields, Json, Traits};

use super::client::HttpAnswer;
use crate::failure::{Failure, one_line};
use crate::result::RESULT_KEYS;

/// The longest wait that a `Retry-After` is believed to mean.
const SANE_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A relay's result object: checked JSON in a buffer of its own.
#[derive(Debug)]
pub struct RelayResult {
    /// The whole answer.
    body: Bytes,
    /// Where in it the result stands.
    range: Range<usize>,
    /// Where in it the values of [`RESULT_KEYS`] stand.
    fields: [Option<Range<usize>>; RESULT_KEYS.len()],
    /// What the scan of the whole answer noticed.
    pub traits: Traits,
}

impl RelayResult {
    /// The result.
    pub fn json(&self) -> Json<'_> {
        self.part(&self.range)
    }

    /// The result's values of [`RESULT_KEYS`].
    pub fn fields(&self) -> [Option<Json<'_>>; RESULT_KEYS.len()] {
        self.fields.each_ref().map(|range| range.as_ref().map(|range| self.part(range)))
    }

    /// The result's `structuredContent`, where it is an object.
    pub fn structured(&self) -> Option<Json<'_>> {
        let [_, structured, _] = &self.fields;
        structured.as_ref().map(|range| self.part(range)).filter(|structured| structured.is_object())
    }

    fn part(&self, range: &Range<usize>) -> Json<'_> {
        // The whole answer was checked, so this is text, and a value of its own.
        Json::of_checked(std::str::from_utf8(&self.body[range.clone()]).unwrap_or("null"))
    }

    /// The result's text as a slice of the answer.
    pub fn bytes(&self) -> Bytes {
        self.body.slice(self.range.clone())
    }
}

/// An answer that is no result.
#[derive(Debug)]
pub struct Unanswered {
    /// What the host sees.
    pub failure: Failure,
    /// What it tells the bridge itself.
    pub hint: Hint,
}

/// What a failure tells the bridge besides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing.
    None,
    /// A header did not fit the tool (-32020): with a fresh table the call may be repeated.
    HeaderMismatch,
    /// Our revision is offered after all (-32022): the call may be repeated.
    VersionOffered,
    /// The relay does not know the tool: the table is stale.
    UnknownTool,
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self { failure, hint: Hint::None }
    }
}

/// A JSON-RPC error of the relay.
struct RpcError {
    code: i64,
    message: String,
    offers_our_version: bool,
}

/// Reads the answer to the request `id`.
///
/// # Errors
/// [`Unanswered`] for anything but a result.
pub fn read(answer: HttpAnswer, id: u64) -> Result<RelayResult, Unanswered> {
    let status = answer.status;
    if status == StatusCode::OK {
        return read_ok(answer, id);
    }
    let named = || format!("HTTP {}", shown_status(status));
    if status.is_redirection() {
        let target =
            answer.headers.get(LOCATION).map(|value| one_line(&String::from_utf8_lossy(value.as_bytes())));
        let target = target.map(|target| format!(" to {}", without_query(&target))).unwrap_or_default();
        let text = format!("{}{target}; redirects are not followed", named());
        // 303 alone says that the request was processed and its outcome stands elsewhere (RFC 9110, 15.4.4).
        let processed = status == StatusCode::SEE_OTHER;
        return Err(if processed { Failure::uncertain(text) } else { Failure::not_sent(text) }.into());
    }
    let error = read_error(&answer.body, id);
    let message = error.as_ref().map(|error| error.message.clone()).or_else(|| plain_message(&answer.body));
    Err(match status.as_u16() {
        401 | 403 => Failure::Permission(message.unwrap_or_else(named)).into(),
        429 => {
            let wait = wait(&answer.headers);
            let wait = wait.map(|wait| format!("; retry after {} s", wait.as_secs())).unwrap_or_default();
            Failure::Relay(format!("{}{wait}", message.unwrap_or_else(|| "rate limited".into()))).into()
        }
        500.. => {
            let message = error.map(|error| format!(": {}", error.message)).unwrap_or_default();
            Failure::uncertain(format!("{}{message}", named())).into()
        }
        200..=299 => Failure::uncertain(format!("{} instead of an answer", named())).into(),
        _ => match error {
            Some(error) => rpc_failure(error),
            None => Failure::not_sent(named()).into(),
        },
    })
}

fn read_ok(answer: HttpAnswer, id: u64) -> Result<RelayResult, Unanswered> {
    let invalid = |why: &str| Unanswered::from(Failure::uncertain(format!("invalid answer: {why}")));
    let body = answer.body;
    if body.is_empty() {
        return Err(invalid("HTTP 200 with an empty body"));
    }
    let (json, traits) = match Json::check(&body) {
        Ok(checked) => checked,
        Err(_) if looks_like_markup(&body) => return Err(invalid("HTTP 200 with a page instead of JSON")),
        Err(error) => return Err(invalid(&error.to_string())),
    };
    if !json.is_object() {
        return Err(invalid("not one JSON object"));
    }
    let Fields { values: [version, result, error, answered], repeated } =
        json.fields(["jsonrpc", "result", "error", "id"]);
    if repeated.is_some() {
        return Err(invalid("a key is repeated"));
    }
    if version.and_then(Json::as_str).as_deref() != Some("2.0") {
        return Err(invalid("not JSON-RPC 2.0"));
    }
    let ours = answered.is_some_and(|answered| answered.as_u64() == Some(id));
    match (result, error) {
        (Some(result), None) if ours => {
            if !result.is_object() {
                return Err(invalid("the result is no object"));
            }
            let [content, structured, is_error] = RESULT_KEYS;
            let Fields { values: [kind, fields @ ..], repeated } =
                result.fields(["resultType", content, structured, is_error]);
            if repeated.is_some() {
                return Err(invalid("a key of the result is repeated"));
            }
            // The revision's other types ask for something that no host of an earlier one can give.
            let kind = kind.filter(|kind| kind.as_str().as_deref() != Some("complete"));
            if let Some(kind) = kind {
                let kind = one_line(kind.text());
                let text =
                    format!("the answer is of the type {kind}, which this bridge does not take part in");
                return Err(Failure::uncertain(text).into());
            }
            let range = |json: Json<'_>| {
                let start = json.text().as_ptr() as usize - body.as_ptr() as usize;
                start..start + json.text().len()
            };
            let (range, fields) = (range(result), fields.map(|field| field.map(range)));
            Ok(RelayResult { range, fields, traits, body: body.clone() })
        }
        (None, Some(error)) if ours || answered.is_none_or(Json::is_null) => match rpc_error(error) {
            Some(error) => Err(rpc_failure(error)),
            None => Err(invalid("the error has no code and message")),
        },
        (Some(_), None) | (None, Some(_)) => Err(invalid("it answers another request")),
        _ => Err(invalid("it needs exactly one of result and error")),
    }
}

fn rpc_failure(error: RpcError) -> Unanswered {
    let hint = match error.code {
        -32020 => Hint::HeaderMismatch,
        -32022 if error.offers_our_version => Hint::VersionOffered,
        -32602 if says_unknown_tool(&error.message) => Hint::UnknownTool,
        _ => Hint::None,
    };
    Unanswered { failure: Failure::Relay(error.message), hint }
}

/// Whether an "invalid params" is about the tool's name; the code alone also stands for bad arguments.
fn says_unknown_tool(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    message.contains("tool")
        && ["unknown", "not found", "no such", "does not exist"].iter().any(|words| message.contains(words))
}

/// The JSON-RPC error in a refusal's body, for this request or without an id, as the relay's 401, 403 and
/// 413 are.
fn read_error(body: &[u8], id: u64) -> Option<RpcError> {
    let (json, _) = Json::check(body).ok()?;
    let other = json.get("id").is_some_and(|answered| !answered.is_null() && answered.as_u64() != Some(id));
    rpc_error(json.get("error").filter(|_| !other)?)
}

fn rpc_error(error: Json<'_>) -> Option<RpcError> {
    let code: i64 = error.get("code").filter(|code| code.is_number())?.text().parse().ok()?;
    let message = one_line(&error.get("message")?.as_str()?);
    let supported = error.get("data").and_then(|data| data.get("supported"));
    let offers_our_version = supported.is_some_and(|versions| {
        versions.elements().any(|v| v.as_str().is_some_and(|v| v == RELAY_PROTOCOL_VERSION))
    });
    let message = if message.is_empty() { format!("error {code}") } else { message };
    Some(RpcError { code, message, offers_our_version })
}

/// A message outside JSON-RPC: `{"message"}`, `{"error"}`, or a short plain text.
fn plain_message(body: &[u8]) -> Option<String> {
    let text = match Json::check(body) {
        Ok((json, _)) => json.get("message").or_else(|| json.get("error"))?.as_str()?.into_owned(),
        Err(_) if looks_like_markup(body) => return None,
        Err(_) => std::str::from_utf8(body).ok()?.to_owned(),
    };
    Some(one_line(&text)).filter(|line| !line.is_empty())
}

fn looks_like_markup(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"<")
}

/// The wait that `Retry-After` names, in seconds or as a date by the relay's own clock; a senseless one is
/// not repeated.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let date = |name| text(name).and_then(|value| httpdate::parse_http_date(value).ok());
    let wait = match text(RETRY_AFTER)?.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(RETRY_AFTER)?.duration_since(date(DATE).unwrap_or_else(SystemTime::now)).ok()?,
    };
    (wait <= SANE_WAIT).then_some(wait)
}

/// A status with its name.
pub fn shown_status(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
}
