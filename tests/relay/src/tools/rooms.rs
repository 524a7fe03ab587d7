//! Chat rooms: messages, threads, replies and reactions.

use super::input::Form::{Choice, Hex, Hexes, Integer, Objects, Text, Words};
use super::input::{Input, optional, required};
use super::tags::{draft, room, tag, thread_root};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::event::Event;
use serde_json::{Value, json};

/// The most entries of one page.
const PAGE_MAX: usize = 200;
/// The entries of a page when the caller names no limit.
const PAGE_DEFAULT: usize = 50;
/// The most attachments of one message (relay document, Room attachments).
const ATTACHMENTS_MAX: usize = 8;

const ROOM: Input = required("room", Words(100), "Room id.");
const LIMIT: Input = optional("limit", Integer(1, PAGE_MAX as i64), "How many entries to return.");
const CURSOR: Input = optional("cursor", Text, "Where to go on: the `next` of the page before.");
const MENTIONS: Input = optional("mentions", Hexes, "Public keys of the people mentioned.");
const ATTACHMENTS: Input =
    optional("attachments", Objects(ATTACHMENTS_MAX), "Descriptors that upload_attachment returned.");

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "list_rooms",
        title: "List rooms",
        about: "List chat rooms visible to the key with member counts and the time of the last message.",
        access: ToolAccess::Read,
        inputs: &[optional("q", Text, "Only rooms whose id or name contains this."), LIMIT],
        run: list_rooms,
    },
    Tool {
        name: "read_room",
        title: "Read a room",
        about: "Read a room by `id` with its members and newest messages, paged with `cursor` and `limit`.",
        access: ToolAccess::Read,
        inputs: &[required("id", Words(100), "Room id."), LIMIT, CURSOR],
        run: read_room,
    },
    Tool {
        name: "read_thread",
        title: "Read a thread",
        about: "Read a thread root by room `id` and `event` with its replies, newest first.",
        access: ToolAccess::Read,
        inputs: &[
            required("id", Words(100), "Room id."),
            required("event", Hex, "Event id of the thread's root, or of a reply in it."),
            LIMIT,
        ],
        run: read_thread,
    },
    Tool {
        name: "post_message",
        title: "Post a message",
        about: "Post a kind 9 message in a room, with optional `mentions` and `attachments`.",
        access: ToolAccess::Publish { kinds: &[9], tags: &["h"] },
        inputs: &[ROOM, optional("content", Text, "The message."), MENTIONS, ATTACHMENTS],
        run: post_message,
    },
    Tool {
        name: "start_thread",
        title: "Start a thread",
        about: "Start a kind 11 thread in a room with an optional title and `attachments`.",
        access: ToolAccess::Publish { kinds: &[11], tags: &["h"] },
        inputs: &[
            ROOM,
            optional("title", Words(200), "The thread's title."),
            optional("content", Text, "The first message."),
            ATTACHMENTS,
        ],
        run: start_thread,
    },
    Tool {
        name: "reply_in_thread",
        title: "Reply in a thread",
        about: "Reply with a kind 12 event and optional `attachments`. Unsigned templates resolve a reply ID to \
                the original thread root.",
        access: ToolAccess::Publish { kinds: &[12], tags: &["h", "e"] },
        inputs: &[
            ROOM,
            required("root", Hex, "Event id of the thread's root, or of a reply in it."),
            optional("content", Text, "The reply."),
            ATTACHMENTS,
        ],
        run: reply_in_thread,
    },
    Tool {
        name: "react",
        title: "React",
        about: "Publish a kind 7 reaction to an event: `+`, `-` or one emoji, with `room` for a room message.",
        access: ToolAccess::Publish { kinds: &[7], tags: &["e", "p"] },
        inputs: &[
            required("target", Hex, "Id of the event reacted to."),
            required("content", Words(16), "`+`, `-` or one emoji."),
            optional("pubkey", Hex, "Author of that event, where the relay does not hold it."),
            optional("room", Words(100), "Room of that event."),
        ],
        run: react,
    },
    Tool {
        name: "create_room",
        title: "Create a room",
        about: "Create a room with a kind 9007 event carrying its id, name, description and visibility.",
        access: ToolAccess::Publish { kinds: &[9007], tags: &["h"] },
        inputs: &[
            ROOM,
            optional("name", Words(100), "Name."),
            optional("about", Text, "Description."),
            optional("visibility", Choice(&["public", "private"]), "Who sees it."),
        ],
        run: create_room,
    },
];

fn list_rooms(call: &mut Call) -> Result<Outcome, String> {
    let wanted = call.arguments.text("q").unwrap_or_default().to_lowercase();
    let rooms: Vec<Value> = call
        .store
        .rooms
        .values()
        .filter(|room| room.id.to_lowercase().contains(&wanted) || room.name.to_lowercase().contains(&wanted))
        .take(limit(call))
        .map(|room| {
            json!({
                "id": room.id, "name": room.name, "about": room.about,
                "members": room.members.len(), "last_message": room.last_message,
            })
        })
        .collect();
    Ok(Outcome::Data(json!({"rooms": rooms})))
}

fn read_room(call: &mut Call) -> Result<Outcome, String> {
    let id = call.arguments.must("id");
    let room = call.store.rooms.get(id).ok_or_else(|| format!("there is no room {id}"))?;
    let before: usize = match call.arguments.text("cursor") {
        None => usize::MAX,
        Some(cursor) => cursor.parse().map_err(|_| "argument cursor must be the next of the page before")?,
    };
    let (events, next) = call
        .store
        .newest(before, limit(call), |event| matches!(event.kind, 9 | 11 | 12) && event.tag("h") == Some(id));
    let messages: Vec<Value> = events.into_iter().map(|event| message(call, event)).collect();
    let mut data = json!({
        "id": room.id, "name": room.name, "about": room.about, "members": room.members, "messages": messages,
    });
    if let Some(next) = next {
        data["next"] = next.to_string().into();
    }
    Ok(Outcome::Data(data))
}

fn read_thread(call: &mut Call) -> Result<Outcome, String> {
    let root = thread_root(call, call.arguments.must("event"))?;
    if root.tag("h") != Some(call.arguments.must("id")) {
        return Err(format!("the thread is not in room {}", call.arguments.must("id")));
    }
    let (replies, _) = call.store.newest(usize::MAX, limit(call), |event| {
        matches!(event.kind, 9 | 12 | 1111) && event.tags_named("e").any(|id| id == root.id)
    });
    let replies: Vec<Value> = replies.into_iter().map(|event| message(call, event)).collect();
    Ok(Outcome::Data(json!({"root": message(call, root), "replies": replies})))
}

/// A message as the read tools show it, with the reactions to it.
fn message(call: &Call, event: &Event) -> Value {
    let mut shown = json!({
        "id": event.id, "kind": event.kind, "pubkey": event.pubkey,
        "created_at": event.created_at, "content": event.content, "tags": event.tags,
    });
    let reactions = call.store.reactions(&event.id);
    if !reactions.is_empty() {
        shown["reactions"] = json!(reactions);
    }
    shown
}

fn limit(call: &Call) -> usize {
    call.arguments.integer("limit").map_or(PAGE_DEFAULT, |limit| limit as usize)
}

fn post_message(call: &mut Call) -> Result<Outcome, String> {
    let mut tags = vec![tag(["h", room(call)?])];
    tags.extend(call.arguments.texts("mentions").into_iter().map(|pubkey| tag(["p", pubkey])));
    let content = with_attachments(call, &mut tags)?;
    Ok(draft(call, 9, tags, &content))
}

fn start_thread(call: &mut Call) -> Result<Outcome, String> {
    let mut tags = vec![tag(["h", room(call)?])];
    if let Some(title) = call.arguments.text("title") {
        tags.push(tag(["title", title.trim()]));
    }
    let content = with_attachments(call, &mut tags)?;
    Ok(draft(call, 11, tags, &content))
}

fn reply_in_thread(call: &mut Call) -> Result<Outcome, String> {
    let root = thread_root(call, call.arguments.must("root"))?;
    let mut tags = vec![tag(["h", room(call)?]), tag(["e", &root.id, "", "root"]), tag(["p", &root.pubkey])];
    let content = with_attachments(call, &mut tags)?;
    Ok(draft(call, 12, tags, &content))
}

fn react(call: &mut Call) -> Result<Outcome, String> {
    let id = call.arguments.must("target");
    let held = call.store.event(id);
    let author = held.map(|event| event.pubkey.as_str()).or(call.arguments.text("pubkey"));
    let author = author.ok_or_else(|| format!("there is no event {id}; name its author as pubkey"))?;
    let mut tags = vec![tag(["e", id]), tag(["p", author])];
    if let Some(event) = held {
        tags.push(tag(["k", &event.kind.to_string()]));
    }
    if call.arguments.text("room").is_some() {
        tags.push(tag(["h", room(call)?]));
    }
    Ok(draft(call, 7, tags, call.arguments.must("content")))
}

fn create_room(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let mut tags = vec![tag(["h", arguments.must("room")])];
    for name in ["name", "about"] {
        if let Some(value) = arguments.text(name) {
            tags.push(tag([name, value]));
        }
    }
    tags.push(vec![arguments.text("visibility").unwrap_or("public").into()]);
    Ok(draft(call, 9007, tags, ""))
}

/// The content followed by a Markdown reference for each attachment, whose `imeta` tags (NIP-92) are added.
fn with_attachments(call: &Call, tags: &mut Vec<Vec<String>>) -> Result<String, String> {
    let attachments = call.arguments.objects("attachments");
    let mut content = call.arguments.must("content").to_owned();
    if content.is_empty() && attachments.is_empty() {
        return Err("argument content is required where there are no attachments".into());
    }
    for attachment in attachments {
        let field = |name: &str| attachment.get(name).and_then(Value::as_str);
        let url = field("url").ok_or("an attachment has no url")?;
        let hash = field("sha256").ok_or("an attachment has no sha256")?;
        let media_type = field("type").unwrap_or("application/octet-stream");
        let mut imeta =
            tag(["imeta", &format!("url {url}"), &format!("m {media_type}"), &format!("x {hash}")]);
        if let Some(size) = attachment.get("size").and_then(Value::as_u64) {
            imeta.push(format!("size {size}"));
        }
        tags.push(imeta);
        if !content.is_empty() {
            content.push_str("\n\n");
        }
        let mark = if media_type.starts_with("image/") { "!" } else { "" };
        content.push_str(&format!("{mark}[{}]({url})", field("filename").unwrap_or("file")));
    }
    Ok(content)
}
