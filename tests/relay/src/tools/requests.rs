//! Asking people: for a decision, and for more permissions.

use super::input::Form::{Choice, Hex, Integer, Object, Text, Words};
use super::input::{optional, required};
use super::tags::{Scope, comment_tags, draft, room, scope_of, tag, thread_root};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::access::GrantState;
use serde_json::{Value, json};

/// The kind of a grant.
const GRANT: u64 = 30392;
/// The fields that request_grant may change (relay document, Requesting grant access).
const CHANGES: &[&str] = &["kinds", "rooms", "repos", "sites", "wiki", "jobs", "rate"];

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "request_decision",
        title: "Request a decision",
        about: "Ask a person to approve, decide or answer with a kind 9 room message or a kind 1111 comment \
                carrying a `request` tag. Pass `room` with an optional `root` for a room message, or `root`, \
                `root_kind` and `root_pubkey` without `room` for a comment.",
        access: ToolAccess::Publish { kinds: &[9, 1111], tags: &["request", "p", "h"] },
        inputs: &[
            required("pubkey", Hex, "The person who is asked."),
            required("request", Choice(&["approve", "decide", "question"]), "What is asked for."),
            required("content", Text, "The question."),
            optional("room", Words(100), "Room in which to ask."),
            optional("root", Hex, "Thread in that room, or the event to comment on."),
            optional("root_kind", Integer(0, 65535), "Kind of the event to comment on."),
            optional("root_pubkey", Hex, "Author of the event to comment on."),
            optional("subject", Words(200), "Subject."),
            optional(
                "expiration",
                Integer(0, i64::MAX >> 10),
                "When the request lapses, in seconds since 1970.",
            ),
        ],
        run: request_decision,
    },
    Tool {
        name: "request_grant",
        title: "Request permissions",
        about: "Ask the current grant operator for additional agent permissions with a reason of up to 500 Unicode \
                characters and at least one change. Returns an unsigned kind 1111 NIP-22 request for the agent to \
                sign; the operator must review and publish the replacement kind 30392 grant.",
        access: ToolAccess::Publish { kinds: &[1111], tags: &["grant", "A", "E", "K", "P", "e", "k", "p"] },
        inputs: &[
            required("reason", Words(500), "Why the permission is needed."),
            required(
                "changes",
                Object,
                "The fields to change: kinds, rooms, repos, sites, wiki, jobs, rate.",
            ),
        ],
        run: request_grant,
    },
];

fn request_decision(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let (kind, mut tags) = if arguments.text("room").is_some() {
        let mut tags = vec![tag(["h", room(call)?])];
        if let Some(root) = arguments.text("root") {
            tags.push(tag(["e", &thread_root(call, root)?.id, "", "root"]));
        }
        (9, tags)
    } else if arguments.text("root").is_some() {
        (1111, comment_tags(&scope_of(call)?))
    } else {
        return Err("either room or root is required".into());
    };
    let asked = tag(["p", arguments.must("pubkey")]);
    if !tags.contains(&asked) {
        tags.push(asked);
    }
    tags.push(tag(["request", arguments.must("request")]));
    if let Some(expiration) = arguments.integer("expiration") {
        tags.push(tag(["expiration", &expiration.to_string()]));
    }
    if let Some(subject) = arguments.text("subject") {
        tags.push(tag(["subject", subject.trim()]));
    }
    Ok(draft(call, kind, tags, arguments.must("content")))
}

fn request_grant(call: &mut Call) -> Result<Outcome, String> {
    let changes = call.arguments.value("changes").and_then(Value::as_object).cloned().unwrap_or_default();
    if changes.is_empty() {
        return Err("argument changes must name at least one change".into());
    }
    if let Some(unknown) = changes.keys().find(|name| !CHANGES.contains(&name.as_str())) {
        return Err(format!("argument changes cannot name {unknown}; it takes {}", CHANGES.join(", ")));
    }
    if call.access.grant_state(call.caller, call.now) != Some(GrantState::Active) {
        return Err("restricted: request_grant is for an agent with an active grant".into());
    }
    let grant = &call.access.grants[call.caller];
    let address = format!("{GRANT}:{}:{}", grant.operator, call.caller);
    let mut tags = vec![tag(["A", &address]), tag(["a", &address])];
    tags.extend(comment_tags(&Scope {
        root: grant.id.clone(),
        root_kind: GRANT,
        root_pubkey: grant.operator.clone(),
        parent: grant.id.clone(),
        parent_kind: GRANT,
        parent_pubkey: grant.operator.clone(),
    }));
    tags.push(tag(["grant", &json!({"base": grant.id, "changes": changes}).to_string()]));
    Ok(draft(call, 1111, tags, call.arguments.must("reason")))
}
