//! Contract 4: what leaves for the relay, header by header and byte for byte.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;
use tinyagent_harness::{Host, HostOptions, PUBKEY, call, request, run};
use tinyagent_relay::{Event, Options, Relay, Request, clock, sha256_hex};

use crate::outcome::assert_answered;

/// A listing, a read, a write with its submission, and a diagnosis.
fn one_of_each() -> (Relay, Vec<Arc<Request>>) {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    host.ask("tools/list", "{}");
    assert_answered(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("post_message", r#"{"room":"general","content":"Zürich"}"#));
    host.call("tiny_diagnose", "{}");
    assert_eq!(host.end().code, Some(0));
    let posts = relay.posts();
    assert_eq!(posts.len(), 5);
    (relay, posts)
}

#[test]
fn case_114_each_header_is_sent_once_and_says_what_the_body_says() {
    let (relay, posts) = one_of_each();
    for post in posts.iter().filter(|post| post.target == "/mcp") {
        let body = post.json().expect("JSON");
        let only = |name: &str| {
            let values: Vec<&str> = post.headers_named(name).collect();
            assert_eq!(values.len(), 1, "{name}: {values:?}");
            values[0].to_owned()
        };
        assert_eq!(only("content-type"), "application/json");
        assert_eq!(only("accept"), "application/json, text/event-stream");
        assert_eq!(only("mcp-protocol-version"), "2026-07-28");
        assert_eq!(only("mcp-method"), body["method"]);
        assert_eq!(only("host"), relay.address().to_string());
        assert_eq!(only("content-length"), post.body.len().to_string());
        assert!(only("authorization").starts_with("Nostr "));
        if body["method"] == "tools/call" {
            assert_eq!(only("mcp-name"), body["params"]["name"]);
        } else {
            assert_eq!(post.header("mcp-name"), None);
        }
    }
}

#[test]
fn no_header_is_sent_twice_and_none_that_names_a_site_or_a_session() {
    let (_relay, posts) = one_of_each();
    let mut known: HashSet<&str> = HashSet::from([
        "host",
        "authorization",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
    ]);
    known.extend(["user-agent"]);
    for post in &posts {
        let names: Vec<String> = post.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let distinct: HashSet<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(distinct.len(), names.len(), "a header twice: {names:?}");
        assert!(distinct.is_subset(&known), "an unexpected header: {names:?}");
    }
}

#[test]
fn the_body_carries_our_meta_and_never_the_hosts() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let theirs = r#"{"progressToken":1,"io.modelcontextprotocol/protocolVersion":"1999-01-01","x":[]}"#;
    let id = host.take_id();
    let params = format!(r#"{{"_meta":{theirs},"name":"list_rooms","arguments":{{}},"task":{{"ttl":5}}}}"#);
    host.send(&request(id, "tools/call", &params));
    assert_answered(&host.answer(id));
    host.ask("tools/list", &format!(r#"{{"_meta":{theirs}}}"#));
    for (post, keys) in relay.posts().iter().zip([&["_meta", "arguments", "name"][..], &["_meta"]]) {
        let body = post.json().expect("JSON");
        let members =
            |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(members(&body), ["id", "jsonrpc", "method", "params"]);
        assert_eq!(members(&body["params"]), keys);
        let client = json!({"name": "tinyagent", "version": env!("CARGO_PKG_VERSION")});
        let ours = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": client,
        });
        assert_eq!(body["params"]["_meta"], ours);
    }
}

#[test]
fn cases_118_to_120_every_proof_is_padded_base64_of_an_event_bound_to_this_request() {
    let (relay, posts) = one_of_each();
    let mut nonces = HashSet::new();
    for post in &posts {
        let token = post.header("authorization").and_then(|value| value.strip_prefix("Nostr "));
        let token = token.expect("the scheme word and one space");
        assert!(token.len().is_multiple_of(4));
        let event = String::from_utf8(STANDARD.decode(token).expect("standard base64")).expect("UTF-8");
        let event = Event::parse(&event).expect("an event");
        assert_eq!((event.kind, event.content.as_str(), event.pubkey.as_str()), (27235, "", PUBKEY));
        let names: Vec<&str> = event.tags.iter().map(|tag| tag[0].as_str()).collect();
        assert_eq!(names, ["u", "method", "payload", "nonce"]);
        assert!(event.tags.iter().all(|tag| tag.len() == 2));
        assert_eq!(event.tag("u"), Some(&*format!("{}{}", relay.origin(), post.target)));
        assert_eq!(event.tag("method"), Some("POST"));
        assert_eq!(event.tag("payload"), Some(&*sha256_hex(&post.body)));
        assert!(nonces.insert(event.tag("nonce").expect("a nonce").to_owned()), "a nonce twice");
        assert!(event.created_at <= clock::unix_now(), "a time in the future");
        assert_eq!(post.proof.as_ref(), Some(&event), "{:?}", post.proof_error);
    }
    assert_eq!(posts.last().expect("the diagnosis").target, "/manage/rpc");
}

#[test]
fn case_116_twenty_equal_calls_in_a_second_and_two_processes_with_one_key_are_all_accepted() {
    let relay = Relay::start(Options::default());
    let mut hosts = [Host::start(&relay), Host::start(&relay)];
    let ids: Vec<Vec<u64>> =
        hosts.iter_mut().map(|host| (0..20).map(|_| host.begin_call("list_rooms", "{}")).collect()).collect();
    for (host, ids) in hosts.iter_mut().zip(ids) {
        ids.into_iter().for_each(|id| assert_answered(&host.answer(id)));
    }
    assert_eq!(relay.executed("list_rooms"), 40);
    assert!(relay.posts().iter().all(|post| post.proof.is_some()));
}

#[test]
fn case_117_the_proof_names_exactly_the_url_that_is_sent_however_the_relay_is_spelled() {
    type Spelling = (&'static str, fn(u16) -> String, &'static str);
    let spellings: [Spelling; 9] = [
        ("", |port| format!("http://127.0.0.1:{port}"), "127.0.0.1"),
        ("", |port| format!("http://127.0.0.1:{port}/"), "127.0.0.1"),
        ("", |port| format!("HTTP://LocalHost:{port}"), "localhost"),
        ("", |port| format!("ws://127.0.0.1:{port}"), "127.0.0.1"),
        ("", |port| format!("WS://LOCALHOST:0{port}/"), "localhost"),
        ("/r/acme", |port| format!("http://127.0.0.1:{port}/r/acme"), "127.0.0.1"),
        ("/r/acme", |port| format!("ws://127.0.0.1:{port}/r/acme/"), "127.0.0.1"),
        ("/R/Acme", |port| format!("http://127.0.0.1:{port}/R/Acme"), "127.0.0.1"),
        ("/r/%C3%A9%2f", |port| format!("http://127.0.0.1:{port}/r/%C3%A9%2f/"), "127.0.0.1"),
    ];
    for (prefix, spell, host_name) in spellings {
        let relay = Relay::start(Options { prefix: prefix.into(), ..Options::default() });
        let mut host = Host::at(&spell(relay.port()), HostOptions::default());
        assert_answered(&host.call("list_rooms", "{}"));
        assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
        for post in relay.posts() {
            let authority = format!("{host_name}:{}", relay.port());
            assert_eq!(post.header("host"), Some(&*authority));
            let url = format!("http://{authority}{}", post.target);
            assert_eq!(post.proof.as_ref().and_then(|proof| proof.tag("u")), Some(&*url), "{prefix}");
            assert!(post.target.starts_with(prefix));
        }
    }
}

#[test]
fn case_117_the_default_port_stands_neither_in_the_url_nor_in_the_host_header() {
    let options = Options { listen: vec!["127.117.0.1:80".into()], ..Options::default() };
    let Ok(relay) = Relay::try_start(options) else {
        return eprintln!("left out: port 80 cannot be listened on here");
    };
    for spelling in ["http://127.117.0.1", "HTTP://127.117.0.1:80/", "ws://127.117.0.1:080"] {
        relay.clear_requests();
        let mut host = Host::at(spelling, HostOptions::default());
        assert_answered(&host.call("list_rooms", "{}"));
        let post = &relay.posts()[0];
        assert_eq!(post.header("host"), Some("127.117.0.1"));
        assert_eq!(post.proof.as_ref().and_then(|p| p.tag("u")), Some("http://127.117.0.1/mcp"));
    }
}

#[test]
fn case_117_urls_that_are_no_relays_are_refused_at_start_without_repeating_a_password() {
    for (url, said) in [
        ("https://agent:hunter2@relay.test", "user name or a password"),
        ("https://hunter2@relay.test/r/acme", "user name or a password"),
        ("https://relay.test/?token=hunter2", "query"),
        ("https://relay.test/mcp?hunter2", "query"),
        ("https://relay.test/#hunter2", "fragment"),
        ("ftp://relay.test/hunter2", "begins with https://"),
        ("relay.test/hunter2", "begins with https://"),
        ("https:///hunter2", "no host"),
        ("https://relay.test:hunter2/", "port"),
        ("https://relay.test/../hunter2", "path"),
    ] {
        let output = run(&["mcp", "--relay", url], &[("TINY_PRIVATE_KEY", tinyagent_harness::KEY)]);
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(1), "{url}: {stderr}");
        assert!(stderr.contains(said) && stderr.lines().count() == 1, "{url}: {stderr}");
        assert!(!stderr.contains("hunter2"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn case_74_arguments_travel_as_the_host_wrote_them() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for arguments in [
        r#"{"n":9007199254740993,"x":1.0,"e":1E+2}"#,
        r#"{"m":18446744073709551616,"f":0.1,"z":-0,"big":123456789012345678901234567890,"tiny":1e-400}"#,
        r#"{"z":1,"a":{"z":[1.50,{"b":2,"a":1}],"a":null},"m":true}"#,
        r#"{"s":"\u00e9\/\b\u007f\ud83e\udd80","raw":"é/🦀","k\u0065y":1}"#,
        "{ \"spaced\" :\t[ 1 , 2 ] }",
        "{}",
    ] {
        host.call("list_jobs", arguments);
        let calls = relay.calls_of("list_jobs");
        assert_eq!(calls.last().expect("a call").arguments(), Some(arguments));
    }
    let id = host.take_id();
    host.send(&request(id, "tools/call", r#"{"name":"list_jobs","arguments":null}"#));
    host.answer(id);
    assert_eq!(relay.calls_of("list_jobs").last().expect("a call").arguments(), Some("{}"));
}

#[test]
fn the_arguments_of_a_submission_are_the_same_bytes_with_the_event_as_the_last_key() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let arguments = r#"{"content":"\u00fcber \/ 🦀","room":"general"}"#;
    assert_answered(&host.call("post_message", arguments));
    let calls = relay.calls_of("post_message");
    assert_eq!(calls[0].arguments(), Some(arguments));
    let submitted = calls[1].arguments().expect("arguments");
    let event = submitted.strip_prefix(&arguments[..arguments.len() - 1]).expect("the same bytes");
    assert!(event.starts_with(r#","event":{"#), "{event}");
}

#[test]
fn a_tool_that_is_not_exposed_never_reaches_the_relay() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, HostOptions::args(&["--tools", "list_rooms"]));
    for tool in ["list_jobs", "post_message", "publish_event", "LIST_ROOMS", "list_rooms "] {
        let id = host.take_id();
        host.send(&call(id, tool, "{}"));
        let answer = host.answer(id);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {tool}"));
    }
    assert!(relay.posts().is_empty());
}
