//! Contract 2 and cases 53 and 68: many requests at once, their order and their bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tinyagent_harness::{Host, HostOptions, PATIENCE, call, ping, request};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply, Step};

use crate::network::TempFile;
use crate::support::{
    assert_answered, assert_memory_is_bounded, assert_within, error_of, peak_memory, timed, tool_error,
};

/// A relay that holds every call of list_rooms at a gate.
pub fn holding() -> (Relay, Gate) {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script_always(Matcher::tool("list_rooms"), Reply::hold(&gate));
    (relay, gate)
}

#[test]
fn case_053_a_ping_behind_calls_is_answered_within_100_ms_and_the_calls_go_one_by_one() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    let first = host.begin_call("list_rooms", "{}");
    let second = host.begin_call("list_jobs", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    assert_within(Duration::from_millis(100), "a ping", || timed(|| host.assert_alive()));
    assert_eq!(relay.calls_of("list_jobs").len(), 0, "the second call did not wait");
    gate.open();
    assert_eq!(
        [host.next_answer()["id"].clone(), host.next_answer()["id"].clone()],
        [json!(first), json!(second)]
    );
}

#[test]
fn calls_reach_the_relay_one_at_a_time_in_order_of_arrival() {
    let relay = Relay::start(Options::default());
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, peak) = (now.clone(), most.clone());
    relay.script_always(
        Matcher::any(),
        Reply::with(move |_| {
            peak.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(3));
            inside.fetch_sub(1, Ordering::SeqCst);
            Reply::result(json!({"content": []}))
        }),
    );
    let mut host = Host::with_writes(&relay);
    let ids: Vec<u64> = (0..40).map(|n| host.begin_call("list_jobs", &format!("{{\"n\":{n}}}"))).collect();
    for id in ids {
        assert_eq!(host.next_answer()["id"], id, "answered out of order");
    }
    let sent: Vec<String> = relay.posts().iter().map(|r| r.argument("n").expect("n").to_owned()).collect();
    assert_eq!(sent, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// The proof of a call that waits is asked for while the relay answers the call before it.
#[test]
fn a_call_that_waited_long_behind_another_comes_with_a_proof_of_its_own_time() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    let calls = ["list_rooms", "list_jobs", "list_jobs"].map(|tool| host.begin_call(tool, "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    std::thread::sleep(Duration::from_millis(3100));
    gate.open();
    for call in calls {
        assert_answered(&host.answer(call));
    }
    let made: Vec<u64> =
        relay.posts().iter().map(|post| post.proof.as_ref().expect("a proof").created_at).collect();
    assert!(made[1] >= made[0] + 3 && made[2] >= made[1], "{made:?}");
}

#[test]
fn proofs_that_are_made_ahead_count_once_against_their_bound() {
    let (relay, gate) = holding();
    let mut host = Host::with(&relay, HostOptions::args(&["--max-proofs-per-minute", "5"]));
    let calls = ["list_rooms", "list_jobs", "list_jobs", "list_jobs", "list_jobs", "list_jobs"]
        .map(|tool| host.begin_call(tool, "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    gate.open();
    for call in &calls[..5] {
        assert_answered(&host.answer(*call));
    }
    let refused = host.answer(calls[5]);
    assert!(tool_error(&refused).starts_with("signer: refused (proof-rate): "), "{refused}");
    assert_eq!(relay.posts().len(), 5);
}

/// Behind a slow relay a proof that is made ahead is made for nothing, which may happen once in a row.
#[test]
fn a_slow_relay_does_not_use_up_the_bound_on_proofs() {
    let relay = Relay::start(Options::default());
    relay.script_always(
        Matcher::tool("list_jobs"),
        Reply::with(|_| {
            std::thread::sleep(Duration::from_millis(2100));
            Reply::result(json!({"content": []}))
        }),
    );
    let mut host = Host::with(&relay, HostOptions::args(&["--max-proofs-per-minute", "5"]));
    for call in [0; 4].map(|_| host.begin_call("list_jobs", "{}")) {
        assert_answered(&host.answer(call));
    }
}

#[test]
fn a_proof_that_was_made_ahead_of_a_call_that_is_then_cancelled_is_never_sent() {
    let (relay, gate) = holding();
    let log = TempFile::named("audit.jsonl");
    let mut host = Host::with(&relay, HostOptions::args(&["--audit-log", &log.path()]));
    let first = host.begin_call("list_rooms", "{}");
    let dropped = host.begin_call("list_jobs", r#"{"n":1}"#);
    assert!(gate.wait_arrived(1, PATIENCE));
    let recorded = || -> Vec<serde_json::Value> {
        let log = std::fs::read_to_string(log.path()).expect("the log");
        log.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
    };
    let deadline = Instant::now() + PATIENCE;
    while recorded().len() < 3 {
        assert!(Instant::now() < deadline, "nothing was asked ahead: {:?}", recorded());
        std::thread::sleep(Duration::from_millis(5));
    }
    host.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{dropped}}}}}"#
    ));
    let last = host.begin_call("list_jobs", r#"{"n":2}"#);
    host.assert_alive();
    gate.open();
    assert_answered(&host.answer(first));
    assert_answered(&host.answer(last));
    let sent: Vec<String> =
        relay.posts().iter().map(|post| post.proof.as_ref().expect("a proof").id.clone()).collect();
    let records = recorded();
    let tools: Vec<&str> = records.iter().filter_map(|record| record["tool"].as_str()).collect();
    assert_eq!(tools, ["list_rooms", "list_jobs", "list_jobs"]);
    let made: Vec<&str> = records.iter().filter_map(|record| record["proof"].as_str()).collect();
    assert_eq!(sent, [made[0], made[2]], "the second was made ahead for nobody");
}

#[test]
fn a_call_is_proven_once_however_many_wait_and_each_proof_fits_its_own_body() {
    let (relay, gate) = holding();
    let mut host = Host::with_writes(&relay);
    let mut calls = vec![host.begin_call("list_rooms", "{}")];
    calls.extend((0..20).map(|n| match n % 3 {
        0 => host.begin_call("post_message", &format!(r#"{{"room":"general","content":"{n}"}}"#)),
        _ => host.begin_call("list_jobs", &format!(r#"{{"n":{n}}}"#)),
    }));
    assert!(gate.wait_arrived(1, PATIENCE));
    gate.open();
    for call in calls {
        assert_answered(&host.answer(call));
    }
    // The relay itself refuses a proof of another body and one that it has seen.
    let posts = relay.posts();
    assert!(posts.iter().all(|post| post.proof.is_some()));
    let ids: std::collections::HashSet<_> = posts.iter().map(|post| post.rpc_id().to_owned()).collect();
    assert_eq!((posts.len(), ids.len(), relay.published().len()), (28, 28, 7));
}

#[test]
fn the_table_and_the_diagnosis_do_not_wait_behind_a_call() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    let held = host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    assert_eq!(host.ask("tools/list", "{}")["result"]["tools"].as_array().expect("tools").len(), 18);
    assert_eq!(host.call("tiny_diagnose", "{}")["result"]["structuredContent"]["transport"]["ok"], true);
    gate.open();
    assert_answered(&host.answer(held));
}

#[test]
fn the_bound_on_a_host_call_includes_its_wait_in_the_queue() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::any(), Reply::hang());
    let mut host = Host::with(&relay, HostOptions::args(&["--timeout", "1"]));
    let began = Instant::now();
    let ids: Vec<u64> = (0..4).map(|_| host.begin_call("list_jobs", "{}")).collect();
    let texts: Vec<String> = ids.iter().map(|id| tool_error(&host.answer(*id)).to_owned()).collect();
    // Four calls of a second each would be four seconds if their bounds added up.
    assert!(began.elapsed() < Duration::from_millis(2500), "{:?}", began.elapsed());
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(texts.iter().all(|text| text.starts_with("transport: ")), "{texts:?}");
    assert!(texts[3].ends_with("the call was not sent"), "{texts:?}");
    let unsent = texts.iter().filter(|text| text.ends_with("the call was not sent")).count();
    assert_eq!(relay.posts().len(), 4 - unsent);
    host.assert_alive();
}

#[test]
fn a_queued_call_is_answered_at_its_own_bound_and_calls_after_it_go_on() {
    let relay = Relay::start(Options::default());
    relay.script(Matcher::any(), Reply::hang());
    let mut host = Host::with(&relay, HostOptions::args(&["--timeout", "1"]));
    assert!(tool_error(&host.call("list_jobs", "{}")).starts_with("transport: "));
    assert_answered(&host.call("list_jobs", "{}"));
}

#[test]
fn ten_thousand_pings_at_once_are_each_answered_once_in_bounded_memory() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    let held = host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    let lines: String = (0..10_000).map(|n| ping(n) + "\n").collect();
    host.send_bytes(lines.as_bytes());
    for n in 0..10_000 {
        assert_eq!(host.next_answer()["id"], n);
    }
    assert_memory_is_bounded(&mut host);
    gate.open();
    host.answer(held);
}

#[test]
fn five_hundred_calls_at_once_are_each_answered_once_in_bounded_memory() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let lines: String = (0..500).map(|n| call(n, "list_rooms", "{}") + "\n").collect();
    host.send_bytes(lines.as_bytes());
    for n in 0..500 {
        let answer = host.next_answer();
        assert_answered(&answer);
        assert_eq!(answer["id"], n);
    }
    assert_eq!(relay.executed("list_rooms"), 500);
    assert_memory_is_bounded(&mut host);
}

#[test]
fn calls_past_what_can_wait_are_refused_at_once_and_were_not_sent() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    let lines: String = (0..6000).map(|n| call(n, "list_jobs", "{}") + "\n").collect();
    host.send_bytes(lines.as_bytes());
    host.assert_alive();
    let refused = host.next_answer();
    assert_eq!(tool_error(&refused), "transport: too many calls are waiting; the call was not sent");
    assert_memory_is_bounded(&mut host);
    assert_eq!(relay.posts().len(), 1);
}

#[test]
fn what_waits_is_bounded_in_bytes_wherever_in_the_line_they_are() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    let filler = "x".repeat(20 << 20);
    for n in 0..6 {
        let params = match n % 3 {
            0 => format!(r#"{{"name":"list_jobs","arguments":{{"q":"{filler}"}}}}"#),
            1 => format!(r#"{{"name":"list_jobs","arguments":{{}},"_meta":{{"q":"{filler}"}}}}"#),
            _ => format!(r#"{{"_meta":"{filler}","name":"list_jobs"}}"#),
        };
        host.send_bytes((request(n, "tools/call", &params) + "\n").as_bytes());
    }
    host.assert_alive();
    assert_memory_is_bounded(&mut host);
}

#[test]
fn a_largest_line_is_read_in_bounded_memory_beside_a_largest_call_in_flight() {
    let relay = Relay::start(Options { body_limit: 64 << 20, record: false, ..Options::default() });
    let gate = Gate::new();
    relay.script_always(Matcher::tool("list_rooms"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let held = host.begin_call("list_rooms", &format!(r#"{{"q":"{}"}}"#, "x".repeat(47 << 20)));
    assert!(gate.wait_arrived(1, PATIENCE));
    for id in 0..3 {
        host.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","x":"{}"}}"#,
            "x".repeat(47 << 20)
        ));
        host.answer(id);
    }
    gate.open();
    host.answer(held);
    assert_memory_is_bounded(&mut host);
}

#[test]
fn a_small_call_that_waits_does_not_keep_the_large_line_before_it() {
    let (relay, gate) = holding();
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    let large = format!(r#"{{"jsonrpc":"2.0","id":"p","method":"ping","x":"{}"}}"#, "x".repeat(30 << 20));
    for n in 0..6 {
        host.send_bytes(format!("{large}\n{}\n", call(n, "list_jobs", "{}")).as_bytes());
        assert_eq!(host.next_answer()["id"], "p");
    }
    let padded = format!(r#"{{"jsonrpc":"2.0","id":"p","method":"ping","x":"{}"}}"#, "x".repeat(60_000));
    for n in 0..2000 {
        host.send_bytes(format!("{padded}\n{}\n", call(n, "list_jobs", "{}")).as_bytes());
        assert_eq!(host.next_answer()["id"], "p");
    }
    assert_memory_is_bounded(&mut host);
}

#[test]
fn requests_past_what_may_be_unanswered_get_an_error_at_once() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script_always(Matcher::rpc("tools/list"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let id = "x".repeat(60_000);
    for _ in 0..200 {
        host.send(&request(id.as_str(), "tools/list", "{}"));
    }
    host.assert_alive();
    let refused = host.next_answer();
    assert_eq!(error_of(&refused), (-32603, &json!(id)));
    assert_memory_is_bounded(&mut host);
    gate.open();
}

#[test]
fn thousands_of_lists_asked_for_at_once_do_not_pile_up_in_memory() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::rpc("tools/list"), Reply::hold(&gate));
    let options = HostOptions { late_reader: true, ..HostOptions::args(&["--allow-writes"]) };
    let mut host = Host::with(&relay, options);
    let lines: String = (1..=8000).map(|n| request(n, "tools/list", "{}") + "\n").collect();
    host.send_bytes(lines.as_bytes());
    assert!(gate.wait_arrived(1, PATIENCE));
    gate.open();
    std::thread::sleep(Duration::from_millis(300));
    host.start_reading();
    for _ in 1..=8000 {
        host.next_answer();
    }
    assert_eq!(relay.posts().len(), 1, "one load serves them all");
    assert_memory_is_bounded(&mut host);
}

#[test]
fn hundreds_of_diagnoses_asked_for_at_once_are_made_a_few_at_a_time() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let lines: String = (0..200).map(|n| call(n, "tiny_diagnose", "{}") + "\n").collect();
    host.send_bytes(lines.as_bytes());
    for _ in 0..200 {
        assert_answered(&host.next_answer());
    }
    assert!(relay.connections() < 20, "{} connections", relay.connections());
    assert_memory_is_bounded(&mut host);
}

#[test]
fn case_068_a_host_that_reads_late_gets_every_answer_and_nothing_deadlocks() {
    let relay = Relay::start(Options { body_limit: 8 << 20, ..Options::default() });
    let text = "x".repeat(64 << 10);
    let block = json!({"content": [{"type": "text", "text": text}]});
    relay.script_always(Matcher::tool("list_jobs"), Reply::result(block));
    relay.script_always(Matcher::tool("read_room"), Reply::result(json!({"content": []})));
    let mut host = Host::with(&relay, HostOptions { late_reader: true, ..HostOptions::default() });
    let ids: Vec<u64> = (0..200).map(|_| host.begin_call("list_jobs", "{}")).collect();
    assert!(relay.wait_for(200, PATIENCE));
    let large = host.begin_call("read_room", &format!(r#"{{"id":"{}"}}"#, "y".repeat(5 << 20)));
    host.start_reading();
    for id in ids {
        assert_eq!(host.answer(id)["result"]["content"][0]["text"].as_str().map(str::len), Some(64 << 10));
    }
    assert_eq!(host.answer(large)["result"]["content"], json!([]));
    assert_memory_is_bounded(&mut host);
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn case_068_answers_past_what_may_wait_hold_the_calls_up_and_not_the_memory() {
    let relay = Relay::start(Options { record: false, ..Options::default() });
    let data = "QUJD".repeat(1 << 20);
    let image = json!({"content": [{"type": "image", "data": data, "mimeType": "image/png"}]});
    relay.script_always(Matcher::any(), Reply::result(image));
    let mut host = Host::with(&relay, HostOptions { late_reader: true, ..HostOptions::default() });
    let ids: Vec<u64> = (0..60).map(|_| host.begin_call("list_jobs", "{}")).collect();
    std::thread::sleep(Duration::from_millis(500));
    host.start_reading();
    for id in ids {
        let answer = host.answer(id);
        assert_eq!(answer["result"]["content"][0]["data"].as_str().map(str::len), Some(4 << 20), "{}", id);
    }
    assert_memory_is_bounded(&mut host);
}

#[test]
fn a_largest_answer_beside_its_own_largest_call_and_half_of_another_line_is_held_once() {
    // The limits of two lines and of an answer (contract 2 and 4), and room for the programs and a chunk.
    const ONCE_BYTES: u64 = (48 + 48 + 32 + 12) << 20;

    let relay = Relay::start(Options { body_limit: 64 << 20, record: false, ..Options::default() });
    let gate = Gate::new();
    let held_at = gate.clone();
    relay.script(
        Matcher::tool("list_rooms"),
        Reply::with(move |request| {
            let text = "a".repeat((32 << 20) - 200);
            let body = request.result_text(&format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
            let answer = format!("{head}{}\r\n\r\n{body}", body.len());
            Reply::steps([Step::Wait(held_at.clone()), Step::Write(answer.into_bytes())])
        }),
    );
    let mut host = Host::start(&relay);
    let call = host.begin_call("list_rooms", &format!(r#"{{"q":"{}"}}"#, "x".repeat(47 << 20)));
    assert!(gate.wait_arrived(1, PATIENCE));
    host.send_bytes(br#"{"jsonrpc":"2.0","id":"half","method":"ping","x":""#);
    host.send_bytes(&vec![b'x'; 47 << 20]);
    gate.open();
    let answer = host.answer(call);
    let shown = answer["result"]["content"][0]["text"].as_str().expect("text");
    assert!(shown.ends_with(&format!("\n[truncated: 65536 of {} bytes shown]", (32 << 20) - 200)));
    host.send_bytes(b"\"}\n");
    host.answer("half");
    for pid in [host.pid(), host.signer()] {
        let peak = peak_memory(pid);
        assert!(peak < ONCE_BYTES, "{peak} bytes");
    }
}
