//! Contract 2 and cases 18–32 and 52: what is a message, what is none, and how each is answered.

use serde_json::{Value, json};
use tinyagent_harness::{Host, call, ping, request};
use tinyagent_relay::{Options, Relay};

use crate::support::{assert_answered, bare, error_of, piped, silent};

/// A host that has sent nothing yet, and its relay.
pub fn quiet_host() -> (Relay, Host) {
    let relay = Relay::start(Options::default());
    let host = Host::with(&relay, silent());
    (relay, host)
}

/// Sends each line and insists on an error of this code and id; the relay must not be contacted.
fn assert_errors(code: i64, cases: &[(&str, Value)]) {
    let (relay, mut host) = quiet_host();
    for (line, id) in cases {
        host.send_bytes(format!("{line}\n").as_bytes());
        assert_eq!(error_of(&host.next_answer()), (code, id), "{line}");
        host.assert_alive();
    }
    assert_eq!(relay.connections(), 0, "the relay was contacted");
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn case_032_what_is_not_one_json_object_is_a_parse_error_without_an_id() {
    let cases = [
        "5",
        "-1",
        "\"x\"",
        "null",
        "true",
        "false",
        "{",
        "}",
        "{}}",
        "{\"a\":1}x",
        "{} {}",
        "{},",
        "x",
        "nul",
        "{'a':1}",
        "{a:1}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{\"a\":}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":1e}",
        "{\"a\":NaN}",
        "{\"a\":Infinity}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12\"}",
        "{\"a\":\"\t\"}",
        "{\"a\":\"\u{1}\"}",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "// {}",
        "/* */{}",
        "{\"a\":[1,]}",
        "{\"a\":tru}",
        "Content-Length: 2",
        "\u{a0}{}",
        "{}\u{a0}",
        "{}\0",
    ];
    assert_errors(-32700, &cases.map(|line| (line, Value::Null)));
}

#[test]
fn case_031_a_batch_is_one_parse_error_and_the_relay_is_not_contacted() {
    let batch = format!("[{},{}]", ping(1), call(2, "list_rooms", "{}"));
    let hidden = format!("[{},{}]", ping(1), call(2, "publish_event", "{}"));
    let cases = [&*batch, &hidden, "[]", "[1]", "[[]]", "[{}]", "[null]", " [ ] "];
    assert_errors(-32700, &cases.map(|line| (line, Value::Null)));
}

#[test]
fn case_032_an_object_that_is_no_request_is_an_invalid_request_under_its_own_id() {
    assert_errors(
        -32600,
        &[
            ("{}", Value::Null),
            (r#"{"id":1}"#, json!(1)),
            (r#"{"id":"a"}"#, json!("a")),
            (r#"{"jsonrpc":"2.0"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":1}"#, json!(1)),
            (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2.00","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":2.0,"id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":2,"id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":null,"id":1,"method":"ping"}"#, json!(1)),
            (r#"{"id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"1.0","method":"ping"}"#, Value::Null),
            (r#"{"method":"notifications/initialized"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":1,"method":5}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":null}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":["ping"]}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":{"a":1}}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","method":5}"#, Value::Null),
            // Keys are matched exactly, case included.
            (r#"{"JSONRPC":"2.0","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"Method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method ":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","ID":1,"method":5}"#, Value::Null),
            // A method beside a result is no response.
            (r#"{"jsonrpc":"2.0","id":1,"method":5,"result":{}}"#, json!(1)),
        ],
    );
}

#[test]
fn an_id_that_is_neither_string_nor_number_is_an_invalid_request_and_nothing_is_forwarded() {
    for id in ["null", "true", "false", "{}", "[]", "[1]", "{\"a\":1}", r#""\ud800""#] {
        let lines = [
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#),
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"list_rooms"}}}}"#
            ),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"notifications/initialized"}}"#),
            format!(r#"{{"id":{id}}}"#),
        ];
        assert_errors(-32600, &lines.each_ref().map(|line| (line.as_str(), Value::Null)));
    }
}

#[test]
fn case_023_024_025_an_id_is_echoed_with_its_type_and_digits() {
    let (_relay, mut host) = quiet_host();
    for id in [
        "1",
        "0",
        "-0",
        "-7",
        "9007199254740993",
        "18446744073709551616",
        "1.0",
        "1.50",
        "1E+2",
        "-1e-7",
        "\"\"",
        "\"0\"",
        "\"7\"",
        r#""a\u0000b""#,
        "\"🦀\"",
        r#""\ud83e\udd80""#,
        r#""\/\"\\""#,
        "\"null\"",
    ] {
        host.send_bytes(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n").as_bytes());
        let answer = host.next_answer();
        let expected: Value = serde_json::from_str(id).expect("an id");
        assert_eq!(answer["id"], expected, "{id}");
    }
}

#[test]
fn case_023_ids_come_back_as_written_in_every_kind_of_answer() {
    let relay = Relay::start(Options::default());
    for id in ["9007199254740993", "123456789012345678901234567890", "1.0", "1E+2", r#""a\u0000\/b""#] {
        let message = |rest: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}\n");
        let input = [
            message(r#""method":"ping""#),
            message(r#""method":"initialize""#),
            message(r#""method":"no/such""#),
            message(r#""method":5"#),
            message(r#""method":"tools/list""#),
            message(r#""method":"tools/call","params":{"name":"no_such"}"#),
            message(r#""method":"tools/call","params":{"name":"list_rooms"}"#),
            message(r#""method":"tools/call","params":{"name":"tiny_diagnose"}"#),
        ]
        .concat();
        let output = piped(bare(&relay.url()), input.as_bytes());
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        let begin = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},");
        assert_eq!(text.lines().filter(|line| line.starts_with(&begin)).count(), 8, "{text}");
    }
}

#[test]
fn an_id_with_line_separators_is_echoed_without_breaking_a_line() {
    let (_relay, mut host) = quiet_host();
    // The harness insists that none of these reaches stdout unescaped.
    let id = "a\u{2028}b\u{2029}c\u{85}d";
    host.send(&ping(id));
    assert_eq!(host.next_answer()["id"], id);
    host.send(&request("x", "no\u{2028}such\u{85}", "{}"));
    assert_eq!(error_of(&host.next_answer()), (-32601, &json!("x")));
    host.send(&call(1, "list\u{2029}rooms", "{}"));
    assert_eq!(error_of(&host.next_answer()), (-32602, &json!(1)));
}

#[test]
fn an_id_of_absurd_length_is_refused_and_not_echoed() {
    let (_relay, mut host) = quiet_host();
    host.send(&ping("a".repeat(60_000)));
    assert_eq!(host.next_answer()["result"], json!({}));
    host.send(&ping("a".repeat(1 << 20)));
    assert_eq!(error_of(&host.next_answer()), (-32600, &Value::Null));
    host.assert_alive();
}

#[test]
fn case_018_a_repeated_key_at_the_top_of_message_or_params_is_an_invalid_request() {
    let params =
        |params: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}"#);
    let name_twice = params(r#""name":"list_jobs","name":"publish_event","arguments":{}"#);
    let name_escaped = params(r#""name":"list_jobs","n\u0061me":"publish_event","arguments":{}"#);
    let arguments_twice = params(r#""name":"list_jobs","arguments":{},"arguments":{"a":1}"#);
    let other_twice = params(r#""name":"list_jobs","x":1,"x":1"#);
    assert_errors(
        -32600,
        &[
            (&name_twice, json!(1)),
            (&name_escaped, json!(1)),
            (&arguments_twice, json!(1)),
            (&other_twice, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","m\u0065thod":"tools/list"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{},"params":{}}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":1}"#, json!(1)),
            (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized","method":"x"}"#, Value::Null),
        ],
    );
}

#[test]
fn case_018_keys_that_differ_in_case_are_different_keys() {
    let (relay, mut host) = quiet_host();
    let params = r#"{"name":"list_jobs","Name":"publish_event","NAME":"x","arguments":{},"Arguments":{"a":1},"argumentſ":{"a":1}}"#;
    host.send(&request(1, "tools/call", params));
    assert_answered(&host.answer(1));
    let posts = relay.posts();
    assert_eq!(posts.len(), 1);
    assert_eq!((posts[0].tool(), posts[0].arguments()), (Some("list_jobs"), Some("{}")));
}

#[test]
fn a_response_gets_no_answer_whatever_its_shape() {
    let (relay, mut host) = quiet_host();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"x"}}"#,
        r#"{"id":null,"error":null}"#,
        r#"{"result":5}"#,
        r#"{"jsonrpc":"1.0","id":[],"result":{}}"#,
    ] {
        host.send_bytes(format!("{line}\n").as_bytes());
        // A ping's answer comes next, so nothing was said to the line before it.
        host.assert_alive();
    }
    assert_eq!(relay.connections(), 0);
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_message_without_an_id_gets_no_answer_and_is_not_forwarded_whatever_its_method() {
    let (relay, mut host) = quiet_host();
    for (method, params) in [
        ("notifications/initialized", "{}"),
        ("notifications/roots/list_changed", "{}"),
        ("notifications/progress", r#"{"progressToken":1,"progress":1}"#),
        ("notifications/no/such", "[]"),
        ("ping", "{}"),
        ("initialize", r#"{"protocolVersion":"2025-11-25"}"#),
        ("tools/list", "{}"),
        ("tools/call", r#"{"name":"list_rooms","arguments":{}}"#),
        ("tools/call", r#"{"name":"tiny_diagnose"}"#),
        ("tools/call", r#"{"name":"a","name":"b"}"#),
        ("no/such", "5"),
        ("", "null"),
    ] {
        host.send_bytes(
            format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n").as_bytes(),
        );
        host.assert_alive();
    }
    assert_eq!(relay.connections(), 0, "a notification was forwarded");
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_call_with_bad_params_is_invalid_params_and_not_forwarded() {
    let (relay, mut host) = quiet_host();
    for params in [
        "null",
        "[]",
        "5",
        "\"list_rooms\"",
        "[\"list_rooms\"]",
        "{}",
        r#"{"name":""}"#,
        r#"{"name":5}"#,
        r#"{"name":null}"#,
        r#"{"name":["list_rooms"]}"#,
        r#"{"Name":"list_rooms"}"#,
        r#"{"name":"list_rooms","arguments":[]}"#,
        r#"{"name":"list_rooms","arguments":5}"#,
        r#"{"name":"list_rooms","arguments":"{}"}"#,
        r#"{"name":"list_rooms","arguments":false}"#,
        r#"{"name":"list_rooms","arguments":[["a",1]]}"#,
        r#"{"name":"tiny_diagnose","arguments":[]}"#,
    ] {
        let answer = host.ask("tools/call", params);
        assert_eq!(error_of(&answer).0, -32602, "{params}");
    }
    host.send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    assert_eq!(error_of(&host.answer(1)).0, -32602);
    assert_eq!(relay.connections(), 0);
}

#[test]
fn absent_and_null_arguments_mean_an_empty_object() {
    let (relay, mut host) = quiet_host();
    for params in [r#"{"name":"list_rooms"}"#, r#"{"name":"list_rooms","arguments":null}"#] {
        assert_answered(&host.ask("tools/call", params));
        assert_eq!(relay.requests().pop().expect("a request").arguments(), Some("{}"));
    }
}

#[test]
fn case_052_a_progress_token_brings_no_progress_and_the_hosts_meta_is_not_forwarded() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for token in ["1", "0", r#""t""#] {
        let params = format!(
            r#"{{"name":"list_rooms","_meta":{{"progressToken":{token},"io.modelcontextprotocol/protocolVersion":"1","mark":7}}}}"#
        );
        let id = host.take_id();
        host.send(&request(id, "tools/call", &params));
        assert_eq!(host.next_answer()["id"], id, "something came before the answer");
        let body = relay.requests().pop().expect("a request").json().expect("JSON");
        let meta = &body["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!((&meta["progressToken"], &meta["mark"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(host.end().rest, [] as [Value; 0]);
}

#[test]
fn a_foreign_name_is_shown_short_and_without_control_characters() {
    let (_relay, mut host) = quiet_host();
    for (method, params) in [
        ("x".repeat(1 << 20), "{}".to_owned()),
        (r"a\u0000\u001b[31m\n".to_owned(), "{}".to_owned()),
        ("tools/call".to_owned(), format!(r#"{{"name":"{}"}}"#, "y".repeat(1 << 20))),
        ("tools/call".to_owned(), r#"{"name":"\u0007\u001b[31m"}"#.to_owned()),
        ("ping".to_owned(), format!(r#"{{"{0}":1,"{0}":2}}"#, "z".repeat(1 << 20))),
    ] {
        let answer = host.ask(&method, &params);
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.len() < 200 && !message.contains(char::is_control), "{message:?}");
    }
}

#[test]
fn a_request_that_also_has_a_result_is_a_request() {
    let (_relay, mut host) = quiet_host();
    for rest in [r#""result":{}"#, r#""error":{"code":1}"#] {
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping",{rest}}}"#));
        assert_eq!(host.next_answer()["result"], json!({}));
    }
}
