//! Hosted repositories with their issues, pull requests, comments and status changes (NIP-34, NIP-22).

use super::input::Form::{Choice, Hex, Integer, Text, Texts, Words};
use super::input::{Input, optional, required};
use super::tags::{Scope, comment_tags, draft, scope_of, tag};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::event::Event;
use serde_json::{Value, json};

/// The entries of a list when the caller names no limit.
const PAGE_DEFAULT: usize = 50;

const ISSUE: u64 = 1621;
const PULL_REQUEST: u64 = 1618;
const COMMENT: u64 = 1111;
/// The kinds of a status event, in the order of the names below.
const STATUS_KINDS: &[u64] = &[1630, 1631, 1632, 1633];
const STATUS_NAMES: &[&str] = &["open", "resolved", "closed", "draft"];

const OWNER: Input = required("owner", Hex, "Public key of the repository's owner.");
const REPO: Input = required("repo", Words(100), "The repository's identifier.");
const ID: Input = required("id", Hex, "Event id.");
const QUERY: Input = optional("q", Text, "Only entries that contain this.");
const STATUS: Input = optional("status", Choice(STATUS_NAMES), "Only entries in this state.");
const LABEL: Input = optional("label", Text, "Only entries with this label.");
const LIMIT: Input = optional("limit", Integer(1, 200), "How many entries to return.");
const TITLE: Input = required("title", Words(200), "The title.");
const CONTENT: Input = required("content", Text, "The text, in Markdown.");
const LABELS: Input = optional("labels", Texts, "Labels.");

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "list_repositories",
        title: "List repositories",
        about: "List hosted repositories with search and pagination.",
        access: ToolAccess::Read,
        inputs: &[QUERY, LIMIT],
        run: list_repositories,
    },
    Tool {
        name: "read_repository",
        title: "Read a repository",
        about: "Read a repository tree, file, history, commit diff or activity at a ref.",
        access: ToolAccess::Read,
        inputs: &[
            OWNER,
            REPO,
            optional("view", Choice(&["tree", "file", "history", "commit", "activity"]), "What to read."),
            optional("path", Text, "Path of the file."),
            optional("ref", Text, "Branch, tag or commit."),
        ],
        run: read_repository,
    },
    Tool {
        name: "list_issues",
        title: "List issues",
        about: "List a repository's issues with search, status and label filters.",
        access: ToolAccess::Read,
        inputs: &[OWNER, REPO, QUERY, STATUS, LABEL, LIMIT],
        run: |call| list(call, ISSUE, "issues"),
    },
    Tool {
        name: "read_issue",
        title: "Read an issue",
        about: "Read an issue with its replies and authorized status changes.",
        access: ToolAccess::Read,
        inputs: &[ID],
        run: |call| read(call, ISSUE, "issue"),
    },
    Tool {
        name: "list_pull_requests",
        title: "List pull requests",
        about: "List a repository's pull requests with search, status and label filters.",
        access: ToolAccess::Read,
        inputs: &[OWNER, REPO, QUERY, STATUS, LABEL, LIMIT],
        run: |call| list(call, PULL_REQUEST, "pull_requests"),
    },
    Tool {
        name: "read_pull_request",
        title: "Read a pull request",
        about: "Read a pull request with replies, updates and the available diff.",
        access: ToolAccess::Read,
        inputs: &[ID],
        run: |call| read(call, PULL_REQUEST, "pull_request"),
    },
    Tool {
        name: "create_issue",
        title: "Create an issue",
        about: "Open a kind 1621 issue on a hosted repository.",
        access: ToolAccess::Publish { kinds: &[ISSUE], tags: &["a", "p", "subject"] },
        inputs: &[OWNER, REPO, TITLE, CONTENT, LABELS],
        run: create_issue,
    },
    Tool {
        name: "create_pull_request",
        title: "Create a pull request",
        about: "Open a kind 1618 pull request with its commit and clone URL.",
        access: ToolAccess::Publish { kinds: &[PULL_REQUEST], tags: &["a", "p", "subject", "c", "clone"] },
        inputs: &[
            OWNER,
            REPO,
            TITLE,
            CONTENT,
            required("commit", Words(64), "Commit at the tip of the proposed branch."),
            required("clone", Words(500), "URL from which that commit can be fetched."),
            optional("branch", Words(200), "Name of the branch."),
            LABELS,
        ],
        run: create_pull_request,
    },
    Tool {
        name: "comment",
        title: "Comment",
        about: "Reply to an issue, pull request or comment with a kind 1111 event carrying NIP-22 tags. `file`, \
                `line` and `side` anchor the comment to one diff line.",
        access: ToolAccess::Publish { kinds: &[COMMENT], tags: &["E", "K", "P", "e", "k", "p"] },
        inputs: &[
            required("root", Hex, "Id of the issue, pull request or comment replied to."),
            optional("root_kind", Integer(0, 65535), "Its kind, where the relay does not hold it."),
            optional("root_pubkey", Hex, "Its author, where the relay does not hold it."),
            CONTENT,
            optional("file", Words(1000), "Path as it appears in the diff."),
            optional("line", Integer(1, 10_000_000), "Line number."),
            optional("side", Choice(&["old", "new"]), "The base version or the proposed one."),
        ],
        run: comment,
    },
    Tool {
        name: "set_status",
        title: "Set a status",
        about: "Mark an issue or pull request open, resolved, closed or draft with a kind 1630 to 1633 event.",
        access: ToolAccess::Publish { kinds: STATUS_KINDS, tags: &["e", "p"] },
        inputs: &[ID, required("status", Choice(STATUS_NAMES), "The new state.")],
        run: set_status,
    },
];

fn list_repositories(call: &mut Call) -> Result<Outcome, String> {
    let wanted = call.arguments.text("q").unwrap_or_default();
    let repositories: Vec<Value> = call
        .store
        .repositories
        .iter()
        .filter(|repository| repository.identifier.contains(wanted) || repository.about.contains(wanted))
        .take(limit(call))
        .map(|repository| {
            json!({
                "owner": repository.owner, "repo": repository.identifier, "about": repository.about,
                "head": repository.head, "clone": format!("{}/{}.git", call.url, repository.identifier),
            })
        })
        .collect();
    Ok(Outcome::Data(json!({"repositories": repositories})))
}

fn read_repository(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let repository = call.store.repository(arguments.must("owner"), arguments.must("repo"))?;
    let mut data = json!({"owner": repository.owner, "repo": repository.identifier, "head": repository.head});
    match arguments.text("view").unwrap_or("tree") {
        "tree" => data["tree"] = repository.files.keys().cloned().collect(),
        "file" => {
            let path = arguments.must("path");
            let text = repository.files.get(path).ok_or_else(|| format!("there is no file {path}"))?;
            data["path"] = path.into();
            data["text"] = text.clone().into();
        }
        "activity" => {
            let (events, _) =
                call.store.newest(usize::MAX, PAGE_DEFAULT, |event| about(event, &address(call)));
            data["activity"] = events.into_iter().map(|event| entry(call, event)).collect();
        }
        _ => data["history"] = json!([{"commit": repository.head, "subject": "Plan the beds"}]),
    }
    Ok(Outcome::Data(data))
}

/// The address (NIP-34) of the repository that a call names.
fn address(call: &Call) -> String {
    format!("30617:{}:{}", call.arguments.must("owner"), call.arguments.must("repo"))
}

fn about(event: &Event, address: &str) -> bool {
    event.tags_named("a").any(|value| value == address)
}

fn limit(call: &Call) -> usize {
    call.arguments.integer("limit").map_or(PAGE_DEFAULT, |limit| limit as usize)
}

fn list(call: &mut Call, kind: u64, name: &str) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    call.store.repository(arguments.must("owner"), arguments.must("repo"))?;
    let address = address(call);
    let (query, label, state) =
        (arguments.text("q").unwrap_or_default(), arguments.text("label"), arguments.text("status"));
    let (events, _) = call.store.newest(usize::MAX, limit(call), |event| {
        event.kind == kind
            && about(event, &address)
            && (event.content.contains(query) || event.tag("subject").is_some_and(|s| s.contains(query)))
            && label.is_none_or(|label| event.tags_named("t").any(|value| value == label))
            && state.is_none_or(|state| state == status(call, &event.id))
    });
    let entries: Vec<Value> = events.into_iter().map(|event| entry(call, event)).collect();
    Ok(Outcome::Data(json!({name: entries})))
}

fn entry(call: &Call, event: &Event) -> Value {
    json!({
        "id": event.id, "kind": event.kind, "pubkey": event.pubkey, "created_at": event.created_at,
        "title": event.tag("subject"), "content": event.content, "status": status(call, &event.id),
        "labels": event.tags_named("t").collect::<Vec<_>>(),
    })
}

/// The state that the newest status event names.
fn status(call: &Call, id: &str) -> &'static str {
    let (newest, _) = call
        .store
        .newest(usize::MAX, 1, |event| STATUS_KINDS.contains(&event.kind) && event.tag("e") == Some(id));
    let kind = newest.first().map_or(STATUS_KINDS[0], |event| event.kind);
    STATUS_NAMES[STATUS_KINDS.iter().position(|status| *status == kind).unwrap_or(0)]
}

fn read(call: &mut Call, kind: u64, name: &str) -> Result<Outcome, String> {
    let id = call.arguments.must("id");
    let event = call.store.event(id).filter(|event| event.kind == kind);
    let event = event.ok_or_else(|| format!("there is no {} {id}", name.replace('_', " ")))?;
    let (replies, _) = call.store.newest(usize::MAX, 200, |reply| {
        reply.kind == COMMENT && (reply.tag("E") == Some(id) || reply.tag("e") == Some(id))
    });
    let replies: Vec<Value> = replies
        .into_iter()
        .rev()
        .map(|reply| {
            let anchor = reply.tags.iter().find(|tag| tag.len() == 3 && tag[0] == "line");
            json!({
                "id": reply.id, "pubkey": reply.pubkey, "created_at": reply.created_at, "content": reply.content,
                "file": reply.tag("file"), "line": anchor.map(|tag| &tag[1]), "side": anchor.map(|tag| &tag[2]),
            })
        })
        .collect();
    let mut shown = entry(call, event);
    shown["replies"] = replies.into();
    if kind == PULL_REQUEST {
        shown["commit"] = json!(event.tag("c"));
        shown["clone"] = json!(event.tag("clone"));
    }
    Ok(Outcome::Data(json!({name: shown})))
}

/// The tags that an issue and a pull request begin with.
fn opening_tags(call: &Call) -> Result<Vec<Vec<String>>, String> {
    let arguments = &call.arguments;
    call.store.repository(arguments.must("owner"), arguments.must("repo"))?;
    let mut tags = vec![
        tag(["a", &address(call)]),
        tag(["p", arguments.must("owner")]),
        tag(["subject", arguments.must("title").trim()]),
    ];
    tags.extend(arguments.texts("labels").into_iter().map(|label| tag(["t", label])));
    Ok(tags)
}

fn create_issue(call: &mut Call) -> Result<Outcome, String> {
    let tags = opening_tags(call)?;
    Ok(draft(call, ISSUE, tags, call.arguments.must("content")))
}

fn create_pull_request(call: &mut Call) -> Result<Outcome, String> {
    let mut tags = opening_tags(call)?;
    tags.push(tag(["c", call.arguments.must("commit")]));
    tags.push(tag(["clone", call.arguments.must("clone")]));
    if let Some(branch) = call.arguments.text("branch") {
        tags.push(tag(["branch-name", branch]));
    }
    Ok(draft(call, PULL_REQUEST, tags, call.arguments.must("content")))
}

fn comment(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let scope: Scope = scope_of(call)?;
    let mut tags = comment_tags(&scope);
    match (arguments.text("file"), arguments.integer("line"), arguments.text("side")) {
        (None, None, None) => {}
        (Some(_), Some(_), Some(_)) if scope.root_kind == ISSUE => {
            return Err("file, line and side belong to a pull request, not to an issue".into());
        }
        (Some(file), Some(line), Some(side)) => {
            tags.push(tag(["file", file]));
            tags.push(tag(["line", &line.to_string(), side]));
        }
        _ => return Err("file, line and side go together".into()),
    }
    Ok(draft(call, COMMENT, tags, arguments.must("content")))
}

fn set_status(call: &mut Call) -> Result<Outcome, String> {
    let id = call.arguments.must("id");
    let event = call.store.event(id).ok_or_else(|| format!("there is no event {id}"))?;
    let tags = vec![tag(["e", id, "", "root"]), tag(["p", &event.pubkey])];
    let status = call.arguments.must("status");
    let at = STATUS_NAMES.iter().position(|name| *name == status).unwrap_or(0);
    Ok(draft(call, STATUS_KINDS[at], tags, ""))
}
