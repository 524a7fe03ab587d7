//! What may be signed: one sealed policy, and pure functions that judge each request against it.
//!
//! An [`Approved`] value can be made here alone, and relay bodies and events can be built from
//! nothing else, so the compiler proves that nothing is signed unjudged. No keys, no clock, no state.

use std::borrow::Cow;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bind;
use crate::catalog::{self, AUTHORIZATION_KINDS, Access, CATALOG, GRANT_TAG, REQUEST_TAG, Tool};
use crate::message::{Arguments, BrowseGrant, CallTool, ListTools, Publish};
use crate::relay_url::RelayUrl;
use crate::template::Template;

/// Events a minute where nothing else is said: the relay's own ceiling (design 7).
pub const DEFAULT_EVENTS_PER_MINUTE: u32 = 600;

/// Why a policy cannot be made; the texts are contract 1's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// A name outside the catalog.
    #[error("unknown tool \"{0}\" in --tools")]
    UnknownTool(String),
    /// A write tool without `--allow-writes`.
    #[error("tool {0} publishes events; add --allow-writes to expose it")]
    WriteTool(&'static str),
    /// An empty list.
    #[error("--tools names no tool")]
    NoTool,
}

/// The stable name of the rule that refused a request; THREAT_MODEL.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The tool is not in the exposed set.
    ToolNotExposed,
    /// The tool publishes, and the policy has no writes.
    WritesNotAllowed,
    /// The arguments of a write tool carry an event of their own.
    EventArgument,
    /// The template's kind is not one that the tool publishes.
    KindNotExpected,
    /// The template's kind is an authorization.
    AuthorizationKind,
    /// A `grant` tag from a tool other than request_grant.
    GrantTag,
    /// A `request` tag from a tool other than request_decision.
    RequestTag,
    /// The template does not say what the arguments ask for (`--bind-arguments`).
    ArgumentsMismatch,
    /// Too many events a minute.
    Rate,
    /// Too many proofs a minute.
    ProofRate,
    /// The audit record could not be written.
    AuditLog,
    /// A second narrowing of one connection.
    NarrowTwice,
    /// A narrowing that would allow more.
    NarrowWidens,
    /// A narrowing of a signer that has one client alone.
    NarrowNotOffered,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Rule; 14] = [
        Rule::ToolNotExposed,
        Rule::WritesNotAllowed,
        Rule::EventArgument,
        Rule::KindNotExpected,
        Rule::AuthorizationKind,
        Rule::GrantTag,
        Rule::RequestTag,
        Rule::ArgumentsMismatch,
        Rule::Rate,
        Rule::ProofRate,
        Rule::AuditLog,
        Rule::NarrowTwice,
        Rule::NarrowWidens,
        Rule::NarrowNotOffered,
    ];

    /// The tag as it stands in answers, logs and documents.
    pub fn tag(self) -> &'static str {
        match self {
            Rule::ToolNotExposed => "tool-not-exposed",
            Rule::WritesNotAllowed => "writes-not-allowed",
            Rule::EventArgument => "event-argument",
            Rule::KindNotExpected => "kind-not-expected",
            Rule::AuthorizationKind => "authorization-kind",
            Rule::GrantTag => "grant-tag",
            Rule::RequestTag => "request-tag",
            Rule::ArgumentsMismatch => "arguments-mismatch",
            Rule::Rate => "rate",
            Rule::ProofRate => "proof-rate",
            Rule::AuditLog => "audit-log",
            Rule::NarrowTwice => "narrow-twice",
            Rule::NarrowWidens => "narrow-widens",
            Rule::NarrowNotOffered => "narrow-not-offered",
        }
    }

    /// The rule of this tag.
    pub fn from_tag(tag: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.tag() == tag)
    }

    /// Whether the refusal speaks of the relay's template, in contract 5's words, so that the host
    /// also sees what the relay returned.
    pub fn concerns_template(self) -> bool {
        matches!(self, Rule::KindNotExpected | Rule::AuthorizationKind | Rule::GrantTag | Rule::RequestTag)
    }
}

/// A request that is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Refusal {
    /// The rule that refused it.
    pub rule: Rule,
    /// What was refused and what to do, for the person who reads it. Never any content.
    pub message: String,
}

impl Refusal {
    /// A refusal under a rule.
    pub fn new(rule: Rule, message: impl Into<String>) -> Self {
        Self { rule, message: message.into() }
    }
}

/// What a signer may sign. Made once, from the command line; it can only ever be narrowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    relay: RelayUrl,
    exposed: Vec<&'static Tool>,
    allow_writes: bool,
    bind_arguments: bool,
}

/// A policy as it is shown and sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDescription {
    /// The relay's base URL.
    pub relay: String,
    /// Whether write tools may be exposed.
    pub allow_writes: bool,
    /// Whether a template must say what the arguments ask for.
    pub bind_arguments: bool,
    /// The exposed tools in their order.
    pub tools: Vec<ToolDescription>,
}

/// One exposed tool of a [`PolicyDescription`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDescription {
    /// Its name.
    pub name: String,
    /// The kinds that are signed for it.
    pub kinds: Vec<u64>,
}

/// A request that the policy allows. Only [`Policy`] makes one.
#[derive(Debug)]
pub struct Approved<T>(T);

impl<T> Deref for Approved<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// An approved listing of the tool table.
#[derive(Debug)]
pub struct Listing<'a> {
    /// The JSON-RPC id of the relay's request.
    pub id: u64,
    /// The page, as the relay named it.
    pub cursor: Option<Cow<'a, str>>,
}

/// An approved call.
#[derive(Debug)]
pub struct Call<'a> {
    /// The JSON-RPC id of the relay's request.
    pub id: u64,
    /// The exposed tool.
    pub tool: &'static Tool,
    /// The host's arguments.
    pub arguments: Arguments<'a>,
}

/// An approved publication: a template that may be signed, and the call that submits it.
#[derive(Debug)]
pub struct Publication<'a> {
    /// The call to repeat with the event.
    pub call: Call<'a>,
    /// What may be signed.
    pub template: Template,
}

/// An approved look at the key's own grant.
#[derive(Debug)]
pub struct GrantQuery<'a> {
    /// Rooms to judge the grant against.
    pub rooms: Option<Vec<Cow<'a, str>>>,
    /// Kinds to judge the grant against.
    pub kinds: Option<Vec<u64>>,
}

impl Policy {
    /// A policy of the default read tools (and with `allow_writes` the write tools), or of exactly
    /// the names in `tools`, comma-separated, in their order.
    ///
    /// # Errors
    /// [`PolicyError`] with contract 1's texts.
    pub fn new(relay: RelayUrl, tools: Option<&str>, allow_writes: bool) -> Result<Self, PolicyError> {
        let exposed = match tools {
            None => CATALOG.iter().filter(|t| allow_writes || t.access == Access::Read).collect(),
            Some(list) => named_tools(list, allow_writes)?,
        };
        Ok(Self { relay, exposed, allow_writes, bind_arguments: false })
    }

    /// This policy where, with `bind`, a template must also say what the arguments ask for ([`bind`]).
    pub fn binding_arguments(self, bind: bool) -> Self {
        Self { bind_arguments: bind, ..self }
    }

    /// The relay that every proof is bound to.
    pub fn relay(&self) -> &RelayUrl {
        &self.relay
    }

    /// The exposed tools in their order.
    pub fn exposed(&self) -> &[&'static Tool] {
        &self.exposed
    }

    /// Whether write tools may be exposed.
    pub fn allow_writes(&self) -> bool {
        self.allow_writes
    }

    /// Whether a template must also say what the arguments ask for.
    pub fn binds_arguments(&self) -> bool {
        self.bind_arguments
    }

    /// The exposed tool of this name, matched exactly.
    pub fn exposed_tool(&self, name: &str) -> Option<&'static Tool> {
        self.exposed.iter().find(|tool| tool.name == name).copied()
    }

    /// The policy as it is shown and sent.
    pub fn describe(&self) -> PolicyDescription {
        let tool =
            |tool: &&'static Tool| ToolDescription { name: tool.name.into(), kinds: tool.kinds.to_vec() };
        PolicyDescription {
            relay: self.relay.as_str().into(),
            allow_writes: self.allow_writes,
            bind_arguments: self.bind_arguments,
            tools: self.exposed.iter().map(tool).collect(),
        }
    }

    /// This policy with only `tools` left, and without writes unless `allow_writes`.
    ///
    /// # Errors
    /// [`Rule::NarrowWidens`] where that would allow anything that this policy does not.
    pub fn narrowed(&self, tools: &[Cow<'_, str>], allow_writes: bool) -> Result<Self, Refusal> {
        if allow_writes && !self.allow_writes {
            return Err(Refusal::new(Rule::NarrowWidens, "this signer was started without --allow-writes"));
        }
        let mut exposed = Vec::with_capacity(tools.len());
        for name in tools {
            let tool = self.exposed_tool(name).ok_or_else(|| {
                Refusal::new(
                    Rule::NarrowWidens,
                    format!("tool {} is not exposed by this signer", shown(name)),
                )
            })?;
            if tool.access == Access::Write && !allow_writes {
                let message =
                    format!("tool {} publishes events; narrow with allow_writes to keep it", tool.name);
                return Err(Refusal::new(Rule::NarrowWidens, message));
            }
            exposed.push(tool);
        }
        Ok(Self { relay: self.relay.clone(), exposed, allow_writes, bind_arguments: self.bind_arguments })
    }

    /// Approves a listing: the table is public to the key, and only names of the catalog are used.
    pub fn judge_listing<'a>(&self, request: ListTools<'a>) -> Approved<Listing<'a>> {
        Approved(Listing { id: request.id, cursor: request.cursor })
    }

    /// Judges a call.
    ///
    /// # Errors
    /// [`Rule::ToolNotExposed`], [`Rule::WritesNotAllowed`], [`Rule::EventArgument`].
    pub fn judge_call<'a>(&self, request: CallTool<'a>) -> Result<Approved<Call<'a>>, Refusal> {
        self.call(request.id, &request.tool, request.arguments).map(Approved)
    }

    /// Judges the publication of a template at the time `now`, in seconds since 1970.
    ///
    /// # Errors
    /// Those of [`Policy::judge_call`], then [`Rule::AuthorizationKind`], [`Rule::KindNotExpected`],
    /// [`Rule::GrantTag`], [`Rule::RequestTag`], and where arguments are bound [`Rule::ArgumentsMismatch`].
    pub fn judge_publication<'a>(
        &self,
        request: Publish<'a>,
        now: u64,
    ) -> Result<Approved<Publication<'a>>, Refusal> {
        let call = self.call(request.id, &request.tool, request.arguments)?;
        let template = request.template;
        judge_template(call.tool, &template)?;
        if self.bind_arguments {
            bind::judge(call.tool, call.arguments, &template, now).map_err(|mismatch| {
                Refusal::new(Rule::ArgumentsMismatch, format!("{mismatch}; nothing was signed"))
            })?;
        }
        Ok(Approved(Publication { call, template }))
    }

    /// Approves a look at the key's own grant: it changes nothing and reveals nothing of others.
    pub fn judge_grant_query<'a>(&self, request: BrowseGrant<'a>) -> Approved<GrantQuery<'a>> {
        Approved(GrantQuery { rooms: request.rooms, kinds: request.kinds })
    }

    fn call<'a>(&self, id: u64, name: &str, arguments: Arguments<'a>) -> Result<Call<'a>, Refusal> {
        let tool = match catalog::tool(name) {
            Some(tool) if tool.access == Access::Write && !self.allow_writes => {
                let message =
                    format!("tool {name} publishes events and the signer was started without --allow-writes");
                return Err(Refusal::new(Rule::WritesNotAllowed, message));
            }
            _ => self.exposed_tool(name).ok_or_else(|| {
                Refusal::new(
                    Rule::ToolNotExposed,
                    format!("tool {} is not exposed by the signer's policy", shown(name)),
                )
            })?,
        };
        if tool.access == Access::Write && arguments.name_an_event() {
            let message = "the event argument is filled in by tinyagent; leave it out";
            return Err(Refusal::new(Rule::EventArgument, message));
        }
        Ok(Call { id, tool, arguments })
    }
}

/// Judges a template that a call of `tool` returned (contract 5).
fn judge_template(tool: &Tool, template: &Template) -> Result<(), Refusal> {
    let (kind, name) = (template.kind, tool.name);
    if AUTHORIZATION_KINDS.contains(&kind) {
        let message = format!("refused to sign a kind {kind} authorization event returned by {name}");
        return Err(Refusal::new(Rule::AuthorizationKind, message));
    }
    let unexpected = |rule| {
        let message = format!(
            "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {name}"
        );
        Err(Refusal::new(rule, message))
    };
    if !tool.kinds.contains(&kind) {
        return unexpected(Rule::KindNotExpected);
    }
    for ((tag, owner), rule) in [(GRANT_TAG, Rule::GrantTag), (REQUEST_TAG, Rule::RequestTag)] {
        if template.has_tag(tag) && name != owner {
            return unexpected(rule);
        }
    }
    Ok(())
}

fn named_tools(list: &str, allow_writes: bool) -> Result<Vec<&'static Tool>, PolicyError> {
    let mut exposed: Vec<&'static Tool> = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let tool = catalog::tool(name).ok_or_else(|| PolicyError::UnknownTool(shown(name)))?;
        if tool.access == Access::Write && !allow_writes {
            return Err(PolicyError::WriteTool(tool.name));
        }
        if !exposed.contains(&tool) {
            exposed.push(tool);
        }
    }
    if exposed.is_empty() { Err(PolicyError::NoTool) } else { Ok(exposed) }
}

/// A foreign name fit for one line of text: at most 64 characters, no control characters.
pub fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    if name.chars().nth(64).is_some() {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests;
