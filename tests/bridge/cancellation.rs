//! Contract 2 and cases 29, 49 and 50: cancelled requests are never answered, and ids used twice are.

use serde_json::Value;
use tinyagent_harness::{Host, PATIENCE, call, request};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply};

use crate::concurrency::holding;
use crate::support::{assert_answered, silent};

fn cancel(host: &mut Host, id: impl std::fmt::Display) {
    host.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"x"}}}}"#
    ));
}

#[test]
fn case_049_a_call_cancelled_in_flight_runs_to_its_end_and_is_never_answered() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.send(&call(5, "list_rooms", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    cancel(&mut host, 5);
    host.assert_alive();
    gate.open();
    assert_answered(&host.call("list_jobs", "{}"));
    assert_eq!(relay.executed("list_rooms"), 1);
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn case_049_a_cancelled_write_is_still_published_once_and_not_answered() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::plain_call("post_message"), Reply::hold(&gate));
    let mut host = Host::with_writes(&relay);
    host.send(&call(5, "post_message", r#"{"room":"general","content":"hi"}"#));
    assert!(gate.wait_arrived(1, PATIENCE));
    cancel(&mut host, 5);
    host.assert_alive();
    gate.open();
    assert_answered(&host.call("list_jobs", "{}"));
    assert_eq!(relay.published().len(), 1);
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_call_cancelled_in_the_queue_never_reaches_the_relay_and_is_never_answered() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    let held = host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    for id in 1..=300 {
        host.send(&call(id, "list_jobs", "{}"));
    }
    for id in (1..=300).filter(|id| id % 3 != 0) {
        cancel(&mut host, id);
    }
    host.assert_alive();
    gate.open();
    host.answer(held);
    for id in (1..=300).filter(|id| id % 3 == 0) {
        assert_eq!(host.next_answer()["id"], id);
    }
    assert_eq!(relay.executed("list_jobs"), 100);
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_cancelled_tools_list_or_diagnosis_is_never_answered() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script_always(Matcher::any(), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    host.send(&request("list", "tools/list", "{}"));
    host.send(&call("diagnosis", "tiny_diagnose", "{}"));
    assert!(gate.wait_arrived(2, PATIENCE));
    cancel(&mut host, "\"list\"");
    cancel(&mut host, "\"diagnosis\"");
    host.assert_alive();
    gate.open();
    assert_answered(&host.call("list_jobs", "{}"));
    assert_answered(&host.call("tiny_diagnose", "{}"));
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn case_050_cancelling_what_is_unknown_finished_or_no_id_changes_nothing() {
    let (relay, gate) = holding();
    let mut host = Host::with(&relay, silent());
    for params in [
        r#"{"requestId":999}"#,
        r#"{"requestId":null}"#,
        r#"{"requestId":{}}"#,
        r#"{"requestId":[5]}"#,
        r#"{"requestId":true}"#,
        r#"{"requestId":"\ud800"}"#,
        "{}",
        "[]",
        "null",
        "5",
    ] {
        host.send(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#));
    }
    host.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    host.ask("initialize", "{}");
    cancel(&mut host, 1001);
    host.send(&call(5, "list_rooms", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    // Another type is another id.
    for other in [r#""5""#, "5.0", "50", "-5"] {
        cancel(&mut host, other);
    }
    host.assert_alive();
    gate.open();
    assert_answered(&host.answer(5));
    cancel(&mut host, 5);
    host.assert_alive();
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_cancellation_sent_as_a_request_is_an_unknown_method_and_cancels_nothing() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.send(&call(5, "list_rooms", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    let answer = host.ask("notifications/cancelled", r#"{"requestId":5}"#);
    assert_eq!(answer["error"]["code"], -32601);
    gate.open();
    assert_answered(&host.answer(5));
}

#[test]
fn case_029_two_calls_in_flight_under_one_id_each_get_their_own_answer() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.send(&call(5, "list_rooms", "{}"));
    host.send(&call(5, "list_jobs", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    host.assert_alive();
    gate.open();
    let (first, second) = (host.answer(5), host.answer(5));
    assert!(first["result"]["structuredContent"]["rooms"].is_array(), "{first}");
    assert!(second["result"]["structuredContent"]["jobs"].is_array(), "{second}");
    host.send(&call(5, "list_wiki", "{}"));
    assert!(host.answer(5)["result"]["structuredContent"]["pages"].is_array());
}

#[test]
fn an_id_used_again_after_its_cancellation_is_answered() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.send(&call(5, "list_rooms", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    cancel(&mut host, 5);
    host.send(&call(5, "list_jobs", "{}"));
    host.assert_alive();
    gate.open();
    assert!(host.answer(5)["result"]["structuredContent"]["jobs"].is_array());
    assert_eq!(host.end().rest, [] as [Value; 0]);
}
