//! What is signed and what is refused, one changed field at a time, with the exact rule.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Arguments, CallTool};
use tinyagent_protocol::policy::Policy;
use tinyagent_protocol::relay_url::RelayUrl;
use tinyagent_relay::{Event, Key, hex};

use crate::program::{RELAY, Signer, call, proof, publish, rule};

/// The hash of the body that the facade would send for this call.
fn expected_payload(tool: &'static str, arguments: &'static str) -> String {
    let policy = Policy::new(RelayUrl::parse(RELAY).expect("url"), None, true).expect("policy");
    let arguments = Arguments::new(Json::check(arguments.as_bytes()).expect("json").0).expect("object");
    let approved = policy.judge_call(CallTool { id: 1, tool: tool.into(), arguments }).expect("allowed");
    let body: String = approved.body().pieces().concat();
    hex(&Sha256::digest(body))
}

#[test]
fn a_proof_is_bound_to_the_relay_the_method_and_the_body_and_is_never_the_same_twice() {
    let key = Key::random();
    let mut signer = Signer::start(&key, &[]);
    let request = call("read_room", r#"{"n":9007199254740993,"x":1.0,"e": 1E+2}"#);
    let proofs: Vec<Event> = (0..20).map(|_| proof(&signer.ask(&request)["proof"])).collect();
    for (number, event) in proofs.iter().enumerate() {
        assert_eq!((event.kind, event.content.as_str()), (27235, ""));
        assert_eq!(event.pubkey, key.public_hex());
        assert_eq!(event.tag("u"), Some("http://127.0.0.1:9/r/mcp"));
        assert_eq!(event.tag("method"), Some("POST"));
        let payload = expected_payload("read_room", r#"{"n":9007199254740993,"x":1.0,"e": 1E+2}"#);
        assert_eq!(event.tag("payload"), Some(payload.as_str()));
        assert!(proofs[..number].iter().all(|other| other.id != event.id && other.sig != event.sig));
    }
}

#[test]
fn the_grant_is_asked_for_at_the_management_url() {
    let mut signer = Signer::start(&Key::random(), &[]);
    let answer = signer.ask(r#"{"browse_grant":{"rooms":["a"],"kinds":[9,12]}}"#);
    let event = proof(&answer["proof"]);
    assert_eq!(event.tag("u"), Some("http://127.0.0.1:9/r/manage/rpc"));
    let body = r#"{"method":"browsegrant","params":[{"rooms":["a"],"kinds":[9,12]}]}"#;
    assert_eq!(event.tag("payload"), Some(hex(&Sha256::digest(body)).as_str()));
}

#[test]
fn an_event_is_signed_as_the_template_says_and_its_submission_is_proven() {
    let key = Key::random();
    let mut signer = Signer::start(&key, &["--allow-writes"]);
    let template =
        json!({"kind": 9, "tags": [["h", "general"], ["-"]], "content": "a\u{1}\"b\u{7f}\u{2028}<>&/é🦀"});
    let request = json!({"publish": {"id": 7, "tool": "post_message", "arguments": {"room": "general"}, "template": template}});
    let before = now();
    let answer = signer.ask(&request.to_string());
    let event = Event::parse(&answer["published"]["event"].to_string()).expect("an event");
    event.verify().expect("valid");
    assert_eq!(event.pubkey, key.public_hex());
    assert_eq!(
        (event.kind, json!(event.tags), json!(event.content)),
        (9, template["tags"].clone(), template["content"].clone())
    );
    assert!((before..=before + 60).contains(&event.created_at), "an absent time is the signer's");
    assert_eq!(proof(&answer["published"]).tag("u"), Some("http://127.0.0.1:9/r/mcp"));
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// A valid request with one thing changed, and the rule that must refuse it.
const CHANGED: &[(&str, &str, u64, &str, &str)] = &[
    ("publish_event", "{}", 9, "h", "tool-not-exposed"),
    ("read_management", "{}", 9, "h", "tool-not-exposed"),
    ("set_status", "{}", 9, "h", "tool-not-exposed"),
    ("Post_message", "{}", 9, "h", "tool-not-exposed"),
    ("post_message ", "{}", 9, "h", "tool-not-exposed"),
    ("post_message", r#"{"event":{}}"#, 9, "h", "event-argument"),
    ("post_message", r#"{"EVENT":1}"#, 9, "h", "event-argument"),
    ("post_message", r#"{"a":1,"\u0065vent":null}"#, 9, "h", "event-argument"),
    ("post_message", "{}", 1, "h", "kind-not-expected"),
    ("post_message", "{}", 11, "h", "kind-not-expected"),
    ("post_message", "{}", 4294967305, "h", "kind-not-expected"),
    ("read_room", "{}", 9, "h", "kind-not-expected"),
    ("upload_attachment", "{}", 9, "h", "kind-not-expected"),
    ("post_message", "{}", 27235, "h", "authorization-kind"),
    ("post_message", "{}", 22242, "h", "authorization-kind"),
    ("post_message", "{}", 24242, "h", "authorization-kind"),
    ("post_message", "{}", 9, "grant", "grant-tag"),
    ("comment", "{}", 1111, "grant", "grant-tag"),
    ("post_message", "{}", 9, "request", "request-tag"),
    ("comment", "{}", 1111, "request", "request-tag"),
];

#[test]
fn one_changed_field_is_refused_by_exactly_its_rule_and_signs_nothing() {
    let mut signer = Signer::start(&Key::random(), &["--allow-writes"]);
    let valid = signer.ask(&publish("post_message", "{}", 9, "h"));
    assert!(valid.get("published").is_some(), "the unchanged request is signed: {valid}");
    for (tool, arguments, kind, tag, expected) in CHANGED {
        let answer = signer.ask(&publish(tool, arguments, *kind, tag));
        assert_eq!(rule(&answer), *expected, "{tool} {arguments} {kind} {tag}");
        assert!(!has_signature(&answer), "{answer}");
    }
}

#[test]
fn calls_are_refused_outside_the_exposed_set() {
    let mut signer = Signer::start(&Key::random(), &["--tools", "read_room"]);
    assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some());
    for (tool, expected) in [
        ("list_rooms", "tool-not-exposed"),
        ("post_message", "writes-not-allowed"),
        ("publish_event", "tool-not-exposed"),
    ] {
        assert_eq!(rule(&signer.ask(&call(tool, "{}"))), expected);
        assert_eq!(rule(&signer.ask(&publish(tool, "{}", 9, "h"))), expected);
    }
    let narrow = signer.ask(r#"{"narrow":{"tools":["read_room"],"allow_writes":false}}"#);
    assert_eq!(rule(&narrow), "narrow-not-offered");
}

#[test]
fn events_and_proofs_past_their_rates_are_refused_with_the_wait() {
    let mut signer = Signer::start(
        &Key::random(),
        &["--allow-writes", "--max-events-per-minute", "2", "--max-proofs-per-minute", "3"],
    );
    let request = publish("post_message", "{}", 9, "h");
    for _ in 0..2 {
        assert!(signer.ask(&request).get("published").is_some());
    }
    let refused = signer.ask(&request);
    assert_eq!(rule(&refused), "rate");
    let message = refused["refused"]["message"].as_str().expect("a message");
    assert!(message.contains("2 events a minute") && message.contains("try again in"), "{message}");
    assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some(), "the third proof");
    assert_eq!(rule(&signer.ask(&call("read_room", "{}"))), "proof-rate");
}

#[test]
fn a_large_argument_is_hashed_whole_and_leaves_no_memory_behind() {
    let mut signer = Signer::start(&Key::random(), &[]);
    let arguments = format!(r#"{{"data":"{}"}}"#, "x".repeat(20 << 20));
    let first = proof(&signer.ask(&call("read_room", &arguments))["proof"]);
    let other = arguments.replacen('x', "y", 1);
    let second = proof(&signer.ask(&call("read_room", &other))["proof"]);
    assert_ne!(first.tag("payload"), second.tag("payload"));
    // The memory is given back after the answer has left, so before the next one is written.
    signer.describe();
    let resident = tinyagent_harness::status_field(signer.pid(), "VmRSS").expect("a size");
    let kibibytes: u64 = resident.trim_end_matches(" kB").parse().expect("a number");
    assert!(kibibytes < 16 << 10, "still resident: {resident}");
}

/// Whether an answer holds 64 bytes of hex anywhere, as a signature would.
fn has_signature(answer: &Value) -> bool {
    let text = answer.to_string();
    text.as_bytes().windows(128).any(|part| part.iter().all(u8::is_ascii_hexdigit)) || text.contains("Nostr ")
}
