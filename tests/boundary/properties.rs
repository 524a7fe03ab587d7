//! Claim 4 over random and mutated requests: whatever signature comes back verifies against the policy, or
//! nothing comes back.
//!
//! What a signature may stand for is judged by `wire` and the harness' catalog, which share no code with the signer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::Value;
use serde_json::value::RawValue;
use tinyagent_harness::catalog::{AUTHORIZATIONS, kinds_of, writes};
use tinyagent_relay::{Event, sha256_hex};

use crate::peer::{MALFORMED, Peer, RELAY, event_in, proof_in};
use crate::requests::{EXPOSED, Mutation, mutate, mutation, request};
use crate::wire;

/// Rules that may refuse a request of this sort; a name outside would be an answer that nobody knows.
const RULES: [&str; 7] = [
    "tool-not-exposed",
    "event-argument",
    "kind-not-expected",
    "authorization-kind",
    "grant-tag",
    "request-tag",
    "narrow-not-offered",
];

/// How many requests a run tries. Set `TINYAGENT_CASES` for a longer one.
fn cases() -> u32 {
    std::env::var("TINYAGENT_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
}

/// A signer that allows some tools of each sort and no others.
fn start() -> Peer {
    let tools = EXPOSED.join(",");
    Peer::start(&["--tools", &tools, "--allow-writes", "--max-events-per-minute", "4000000000"])
}

/// The members of an object as JSON text, or None for what is none. Of a repeated key the last is taken; the
/// signer takes none of these.
fn object(text: &str) -> Option<BTreeMap<String, Box<RawValue>>> {
    text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

fn decoded(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// A JSON string written anew, as a body carries it.
fn written_anew(text: &str) -> Option<String> {
    decoded(text).map(|text| serde_json::to_string(&text).expect("a text"))
}

/// The body that a proof for this frame may be for, the event already known where one was signed.
fn body_of(frame: &str, event: Option<&Event>) -> Option<(String, &'static str)> {
    let request = object(frame)?;
    let (name, fields) = request.iter().next().filter(|_| request.len() == 1)?;
    let fields = object(fields.get())?;
    let field = |name: &str| fields.get(name).map(|value| value.get());
    match name.as_str() {
        "list_tools" => {
            let cursor = field("cursor").map(written_anew);
            let cursor = if let Some(cursor) = cursor { Some(cursor?) } else { None };
            Some((wire::list_body(field("id")?, cursor.as_deref()), "/mcp"))
        }
        "call_tool" => {
            Some((wire::call_body(field("id")?, &decoded(field("tool")?)?, field("arguments")?), "/mcp"))
        }
        "publish" => {
            let arguments = wire::with_event(field("arguments")?, &wire::json(event?));
            Some((wire::call_body(field("id")?, &decoded(field("tool")?)?, &arguments), "/mcp"))
        }
        "browse_grant" => {
            let rooms: Option<Vec<String>> = field("rooms").map(serde_json::from_str).transpose().ok()?;
            let kinds: Option<Vec<u64>> = field("kinds").map(serde_json::from_str).transpose().ok()?;
            let rooms = rooms.map(|rooms| serde_json::to_string(&rooms).expect("texts"));
            let kinds = kinds.map(|kinds| serde_json::to_string(&kinds).expect("numbers"));
            Some((wire::grant_body(rooms.as_deref(), kinds.as_deref()), "/manage/rpc"))
        }
        _ => None,
    }
}

/// Insists that the policy allows the call for which something was signed.
fn judge_call(frame: &str) -> Result<String, TestCaseError> {
    let request = object(frame).expect("judged before");
    let fields = object(request.values().next().expect("one request").get()).expect("judged before");
    let tool = decoded(fields["tool"].get()).expect("judged before");
    prop_assert!(EXPOSED.contains(&tool.as_str()), "{tool} is not exposed");
    let arguments = object(fields["arguments"].get());
    prop_assert!(arguments.is_some(), "arguments that are no object");
    if writes(&tool) {
        let event = arguments.iter().flatten().find(|(key, _)| key.to_lowercase() == "event");
        prop_assert!(event.is_none(), "an event argument");
    }
    Ok(tool)
}

fn judge_proof(proof: &Event, frame: &str, event: Option<&Event>, public: &str) -> Result<(), TestCaseError> {
    let body = body_of(frame, event);
    prop_assert!(body.is_some(), "a proof for what is no request");
    let (body, path) = body.expect("just judged");
    // As text alone, since a number may be larger than any that a value holds, such as 1e999.
    serde_json::from_str::<&RawValue>(&body)
        .map_err(|error| TestCaseError::fail(format!("{error}: {body}")))?;
    prop_assert_eq!((proof.kind, proof.content.as_str(), proof.pubkey.as_str()), (27235, "", public));
    let names: Vec<&str> = proof.tags.iter().map(|tag| tag[0].as_str()).collect();
    prop_assert_eq!(names, ["u", "method", "payload", "nonce"]);
    prop_assert!(proof.tags.iter().all(|tag| tag.len() == 2));
    let url = format!("{RELAY}{path}");
    prop_assert_eq!(proof.tag("u"), Some(url.as_str()));
    prop_assert_eq!(proof.tag("method"), Some("POST"));
    let hash = sha256_hex(body.as_bytes());
    prop_assert_eq!(proof.tag("payload"), Some(hash.as_str()), "the body is {}", body);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    prop_assert!(proof.created_at.abs_diff(now) <= 5, "made at {}", proof.created_at);
    Ok(())
}

fn judge_event(event: &Event, tool: &str, frame: &str, public: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(event.pubkey.as_str(), public);
    prop_assert!(!AUTHORIZATIONS.contains(&event.kind), "an authorization");
    let kinds = kinds_of(tool).expect("exposed");
    prop_assert!(kinds.contains(&event.kind), "kind {} from {}", event.kind, tool);
    for (tag, owner) in [("grant", "request_grant"), ("request", "request_decision")] {
        let has = event.tags.iter().any(|names| names[0] == tag);
        prop_assert!(!has || tool == owner, "a {tag} tag from {tool}");
    }
    let fields = object(object(frame).expect("judged")["publish"].get()).expect("judged");
    let template: Value = serde_json::from_str(fields["template"].get()).expect("judged");
    prop_assert_eq!(&serde_json::json!(event.kind), &template["kind"]);
    prop_assert_eq!(&serde_json::json!(event.tags), &template["tags"]);
    prop_assert_eq!(&serde_json::json!(event.content), &template["content"]);
    if let Some(at) = template.get("created_at") {
        prop_assert_eq!(&serde_json::json!(event.created_at), at);
    }
    Ok(())
}

/// What came of all requests of a run.
#[derive(Default)]
struct Outcomes {
    proofs: Cell<u32>,
    events: Cell<u32>,
    refusals: Cell<u32>,
    ends: Cell<u32>,
}

fn count(counter: &Cell<u32>) {
    counter.set(counter.get() + 1);
}

/// Whether the signer is still there.
#[derive(PartialEq, Eq)]
enum Judged {
    Answered,
    Ended,
}

/// Sends a frame and judges what comes back.
fn judge(peer: &mut Peer, frame: &[u8], outcomes: &Outcomes) -> Result<Judged, TestCaseError> {
    let Some(answer) = peer.try_ask(frame) else {
        count(&outcomes.ends);
        prop_assert_eq!(peer.end(), Some(MALFORMED));
        return Ok(Judged::Ended);
    };
    judge_answer(&answer, frame, &peer.public, outcomes).map(|()| Judged::Answered)
}

fn judge_answer(
    answer: &Value,
    frame: &[u8],
    public: &str,
    outcomes: &Outcomes,
) -> Result<(), TestCaseError> {
    let text = std::str::from_utf8(frame).map_err(|_| TestCaseError::fail("bad UTF-8 was answered"))?;
    let name = answer.as_object().and_then(|answer| answer.keys().next().cloned()).unwrap_or_default();
    match name.as_str() {
        "proof" => {
            count(&outcomes.proofs);
            if object(text).is_some_and(|request| request.contains_key("call_tool")) {
                judge_call(text)?;
            }
            judge_proof(&proof_in(&answer["proof"]), text, None, public)
        }
        "published" => {
            count(&outcomes.events);
            let event = event_in(answer);
            let tool = judge_call(text)?;
            judge_event(&event, &tool, text, public)?;
            judge_proof(&proof_in(&answer["published"]), text, Some(&event), public)
        }
        "refused" => {
            count(&outcomes.refusals);
            let rule = answer["refused"]["rule"].as_str().unwrap_or_default();
            prop_assert!(RULES.contains(&rule), "{answer}");
            prop_assert!(!answer.to_string().contains("Nostr "), "{answer}");
            Ok(())
        }
        "description" => Ok(()),
        _ => Err(TestCaseError::fail(format!("an unknown answer: {answer}"))),
    }
}

/// Judges this many cases; the first that fails is the error.
fn run<S: Strategy>(
    cases: u32,
    start: impl Fn() -> Peer,
    strategy: S,
    frame_of: impl Fn(S::Value) -> Vec<u8>,
) -> Result<Outcomes, String> {
    let (peer, outcomes) = (RefCell::new(start()), Outcomes::default());
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&strategy, |value| {
        let (mut peer, frame) = (peer.borrow_mut(), frame_of(value));
        let judged = judge(&mut peer, &frame, &outcomes)?;
        if judged == Judged::Ended {
            *peer = start();
        }
        Ok(())
    });
    let Outcomes { proofs, events, refusals, ends } = &outcomes;
    println!(
        "{} proofs, {} events, {} refusals, {} ends",
        proofs.get(),
        events.get(),
        refusals.get(),
        ends.get()
    );
    result.map(|()| outcomes).map_err(|failed| failed.to_string())
}

fn passed(result: Result<Outcomes, String>) -> Outcomes {
    result.unwrap_or_else(|failed| panic!("{failed}"))
}

#[test]
fn whatever_is_signed_for_a_random_request_is_what_the_policy_allows() {
    let outcomes = passed(run(cases(), start, request(), String::into_bytes));
    // A run without each of these would have judged nothing.
    let enough = cases() / 100;
    assert!(outcomes.proofs.get() > enough && outcomes.events.get() > enough, "too little was signed");
    assert!(outcomes.refusals.get() > enough, "too little was refused");
}

#[test]
fn whatever_is_signed_for_a_mutated_request_is_what_the_policy_allows() {
    let mutations = prop::collection::vec(mutation(), 1..4);
    let frame_of = |(request, mutations): (String, Vec<Mutation>)| {
        let mut frame = request.into_bytes();
        mutations.iter().for_each(|mutation| mutate(&mut frame, mutation));
        frame
    };
    let outcomes = passed(run(cases(), start, (request(), mutations), frame_of));
    assert!(outcomes.ends.get() > cases() / 10, "too little was malformed");
    assert!(outcomes.proofs.get() + outcomes.events.get() > 0, "nothing was signed at all");
}

#[test]
fn the_judge_notices_a_signer_that_allows_more_than_the_policy_it_judges_by() {
    let failed = run(cases(), Peer::with_everything, request(), String::into_bytes).err();
    let failed = failed.expect("a signature for a tool that is not exposed");
    assert!(failed.contains("is not exposed"), "{failed}");
}

#[test]
fn a_number_larger_than_any_that_a_value_holds_is_judged_as_its_text() {
    let outcomes = Outcomes::default();
    let frame = r#"{"call_tool":{"id":0,"tool":"read_room","arguments":{"n":1E3456}}}"#;
    judge(&mut start(), frame.as_bytes(), &outcomes).expect("judged");
    assert_eq!(outcomes.proofs.get(), 1);
}
