//! The second half of a write: the signed event that a client brings is checked against the tool, the caller
//! and the grant before it is stored. What was returned as a template before plays no part in it.

use super::{Call, Outcome};
use crate::event::Event;
use serde_json::json;

/// How far an event's time may lie from the relay's clock, in seconds.
const EVENT_WINDOW_SECONDS: u64 = 15 * 60;

/// Accepts the `event` argument of a call, or says why not. No kinds means any kind.
pub(crate) fn accept(call: &mut Call, tool: &str, kinds: &[u64], tags: &[&str]) -> Result<Outcome, String> {
    let event = Event::parse(call.arguments.event.as_deref().unwrap_or_default())?;
    if event.pubkey != call.caller {
        return Err("invalid: the event is not by the key that signed the request".into());
    }
    event.verify().map_err(|error| format!("invalid: {error}"))?;
    if call.strict {
        fits(call, tool, kinds, tags, &event)?;
    }
    call.access.may_publish(&event, tool == "request_grant", call.now)?;
    let (id, is_new) = (event.id.clone(), call.store.publish(event));
    let message = if is_new { "" } else { "duplicate: already have this event" };
    Ok(Outcome::Data(json!({"event_id": id, "accepted": true, "message": message})))
}

/// Checks kind, time and tags against the tool.
fn fits(call: &Call, tool: &str, kinds: &[u64], tags: &[&str], event: &Event) -> Result<(), String> {
    let expected = || format!("{tool} takes kind {kinds:?} with the tags {}", tags.join(", "));
    if !kinds.is_empty() && !kinds.contains(&event.kind) {
        return Err(format!("invalid: the event is of kind {}; {}", event.kind, expected()));
    }
    if event.created_at.abs_diff(call.now) > EVENT_WINDOW_SECONDS {
        return Err("invalid: the event's created_at is more than 15 minutes off".into());
    }
    // request_decision posts to a room or comments on an event, and the tags differ with the kind.
    let needs_tag = |name: &str| name != "h" || event.kind != 1111;
    if let Some(absent) = tags.iter().find(|name| needs_tag(name) && event.tag(name).is_none()) {
        return Err(format!("invalid: the event has no {absent} tag; {}", expected()));
    }
    match event.tag("h").filter(|_| event.kind != 9007) {
        Some(room) if !call.store.rooms.contains_key(room) => {
            Err(format!("invalid: there is no room {room}"))
        }
        _ => Ok(()),
    }
}
