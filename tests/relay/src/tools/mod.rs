//! The tool table and how a call is executed: arguments checked, a read answered from the store, a write
//! answered with the unsigned event or, when it brings the signed one, published.

mod files;
mod input;
mod jobs;
mod management;
mod publish;
mod repositories;
mod requests;
mod rooms;
mod tags;
mod wiki;

use crate::access::{Access, Role};
use crate::event::Template;
use crate::relay::Options;
use crate::server::State;
use crate::store::Store;
use input::{Arguments, Input};
use serde_json::{Value, json};

/// A tool of the relay.
pub(crate) struct Tool {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub access: ToolAccess,
    pub inputs: &'static [Input],
    pub run: fn(&mut Call) -> Result<Outcome, String>,
}

/// What a tool does to the relay.
#[derive(Clone, Copy)]
pub(crate) enum ToolAccess {
    Read,
    /// Publishes an event of one of these kinds that carries each of these tags.
    Publish {
        kinds: &'static [u64],
        tags: &'static [&'static str],
    },
    /// Changes the store without an event.
    Store,
    /// Manages the relay, as an owner or moderator.
    Manage,
}

/// One call of a tool.
pub(crate) struct Call<'a> {
    pub store: &'a mut Store,
    pub access: &'a mut Access,
    pub caller: &'a str,
    pub arguments: Arguments,
    pub url: &'a str,
    pub now: u64,
    /// Whether an event must fit the tool; not in hostile mode, whose own templates would not.
    pub strict: bool,
}

/// What a tool comes to.
pub(crate) enum Outcome {
    /// Structured content; its JSON text is the text block too.
    Data(Value),
    /// Content blocks of its own beside structured content.
    Blocks(Vec<Value>, Value),
    /// The unsigned event.
    Draft(Template),
}

/// The tools that the relay has, in the order of its table.
fn catalog() -> impl Iterator<Item = &'static Tool> {
    let subjects: [&'static [Tool]; 7] = [
        repositories::TOOLS,
        files::TOOLS,
        rooms::TOOLS,
        wiki::TOOLS,
        jobs::TOOLS,
        requests::TOOLS,
        management::TOOLS,
    ];
    subjects.into_iter().flatten()
}

/// What `tools/list` serves and which names `tools/call` knows.
pub(crate) struct Table {
    listed: Vec<Value>,
    page_size: usize,
    extra: Vec<String>,
    without: Vec<String>,
}

impl Table {
    pub fn new(options: &Options) -> Table {
        let mut listed: Vec<Value> = catalog()
            .filter(|tool| !options.without_tools.iter().any(|name| name == tool.name))
            .map(Tool::entry)
            .collect();
        listed.extend(options.extra_tools.iter().cloned());
        let name = |entry: &Value| Some(entry.get("name")?.as_str()?.to_owned());
        Table {
            listed,
            page_size: options.page_size.unwrap_or(usize::MAX).max(1),
            extra: options.extra_tools.iter().filter_map(name).collect(),
            without: options.without_tools.clone(),
        }
    }

    pub fn set_listed(&mut self, entries: Vec<Value>) {
        self.listed = entries;
    }

    /// One page, and the cursor of the next one; `None` for a cursor that was never given out.
    pub fn page(&self, cursor: Option<&str>) -> Option<(&[Value], Option<String>)> {
        let start = match cursor {
            None => 0,
            Some(cursor) => {
                cursor.strip_prefix("after-")?.parse().ok().filter(|at| *at < self.listed.len())?
            }
        };
        let end = start.saturating_add(self.page_size).min(self.listed.len());
        Some((&self.listed[start..end], (end < self.listed.len()).then(|| format!("after-{end}"))))
    }

    /// The input schema that is listed for a tool.
    pub fn listed_schema(&self, name: &str) -> Option<&Value> {
        self.listed
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?
            .get("inputSchema")
    }

    fn find(&self, name: &str) -> Option<Known> {
        if self.without.iter().any(|absent| absent == name) {
            return None;
        }
        let own = catalog().find(|tool| tool.name == name).map(Known::Own);
        own.or_else(|| self.extra.iter().any(|extra| extra == name).then_some(Known::Extra))
    }
}

enum Known {
    Own(&'static Tool),
    Extra,
}

impl Tool {
    fn entry(&self) -> Value {
        let writes = matches!(self.access, ToolAccess::Publish { .. });
        let annotations = match self.access {
            ToolAccess::Read => json!({"readOnlyHint": true, "openWorldHint": false}),
            ToolAccess::Manage => {
                json!({"readOnlyHint": false, "destructiveHint": true, "openWorldHint": false})
            }
            _ => json!({"readOnlyHint": false, "destructiveHint": false, "openWorldHint": false}),
        };
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.about,
            "inputSchema": input::schema(self.inputs, writes),
            "annotations": annotations,
        })
    }
}

/// Executes a `tools/call`: the result object as JSON text; `None` for an unknown tool.
pub(crate) fn call(
    state: &mut State,
    caller: &str,
    name: &str,
    arguments: &str,
    url: &str,
    now: u64,
) -> Option<String> {
    let known = state.table.find(name)?;
    let (outcome, published) = match known {
        Known::Extra => {
            let echo = serde_json::from_str(arguments).unwrap_or(Value::Null);
            (Ok(Outcome::Data(json!({"arguments": echo}))), false)
        }
        Known::Own(tool) => run(state, tool, caller, arguments, url, now),
    };
    if outcome.is_ok() {
        let counter = if published { format!("{name}+event") } else { name.to_owned() };
        *state.executed.entry(counter).or_default() += 1;
    }
    Some(result_text(name, outcome))
}

fn run(
    state: &mut State,
    tool: &Tool,
    caller: &str,
    arguments: &str,
    url: &str,
    now: u64,
) -> (Result<Outcome, String>, bool) {
    if let Err(refusal) = state.access.may_read(caller) {
        return (Err(refusal), false);
    }
    let manages = matches!(state.access.role(caller), Some(Role::Owner | Role::Moderator));
    if matches!(tool.access, ToolAccess::Manage) && !manages {
        return (Err("restricted: only the owner and moderators may manage this relay".into()), false);
    }
    let publishes = matches!(tool.access, ToolAccess::Publish { .. });
    let arguments = match Arguments::read(arguments, tool.inputs, publishes) {
        Ok(arguments) => arguments,
        Err(refusal) => return (Err(refusal), false),
    };
    let (published, strict) = (arguments.event.is_some(), state.hostile.is_none());
    let mut call =
        Call { store: &mut state.store, access: &mut state.access, caller, arguments, url, now, strict };
    let outcome = match tool.access {
        ToolAccess::Publish { kinds, tags } if published => {
            publish::accept(&mut call, tool.name, kinds, tags)
        }
        _ => (tool.run)(&mut call),
    };
    let outcome = match (outcome, &mut state.hostile) {
        (Ok(Outcome::Draft(template)), Some(hostile)) => {
            Ok(Outcome::Draft(hostile.alter(tool.name, template)))
        }
        (outcome, _) => outcome,
    };
    (outcome, published)
}

/// The result object of a call.
fn result_text(name: &str, outcome: Result<Outcome, String>) -> String {
    let text_block = |text: String| vec![json!({"type": "text", "text": text})];
    let (content, data, is_error) = match outcome {
        Ok(Outcome::Data(data)) => (text_block(data.to_string()), Some(data), false),
        Ok(Outcome::Blocks(content, data)) => (content, Some(data), false),
        Ok(Outcome::Draft(template)) => {
            let next =
                format!("Sign the unsigned event and call {name} again with the signed event as `event`.");
            let data = json!({"unsigned": template, "next": next});
            (text_block(data.to_string()), Some(data), false)
        }
        Err(message) => (text_block(message.clone()), Some(json!({"message": message})), true),
    };
    let mut result = json!({
        "resultType": "complete",
        "content": content,
        "isError": is_error,
        "_meta": {"io.modelcontextprotocol/serverInfo": server_info()},
    });
    if let Some(data) = data {
        result["structuredContent"] = data;
    }
    result.to_string()
}

/// How the relay names itself.
pub(crate) fn server_info() -> Value {
    json!({"name": "tinyrelay", "version": env!("CARGO_PKG_VERSION")})
}
