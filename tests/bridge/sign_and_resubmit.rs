//! Contract 5: what is signed, and what is not.

use serde_json::json;
use tinyagent_harness::{Host, PUBKEY};
use tinyagent_relay::{Matcher, Options, Relay, Reply};

#[test]
fn a_posted_message_is_signed_once_submitted_once_and_readable() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let answer = host.call("post_message", r#"{"room":"general","content":"Zürich 🦀"}"#);
    assert_eq!(answer["result"]["structuredContent"]["accepted"], true, "{answer}");
    let calls = relay.calls_of("post_message");
    assert_eq!(calls.len(), 2);
    let event = calls[1].event().expect("the event");
    assert_eq!(event.pubkey, PUBKEY);
    assert!(host.text("read_room", r#"{"id":"general"}"#).contains("Zürich 🦀"));
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn a_template_of_another_kind_is_shown_and_not_signed() {
    let relay = Relay::start(Options::default());
    let unsigned = json!({"kind": 1, "tags": [], "content": "x", "created_at": 5});
    let result = json!({"resultType": "complete", "content": [], "structuredContent": {"unsigned": unsigned}});
    relay.script(Matcher::tool("post_message"), Reply::result(result));
    let mut host = Host::with_writes(&relay);
    let answer = host.call("post_message", r#"{"room":"general","content":"hi"}"#);
    let text = "the relay returned an unsigned event this tool is not expected to publish: kind 1 from post_message";
    assert_eq!(answer["result"]["content"][0]["text"], text);
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(answer["result"]["structuredContent"]["unsigned"]["kind"], 1);
    assert_eq!(relay.calls_of("post_message").len(), 1);
    host.assert_alive();
}
