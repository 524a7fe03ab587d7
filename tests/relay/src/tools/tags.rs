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
pub(crate) struct Scope<'a> {
    pub root: &'a str,
    pub root_kind: u64,
    pub root_pubkey: &'a str,
    pub parent: &'a str,
    pub parent_kind: u64,
    pub parent_pubkey: &'a str,
}

/// The `E K P` tags of the root and the `e k p` tags of the parent (NIP-22).
pub(crate) fn comment_tags(scope: &Scope) -> Vec<Vec<String>> {
    vec![
        tag(["E", scope.root, "", scope.root_pubkey]),
        tag(["K", &scope.root_kind.to_string()]),
        tag(["P", scope.root_pubkey]),
        tag(["e", scope.parent, "", scope.parent_pubkey]),
        tag(["k", &scope.parent_kind.to_string()]),
        tag(["p", scope.parent_pubkey]),
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
