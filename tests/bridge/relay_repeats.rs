//! Contract 4: the three cases in which a POST is sent again, each once and with a proof of its own, and
//! all the others, in which it is not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tinyagent_harness::{Host, HostOptions};
use tinyagent_relay::{Authority, Gate, Idle, Matcher, Options, Relay, Reply, Request, Step};

use crate::network::{TempFile, secure, trusting};
use crate::outcome::{assert_answered, error_text, failed_read, failed_submission, impatient};

const CLOSED: &str = "transport: the relay closed the connection without an answer";

/// Two requests that may ask the same thing and prove it separately.
fn assert_separately_proved(first: &Arc<Request>, second: &Arc<Request>) {
    let (one, other) = (first.proof.as_ref().expect("a proof"), second.proof.as_ref().expect("a proof"));
    assert_ne!(one.id, other.id);
    assert_ne!(first.rpc_id(), second.rpc_id());
    assert_eq!(first.arguments(), second.arguments());
}

/// A host that holds a connection to the relay.
fn connected(relay: &Relay) -> Host {
    let mut host = Host::with_writes(relay);
    assert_answered(&host.call("list_jobs", "{}"));
    host
}

/// Waits until the relay has closed every connection.
pub fn wait_until_closed(relay: &Relay) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while relay.open_connections() > 0 {
        assert!(Instant::now() < deadline, "connections stay open");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn endings() -> [Reply; 2] {
    [Reply::close(), Reply::reset()]
}

#[test]
fn case_105_fifty_reads_are_each_answered_and_executed_once_however_idle_connections_end() {
    let moment = Duration::from_millis(1);
    for idle in [Idle::Close(moment), Idle::Reset(moment)] {
        let relay = Relay::start(Options { idle, ..Options::default() });
        let mut host = Host::start(&relay);
        for _ in 0..50 {
            assert_answered(&host.call("list_rooms", "{}"));
        }
        assert_eq!(relay.executed("list_rooms"), 50);
    }
}

#[test]
fn case_105_a_connection_that_ended_a_second_or_five_ago_costs_nothing() {
    for (idle, seconds) in
        [(Idle::Close as fn(Duration) -> Idle, 1), (Idle::Reset, 1), (Idle::Close, 5), (Idle::Reset, 5)]
    {
        let relay = Relay::start(Options { idle: idle(Duration::from_secs(seconds)), ..Options::default() });
        let mut host = connected(&relay);
        wait_until_closed(&relay);
        assert_answered(&host.call("list_rooms", "{}"));
        wait_until_closed(&relay);
        assert_answered(&host.call("post_message", r#"{"room":"general","content":"once"}"#));
        assert_eq!((relay.executed("list_rooms"), relay.published().len()), (1, 1));
        assert_eq!(relay.posts().len(), 4);
    }
}

#[test]
fn case_105_a_read_that_a_reused_connection_swallows_is_sent_once_more_with_a_new_proof() {
    let relay = Relay::start(Options::default());
    for ending in endings() {
        let mut host = connected(&relay);
        relay.clear_requests();
        relay.script(Matcher::tool("list_rooms"), ending);
        assert_answered(&host.call("list_rooms", "{}"));
        let calls = relay.calls_of("list_rooms");
        assert_eq!(calls.len(), 2);
        assert_separately_proved(&calls[0], &calls[1]);
        assert_ne!(calls[0].connection, calls[1].connection);
    }
}

#[test]
fn what_other_requests_connect_meanwhile_does_not_make_a_reused_connection_a_fresh_one() {
    let relay = Relay::start(Options::default());
    let mut host = connected(&relay);
    let gate = Gate::new();
    relay.script(Matcher::tool("list_rooms"), Reply::steps([Step::Wait(gate.clone()), Step::Close]));
    let call = host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, Duration::from_secs(30)));
    assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
    assert_eq!(relay.connections(), 2);
    gate.open();
    assert_answered(&host.answer(call));
    assert_eq!(relay.calls_of("list_rooms").len(), 2);
}

#[test]
fn the_tool_table_is_asked_for_again_in_the_same_way() {
    let relay = Relay::start(Options::default());
    for ending in endings() {
        let mut host = connected(&relay);
        relay.clear_requests();
        relay.script(Matcher::rpc("tools/list"), ending);
        let listed = host.ask("tools/list", "{}");
        assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 1), "{listed}");
        assert_eq!(relay.posts().len(), 2);
        assert_separately_proved(&relay.posts()[0], &relay.posts()[1]);
    }
}

#[test]
fn a_read_is_not_sent_a_third_time() {
    let relay = Relay::start(Options::default());
    let mut host = connected(&relay);
    relay.script_always(Matcher::tool("list_rooms"), Reply::close());
    assert_eq!(error_text(&host.call("list_rooms", "{}")), CLOSED);
    assert_eq!(relay.calls_of("list_rooms").len(), 2);
}

#[test]
fn a_read_that_a_fresh_connection_swallows_is_not_sent_again() {
    let relay = Relay::start(Options::default());
    for ending in endings() {
        let mut host = Host::start(&relay);
        assert_eq!(failed_read(&relay, &mut host, ending), CLOSED);
    }
}

#[test]
fn a_read_is_not_sent_again_once_an_answer_has_begun() {
    let relay = Relay::start(Options::default());
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "H",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        for end in [Step::Close, Step::Reset] {
            let mut host = connected(&relay);
            let reply =
                Reply::steps([Step::Write(bytes.into()), Step::Sleep(Duration::from_millis(50)), end]);
            assert!(failed_read(&relay, &mut host, reply).starts_with("transport: "), "{bytes:?}");
        }
    }
}

#[test]
fn a_connection_that_ends_without_the_farewell_of_tls_counts_as_closed() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let relay = secure(authority.issue(&["127.0.0.1"]));
    let mut host = Host::with(&relay, trusting(&ca, &["--allow-writes"]));
    assert_answered(&host.call("list_jobs", "{}"));
    relay.script(Matcher::tool("list_rooms"), Reply::steps([Step::Abandon]));
    assert_answered(&host.call("list_rooms", "{}"));
    let calls = relay.calls_of("list_rooms");
    assert_eq!(calls.len(), 2);
    assert_separately_proved(&calls[0], &calls[1]);
    relay.script(Matcher::tool("post_message"), Reply::steps([Step::Abandon]));
    let answer = host.call("post_message", r#"{"room":"general","content":"once"}"#);
    assert_eq!(error_text(&answer), format!("{CLOSED}; the call may have taken effect"));
    assert_eq!(relay.calls_of("post_message").len(), 1);
}

#[test]
fn a_read_that_gets_no_answer_in_time_is_not_sent_again() {
    let relay = Relay::start(Options::default());
    let mut host = impatient(&relay, 4, &[]);
    assert_answered(&host.call("list_jobs", "{}"));
    failed_read(&relay, &mut host, Reply::hang());
}

#[test]
fn case_105_a_write_that_a_connection_swallows_is_one_post_and_said_to_be_open() {
    let relay = Relay::start(Options::default());
    for ending in endings() {
        for mut host in [connected(&relay), Host::with_writes(&relay)] {
            let before = relay.posts().len();
            relay.script(Matcher::tool("post_message"), ending.clone());
            let answer = host.call("post_message", r#"{"room":"general","content":"once"}"#);
            assert_eq!(error_text(&answer), format!("{CLOSED}; the call may have taken effect"));
            assert_eq!(relay.posts().len(), before + 1);
            let (text, event) = failed_submission(&relay, &mut host, ending.clone());
            assert_eq!(text, format!("{CLOSED}; the call may have taken effect (event {event})"));
        }
    }
    assert!(relay.published().is_empty());
}

#[test]
fn a_header_mismatch_fetches_the_table_and_repeats_the_call_once() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    for (tool, arguments) in [("list_rooms", "{}"), ("post_message", r#"{"room":"general","content":"x"}"#)] {
        relay.clear_requests();
        relay.script(Matcher::plain_call(tool), Reply::error(400, -32020, "Mcp-Param-Room is missing"));
        assert_answered(&host.call(tool, arguments));
        let posts = relay.posts();
        let methods: Vec<_> =
            posts.iter().take(3).map(|post| post.rpc_method().unwrap_or_default()).collect();
        assert_eq!(methods, ["tools/call", "tools/list", "tools/call"]);
        assert_separately_proved(&posts[0], &posts[2]);
    }
    relay.clear_requests();
    relay.script_always(Matcher::tool("list_rooms"), Reply::error(400, -32020, "still missing"));
    assert_eq!(error_text(&host.call("list_rooms", "{}")), "relay: still missing");
    assert_eq!((relay.calls_of("list_rooms").len(), relay.posts().len()), (2, 3));
}

#[test]
fn a_table_that_hangs_after_a_header_mismatch_does_not_outlast_the_call() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::rpc("tools/list"), Reply::hang());
    relay.script_always(Matcher::tool("list_rooms"), Reply::error(400, -32020, "still missing"));
    let mut host = impatient(&relay, 1, &[]);
    let call = host.begin_call("list_rooms", "{}");
    host.assert_alive();
    error_text(&host.answer(call));
    assert_eq!(relay.calls_of("list_rooms").len(), 1);
}

#[test]
fn an_unsupported_version_is_repeated_once_only_where_ours_is_listed() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let unsupported =
        |supported| Reply::error_with(400, -32022, "another version", Some(json!({"supported": supported})));
    for (tool, arguments) in [("list_rooms", "{}"), ("post_message", r#"{"room":"general","content":"x"}"#)] {
        relay.clear_requests();
        relay.script(Matcher::plain_call(tool), unsupported(json!(["2027-01-01", "2026-07-28"])));
        assert_answered(&host.call(tool, arguments));
        assert_separately_proved(&relay.posts()[0], &relay.posts()[1]);
        assert!(relay.posts().iter().all(|post| post.rpc_method() == Some("tools/call")));
    }
    for supported in
        [json!(["2025-11-25"]), json!([]), json!("2026-07-28"), json!(null), json!({"a": "2026-07-28"})]
    {
        assert_eq!(failed_read(&relay, &mut host, unsupported(supported)), "relay: another version");
    }
    relay.clear_requests();
    relay.script_always(Matcher::tool("list_rooms"), unsupported(json!(["2026-07-28"])));
    assert_eq!(error_text(&host.call("list_rooms", "{}")), "relay: another version");
    assert_eq!(relay.posts().len(), 2);
}

#[test]
fn a_submission_that_was_refused_for_header_or_version_is_made_once_more_with_the_same_event() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let version =
        Reply::error_with(400, -32022, "another version", Some(json!({"supported": ["2026-07-28"]})));
    let mismatch = Reply::error(400, -32020, "Mcp-Param-Room is missing");
    for (refusal, content) in [(mismatch, "one"), (version, "two")] {
        relay.clear_requests();
        relay.script(Matcher::resubmission("post_message"), refusal);
        let message = format!(r#"{{"room":"general","content":"{content}"}}"#);
        assert_answered(&host.call("post_message", &message));
        let calls = relay.calls_of("post_message");
        assert_eq!(calls.len(), 3);
        assert_ne!(calls[1].proof.as_ref().map(|p| &p.id), calls[2].proof.as_ref().map(|p| &p.id));
        assert_eq!(calls[1].event().map(|e| e.id), calls[2].event().map(|e| e.id));
    }
    assert_eq!(relay.published().len(), 2);
}

#[test]
fn no_other_error_of_the_relay_is_asked_again() {
    let relay = Relay::start(Options::default());
    let mut host = connected(&relay);
    for (status, code) in [
        (400, -32602),
        (404, -32601),
        (400, -32700),
        (400, -32021),
        (401, -32000),
        (403, -32000),
        (429, -32000),
        (500, -32020),
        (503, -32022),
    ] {
        failed_read(&relay, &mut host, Reply::error(status, code, "no"));
    }
}

#[test]
fn calls_reach_the_relay_one_after_the_other_in_order_of_arrival() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::rpc("tools/call"), Reply::delay(Duration::from_millis(5)));
    let mut host = Host::with(&relay, HostOptions::default());
    let calls: Vec<u64> = (0..20).map(|n| host.begin_call("list_jobs", &format!(r#"{{"n":{n}}}"#))).collect();
    calls.into_iter().for_each(|call| assert!(host.answer(call)["result"].is_object()));
    let order: Vec<_> =
        relay.calls_of("list_jobs").iter().map(|call| call.argument("n").map(str::to_owned)).collect();
    assert_eq!(order, (0..20).map(|n| Some(n.to_string())).collect::<Vec<_>>());
    assert_eq!(relay.connections(), 1);
}
