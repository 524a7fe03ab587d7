//! Contract 5 and cases 74 and 79: what is signed, and what is not.

use std::time::Duration;

use serde_json::{Value, json};
use tinyagent_harness::catalog::{READ, WRITE};
use tinyagent_harness::{Host, HostOptions, PATIENCE, PUBKEY};
use tinyagent_relay::{Grant, Matcher, Options, Relay, Reply};

use crate::support::{assert_answered, error_of, tool_error};

/// A message's arguments.
pub const HELLO: &str = r#"{"room":"general","content":"hi"}"#;

fn unexpected(kind: impl std::fmt::Display, tool: &str) -> String {
    format!(
        "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {tool}"
    )
}

/// A relay whose every first answer is this template, and which takes every event.
pub fn relay_that_returns(template: &str) -> Relay {
    let relay = Relay::start(Options::default());
    relay.script_always(
        Matcher::when(|request| request.argument("event").is_some()),
        Reply::result(json!({"content": [], "structuredContent": {"taken": true}})),
    );
    relay.script_always(Matcher::rpc("tools/call"), Reply::template(template));
    relay
}

/// Every event that came with a call, each checked to be whole and ours.
pub fn events(relay: &Relay) -> Vec<tinyagent_relay::Event> {
    let posts = relay.posts();
    let events: Vec<_> = posts.iter().filter_map(|request| request.event()).collect();
    for event in &events {
        event.verify().expect("a valid event");
        assert_eq!(event.pubkey, PUBKEY);
    }
    events
}

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

/// A session in which each published thing is named by its event id.
struct Author {
    relay: Relay,
    host: Host,
    used: Vec<String>,
}

impl Author {
    fn start() -> Self {
        let relay = Relay::start(Options::default());
        let host = Host::with_writes(&relay);
        Self { relay, host, used: Vec::new() }
    }

    /// Publishes with a tool, checks the kind, and gives the event's id.
    fn publish(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.host.call(tool, &arguments.to_string());
        let structured = &answer["result"]["structuredContent"];
        assert_eq!(structured["accepted"], true, "{tool}: {answer}");
        let event = self.relay.published().pop().expect("an event");
        let (_, kinds) = WRITE.iter().find(|(name, _)| *name == tool).expect("a write tool");
        assert!(kinds.contains(&event.kind), "{tool} published kind {}", event.kind);
        assert_eq!((&json!(event.id), event.pubkey.as_str()), (&structured["event_id"], PUBKEY));
        assert_eq!((self.relay.executed(tool), self.relay.executed(&format!("{tool}+event"))), (1, 1));
        self.used.push(tool.into());
        event.id
    }

    fn read(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.host.call(tool, &arguments.to_string());
        assert_answered(&answer);
        answer["result"]["structuredContent"].clone()
    }
}

#[test]
fn all_seventeen_publishing_tools_publish_and_what_they_published_is_readable() {
    let mut author = Author::start();
    let repositories = author.read("list_repositories", json!({}));
    let owner = repositories["repositories"][0]["owner"].clone();
    let person = "cd".repeat(32);

    author.publish("post_message", json!({"room": "general", "content": "first"}));
    let thread = author.publish("start_thread", json!({"room": "general", "title": "Beds", "content": "?"}));
    let reply =
        author.publish("reply_in_thread", json!({"room": "general", "root": thread, "content": "North."}));
    author.publish("react", json!({"room": "general", "target": reply, "content": "🦀"}));
    let room = author.read("read_room", json!({"id": "general"})).to_string();
    assert!(room.contains("first"), "{room}");
    let read = author.read("read_thread", json!({"id": "general", "event": thread}));
    assert_eq!(read["replies"][0]["reactions"], json!(["🦀"]));

    let issue = author.publish(
        "create_issue",
        json!({"owner": owner, "repo": "garden", "title": "Slugs", "content": "Many."}),
    );
    author.publish("comment", json!({"root": issue, "content": "Beer helps."}));
    assert!(author.read("read_issue", json!({"id": issue})).to_string().contains("Beer helps."));
    let request = author.publish(
        "create_pull_request",
        json!({
            "owner": owner, "repo": "garden", "title": "Fence", "content": "", "commit": "a".repeat(40),
            "clone": "https://x.example/g.git",
        }),
    );
    assert!(author.read("read_pull_request", json!({"id": request})).to_string().contains("Fence"));

    let page = author.publish(
        "publish_wiki_page",
        json!({"d": "seeds", "title": "Seeds", "content": "More.", "fork_author": owner}),
    );
    assert_eq!(author.read("read_wiki_page", json!({"d": "seeds"}))["version"], page);
    let merge = author.publish("propose_wiki_merge", json!({"d": "seeds", "author": owner, "version": page}));
    let read = author.read("read_wiki_page", json!({"d": "seeds", "author": owner}));
    assert_eq!(read["merge_requests"], json!([merge]));

    let job = author
        .publish("request_job", json!({"content": "dig", "pubkey": person, "expiration": 4_000_000_000_u64}));
    for (tool, status) in [
        ("accept_job", "accepted"),
        ("job_progress", "processing"),
        ("job_error", "error"),
        ("job_result", "success"),
        ("cancel_job", "cancelled"),
    ] {
        author.publish(tool, json!({"job": job, "content": tool}));
        assert_eq!(author.read("read_job", json!({"id": job}))["status"], status);
    }

    author.publish(
        "request_decision",
        json!({
            "pubkey": person, "request": "approve", "content": "May I?", "room": "general",
            "expiration": 4_000_000_000_u64,
        }),
    );
    assert!(author.read("read_room", json!({"id": "general"})).to_string().contains("May I?"));
    author.relay.set_grant(PUBKEY, Grant::active(&[], &[]));
    author.relay.enforce_grants(true);
    let grant = json!({"reason": "to dig", "changes": {"kinds": [30617], "rooms": ["workshop"]}});
    author.publish("request_grant", grant);
    assert!(author.relay.published().pop().expect("an event").tag("grant").is_some());

    let mut publishing: Vec<_> = WRITE.iter().filter(|(_, kinds)| !kinds.is_empty()).map(|w| w.0).collect();
    publishing.sort_unstable();
    author.used.sort_unstable();
    assert_eq!(author.used, publishing);
    assert_eq!(author.host.end().code, Some(0));
}

#[test]
fn upload_attachment_stores_a_file_without_an_event() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let arguments = r#"{"room":"general","data":"aGVsbG8=","type":"text/plain","filename":"a.txt"}"#;
    let stored = host.call("upload_attachment", arguments)["result"]["structuredContent"].clone();
    assert_eq!(stored["size"], 5);
    assert_eq!((relay.calls_of("upload_attachment").len(), relay.published().len()), (1, 0));
    let read = host.call("read_attachment", &json!({"sha256": stored["sha256"]}).to_string());
    assert!(read.to_string().contains("aGVsbG8="), "{read}");
}

#[test]
fn case_079_each_write_tool_is_signed_for_the_kinds_of_its_row_and_for_no_other() {
    let kinds =
        [0, 1, 5, 7, 9, 11, 12, 818, 1111, 1617, 1618, 1621, 5000, 6000, 7000, 9007, 30392, 30617, 30818]
            .into_iter()
            .chain(43000..=43007)
            .chain([65_535, 65_545, 4_294_967_305, u64::MAX]);
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes"]));
    for kind in kinds {
        relay.clear_script();
        relay.script_always(
            Matcher::when(|request| request.argument("event").is_some()),
            Reply::result(json!({"content": [], "structuredContent": {"taken": true}})),
        );
        let template = format!(r#"{{"kind":{kind},"tags":[["h","general"]],"content":"x","created_at":5}}"#);
        relay.script_always(Matcher::any(), Reply::template(&template));
        for (tool, own) in WRITE {
            relay.clear_requests();
            let result = host.call(tool, "{}")["result"].clone();
            let signed = events(&relay);
            if own.contains(&kind) {
                assert_eq!((signed.len(), signed[0].kind), (1, kind), "{tool}");
                assert_eq!(result["structuredContent"]["taken"], true);
            } else {
                assert_eq!(result["content"], json!([{"type": "text", "text": unexpected(kind, tool)}]));
                assert_eq!(result["isError"], true);
                assert_eq!(result["structuredContent"]["unsigned"]["kind"], kind);
                assert_eq!((signed.len(), relay.posts().len()), (0, 1), "{tool} with kind {kind}");
            }
        }
    }
}

#[test]
fn case_079_an_authorization_kind_is_never_signed_and_refused_in_words_of_its_own() {
    for kind in [22242, 24242, 27235] {
        let relay = relay_that_returns(&format!(r#"{{"kind":{kind},"tags":[["u","x"]],"content":""}}"#));
        let mut host = Host::with_writes(&relay);
        for tool in WRITE.iter().map(|(name, _)| *name).chain(READ) {
            let text = format!("refused to sign a kind {kind} authorization event returned by {tool}");
            assert_eq!(tool_error(&host.call(tool, "{}")), text);
        }
        assert_eq!((events(&relay).len(), relay.posts().len()), (0, 35));
    }
}

#[test]
fn case_079_a_template_from_a_read_tool_is_never_signed() {
    for (kind, writes) in [(9, true), (9, false), (1111, true), (1, true)] {
        let relay = relay_that_returns(&format!(r#"{{"kind":{kind},"tags":[],"content":""}}"#));
        let args: &[&str] = if writes { &["--allow-writes"] } else { &[] };
        let mut host = Host::with(&relay, HostOptions::args(args));
        for tool in READ {
            let answer = host.call(tool, "{}");
            assert_eq!(tool_error(&answer), unexpected(kind, tool));
            assert_eq!(answer["result"]["structuredContent"]["next"], "sign");
        }
        assert_eq!((events(&relay).len(), relay.posts().len()), (0, 17));
    }
}

#[test]
fn case_079_without_allow_writes_a_write_tool_is_unknown_and_the_relay_not_contacted() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for (tool, _) in WRITE {
        let answer = host.call(tool, HELLO);
        assert_eq!(error_of(&answer).0, -32602);
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {tool}"));
    }
    assert!(relay.requests().is_empty());
}

#[test]
fn a_write_tool_that_is_not_exposed_is_unknown_even_with_allow_writes() {
    let relay = Relay::start(Options::default());
    let args = ["--allow-writes", "--tools", "read_room,react"];
    let mut host = Host::with(&relay, HostOptions::args(&args));
    assert_eq!(error_of(&host.call("post_message", HELLO)).0, -32602);
    assert!(relay.requests().is_empty());
}

#[test]
fn a_grant_is_asked_for_and_a_decision_requested_only_from_the_tools_made_for_it() {
    for (tag, owner) in [("grant", "request_grant"), ("request", "request_decision")] {
        for (tool, kinds) in WRITE.iter().filter(|(_, kinds)| !kinds.is_empty()) {
            for kind in *kinds {
                let tags = format!(r#"[["h","general"],["{tag}","approve"]]"#);
                let relay = relay_that_returns(&format!(r#"{{"kind":{kind},"tags":{tags},"content":""}}"#));
                let mut host = Host::with_writes(&relay);
                let answer = host.call(tool, "{}");
                if *tool == owner {
                    assert_eq!(answer["result"]["structuredContent"]["taken"], true, "{tool}");
                    assert_eq!(events(&relay).len(), 1);
                } else {
                    assert_eq!(tool_error(&answer), unexpected(kind, tool));
                    assert_eq!((events(&relay).len(), relay.posts().len()), (0, 1));
                }
            }
        }
    }
}

#[test]
fn an_event_argument_of_a_write_tool_is_refused_in_every_spelling_before_the_relay_is_contacted() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    for key in ["event", "Event", "EVENT", "eVeNt", r"\u0065vent", r"\u0045vent", r"EVEN\u0054"] {
        for value in ["{}", "null", "5", r#"{"kind":9}"#] {
            for (tool, _) in WRITE {
                let answer = host.call(tool, &format!(r#"{{"room":"general","{key}":{value}}}"#));
                assert_eq!(tool_error(&answer), "the event argument is filled in by tinyagent; leave it out");
            }
        }
    }
    assert!(relay.requests().is_empty());
}

#[test]
fn an_event_argument_of_a_read_tool_and_look_alikes_of_a_write_tool_are_forwarded() {
    let relay = relay_that_returns(r#"{"kind":9,"tags":[],"content":""}"#);
    let mut host = Host::with_writes(&relay);
    host.call("read_thread", r#"{"id":"general","event":"x"}"#);
    assert_eq!(relay.posts().pop().expect("a POST").argument("event"), Some(r#""x""#));
    for arguments in [
        r#"{"events":1}"#,
        r#"{"event ":1}"#,
        r#"{"a":{"event":1}}"#,
        r#"{"еvent":1}"#,
        r#"{"event\u0000":1}"#,
    ] {
        relay.clear_requests();
        assert_eq!(host.call("post_message", arguments)["result"]["structuredContent"]["taken"], true);
        assert_eq!(relay.posts()[0].arguments(), Some(arguments));
        assert_eq!(events(&relay).len(), 1);
    }
}

#[test]
fn case_079_a_template_in_the_second_answer_is_the_refusal_and_not_signed_again() {
    for (second, text) in [
        (9, unexpected(9, "post_message")),
        (1, unexpected(1, "post_message")),
        (27235, "refused to sign a kind 27235 authorization event returned by post_message".into()),
    ] {
        let relay = Relay::start(Options::default());
        let template = format!(r#"{{"kind":{second},"tags":[],"content":"again"}}"#);
        relay.script_always(Matcher::resubmission("post_message"), Reply::template(&template));
        let answer = Host::with_writes(&relay).call("post_message", HELLO);
        assert_eq!(tool_error(&answer), text);
        assert_eq!(answer["result"]["structuredContent"]["unsigned"]["content"], "again");
        assert_eq!((events(&relay).len(), relay.posts().len()), (1, 2));
    }
}

#[test]
fn case_074_the_arguments_arrive_as_the_host_wrote_them_and_the_event_comes_last() {
    let relay = relay_that_returns(r#"{"kind":9,"tags":[],"content":""}"#);
    let mut host = Host::with_writes(&relay);
    for arguments in [
        r#"{"n":9007199254740993,"x":1.0,"e":1E+2}"#,
        r#"{"m":18446744073709551616,"f":0.1,"z":-0,"big":123456789012345678901234567890,"s":1e-7}"#,
        r#"{"z":1,"a":2,"A":3,"":4}"#,
        r#"{"s":"\u00e9\/\ud83e\udd80\u0000","t":"é/🦀"}"#,
        r#"{"n":{"$serde_json::private::Number":"9"},"r":{"$serde_json::private::RawValue":"x"}}"#,
        r#"{"nested":[[],{},[{"b":[1.50,null,true]}]],"twice":{"a":1,"a":2}}"#,
        "{}",
    ] {
        relay.clear_requests();
        assert_eq!(host.call("post_message", arguments)["result"]["structuredContent"]["taken"], true);
        let posts = relay.posts();
        assert_eq!(posts[0].arguments(), Some(arguments));
        let submitted = posts[1].arguments().expect("arguments");
        let event = posts[1].argument("event").expect("an event");
        let comma = if arguments == "{}" { "" } else { "," };
        let begin = &arguments[..arguments.len() - 1];
        assert_eq!(submitted, format!("{begin}{comma}\"event\":{event}}}"));
    }
}

#[test]
fn the_host_sees_the_second_answer_whatever_it_is() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let resubmission = || Matcher::resubmission("post_message");
    relay.script(resubmission(), Reply::tool_error("restricted: not today"));
    relay.script(resubmission(), Reply::error(400, -32602, "odd event"));
    relay.script(resubmission(), Reply::result(json!({"content": [{"type": "text", "text": "fine"}]})));
    let mut text = || host.text("post_message", HELLO);
    assert_eq!([text(), text(), text()], ["permission: restricted: not today", "relay: odd event", "fine"]);
    assert_eq!(relay.posts().len(), 6);
}

#[test]
fn a_signature_past_the_rate_is_refused_by_the_signer_with_the_wait() {
    let relay = Relay::start(Options::default());
    let args = ["--allow-writes", "--max-events-per-minute", "2"];
    let mut host = Host::with(&relay, HostOptions::args(&args));
    for content in ["one", "two"] {
        let answer = host.call("post_message", &format!(r#"{{"room":"general","content":"{content}"}}"#));
        assert_eq!(answer["result"]["structuredContent"]["accepted"], true);
    }
    let text = host.text("post_message", HELLO);
    assert!(text.starts_with("signer: refused (rate): ") && text.contains(" s"), "{text}");
    assert_eq!(relay.published().len(), 2);
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn many_writes_in_a_row_are_each_published_once_with_proofs_of_their_own() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let ids: Vec<u64> = (0..20).map(|_| host.begin_call("post_message", HELLO)).collect();
    for id in ids {
        let answer = host.answer(id);
        assert_answered(&answer);
    }
    assert!(relay.wait_for(40, PATIENCE));
    let mut proofs: Vec<String> =
        relay.posts().iter().map(|post| post.proof.as_ref().expect("a proof").id.clone()).collect();
    proofs.sort_unstable();
    proofs.dedup();
    assert_eq!(proofs.len(), 40);
    assert!(host.is_quiet_for(Duration::from_millis(50)));
}
