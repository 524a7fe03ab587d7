//! What holds for any bytes whatever, one function a fuzz target.

use bytes::Bytes;
use tinyagent_facade::host::message::Message as HostMessage;
use tinyagent_facade::relay::sse::Events;
use tinyagent_facade::result::{HostResult, LINE_LIMIT_BYTES, clean};
use tinyagent_protocol::frame::{MAX_REQUEST_BYTES, header, length};
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Answer, Message};
use tinyagent_protocol::template::{Recognized, Template};

/// A check of one reader.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target.
pub const ALL: [(&str, Check); 5] = [
    ("frame", frame),
    ("request", request),
    ("template", template),
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
