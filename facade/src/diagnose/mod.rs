//! `tiny_diagnose` and `tinyagent diagnose`: can the relay be reached, does it accept the key's
//! signature, and what does the key's grant allow (contract 7)?
//!
//! A diagnosis is a result whatever its verdict; only a bad argument is a tool error. It changes nothing.

mod probe;
mod report;
mod verdict;

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::MAX_QUERY_ITEMS;
use tinyagent_protocol::relay_url::RelayUrl;
use tinyagent_protocol::report::Measure;

pub use report::Report;
pub use verdict::Verdict;

use crate::bridge::Bridge;
use crate::result::HostResult;

/// The tool's name; a relay's tool of that name is never offered.
pub const TOOL_NAME: &str = "tiny_diagnose";

/// The tool as tools/list shows it.
pub const TOOL: &str = concat!(
    "{\"name\":\"tiny_diagnose\",\"title\":\"Diagnose relay access\",\"description\":\"Checks whether the relay ",
    "answers, whether it accepts this agent's signature, and what the agent's grant allows. Name rooms or kinds ",
    "to see which of them the grant lacks. Call it when another tool answers with permission:, transport: or ",
    "signer:.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{\"rooms\":{\"type\":\"array\",\"items\":",
    "{\"type\":\"string\",\"minLength\":1},\"description\":\"Room ids the agent needs\"},\"kinds\":{\"type\":\"array\",",
    "\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":65535},\"description\":\"Event kinds the agent needs\"}}},",
    "\"annotations\":{\"readOnlyHint\":true,\"openWorldHint\":true}}"
);

/// The largest kind that Nostr has.
pub const MAX_KIND: u64 = 65_535;

/// What a diagnosis is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Rooms that the agent needs.
    pub rooms: Option<Vec<String>>,
    /// Kinds that the agent needs.
    pub kinds: Option<Vec<u64>>,
}

/// A bad argument, by the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNeeds {
    /// `rooms` is not a list of room ids.
    #[error("rooms must be an array of non-empty strings, at most 1024")]
    Rooms,
    /// `kinds` is not a list of kinds.
    #[error("kinds must be an array of integers from 0 to 65535, at most 1024")]
    Kinds,
}

impl Needs {
    /// Reads the tool's arguments.
    ///
    /// # Errors
    /// [`BadNeeds`].
    pub fn read(arguments: Json<'_>) -> Result<Self, BadNeeds> {
        let list = |key: &str| arguments.get(key).filter(|value| !value.is_null());
        let rooms = match list("rooms") {
            None => None,
            Some(rooms) if !rooms.is_array() => return Err(BadNeeds::Rooms),
            Some(rooms) => {
                let rooms: Option<Vec<_>> =
                    rooms.elements().map(|r| r.as_exact_str().map(Cow::into_owned)).collect();
                Some(rooms.ok_or(BadNeeds::Rooms)?)
            }
        };
        let kinds = match list("kinds") {
            None => None,
            Some(kinds) if !kinds.is_array() => return Err(BadNeeds::Kinds),
            Some(kinds) => {
                Some(kinds.elements().map(Json::as_u64).collect::<Option<_>>().ok_or(BadNeeds::Kinds)?)
            }
        };
        Self { rooms, kinds }.checked()
    }

    /// Checks names and numbers.
    ///
    /// # Errors
    /// [`BadNeeds`].
    pub fn checked(self) -> Result<Self, BadNeeds> {
        let rooms = self.rooms.as_deref().unwrap_or_default();
        let kinds = self.kinds.as_deref().unwrap_or_default();
        if rooms.len() > MAX_QUERY_ITEMS || rooms.iter().any(|room| room.trim().is_empty()) {
            return Err(BadNeeds::Rooms);
        }
        if kinds.len() > MAX_QUERY_ITEMS || kinds.iter().any(|kind| *kind > MAX_KIND) {
            return Err(BadNeeds::Kinds);
        }
        Ok(self)
    }
}

/// What a diagnosis says besides what it finds out.
pub struct Diagnosis {
    /// The relay.
    pub relay: RelayUrl,
    /// The signer's hardening, as it described it.
    pub signer: Vec<Measure>,
    /// This process's own.
    pub facade: Vec<Measure>,
    /// The bound on each of its requests; on a probe no more than the contract's ten seconds.
    pub limit: Duration,
}

impl Diagnosis {
    /// Answers a call of the tool.
    pub async fn tool(&self, bridge: &Bridge, arguments: &Bytes) -> HostResult {
        let needs = if arguments.is_empty() {
            Ok(Needs::default())
        } else {
            Json::check(arguments).map_or(Ok(Needs::default()), |(json, _)| Needs::read(json))
        };
        match needs {
            Err(bad) => HostResult::error(bad.to_string()),
            Ok(needs) => {
                let report = self.report(bridge, needs).await;
                HostResult::report(report.summary(), report.to_json())
            }
        }
    }

    /// Makes the report.
    pub async fn report(&self, bridge: &Bridge, needs: Needs) -> Report {
        let reached = probe::reach(bridge, &self.relay, self.limit).await;
        let mut report = Report::new(self, bridge.pubkey, needs, reached.transport);
        let answer = if report.transport.ok {
            probe::browse_grant(bridge, report.needs.as_ref(), self.limit).await
        } else {
            Err(probe::NotAsked::Unreachable)
        };
        let date = probe::date(&answer).or(reached.date);
        report.clock_skew_seconds = date.and_then(probe::skew_seconds);
        verdict::judge(&mut report, answer);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_needs_and_names_the_bad_field() {
        let read = |text: &'static str| Needs::read(Json::check(text.as_bytes()).expect("valid").0);
        assert_eq!(read("{}"), Ok(Needs::default()));
        let both = Needs { rooms: Some(vec!["a".into()]), kinds: Some(vec![9, 65_535]) };
        assert_eq!(read(r#"{"rooms":["a"],"kinds":[9,65535]}"#), Ok(both));
        for rooms in [r#"{"rooms":"a"}"#, r#"{"rooms":[1]}"#, r#"{"rooms":[" "]}"#, r#"{"rooms":{}}"#] {
            assert_eq!(read(rooms), Err(BadNeeds::Rooms), "{rooms}");
        }
        for kinds in [
            r#"{"kinds":9}"#,
            r#"{"kinds":["9"]}"#,
            r#"{"kinds":[9.0]}"#,
            r#"{"kinds":[65536]}"#,
            r#"{"kinds":[-1]}"#,
        ] {
            assert_eq!(read(kinds), Err(BadNeeds::Kinds), "{kinds}");
        }
    }

    #[test]
    fn the_tool_is_one_line_of_json() {
        let (json, traits) = Json::check(TOOL.as_bytes()).expect("valid");
        assert_eq!(json.get("name").and_then(Json::as_str).as_deref(), Some(TOOL_NAME));
        assert_eq!(traits, Default::default());
    }
}
