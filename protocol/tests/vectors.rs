//! Runs every file of `protocol/vectors`; the README there says what each case means. The files are data for
//! any implementation, so nothing here computes an expectation.

#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tinyagent_protocol::VERSION;
use tinyagent_protocol::body::Body;
use tinyagent_protocol::catalog::{self, AUTHORIZATION_KINDS, Access, CATALOG, GRANT_TAG, REQUEST_TAG};
use tinyagent_protocol::event::{PublicKey, SignedEvent, UnsignedEvent};
use tinyagent_protocol::hex;
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Message, Request};
use tinyagent_protocol::policy::{Policy, Refusal};
use tinyagent_protocol::proof::{authorization, proof};
use tinyagent_protocol::relay_url::RelayUrl;
use tinyagent_protocol::template::{Recognized, Template};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// A file of vectors.
fn file(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(name)).expect(name);
    serde_json::from_str(&text).expect(name)
}

fn cases(file: &Value) -> &Vec<Value> {
    file["cases"].as_array().filter(|cases| !cases.is_empty()).expect("cases")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name}: {value}"))
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no number {name}: {value}"))
}

fn tags(value: &Value) -> Vec<Vec<String>> {
    serde_json::from_value(value["tags"].clone()).expect("tags")
}

fn json(text: &str) -> Json<'_> {
    Json::check(text.as_bytes()).expect(text).0
}

fn unsigned(value: &Value) -> UnsignedEvent {
    UnsignedEvent {
        pubkey: PublicKey::parse(text(value, "pubkey")).expect("a key"),
        created_at: number(value, "created_at"),
        kind: number(value, "kind"),
        tags: tags(value),
        content: text(value, "content").into(),
    }
}

/// The policy of a case; the relay may be the file's.
fn policy(relay: &Value, case: &Value) -> Policy {
    let relay = RelayUrl::parse(relay.as_str().expect("a relay")).expect("a relay");
    let policy = Policy::new(relay, case["tools"].as_str(), case["allow_writes"] == true).expect("a policy");
    policy.binding_arguments(case["bind_arguments"] == true)
}

/// What the policy makes of a frame: `approved`, `malformed`, or the refusal.
fn decide(policy: &Policy, frame: &str, now: u64) -> Value {
    let judged: Result<(), Refusal> = match Message::parse(frame.as_bytes()).map(|message| message.request) {
        Err(_) => return "malformed".into(),
        Ok(Request::CallTool(request)) => policy.judge_call(request).map(|_| ()),
        Ok(Request::Publish(request)) => policy.judge_publication(request, now).map(|_| ()),
        Ok(Request::ListTools(request)) => {
            policy.judge_listing(request);
            Ok(())
        }
        Ok(Request::BrowseGrant(request)) => {
            policy.judge_grant_query(request);
            Ok(())
        }
        Ok(other) => panic!("no case for {other:?}"),
    };
    match judged {
        Ok(()) => "approved".into(),
        Err(refusal) => serde_json::json!({"rule": refusal.rule.tag(), "message": refusal.message}),
    }
}

#[test]
fn every_file_of_vectors_is_run() {
    let run = HashSet::from([
        "README.md",
        "bind.json",
        "bodies.json",
        "decisions.json",
        "event-ids.json",
        "kinds.json",
        "policies.json",
        "relay-urls.json",
        // Signatures are the signer's and the Python reader's; here, their events are read and hashed.
        "signatures.json",
        "templates.json",
    ]);
    for entry in fs::read_dir(folder()).expect("the folder") {
        let name = entry.expect("an entry").file_name();
        assert!(run.contains(name.to_str().expect("a name")), "{name:?} is not run");
    }
}

#[test]
fn relay_urls() {
    for case in cases(&file("relay-urls.json")) {
        match RelayUrl::parse(text(case, "written")) {
            Ok(url) => {
                assert_eq!(
                    (url.as_str(), url.mcp().as_str()),
                    (text(case, "base"), text(case, "mcp")),
                    "{case}"
                );
                assert_eq!(url.manage(), text(case, "manage"), "{case}");
            }
            Err(error) => assert_eq!(error.to_string(), text(case, "refused"), "{case}"),
        }
    }
}

#[test]
fn policies() {
    for case in cases(&file("policies.json")) {
        let relay = RelayUrl::parse("https://relay.example").expect("a relay");
        match Policy::new(relay, case["tools"].as_str(), case["allow_writes"] == true) {
            Ok(policy) => {
                let names: Vec<&str> = policy.exposed().iter().map(|tool| tool.name).collect();
                assert_eq!(serde_json::json!(names), case["exposed"]);
            }
            Err(error) => assert_eq!(error.to_string(), text(case, "refused"), "{case}"),
        }
    }
}

#[test]
fn kinds_and_tags_of_every_tool() {
    let file = file("kinds.json");
    assert_eq!(file["authorization_kinds"], serde_json::json!(AUTHORIZATION_KINDS));
    assert_eq!(cases(&file).len(), CATALOG.len());
    let relay = Value::from("https://relay.example");
    let policy = policy(&relay, &serde_json::json!({"allow_writes": true}));
    let publish = |tool: &str, kind: u64, tag: &str| {
        let template = format!(r#"{{"kind":{kind},"tags":[["{tag}","x"]],"content":""}}"#);
        let frame =
            format!(r#"{{"publish":{{"id":1,"tool":"{tool}","arguments":{{}},"template":{template}}}}}"#);
        let decided = decide(&policy, &frame, 0);
        decided["rule"].as_str().unwrap_or("approved").to_owned()
    };
    for case in cases(&file) {
        let name = text(case, "tool");
        let tool = catalog::tool(name).expect(name);
        assert_eq!(tool.access == Access::Write, case["writes"] == true, "{name}");
        let signed: Vec<u64> = serde_json::from_value(case["signed"].clone()).expect("kinds");
        for kind in file["tried"].as_array().expect("kinds").iter().filter_map(Value::as_u64) {
            let expected = match kind {
                kind if AUTHORIZATION_KINDS.contains(&kind) => "authorization-kind",
                kind if signed.contains(&kind) => "approved",
                _ => "kind-not-expected",
            };
            assert_eq!(publish(name, kind, "h"), expected, "{name} {kind}");
        }
        for kind in signed {
            for ((tag, _), rule) in [(GRANT_TAG, "grant-tag"), (REQUEST_TAG, "request-tag")] {
                let owner = text(&file["tags"], tag);
                let expected = if name == owner { "approved" } else { rule };
                assert_eq!(publish(name, kind, tag), expected, "{name} {tag}");
            }
        }
    }
}

#[test]
fn templates() {
    for case in cases(&file("templates.json")) {
        let written = text(case, "unsigned");
        let expected = match &case["outcome"] {
            Value::String(word) if word == "other" => Recognized::Other,
            Value::String(_) => Recognized::Unsignable,
            template => Recognized::Template(Template {
                kind: number(template, "kind"),
                tags: tags(template),
                content: text(template, "content").into(),
                created_at: template["created_at"].as_u64(),
            }),
        };
        assert_eq!(Template::recognize(json(written)), expected, "{written}");
    }
}

#[test]
fn event_ids() {
    for case in cases(&file("event-ids.json")) {
        assert_eq!(unsigned(case).id().to_string(), text(case, "id"), "{}", text(case, "name"));
    }
}

#[test]
fn events_of_the_signatures() {
    for case in cases(&file("signatures.json")) {
        let written = case["event"].to_string();
        let event = SignedEvent::parse(json(&written)).expect("an event");
        assert_eq!(SignedEvent::parse(json(&event.to_json())).as_ref(), Some(&event));
        let has_own_id = event.event.id() == event.id;
        assert!(has_own_id || case["valid"] == false, "{}", text(case, "name"));
    }
}

/// The one version that a body names.
fn in_our_version(body: &str, version: &str) -> String {
    body.replace(&format!("\"version\":\"{version}\""), &format!("\"version\":\"{VERSION}\""))
}

#[test]
fn bodies() {
    let file = file("bodies.json");
    let (pubkey, now) = (PublicKey::parse(text(&file, "pubkey")).expect("a key"), number(&file, "now"));
    let nonce: [u8; 16] = hex::decode(text(&file, "nonce")).expect("a nonce");
    for case in cases(&file) {
        let (name, frame) = (text(case, "name"), text(case, "request"));
        let policy = policy(&case["relay"], &serde_json::json!({"allow_writes": true}));
        let check = |body: Body<'_>| {
            assert_eq!(body.endpoint().url(policy.relay()), text(case, "url"), "{name}");
            assert_eq!(
                body.pieces().concat(),
                in_our_version(text(case, "body"), text(&file, "version")),
                "{name}"
            );
            let ours = proof(&policy, &body, pubkey, nonce, now);
            assert_eq!(ours.tags[2][1], hex::encode(&body.payload()), "{name}");
            if VERSION == text(&file, "version") {
                assert_eq!(ours.tags[2][1], text(case, "payload"), "{name}");
                assert_eq!(ours, unsigned(&case["proof"]), "{name}");
                let written = case["proof"].to_string();
                let signed = SignedEvent::parse(json(&written)).expect("a proof");
                assert_eq!(authorization(&signed), text(case, "authorization"), "{name}");
            }
        };
        match Message::parse(frame.as_bytes()).expect(frame).request {
            Request::ListTools(request) => check(policy.judge_listing(request).body()),
            Request::BrowseGrant(request) => check(policy.judge_grant_query(request).body()),
            Request::CallTool(request) => check(policy.judge_call(request).expect(name).body()),
            Request::Publish(request) => {
                let approved = policy.judge_publication(request, now).expect(name);
                let written = case["event"].to_string();
                let event = SignedEvent::parse(json(&written)).expect("an event");
                assert_eq!(approved.template.event(pubkey, now), event.event, "{name}");
                assert_eq!(event.event.id(), event.id, "{name}");
                check(approved.body(&event));
            }
            other => panic!("no body for {other:?}"),
        }
    }
}

#[test]
fn decisions() {
    let file = file("decisions.json");
    for case in cases(&file) {
        let decided = decide(&policy(&file["relay"], case), text(case, "request"), number(&file, "now"));
        assert_eq!(decided, case["outcome"], "{}", text(case, "name"));
    }
}

#[test]
fn bound_arguments() {
    let file = file("bind.json");
    let policy = policy(&file["relay"], &serde_json::json!({"allow_writes": true, "bind_arguments": true}));
    for case in cases(&file) {
        let frame = format!(
            r#"{{"publish":{{"id":1,"tool":"{}","arguments":{},"template":{}}}}}"#,
            text(case, "tool"),
            text(case, "arguments"),
            case["template"]
        );
        let expected = match case["refused"].as_str() {
            None => "approved".into(),
            Some(message) => serde_json::json!({"rule": "arguments-mismatch", "message": message}),
        };
        assert_eq!(decide(&policy, &frame, number(&file, "now")), expected, "{}", text(case, "name"));
    }
}
