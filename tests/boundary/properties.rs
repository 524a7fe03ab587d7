//! Claim 4 over random and mutated requests: whatever signature comes back verifies against the policy, or
//! nothing comes back.
//!
//! What a signature may stand for is judged by `wire`, which shares no code with the signer.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::Value;
use serde_json::value::RawValue;
use tinyagent_relay::{Event, sha256_hex};

use crate::peer::{MALFORMED, Peer, RELAY, event_in, proof_in};
use crate::wire::{self, AUTHORIZATIONS};

/// The policy of the signer under attack: some tools of each sort, no others.
const EXPOSED: [&str; 7] = [
    "read_room",
    "list_rooms",
    "post_message",
    "comment",
    "request_grant",
    "request_decision",
    "upload_attachment",
];

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

fn start() -> Peer {
    let tools = EXPOSED.join(",");
    Peer::start(&["--tools", &tools, "--allow-writes", "--max-events-per-minute", "4000000000"])
}

/// JSON text of a string.
fn string() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[a-z]{0,8}",
        2 => any::<String>(),
        1 => Just("}},\"name\":\"publish_event\",\"x\":{\"y\":\"".to_owned()),
    ];
    text.prop_map(|text| serde_json::to_string(&text).expect("a text"))
}

/// JSON text of an object's key; often one that matters.
fn key() -> impl Strategy<Value = String> {
    let known = [
        "event",
        "Event",
        "EVENT",
        "eVeNT",
        "\\u0065vent",
        "e\\u0056ent",
        "events",
        "name",
        "arguments",
        "_meta",
        "method",
        "room",
        "content",
        "url",
    ];
    prop_oneof![select(known.to_vec()).prop_map(|key| format!("\"{key}\"")), string()]
}

/// JSON text of any value, with white space in places.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        select(&["-0", "1E+2", "1.0", "9007199254740993", "123456789012345678901234567890"][..])
            .prop_map(str::to_owned),
        string(),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::vec((key(), inner), 0..4).prop_map(members),
        ]
    })
}

fn members(members: Vec<(String, String)>) -> String {
    let members: Vec<String> = members.iter().map(|(key, value)| format!("{key} :{value}")).collect();
    format!("{{{}}}", members.join(", "))
}

/// JSON text of the arguments: mostly an object.
fn arguments() -> impl Strategy<Value = String> {
    let object = prop::collection::vec((key(), value()), 0..4).prop_map(members);
    prop_oneof![16 => object, 4 => Just("{}".to_owned()), 1 => Just("{ \n}".to_owned()), 1 => value()]
}

/// JSON text of a tool's name: mostly exposed.
fn tool() -> impl Strategy<Value = String> {
    let others: Vec<&'static str> =
        wire::READ.into_iter().chain(wire::WRITE.iter().map(|(name, _)| *name)).collect();
    let foreign =
        ["publish_event", "read_management", "Post_message", "post_message ", "post_message\\u0000"];
    prop_oneof![
        12 => select(&EXPOSED[..]).prop_map(|name| format!("\"{name}\"")),
        2 => select(others).prop_map(|name| format!("\"{name}\"")),
        1 => select(foreign.to_vec()).prop_map(|name| format!("\"{name}\"")),
        1 => string(),
    ]
}

fn kind() -> impl Strategy<Value = u64> {
    let known = [9_u64, 1111, 7, 11, 1621, 27235, 22242, 24242, 1, 0, 30023];
    prop_oneof![6 => select(&[9_u64, 1111][..]), 2 => select(known.to_vec()), 1 => any::<u64>()]
}

/// JSON text of a tag list.
fn tags() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => select(&["\"h\"", "\"e\"", "\"p\"", "\"-\""][..]).prop_map(str::to_owned),
        1 => select(&["\"grant\"", "\"request\"", "\"\\u0067rant\"", "\"Grant\""][..]).prop_map(str::to_owned),
        2 => string(),
    ];
    let tag = (name, prop::collection::vec(string(), 0..3))
        .prop_map(|(name, rest)| format!("[{}]", [vec![name], rest].concat().join(",")));
    prop::collection::vec(tag, 0..4).prop_map(|tags| format!("[{}]", tags.join(", ")))
}

fn template() -> impl Strategy<Value = String> {
    (kind(), tags(), string(), prop::option::of(any::<u32>())).prop_map(|(kind, tags, content, at)| {
        let at = at.map(|at| format!(",\"created_at\":{at}")).unwrap_or_default();
        format!("{{\"kind\":{kind},\"tags\":{tags},\"content\":{content}{at}}}")
    })
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![any::<u64>().prop_map(|id| id.to_string()), Just("0".to_owned())]
}

/// A request as the protocol writes it, its parts at random.
fn request() -> impl Strategy<Value = String> {
    let list = |item: BoxedStrategy<String>| {
        prop::option::of(prop::collection::vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(","))))
    };
    prop_oneof![
        1 => (id(), prop::option::of(string())).prop_map(|(id, cursor)| {
            let cursor = cursor.map(|cursor| format!(",\"cursor\":{cursor}")).unwrap_or_default();
            format!("{{\"list_tools\":{{\"id\":{id}{cursor}}}}}")
        }),
        6 => (id(), tool(), arguments()).prop_map(|(id, tool, arguments)| {
            format!("{{\"call_tool\":{{\"id\":{id},\"tool\":{tool},\"arguments\":{arguments}}}}}")
        }),
        12 => (id(), tool(), arguments(), template()).prop_map(|(id, tool, arguments, template)| {
            format!(
                "{{\"publish\":{{\"template\":{template},\"tool\":{tool},\"id\":{id},\"arguments\":{arguments}}}}}"
            )
        }),
        1 => (list(string().boxed()), list(any::<u32>().prop_map(|kind| kind.to_string()).boxed()))
            .prop_map(|(rooms, kinds)| {
                let member = |name, list: Option<String>| list.map(|list| format!("\"{name}\":{list}"));
                let members: Vec<String> =
                    [member("rooms", rooms), member("kinds", kinds)].into_iter().flatten().collect();
                format!("{{\"browse_grant\":{{{}}}}}", members.join(","))
            }),
        1 => any::<bool>().prop_map(|writes| format!("{{\"narrow\":{{\"tools\":[],\"allow_writes\":{writes}}}}}")),
    ]
}

/// One change of a frame's bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let marks =
        ["{", "}", "\"", "\\", ",", ":", "[", "]", "0", "\"id\":1,", "\"event\":1,", "}}", "\\u0065", " "];
    let insert = prop_oneof![
        select(marks.to_vec()).prop_map(|mark| mark.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4)
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), insert).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Remove(from, to)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

fn mutate(frame: &mut Vec<u8>, mutation: &Mutation) {
    let range = |from: &Index, to: &Index, length: usize| {
        let (from, to) = (from.index(length), to.index(length));
        // Short pieces, or little of a request would be left.
        from.min(to)..from.max(to).min(from.min(to) + 24)
    };
    match mutation {
        _ if frame.is_empty() => {}
        Mutation::Set(at, byte) => {
            let at = at.index(frame.len());
            frame[at] = *byte;
        }
        Mutation::Insert(at, bytes) => {
            let at = at.index(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
        Mutation::Remove(from, to) => drop(frame.drain(range(from, to, frame.len()))),
        Mutation::Repeat(from, to) => {
            let piece = frame[range(from, to, frame.len())].to_vec();
            let at = to.index(frame.len());
            frame.splice(at..at, piece);
        }
    }
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
    if wire::writes(&tool) {
        let event = arguments.iter().flatten().find(|(key, _)| key.to_lowercase() == "event");
        prop_assert!(event.is_none(), "an event argument");
    }
    Ok(tool)
}

fn judge_proof(proof: &Event, frame: &str, event: Option<&Event>, public: &str) -> Result<(), TestCaseError> {
    let body = body_of(frame, event);
    prop_assert!(body.is_some(), "a proof for what is no request");
    let (body, path) = body.expect("just judged");
    serde_json::from_str::<Value>(&body).map_err(|error| TestCaseError::fail(format!("{error}: {body}")))?;
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
    let kinds = wire::kinds_of(tool).expect("exposed");
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

/// Sends a frame and judges what comes back.
fn judge(peer: &mut Peer, frame: &[u8], outcomes: &Outcomes) -> Result<(), TestCaseError> {
    let Some(answer) = peer.try_ask(frame) else {
        count(&outcomes.ends);
        // An empty frame is announced as such, and ends it as any other.
        prop_assert_eq!(peer.end(), Some(MALFORMED));
        *peer = start();
        return Ok(());
    };
    let text = std::str::from_utf8(frame).map_err(|_| TestCaseError::fail("bad UTF-8 was answered"))?;
    let public = peer.public.clone();
    let name = answer.as_object().and_then(|answer| answer.keys().next().cloned()).unwrap_or_default();
    match name.as_str() {
        "proof" => {
            count(&outcomes.proofs);
            if text.contains("call_tool") && object(text).is_some_and(|o| o.contains_key("call_tool")) {
                judge_call(text)?;
            }
            judge_proof(&proof_in(&answer["proof"]), text, None, &public)
        }
        "published" => {
            count(&outcomes.events);
            let event = event_in(&answer);
            let tool = judge_call(text)?;
            judge_event(&event, &tool, text, &public)?;
            judge_proof(&proof_in(&answer["published"]), text, Some(&event), &public)
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

fn run<S: Strategy>(
    strategy: S,
    judge_case: impl Fn(&mut Peer, S::Value, &Outcomes) -> Result<(), TestCaseError>,
) -> Outcomes {
    let (peer, outcomes) = (RefCell::new(start()), Outcomes::default());
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let result =
        TestRunner::new(config).run(&strategy, |value| judge_case(&mut peer.borrow_mut(), value, &outcomes));
    if let Err(failed) = result {
        panic!("{failed}");
    }
    println!(
        "{} proofs, {} events, {} refusals, {} ends",
        outcomes.proofs.get(),
        outcomes.events.get(),
        outcomes.refusals.get(),
        outcomes.ends.get()
    );
    outcomes
}

#[test]
fn whatever_is_signed_for_a_random_request_is_what_the_policy_allows() {
    let outcomes = run(request(), |peer, request, outcomes| judge(peer, request.as_bytes(), outcomes));
    // A run without each of these would have judged nothing.
    let enough = cases() / 100;
    assert!(outcomes.proofs.get() > enough && outcomes.events.get() > enough, "too little was signed");
    assert!(outcomes.refusals.get() > enough, "too little was refused");
}

#[test]
fn whatever_is_signed_for_a_mutated_request_is_what_the_policy_allows() {
    let mutations = prop::collection::vec(mutation(), 1..4);
    let outcomes = run((request(), mutations), |peer, (request, mutations), outcomes| {
        let mut frame = request.into_bytes();
        for mutation in &mutations {
            mutate(&mut frame, mutation);
        }
        judge(peer, &frame, outcomes)
    });
    assert!(outcomes.ends.get() > cases() / 10, "too little was malformed");
    assert!(outcomes.proofs.get() + outcomes.events.get() > 0, "nothing was signed at all");
}
