//! The relay's tool table, reduced to what this server exposes.
//!
//! It is fetched when a host lists the tools, kept for the life of the process, and fetched anew after
//! the relay did not know a tool. Whatever the relay lists, only names of the policy are ever read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use tinyagent_protocol::catalog::Tool;
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::MAX_CURSOR_BYTES;
use tinyagent_protocol::policy::shown;

use crate::bridge::Bridge;
use crate::failure::Failure;
use crate::relay::headers::{self, HeaderParameter};
use crate::result::clean;

/// How long a load may take, whatever it consists of (contract 2).
const LOAD_LIMIT: Duration = Duration::from_secs(8);

/// The most pages that are followed (contract 2).
const MAX_PAGES: usize = 50;

/// The largest definition of one tool, in bytes: 35 of them fit a line of 8 MiB.
const MAX_DEFINITION_BYTES: usize = 192 << 10;

/// What a tool without a usable schema takes.
const ANY_OBJECT: &str = "{\"type\":\"object\"}";

/// One tool as hosts see it.
struct Entry {
    json: String,
    headers: Vec<HeaderParameter>,
}

type Entries = HashMap<&'static str, Option<Entry>>;

/// The table and when it is wanted.
pub struct Table {
    bridge: Rc<Bridge>,
    entries: RefCell<Option<Entries>>,
    /// A load failed or the table proved stale: fetch it after the next call that the relay answers.
    wanted: Cell<bool>,
    loading: Mutex<()>,
}

impl Table {
    /// A table that is not loaded.
    pub fn new(bridge: Rc<Bridge>) -> Self {
        Self { bridge, entries: RefCell::default(), wanted: Cell::new(false), loading: Mutex::new(()) }
    }

    /// Whether the next answered call should be followed by a load.
    pub fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// The headers that a tool's schema is known to ask for.
    pub fn headers_of(&self, tool: &'static Tool) -> Vec<HeaderParameter> {
        let entries = self.entries.borrow();
        let entry = entries.as_ref().and_then(|entries| entries.get(tool.name)?.as_ref());
        entry.map(|entry| entry.headers.clone()).unwrap_or_default()
    }

    /// Fetches the table anew, for at most as long as the call that needs it may still take.
    pub async fn refresh(&self, deadline: Instant) {
        self.mark_stale();
        self.load(deadline.min(Instant::now() + LOAD_LIMIT)).await;
    }

    /// Notes that the relay did not know a tool of this table.
    pub fn mark_stale(&self) {
        self.wanted.set(true);
    }

    /// Loads the table if it is not there or proved stale. A failure goes to stderr.
    pub async fn ensure(&self) {
        self.load(Instant::now() + LOAD_LIMIT).await;
    }

    async fn load(&self, deadline: Instant) {
        let began = Instant::now();
        let load = async {
            let _one_at_a_time = self.loading.lock().await;
            if self.entries.borrow().is_some() && !self.wanted.get() {
                return Ok(());
            }
            let entries = self.fetch(deadline).await?;
            self.entries.replace(Some(entries));
            self.wanted.set(false);
            Ok(())
        };
        let late = || Failure::not_sent(format!("no answer within {} s", began.elapsed().as_secs()));
        let loaded: Result<(), Failure> = timeout_at(deadline, load).await.unwrap_or_else(|_| Err(late()));
        if let Err(failure) = loaded {
            self.wanted.set(true);
            warn!("the relay's tools cannot be listed: {failure}");
        }
    }

    /// The `tools` of a tools/list answer, with tiny_diagnose last.
    pub fn listing(&self) -> String {
        let mut listing = String::from("{\"tools\":[");
        if let Some(entries) = &*self.entries.borrow() {
            for tool in self.bridge.policy.exposed() {
                if let Some(Some(entry)) = entries.get(tool.name) {
                    listing.push_str(&entry.json);
                    listing.push(',');
                }
            }
        }
        listing.push_str(crate::diagnose::TOOL);
        listing.push_str("]}");
        listing
    }

    async fn fetch(&self, deadline: Instant) -> Result<Entries, Failure> {
        let mut entries = Entries::new();
        let mut cursors: Vec<String> = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = self.bridge.list(cursors.last().map(String::as_str), deadline).await?;
            let page = page.bytes();
            let invalid = |why: &str| Failure::not_sent(format!("invalid tool table: {why}"));
            let (json, _) = Json::check(&page).map_err(|error| invalid(&error.to_string()))?;
            let tools = json
                .get("tools")
                .filter(|tools| tools.is_array())
                .ok_or_else(|| invalid("no list of tools"))?;
            for tool in tools.elements() {
                self.take(&mut entries, tool);
            }
            match json.get("nextCursor").and_then(Json::as_exact_str) {
                Some(cursor) if cursor.len() > MAX_CURSOR_BYTES => {
                    warn!(
                        "the relay's table goes on behind a cursor of {} bytes: not followed",
                        cursor.len()
                    );
                    break;
                }
                Some(cursor) if !cursors.iter().any(|seen| *seen == cursor) => {
                    cursors.push(cursor.into_owned())
                }
                _ => break,
            }
        }
        Ok(entries)
    }

    /// Takes one entry of the relay's table if it is an exposed tool, and the first of its name.
    fn take(&self, entries: &mut Entries, json: Json<'_>) {
        let name = json.get("name").and_then(Json::as_exact_str);
        let Some(tool) = name.and_then(|name| self.bridge.policy.exposed_tool(&name)) else { return };
        if !entries.contains_key(tool.name) {
            entries.insert(tool.name, Entry::read(tool, json));
        }
    }
}

impl Entry {
    fn read(tool: &Tool, json: Json<'_>) -> Option<Self> {
        let schema = json.get("inputSchema").filter(|schema| schema.is_object());
        let headers = match schema.map(headers::parameters).transpose() {
            Ok(headers) => headers.unwrap_or_default(),
            Err(fault) => {
                warn!("tool {} is left out: {fault}", tool.name);
                return None;
            }
        };
        let mut entry = format!("{{\"name\":\"{}\"", tool.name);
        for key in ["title", "description"] {
            if let Some(text) = json.get(key).filter(|text| text.is_string()) {
                entry.push_str(&format!(",\"{key}\":{}", clean(text.text())));
            }
        }
        let schema = match schema.filter(|schema| is_object_schema(*schema)) {
            Some(schema) if schema.get("type").is_none() => clean(&with_type(schema)),
            Some(schema) => clean(schema.text()),
            None => ANY_OBJECT.into(),
        };
        entry.push_str(&format!(",\"inputSchema\":{schema}"));
        if let Some(annotations) = json.get("annotations").filter(|annotations| are_annotations(*annotations))
        {
            entry.push_str(&format!(",\"annotations\":{}", clean(annotations.text())));
        }
        entry.push('}');
        if entry.len() > MAX_DEFINITION_BYTES {
            warn!("tool {} is left out: its definition has {} bytes", shown(tool.name), entry.len());
            return None;
        }
        Some(Self { json: entry, headers })
    }
}

/// Whether hosts take this for the schema of an object; one that they do not costs them the whole table.
fn is_object_schema(schema: Json<'_>) -> bool {
    schema.get("type").is_none_or(|kind| kind.as_exact_str().as_deref() == Some("object"))
        && schema.get("properties").is_none_or(|properties| {
            let is_schema = |property: Json<'_>| property.is_object() || property.as_bool().is_some();
            properties.is_object() && properties.members().all(|(_, property)| is_schema(property))
        })
        && schema
            .get("required")
            .is_none_or(|required| required.is_array() && required.elements().all(Json::is_string))
}

/// Whether hosts take these for annotations: a title and hints that say yes or no (MCP, `ToolAnnotations`).
fn are_annotations(annotations: Json<'_>) -> bool {
    annotations.is_object()
        && annotations.members().all(|(key, value)| match &*key {
            "title" => value.is_string(),
            "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint" => {
                value.as_bool().is_some()
            }
            _ => true,
        })
}

/// The schema with `"type":"object"` in front: hosts refuse a whole table for one schema without it.
fn with_type(schema: Json<'_>) -> String {
    let comma = if schema.members().next().is_some() { "," } else { "" };
    format!("{{\"type\":\"object\"{comma}{}", &schema.text()[1..])
}
