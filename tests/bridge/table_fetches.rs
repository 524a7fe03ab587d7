//! Contract 2: when the relay's tool table is fetched, for how long, and what its failure leaves.

use std::time::{Duration, Instant};

use tinyagent_harness::{Host, request};
use tinyagent_relay::{Answer, Gate, Matcher, Options, Relay, Reply};

use crate::outcome::{assert_answered, error_text};
use crate::tool_table::{entry, lists, names, page};

#[test]
fn a_table_that_cannot_be_loaded_leaves_tiny_diagnose_and_its_reason_and_is_fetched_again() {
    let html = Answer::html(502, "<html>");
    let deep = format!(
        r#"{{"tools":[{{"name":"list_rooms","inputSchema":{}{}}}]}}"#,
        r#"{"a":"#.repeat(100_000),
        "}".repeat(100_000)
    );
    for (reply, reason) in [
        (Reply::error(401, -32000, "unknown key"), "permission: unknown key"),
        (Reply::error(400, -32602, "no"), "relay: no"),
        (Reply::http(html), "transport: HTTP 502 Bad Gateway"),
        (Reply::http(Answer::new(429)), "relay: rate limited"),
        (Reply::json(200, "{"), "transport: invalid answer: "),
        (Reply::result_text("{}"), "transport: invalid tool table: no list of tools"),
        (Reply::result_text(r#"{"tools":{}}"#), "transport: invalid tool table: no list of tools"),
        (Reply::result_text(r#"{"tools":null}"#), "transport: invalid tool table: no list of tools"),
        (Reply::result_text(r#"{"resultType":"input_required","tools":[]}"#), "transport: "),
        (Reply::result_text(&deep), "transport: invalid answer: "),
        (Reply::close(), "transport: the relay closed the connection"),
    ] {
        let relay = Relay::start(Options::default());
        relay.script(Matcher::rpc("tools/list"), reply);
        let mut host = Host::start(&relay);
        assert_eq!(names(&mut host), ["tiny_diagnose"], "{reason}");
        host.wait_for_stderr(&format!("the relay's tools cannot be listed: {reason}"));
        assert_eq!(names(&mut host).len(), 18, "{reason}");
        assert_eq!(names(&mut host).len(), 18);
        assert_eq!(lists(&relay), 2, "it is kept once loaded");
    }
}

#[test]
fn a_page_that_fails_is_a_table_that_cannot_be_loaded() {
    let relay = Relay::start(Options { page_size: Some(5), ..Options::default() });
    relay.script(Matcher::rpc("tools/list").nth(3), Reply::http(Answer::new(500)));
    let mut host = Host::start(&relay);
    assert_eq!(names(&mut host), ["tiny_diagnose"]);
    assert_eq!(names(&mut host).len(), 18);
}

#[test]
fn case_45_a_table_that_hangs_is_given_up_within_8_seconds_and_holds_up_nothing_else() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::rpc("tools/list"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let began = Instant::now();
    let id = host.take_id();
    host.send(&request(id, "tools/list", "{}"));
    assert!(gate.wait_arrived(1, Duration::from_secs(5)));
    host.assert_alive();
    assert_answered(&host.call("list_rooms", "{}"));
    assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
    let answer = host.answer(id);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(1));
    host.wait_for_stderr("the relay's tools cannot be listed: transport: ");
    gate.open();
    assert_eq!(names(&mut host).len(), 18);
}

#[test]
fn listings_that_come_together_share_one_fetch() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::rpc("tools/list"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let ids: Vec<u64> = (0..5).map(|_| host.take_id()).collect();
    ids.iter().for_each(|id| host.send(&request(*id, "tools/list", "{}")));
    assert!(gate.wait_arrived(1, Duration::from_secs(10)));
    gate.open();
    for id in ids {
        assert_eq!(host.answer(id)["result"]["tools"].as_array().map(Vec::len), Some(18));
    }
    assert_eq!(lists(&relay), 1);
}

#[test]
fn pages_that_are_each_quick_enough_share_the_8_seconds() {
    let relay = Relay::start(Options::default());
    for at in 0..50 {
        let slow = move |_: &tinyagent_relay::Request| {
            std::thread::sleep(Duration::from_millis(500));
            page("[]", &format!("\"page {at}\""))
        };
        relay.script(Matcher::rpc("tools/list"), Reply::with(slow));
    }
    let mut host = Host::start(&relay);
    let began = Instant::now();
    assert_eq!(names(&mut host), ["tiny_diagnose"]);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
}

#[test]
fn a_failed_table_is_fetched_again_after_the_next_call_that_the_relay_answers() {
    let relay = Relay::start(Options::default());
    relay.script(Matcher::rpc("tools/list"), Reply::http(Answer::new(503)));
    relay.script_always(Matcher::tool("list_jobs"), Reply::close());
    let mut host = Host::with_writes(&relay);
    assert_eq!(names(&mut host), ["tiny_diagnose"]);
    error_text(&host.call("post_message", r#"{"event":{}}"#));
    error_text(&host.call("list_jobs", "{}"));
    host.assert_alive();
    assert_eq!(lists(&relay), 1, "neither a refusal of our own nor silence is an answer");
    assert_answered(&host.call("list_rooms", "{}"));
    assert!(
        relay.wait_for_matching(2, Duration::from_secs(10), |post| post.rpc_method() == Some("tools/list"))
    );
    assert_eq!(names(&mut host).len(), 36);
    assert_eq!(lists(&relay), 2);
}

#[test]
fn a_tool_that_the_relay_no_longer_knows_has_the_table_fetched_after_the_answer() {
    let relay = Relay::start(Options { without_tools: vec!["list_jobs".into()], ..Options::default() });
    relay.set_listed_tools(vec![entry("list_jobs"), entry("list_rooms")]);
    let mut host = Host::start(&relay);
    assert_eq!(names(&mut host), ["list_rooms", "list_jobs", "tiny_diagnose"]);
    relay.set_listed_tools(vec![entry("list_rooms")]);
    let gate = Gate::new();
    relay.script(Matcher::rpc("tools/list"), Reply::hold(&gate));
    assert_eq!(error_text(&host.call("list_jobs", "{}")), "relay: Unknown tool: list_jobs");
    assert!(gate.wait_arrived(1, Duration::from_secs(10)));
    assert_answered(&host.call("list_rooms", "{}"));
    gate.open();
    assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"]);
    assert_eq!(lists(&relay), 2);
}

#[test]
fn an_unknown_tool_is_understood_in_other_words_and_bad_arguments_are_not_taken_for_one() {
    for (message, fetched) in [
        ("unknown tool", 2),
        ("tool \"list_jobs\" not found", 2),
        ("No such tool: list_jobs", 2),
        ("the tool does not exist", 2),
        ("room not found", 1),
        ("invalid arguments", 1),
    ] {
        let relay = Relay::start(Options::default());
        let mut host = Host::start(&relay);
        names(&mut host);
        relay.script(Matcher::tool("list_jobs"), Reply::error(400, -32602, message));
        error_text(&host.call("list_jobs", "{}"));
        assert_answered(&host.call("list_rooms", "{}"));
        names(&mut host);
        assert_eq!(lists(&relay), fetched, "{message}");
    }
}

#[test]
fn a_table_that_cannot_be_fetched_again_is_kept() {
    let relay = Relay::start(Options { without_tools: vec!["list_jobs".into()], ..Options::default() });
    relay.set_listed_tools(vec![entry("list_jobs"), entry("list_rooms")]);
    let mut host = Host::start(&relay);
    names(&mut host);
    relay.script_always(Matcher::rpc("tools/list"), Reply::http(Answer::new(503)));
    error_text(&host.call("list_jobs", "{}"));
    assert_eq!(names(&mut host), ["list_rooms", "list_jobs", "tiny_diagnose"]);
}

#[test]
fn the_first_call_does_not_wait_for_a_table() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::rpc("tools/list"), Reply::hang());
    let mut host = Host::with_writes(&relay);
    assert_answered(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("post_message", r#"{"room":"general","content":"x"}"#));
    assert_eq!(lists(&relay), 0);
}
