//! Contract 2 and cases 1–21: bytes on stdin and stdout, whatever their shape and size.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, INITIALIZE, PATIENCE, call, ping};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply};

use crate::support::{
    assert_answered, assert_memory_is_bounded, bare, error_of, lines, piped, silent, tool_error,
};

const MIB: usize = 1 << 20;

/// The id of the nth answer to these bytes must be the nth of these; then the program is still alive.
fn assert_answers(input: &[u8], ids: &[Value]) {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, silent());
    host.send_bytes(input);
    for id in ids {
        assert_eq!(host.next_answer()["id"], *id, "{}", String::from_utf8_lossy(input));
    }
    host.assert_alive();
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn case_001_lines_that_end_in_crlf_get_answers_that_end_in_lf() {
    let input = format!("{INITIALIZE}\r\n{}\r\n", ping(1));
    assert_answers(input.as_bytes(), &[json!(0), json!(1)]);
}

#[test]
fn case_003_a_byte_order_mark_before_the_first_message_is_dropped() {
    let input = format!("\u{feff}{INITIALIZE}\n{}\n", ping(1));
    assert_answers(input.as_bytes(), &[json!(0), json!(1)]);
    let alone = format!("\u{feff}\n{}\n", ping(1));
    assert_answers(alone.as_bytes(), &[json!(1)]);
}

#[test]
fn a_byte_order_mark_anywhere_else_is_a_parse_error() {
    let input = format!("{}\n\u{feff}{}\n", ping(1), ping(2));
    assert_answers(input.as_bytes(), &[json!(1), Value::Null]);
}

#[test]
fn case_004_blank_lines_are_no_messages() {
    let input = format!("\n{INITIALIZE}\n\n   \n\r\n\t \r\n \u{c}\n{}\n", ping(1));
    assert_answers(input.as_bytes(), &[json!(0), json!(1)]);
}

#[test]
fn case_005_an_invalid_utf8_byte_gets_a_parse_error_and_the_next_line_is_answered() {
    for bad in [
        &b"\xff\xfe{}"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xc3\x28\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xed\xa0\x80\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xc0\xaf\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\x80\",\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\xe2\x80",
        b"\x00{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
    ] {
        let input = [bad, b"\n", ping(2).as_bytes(), b"\n"].concat();
        assert_answers(&input, &[Value::Null, json!(2)]);
    }
}

#[test]
fn case_006_a_character_split_over_single_byte_writes_arrives_whole() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let line = call(1, "post_message", r#"{"room":"general","content":"Zürich 🦀"}"#) + "\n";
    for byte in line.as_bytes() {
        host.send_bytes(&[*byte]);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(host.answer(1)["result"]["structuredContent"]["accepted"], true);
    let arguments = r#"{"room":"general","content":"Zürich 🦀"}"#;
    assert_eq!(relay.calls_of("post_message")[0].arguments(), Some(arguments));
    assert_eq!(relay.published()[0].content, "Zürich 🦀");
}

#[test]
fn a_line_half_read_while_an_answer_becomes_ready_is_answered_after_it() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::tool("list_rooms"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let held = host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    let (first, second) = (r#"{"jsonrpc":"2.0","id":7,"meth"#, "od\":\"ping\"}\n");
    host.send_bytes(first.as_bytes());
    gate.open();
    assert_eq!(host.next_answer()["id"], held);
    host.send_bytes(second.as_bytes());
    assert_eq!(host.answer(7)["result"], json!({}));
}

#[test]
fn many_messages_in_one_write_are_each_answered_in_order() {
    let input: String = (0..500).map(|id| ping(id) + "\n").collect();
    let ids: Vec<Value> = (0..500).map(|id| json!(id)).collect();
    assert_answers(input.as_bytes(), &ids);
}

#[test]
fn a_last_line_without_its_end_is_answered_where_it_is_whole() {
    let relay = Relay::start(Options::default());
    let whole = piped(bare(&relay.url()), ping(1).as_bytes());
    assert_eq!(lines(&whole.stdout), [json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
    let half = piped(bare(&relay.url()), &ping(1).as_bytes()[..20]);
    assert_eq!((half.status.code(), lines(&half.stdout)), (Some(0), vec![]));
}

#[test]
fn case_007_large_lines_are_forwarded_whole() {
    let relay = Relay::start(Options { body_limit: 32 << 20, ..Options::default() });
    relay.script_always(Matcher::tool("upload_attachment"), Reply::result(json!({"content": []})));
    let mut host = Host::with_writes(&relay);
    for size in [65_535, 65_536, 70_000, MIB, 12 * MIB] {
        let arguments = format!(r#"{{"data":"{}"}}"#, "Q".repeat(size));
        assert_answered(&host.call("upload_attachment", &arguments));
        let sent = relay.calls_of("upload_attachment").pop().expect("a call");
        assert!(sent.arguments() == Some(&*arguments), "{size} bytes arrived changed");
    }
    host.assert_alive();
}

#[test]
fn case_007_a_line_that_the_relay_finds_too_large_is_a_tool_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for size in [MIB, 12 * MIB] {
        let answer = host.call("read_room", &format!(r#"{{"id":"{}"}}"#, "a".repeat(size)));
        let text = tool_error(&answer);
        assert!(text.starts_with("relay: ") || text.starts_with("transport: "), "{text}");
        assert!(text.len() < 300, "{text}");
    }
    host.assert_alive();
}

/// A ping line of exactly this many bytes without its end.
fn padded_ping(id: u32, bytes: usize) -> String {
    let (head, tail) = (format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","x":""#), "\"}");
    head.clone() + &"a".repeat(bytes - head.len() - tail.len()) + tail
}

#[test]
fn case_008_a_line_of_48_mib_is_read_and_one_byte_more_is_refused_in_bounded_memory() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let limit = 48 * MIB;
    for (id, bytes, answers) in
        [(5, limit, true), (6, limit + 1, false), (7, 49 * MIB, false), (8, 200 * MIB, false)]
    {
        host.send_bytes(padded_ping(id, bytes).as_bytes());
        host.send_bytes(b"\n");
        let answer = host.next_answer();
        if answers {
            assert_eq!((&answer["id"], &answer["result"]), (&json!(id), &json!({})));
        } else {
            assert_eq!(error_of(&answer), (-32700, &Value::Null), "{bytes} bytes");
        }
        host.assert_alive();
    }
    assert_memory_is_bounded(&mut host);
}

#[test]
fn a_call_of_48_mib_is_forwarded_in_bounded_memory() {
    let relay = Relay::start(Options { body_limit: 64 << 20, ..Options::default() });
    relay.script_always(Matcher::tool("read_room"), Reply::result(json!({"content": []})));
    let mut host = Host::start(&relay);
    let (head, tail) = (
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_room","arguments":{"id":""#,
        "\"}}}\n",
    );
    host.send_bytes(head.as_bytes());
    host.send_bytes("b".repeat(48 * MIB - head.len() - tail.len() + 1).as_bytes());
    host.send_bytes(tail.as_bytes());
    assert_eq!(host.answer(1)["result"]["content"], json!([]));
    let calls = relay.calls_of("read_room");
    assert!(calls[0].proof.is_some(), "{:?}", calls[0].proof_error);
    assert!(calls[0].body.len() > 47 * MIB);
    assert_memory_is_bounded(&mut host);
}

#[test]
fn case_008_sixty_mib_without_a_line_end_get_one_parse_error_and_exit_0() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, silent());
    host.send_bytes("a".repeat(60 * MIB).as_bytes());
    assert_eq!(error_of(&host.next_answer()), (-32700, &Value::Null));
    assert_memory_is_bounded(&mut host);
    let ended = host.end();
    assert_eq!((ended.code, ended.rest.len()), (Some(0), 0));
}

/// An opening and a closing, this many times around a value.
fn nested(open: &str, value: &str, close: &str, depth: usize) -> String {
    open.repeat(depth) + value + &close.repeat(depth)
}

#[test]
fn case_015_nesting_of_any_depth_is_forwarded_or_refused_and_never_ends_the_session() {
    let relay = Relay::start(Options { body_limit: 64 << 20, ..Options::default() });
    relay.script_always(Matcher::any(), Reply::result(json!({"content": []})));
    let mut host = Host::start(&relay);
    for depth in [1, 100, 126, 127, 128, 200, 509, 510, 1000, 10_000, 1_000_000] {
        for (open, value, close) in [("{\"a\":", "1", "}"), ("[", "", "]")] {
            let arguments = format!(r#"{{"q":{}}}"#, nested(open, value, close, depth));
            let id = host.take_id();
            host.send_bytes((call(id, "list_jobs", &arguments) + "\n").as_bytes());
            let answer = host.next_answer();
            // The message, its params and the arguments are three levels around it.
            if depth + 3 <= 512 {
                assert_answered(&answer);
                assert_eq!(answer["id"], id);
                assert_eq!(relay.requests().pop().expect("a request").arguments(), Some(&*arguments));
            } else {
                assert_eq!(error_of(&answer), (-32700, &Value::Null), "{depth} levels");
            }
        }
    }
    host.assert_alive();
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn case_015_unclosed_nesting_is_a_parse_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, silent());
    for bad in [
        "[".repeat(1_000_000),
        "{\"a\":".repeat(1_000_000),
        "]".repeat(1_000_000),
        "[{\"a\":".repeat(300_000) + &"}]".repeat(300_000),
    ] {
        host.send(&bad);
        assert_eq!(error_of(&host.next_answer()), (-32700, &Value::Null));
    }
    host.assert_alive();
}

#[test]
fn case_015_the_limit_is_512_levels_also_where_nothing_is_forwarded() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, silent());
    for (depth, is_read) in [(511, true), (512, false)] {
        host.send_bytes(
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}}}\n",
                nested("[", "", "]", depth)
            )
            .as_bytes(),
        );
        assert_eq!(host.next_answer()["result"].is_object(), is_read, "{depth} levels within the message");
    }
    assert_eq!(relay.connections(), 0);
}

#[test]
fn case_016_numbers_of_any_length_are_echoed_or_forwarded_as_written() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::any(), Reply::result(json!({"content": []})));
    let mut host = Host::start(&relay);
    for number in ["9".repeat(5000), format!("1{}", "0".repeat(5000)), "1e400".into(), "-1E-400".into()] {
        host.send_bytes((call(1, "list_jobs", &format!("{{\"n\":{number}}}")) + "\n").as_bytes());
        assert_answered(&host.next_answer());
        let arguments = format!("{{\"n\":{number}}}");
        assert_eq!(relay.requests().pop().expect("a request").arguments(), Some(&*arguments));
    }
    host.assert_alive();
    // The harness's own parser has no numbers of this size, so this goes around it.
    let id = "9".repeat(5000);
    let output = piped(
        bare(&relay.url()),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n").as_bytes(),
    );
    let expected = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn case_069_nothing_but_json_rpc_reaches_stdout_however_much_is_logged() {
    let relay = Relay::start(Options::default());
    let options = HostOptions::args(&["--allow-writes", "--verbose"])
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("HTTPS_PROXY", "http://127.0.0.1:9");
    relay.script(Matcher::tool("read_job"), Reply::reset());
    relay.script(Matcher::tool("read_job"), Reply::json(200, "{}"));
    let mut host = Host::with(&relay, options);
    host.ask("tools/list", "{}");
    host.call("post_message", r#"{"room":"general","content":"hi"}"#);
    for _ in 0..3 {
        host.call("read_job", r#"{"id":"x"}"#);
    }
    host.send_bytes(b"garbage\n");
    assert_eq!(error_of(&host.next_answer()), (-32700, &Value::Null));
    host.call("tiny_diagnose", "{}");
    let ended = host.end();
    assert!(ended.stderr.contains("TRACE"), "RUST_LOG had no effect");
    assert_eq!((ended.code, ended.rest.len()), (Some(0), 0));
}
