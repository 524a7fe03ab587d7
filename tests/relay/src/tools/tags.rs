//! The tags that several tools write in the same way.

use super::Call;
use crate::event::{Event, Template};

/// One tag.
pub(crate) fn tag<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.iter().map(|value| value.to_string()).collect()
}

/// A template of the caller's, made now.
pub(crate) fn draft(call: &Call, kind: u64, tags: Vec<Vec<String>>, content: &str) -> super::Outcome {
    super::Outcome::Draft(Template { kind, created_at: call.now, tags, content: content.into() })
}

/// A root of a NIP-22 comment and the event it replies to, which may be the root itself.
pub(crate) struct Scope {
    pub root: String,
    pub root_kind: u64,
    pub root_pubkey: String,
    pub parent: String,
    pub parent_kind: u64,
    pub parent_pubkey: String,
}

/// The scope of a comment on the argument `root`: an event that the relay holds, where a comment leads on to
/// its own root, or one that `root_kind` and `root_pubkey` describe.
pub(crate) fn scope_of(call: &Call) -> Result<Scope, String> {
    let arguments = &call.arguments;
    let id = arguments.must("root");
    let described =
        || Some((arguments.integer("root_kind")? as u64, arguments.text("root_pubkey")?.to_owned()));
    let held = call.store.event(id);
    let (kind, pubkey) =
        held.map(|event| (event.kind, event.pubkey.clone())).or_else(described).ok_or_else(|| {
            format!("there is no event {id}; name its kind and author as root_kind and root_pubkey")
        })?;
    let above = held.filter(|event| event.kind == 1111).and_then(|comment| {
        let kind = comment.tag("K")?.parse().ok()?;
        Some((comment.tag("E")?.to_owned(), kind, comment.tag("P")?.to_owned()))
    });
    let (root, root_kind, root_pubkey) = above.unwrap_or_else(|| (id.to_owned(), kind, pubkey.clone()));
    Ok(Scope {
        root,
        root_kind,
        root_pubkey,
        parent: id.to_owned(),
        parent_kind: kind,
        parent_pubkey: pubkey,
    })
}

/// The `E K P` tags of the root and the `e k p` tags of the parent (NIP-22).
pub(crate) fn comment_tags(scope: &Scope) -> Vec<Vec<String>> {
    vec![
        tag(["E", &scope.root, "", &scope.root_pubkey]),
        tag(["K", &scope.root_kind.to_string()]),
        tag(["P", &scope.root_pubkey]),
        tag(["e", &scope.parent, "", &scope.parent_pubkey]),
        tag(["k", &scope.parent_kind.to_string()]),
        tag(["p", &scope.parent_pubkey]),
    ]
}

/// The room of a call, which must exist.
pub(crate) fn room<'a>(call: &'a Call) -> Result<&'a str, String> {
    let room = call.arguments.must("room");
    if call.store.rooms.contains_key(room) { Ok(room) } else { Err(format!("there is no room {room}")) }
}

/// The thread root for an id: the id itself, or the root that a reply with this id names.
pub(crate) fn thread_root<'a>(call: &'a Call, id: &str) -> Result<&'a Event, String> {
    let event = call.store.event(id).ok_or_else(|| format!("there is no event {id}"))?;
    let root = if event.kind == 11 { None } else { event.tag("e") };
    match root {
        None => Ok(event),
        Some(root) => call.store.event(root).ok_or_else(|| format!("the thread's root {root} is not stored")),
    }
}
