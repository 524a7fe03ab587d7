//! What holds for any bytes whatever, one function a fuzz target.

use std::borrow::Cow;

use bytes::Bytes;
use tinyagent_facade::host::message::Message as HostMessage;
use tinyagent_facade::relay::sse::Events;
use tinyagent_facade::result::{HostResult, LINE_LIMIT_BYTES, clean};
use tinyagent_protocol::bind::{Mismatch, TIME_WINDOW_SECONDS, judge};
use tinyagent_protocol::catalog;
use tinyagent_protocol::frame::{MAX_REQUEST_BYTES, header, length};
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Answer, Arguments, Message, Request};
use tinyagent_protocol::template::{Recognized, Template};

/// A check of one reader.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target.
pub const ALL: [(&str, Check); 6] = [
    ("frame", frame),
    ("request", request),
    ("template", template),
    ("bind", bind),
    ("host_line", host_line),
    ("relay_answer", relay_answer),
];

/// A frame's length is what its header was made for, and never outside its bounds.
pub fn frame(data: &[u8]) {
    if let Some(start) = data.first_chunk::<4>()
        && let Ok(length) = length(*start, MAX_REQUEST_BYTES)
    {
        assert!((1..=MAX_REQUEST_BYTES).contains(&length));
        assert_eq!(header(length, MAX_REQUEST_BYTES), Ok(*start));
    }
    let _ = Answer::parse(data);
}

/// A request that is accepted says the same when it is written and read again.
pub fn request(data: &[u8]) {
    if let Ok(message) = Message::parse(data) {
        let written = |message: &Message<'_>| {
            let (head, arguments, tail) = message.pieces();
            head + arguments + &tail
        };
        let once = written(&message);
        let again = Message::parse(once.as_bytes()).expect("our own text is a request");
        assert_eq!(written(&again), once);
    }
}

/// A template that is recognised survives the wire unchanged, and its event is hashed as valid JSON.
pub fn template(data: &[u8]) {
    let Ok((json, _)) = Json::check(data) else { return };
    if let Recognized::Template(template) = Template::recognize(json) {
        let mut wire = String::new();
        template.push_json(&mut wire);
        let (json, _) = Json::check(wire.as_bytes()).expect("our own text is JSON");
        assert_eq!(Template::from_wire(json).as_ref(), Some(&template));
    }
}

/// A template that says what its call asked for does so whatever the order of the arguments, and no longer
/// with other words, another kind, another time or one tag more.
pub fn bind(data: &[u8]) {
    let Ok(Message { request: Request::Publish(publish), .. }) = Message::parse(data) else { return };
    let Some(tool) = catalog::tool(&publish.tool) else { return };
    let honest = publish.template;
    let now = honest.created_at.unwrap_or(1_700_000_000);
    let accepted = judge(tool, publish.arguments, &honest, now).is_ok();

    let mut members: Vec<String> = publish.arguments.json().members().map(member).collect();
    members.reverse();
    let reversed = format!("{{{}}}", members.join(","));
    let (json, _) = Json::check(reversed.as_bytes()).expect("members of an object make one");
    let reversed = Arguments::new(json).expect("an object");
    assert_eq!(judge(tool, reversed, &honest, now).is_ok(), accepted);
    if !accepted {
        return;
    }

    assert!(tool.kinds.contains(&honest.kind));
    let judged = |alter: &dyn Fn(&mut Template)| {
        let mut altered = honest.clone();
        alter(&mut altered);
        judge(tool, publish.arguments, &altered, now)
    };
    // Longer than anything that the arguments could say.
    let words = "\u{2603}".repeat(data.len() + 1);
    let before = judged(&|template| template.content.insert_str(0, &words));
    let after = judged(&|template| template.content.push_str(&words));
    assert!(matches!((before, after), (Err(Mismatch::Content(_)), Err(Mismatch::Content(_)))));
    assert_eq!(judged(&|template| template.kind = u64::MAX), Err(Mismatch::NoRow));
    assert_eq!(judged(&|template| template.tags.push(vec![words.clone()])), Err(Mismatch::Unlisted));
    let past = now.checked_sub(TIME_WINDOW_SECONDS + 1);
    let elsewhen = past.unwrap_or(now.saturating_add(TIME_WINDOW_SECONDS + 1));
    assert_eq!(judged(&|template| template.created_at = Some(elsewhen)), Err(Mismatch::Time));
}

fn member((key, value): (Cow<'_, str>, Json<'_>)) -> String {
    format!("{}:{}", serde_json::to_string(&key).expect("a text"), value.text())
}

/// A host's line is what serde_json takes it for, and its id can be echoed on one line.
pub fn host_line(data: &[u8]) {
    let ours = Json::check(data).is_ok();
    let theirs = std::str::from_utf8(data)
        .is_ok_and(|text| serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok());
    // Ours also bounds the nesting, which serde_json does not do for a raw value.
    assert!(!ours || theirs);
    if theirs && !ours {
        let depth = data.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
        assert!(depth > tinyagent_protocol::json::MAX_DEPTH);
    }
    if let HostMessage::Request { id, .. } = HostMessage::parse(data) {
        assert!(Json::check(id.as_str().as_bytes()).is_ok());
        assert!(!id.as_str().contains(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']));
    }
}

/// Whatever a relay answers, what a host gets of it is one bounded line of JSON.
pub fn relay_answer(data: &[u8]) {
    let _ = Events::default().push(data);
    let Ok((json, _)) = Json::check(data) else { return };
    let cleaned = clean(json.text());
    let (again, traits) = Json::check(cleaned.as_bytes()).expect("cleaned JSON is JSON");
    assert!(!(traits.spaced || traits.lone_surrogate || traits.line_separator));
    assert_eq!(clean(again.text()), cleaned);
    if json.is_object()
        && let Ok(result) = HostResult::from_relay(&Bytes::from(cleaned))
    {
        let line = result.into_pieces().concat();
        assert!(line.len() < LINE_LIMIT_BYTES);
        let (_, traits) = Json::check(&line).expect("a host's line is JSON");
        assert!(!(traits.spaced || traits.lone_surrogate || traits.line_separator || line.contains(&b'\n')));
    }
}
