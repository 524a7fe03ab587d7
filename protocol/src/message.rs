//! The messages between facade and signer (design 3): everything that may ever be asked of the key.
//!
//! A request is an object with one key, which names it: `{"call_tool":{"id":1,…}}`. Requests are read
//! strictly: exact keys, each once, none unknown. There is no request to sign bytes or a hash.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::event::{SignedEvent, needs_escape, push_string};
use crate::json::{Json, JsonError};
use crate::policy::{PolicyDescription, Refusal, Rule};
use crate::report::Measure;
use crate::template::Template;

/// The longest cursor, in bytes (design 3).
pub const MAX_CURSOR_BYTES: usize = 4 << 10;

/// The most rooms or kinds of one `browse_grant`; more than a diagnosis has a use for.
pub const MAX_QUERY_ITEMS: usize = 1024;

/// Why a frame is no request. It ends the connection, so the text is for a log.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It is not an object with one known key.
    #[error("not a known request")]
    Unknown,
    /// A field is missing, repeated, unknown, of the wrong type or too large.
    #[error("{0}: bad field {1}")]
    Field(&'static str, String),
}

/// The host's arguments: the checked text of one JSON object, exactly as the host wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'a>(Json<'a>);

impl<'a> Arguments<'a> {
    /// What an absent `arguments` means.
    pub const NONE: &'static str = "{}";

    /// The value if it is an object.
    pub fn new(json: Json<'a>) -> Option<Self> {
        json.is_object().then_some(Self(json))
    }

    /// The object's text, from `{` to `}`.
    pub fn text(self) -> &'a str {
        self.0.text()
    }

    /// The object as JSON.
    pub fn json(self) -> Json<'a> {
        self.0
    }

    /// Whether it has no member.
    pub fn is_empty(self) -> bool {
        self.0.members().next().is_none()
    }

    /// Whether a top-level key is `event` without regard to case. Go's decoder matches keys so, and
    /// no letter of the word has a fold outside ASCII.
    pub fn name_an_event(self) -> bool {
        self.0.members().any(|(key, _)| key.eq_ignore_ascii_case("event"))
    }
}

/// `narrow {tools, allow_writes}`: allow less from now on, once a connection.
#[derive(Debug)]
pub struct Narrow<'a> {
    /// The tools that remain.
    pub tools: Vec<Cow<'a, str>>,
    /// Whether write tools may remain.
    pub allow_writes: bool,
}

/// `list_tools {id, cursor?}`: a proof for a page of the relay's table.
#[derive(Debug)]
pub struct ListTools<'a> {
    /// The JSON-RPC id of the relay's request.
    pub id: u64,
    /// The page, as the relay named it.
    pub cursor: Option<Cow<'a, str>>,
}

/// `call_tool {id, tool, arguments}`: a proof for a call.
#[derive(Debug)]
pub struct CallTool<'a> {
    /// The JSON-RPC id of the relay's request.
    pub id: u64,
    /// The tool's name.
    pub tool: Cow<'a, str>,
    /// The host's arguments.
    pub arguments: Arguments<'a>,
}

/// `publish {id, tool, arguments, template}`: the template signed, and a proof for its submission.
#[derive(Debug)]
pub struct Publish<'a> {
    /// The JSON-RPC id of the relay's request.
    pub id: u64,
    /// The tool's name.
    pub tool: Cow<'a, str>,
    /// The host's arguments.
    pub arguments: Arguments<'a>,
    /// What the relay returned for signing.
    pub template: Template,
}

/// `browse_grant {rooms?, kinds?}`: a proof for the NIP-86 call of the diagnosis.
#[derive(Debug)]
pub struct BrowseGrant<'a> {
    /// Rooms to judge the grant against.
    pub rooms: Option<Vec<Cow<'a, str>>>,
    /// Kinds to judge the grant against.
    pub kinds: Option<Vec<u64>>,
}

/// Everything that may be asked of the signer.
#[derive(Debug)]
pub enum Request<'a> {
    /// `describe {}`: who are you, what may you sign, how are you protected? Repeatable; answered by a
    /// [`Description`].
    Describe,
    /// See [`Narrow`].
    Narrow(Narrow<'a>),
    /// See [`ListTools`].
    ListTools(ListTools<'a>),
    /// See [`CallTool`].
    CallTool(CallTool<'a>),
    /// See [`Publish`].
    Publish(Publish<'a>),
    /// See [`BrowseGrant`].
    BrowseGrant(BrowseGrant<'a>),
}

/// A request with the name of the client it is made for, which only labels records.
#[derive(Debug)]
pub struct Message<'a> {
    /// What is asked.
    pub request: Request<'a>,
    /// The client's own name for itself; the signer normalises it.
    pub client: Option<Cow<'a, str>>,
}

impl<'a> Message<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// [`Malformed`]; nothing that follows on the connection is to be read.
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let (json, _) = Json::check(frame)?;
        let mut members = json.members();
        let (Some((name, value)), None) = (members.next(), members.next()) else {
            return Err(Malformed::Unknown);
        };
        let names: (&'static str, &[&'static str]) = match &*name {
            "describe" => ("describe", &[]),
            "narrow" => ("narrow", &["tools", "allow_writes"]),
            "list_tools" => ("list_tools", &["id", "cursor"]),
            "call_tool" => ("call_tool", &["id", "tool", "arguments"]),
            "publish" => ("publish", &["id", "tool", "arguments", "template"]),
            "browse_grant" => ("browse_grant", &["rooms", "kinds"]),
            _ => return Err(Malformed::Unknown),
        };
        let fields = Fields::read(names.0, names.1, value)?;
        let request = match names.0 {
            "describe" => Request::Describe,
            "narrow" => Request::Narrow(Narrow {
                tools: fields.need("tools", |v| strings(v, usize::MAX))?,
                allow_writes: fields.need("allow_writes", Json::as_bool)?,
            }),
            "list_tools" => Request::ListTools(ListTools {
                id: fields.need("id", Json::as_u64)?,
                cursor: fields.may("cursor", |v| v.as_exact_str().filter(|c| c.len() <= MAX_CURSOR_BYTES))?,
            }),
            "call_tool" => Request::CallTool(CallTool {
                id: fields.need("id", Json::as_u64)?,
                tool: fields.need("tool", Json::as_exact_str)?,
                arguments: fields.need("arguments", Arguments::new)?,
            }),
            "publish" => Request::Publish(Publish {
                id: fields.need("id", Json::as_u64)?,
                tool: fields.need("tool", Json::as_exact_str)?,
                arguments: fields.need("arguments", Arguments::new)?,
                template: fields.need("template", Template::from_wire)?,
            }),
            _ => Request::BrowseGrant(BrowseGrant {
                rooms: fields.may("rooms", |v| strings(v, MAX_QUERY_ITEMS))?,
                kinds: fields.may("kinds", |v| kinds(v, MAX_QUERY_ITEMS))?,
            }),
        };
        Ok(Self { request, client: fields.may("client", Json::as_exact_str)? })
    }

    /// The frame's JSON in three pieces, the middle one being the arguments uncopied.
    pub fn pieces(&self) -> (String, &'a str, String) {
        let mut head = String::with_capacity(160);
        let mut tail = String::from("}}");
        let mut arguments = "";
        match &self.request {
            Request::Describe => self.open(&mut head, "describe"),
            Request::Narrow(narrow) => {
                self.open(&mut head, "narrow");
                head.push_str("\"tools\":");
                push_strings(&mut head, &narrow.tools);
                head.push_str(&format!(",\"allow_writes\":{}", narrow.allow_writes));
            }
            Request::ListTools(list) => {
                self.open(&mut head, "list_tools");
                head.push_str(&format!("\"id\":{}", list.id));
                if let Some(cursor) = &list.cursor {
                    head.push_str(",\"cursor\":");
                    push_string(&mut head, cursor);
                }
            }
            Request::CallTool(call) => {
                self.open(&mut head, "call_tool");
                push_call(&mut head, call.id, &call.tool);
                arguments = call.arguments.text();
            }
            Request::Publish(publish) => {
                self.open(&mut head, "publish");
                push_call(&mut head, publish.id, &publish.tool);
                arguments = publish.arguments.text();
                tail = String::from(",\"template\":");
                publish.template.push_json(&mut tail);
                tail.push_str("}}");
            }
            Request::BrowseGrant(query) => {
                self.open(&mut head, "browse_grant");
                if let Some(rooms) = &query.rooms {
                    head.push_str("\"rooms\":");
                    push_strings(&mut head, rooms);
                }
                if let Some(kinds) = &query.kinds {
                    let kinds: Vec<String> = kinds.iter().map(u64::to_string).collect();
                    head.push_str(if query.rooms.is_some() { ",\"kinds\":[" } else { "\"kinds\":[" });
                    head.push_str(&kinds.join(","));
                    head.push(']');
                }
            }
        }
        if head.ends_with(',') {
            head.pop();
        }
        (head, arguments, tail)
    }

    fn open(&self, head: &mut String, name: &str) {
        head.extend(["{\"", name, "\":{"]);
        if let Some(client) = &self.client {
            head.push_str("\"client\":");
            push_string(head, client);
            head.push(',');
        }
    }
}

fn push_call(head: &mut String, id: u64, tool: &str) {
    head.extend(["\"id\":", &id.to_string(), ",\"tool\":"]);
    push_string(head, tool);
    head.push_str(",\"arguments\":");
}

fn push_strings(out: &mut String, items: &[Cow<'_, str>]) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_string(out, item);
    }
    out.push(']');
}

/// The fields of one request, each once and none unknown.
struct Fields<'a> {
    request: &'static str,
    values: Vec<(&'static str, Json<'a>)>,
}

impl<'a> Fields<'a> {
    fn read(request: &'static str, names: &[&'static str], value: Json<'a>) -> Result<Self, Malformed> {
        let fault = |field: &str| Malformed::Field(request, crate::policy::shown(field));
        if !value.is_object() {
            return Err(fault("itself"));
        }
        let mut values: Vec<(&'static str, Json<'a>)> = Vec::with_capacity(names.len() + 1);
        for (key, value) in value.members() {
            let name =
                names.iter().chain(&["client"]).find(|name| **name == key).ok_or_else(|| fault(&key))?;
            if values.iter().any(|(seen, _)| seen == name) {
                return Err(fault(name));
            }
            values.push((name, value));
        }
        Ok(Self { request, values })
    }

    fn may<T>(&self, name: &str, read: impl FnOnce(Json<'a>) -> Option<T>) -> Result<Option<T>, Malformed> {
        match self.values.iter().find(|(n, _)| *n == name) {
            Some((_, value)) => match read(*value) {
                Some(read) => Ok(Some(read)),
                None => Err(Malformed::Field(self.request, name.into())),
            },
            None => Ok(None),
        }
    }

    fn need<T>(&self, name: &str, read: impl FnOnce(Json<'a>) -> Option<T>) -> Result<T, Malformed> {
        self.may(name, read)?.ok_or_else(|| Malformed::Field(self.request, name.into()))
    }
}

fn strings(json: Json<'_>, most: usize) -> Option<Vec<Cow<'_, str>>> {
    let items: Option<Vec<_>> =
        json.elements().take(most.saturating_add(1)).map(Json::as_exact_str).collect();
    items.filter(|items| json.is_array() && items.len() <= most)
}

fn kinds(json: Json<'_>, most: usize) -> Option<Vec<u64>> {
    let items: Option<Vec<_>> = json.elements().take(most + 1).map(Json::as_u64).collect();
    items.filter(|items| json.is_array() && items.len() <= most)
}

/// What the signer says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The signer's version; bodies are built alike only by equal versions.
    pub version: String,
    /// The agent's public key, 64 hex digits.
    pub pubkey: String,
    /// What this connection may have signed.
    pub policy: PolicyDescription,
    /// Signed events a minute.
    pub max_events_per_minute: u32,
    /// Its hardening, measure by measure.
    pub hardening: Vec<Measure>,
}

/// The signer's answers, each an object whose one key names it.
#[derive(Debug)]
pub enum Answer {
    /// To `describe` and `narrow`.
    Description(Box<Description>),
    /// To `describe`: the signer cannot start, for this reason.
    Failed {
        /// What is wrong and what to do.
        message: String,
    },
    /// To `list_tools`, `call_tool` and `browse_grant`.
    Proof {
        /// The `Authorization` header's value.
        authorization: String,
    },
    /// To `publish`.
    Published {
        /// The signed event.
        event: Box<SignedEvent>,
        /// The `Authorization` header's value of its submission.
        authorization: String,
    },
    /// To anything that the policy does not allow.
    Refused(Refusal),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WireAnswer<'a> {
    Description(Box<Description>),
    Failed {
        message: String,
    },
    Proof {
        authorization: String,
    },
    Published {
        #[serde(borrow)]
        event: Cow<'a, RawValue>,
        authorization: String,
    },
    Refused {
        rule: String,
        message: String,
    },
}

/// An answer that is none of the known ones.
#[derive(Debug, Error)]
#[error("the signer's answer cannot be read: {0}")]
pub struct BadAnswer(String);

impl Answer {
    /// The frame's JSON.
    pub fn to_json(&self) -> String {
        let text = match self {
            Answer::Description(description) => serde_json::to_string(description)
                .map(|description| format!("{{\"description\":{description}}}")),
            Answer::Failed { message } => {
                serde_json::to_string(&WireAnswer::Failed { message: message.clone() })
            }
            Answer::Proof { authorization } => Ok([PROOF_HEAD, authorization, PROOF_TAIL].concat()),
            Answer::Published { event, authorization } => Ok(format!(
                "{{\"published\":{{\"event\":{},\"authorization\":\"{authorization}\"}}}}",
                event.to_json()
            )),
            Answer::Refused(refusal) => serde_json::to_string(&WireAnswer::Refused {
                rule: refusal.rule.tag().into(),
                message: refusal.message.clone(),
            }),
        };
        // Strings and numbers alone are serialised, which cannot fail; an empty frame would end the
        // connection, which is the safe way to be wrong.
        text.unwrap_or_default()
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`BadAnswer`].
    pub fn parse(frame: &[u8]) -> Result<Self, BadAnswer> {
        let bad = |why: &dyn std::fmt::Display| BadAnswer(why.to_string());
        // What every call waits for, without what the rare answers need.
        if let Some(authorization) = proof_answer(frame) {
            return Ok(Answer::Proof { authorization });
        }
        Ok(match serde_json::from_slice(frame).map_err(|e| bad(&e))? {
            WireAnswer::Description(description) => Answer::Description(description),
            WireAnswer::Failed { message } => Answer::Failed { message },
            WireAnswer::Proof { authorization } => Answer::Proof { authorization },
            WireAnswer::Published { event, authorization } => {
                let (json, _) = Json::check(event.get().as_bytes()).map_err(|e| bad(&e))?;
                let event = SignedEvent::parse(json).ok_or_else(|| bad(&"not an event"))?;
                Answer::Published { event: Box::new(event), authorization }
            }
            WireAnswer::Refused { rule, message } => {
                let rule = Rule::from_tag(&rule).ok_or_else(|| bad(&"an unknown rule"))?;
                Answer::Refused(Refusal { rule, message })
            }
        })
    }
}

const PROOF_HEAD: &str = r#"{"proof":{"authorization":""#;
const PROOF_TAIL: &str = r#""}}"#;

/// The authorization of a frame that is a proof, written as [`Answer::to_json`] writes it.
fn proof_answer(frame: &[u8]) -> Option<String> {
    let inner = frame.strip_prefix(PROOF_HEAD.as_bytes())?.strip_suffix(PROOF_TAIL.as_bytes())?;
    let inner = std::str::from_utf8(inner).ok()?;
    (!needs_escape(inner)).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests;
