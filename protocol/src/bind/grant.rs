//! The `grant` JSON tag of request_grant: the changes and the reason that the host gave, and the id of the
//! grant that they change, which the relay derives. Any other word in it is refused.

use std::borrow::Cow;
use std::collections::HashMap;

use super::asked::look_alike;
use crate::hex;
use crate::json::Json;
use crate::template::Template;

/// The deepest nesting of changes that is compared; those of the relay document have three levels.
const MAX_DEPTH: usize = 16;

const CHANGES: &str = "changes";
const REASON: &str = "reason";

/// Whether the content gives the reason, or leaves that to the `grant` tag.
pub fn gives_reason(template: &Template, reason: Option<Cow<'_, str>>) -> bool {
    let reason = reason.unwrap_or_default();
    let content = template.content.as_str();
    let in_tag = || {
        let tag = template.tags.iter().find(|tag| tag.len() == 2 && tag[0] == "grant")?;
        let (json, _) = Json::check(tag[1].as_bytes()).ok()?;
        json.get(REASON)?.as_exact_str().map(|text| is_reason(&text, &reason))
    };
    is_reason(content, &reason) || (content.is_empty() && in_tag() == Some(true))
}

/// Whether the tag's JSON asks for exactly these changes, for this reason where it gives one.
pub fn asks_for(text: &str, changes: Json<'_>, reason: Option<&str>) -> bool {
    let Ok((json, _)) = Json::check(text.as_bytes()) else { return false };
    if !json.is_object() || json.repeated_key().is_some() {
        return false;
    }
    let says = |(key, value): (Cow<'_, str>, Json<'_>)| match &*key {
        CHANGES => same(value, changes, MAX_DEPTH),
        REASON => value.as_exact_str().is_some_and(|text| is_reason(&text, reason.unwrap_or_default())),
        // The base grant's id; a name that a decoder could take for one of the above holds no id there.
        other => {
            let is_id = || value.as_exact_str().is_some_and(|id| hex::decode::<32>(&id).is_some());
            !look_alike(other, CHANGES) && !look_alike(other, REASON) && is_id()
        }
    };
    json.get(CHANGES).is_some() && json.members().all(says)
}

fn is_reason(text: &str, reason: &str) -> bool {
    text == reason || text == reason.trim()
}

/// Whether two values say the same: objects in any order of keys, numbers digit by digit.
fn same(one: Json<'_>, other: Json<'_>, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    if one.is_object() && other.is_object() {
        let mut members: HashMap<_, _> = HashMap::new();
        let repeats = one.members().any(|(key, value)| members.insert(key, value).is_some());
        let taken = other.members().all(|(key, value)| {
            members.remove(&key).is_some_and(|counterpart| same(counterpart, value, depth - 1))
        });
        return !repeats && taken && members.is_empty();
    }
    if one.is_array() && other.is_array() {
        let (mut ours, mut theirs) = (one.elements(), other.elements());
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if same(a, b, depth - 1) => {}
                _ => return false,
            }
        }
    }
    match (one.as_exact_str(), other.as_exact_str()) {
        (Some(a), Some(b)) => a == b,
        (None, None) => one.text() == other.text(),
        _ => false,
    }
}
