//! Contract 2 and MCP 2026-07-28: arguments that a tool's schema asks to have mirrored in headers.

use serde_json::{Value, json};
use tinyagent_harness::Host;

use crate::tool_table::{entry, lists, names, with_entries};

/// A `list_jobs` whose inputs ask for headers.
fn annotated(properties: Value) -> Value {
    json!({"name": "list_jobs", "inputSchema": {"type": "object", "properties": properties}})
}

#[test]
fn arguments_that_ask_for_headers_are_mirrored_in_them() {
    let header = |kind: &str, name: &str| json!({"type": kind, "x-mcp-header": name});
    let (relay, mut host) = with_entries(vec![annotated(json!({
        "room": header("string", "Room"), "n": header("integer", "N-1"), "flag": header("boolean", "Flag"),
        "in": {"type": "object", "properties": {"deep": header("string", "Deep")}}, "plain": {"type": "string"},
    }))]);
    names(&mut host);
    let expect = |host: &mut Host, arguments: &str, expected: &[(&str, &str)]| {
        host.call("list_jobs", arguments);
        let call = relay.calls_of("list_jobs").pop().expect("a call");
        let mut sent: Vec<(String, String)> = call
            .headers
            .iter()
            .filter(|(name, _)| name.to_ascii_lowercase().starts_with("mcp-param-"))
            .cloned()
            .collect();
        sent.sort();
        let sent: Vec<(String, &str)> =
            sent.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())).collect();
        let expected: Vec<(String, &str)> =
            expected.iter().map(|(name, value)| (format!("mcp-param-{name}"), *value)).collect();
        assert_eq!(sent, expected, "{arguments}");
        assert_eq!(call.arguments(), Some(arguments));
    };
    expect(&mut host, "{}", &[]);
    expect(&mut host, r#"{"plain":"x","other":"y"}"#, &[]);
    expect(
        &mut host,
        r#"{"room":"general","n":-7,"flag":false,"in":{"deep":"d"}}"#,
        &[("deep", "d"), ("flag", "false"), ("n-1", "-7"), ("room", "general")],
    );
    expect(
        &mut host,
        r#"{"room":"Z\u00fcrich","n":0,"flag":true}"#,
        &[("flag", "true"), ("n-1", "0"), ("room", "=?base64?WsO8cmljaA==?=")],
    );
    expect(&mut host, r#"{"room":" a"}"#, &[("room", "=?base64?IGE=?=")]);
    expect(&mut host, r#"{"room":"a\r\nX: y"}"#, &[("room", "=?base64?YQ0KWDogeQ==?=")]);
    expect(&mut host, r#"{"room":"=?base64?eA==?="}"#, &[("room", "=?base64?PT9iYXNlNjQ/ZUE9PT89?=")]);
    expect(&mut host, r#"{"room":null,"n":null,"flag":null,"in":null}"#, &[]);
    expect(&mut host, r#"{"n":9007199254740991}"#, &[("n-1", "9007199254740991")]);
    expect(&mut host, r#"{"n":9007199254740992}"#, &[]);
    expect(&mut host, r#"{"n":1.5,"in":[{"deep":"d"}]}"#, &[]);
}

#[test]
fn a_first_call_that_lacks_its_headers_is_made_good_by_one_fetch_of_the_table() {
    let (relay, mut host) =
        with_entries(vec![annotated(json!({"room": {"type": "string", "x-mcp-header": "Room"}}))]);
    host.call("list_jobs", r#"{"room":"general"}"#);
    let calls = relay.calls_of("list_jobs");
    assert_eq!((calls.len(), lists(&relay)), (2, 1));
    assert_eq!(
        (calls[0].header("mcp-param-room"), calls[1].header("mcp-param-room")),
        (None, Some("general"))
    );
}

#[test]
fn a_tool_with_an_invalid_header_annotation_is_left_out_with_a_warning() {
    for properties in [
        json!({"a": {"type": "string", "x-mcp-header": ""}}),
        json!({"a": {"type": "string", "x-mcp-header": "a b"}}),
        json!({"a": {"type": "string", "x-mcp-header": "a\r\nX: y"}}),
        json!({"a": {"type": "string", "x-mcp-header": "é"}}),
        json!({"a": {"type": "string", "x-mcp-header": 5}}),
        json!({"a": {"type": "string", "x-mcp-header": null}}),
        json!({"a": {"type": "number", "x-mcp-header": "A"}}),
        json!({"a": {"type": "object", "x-mcp-header": "A"}}),
        json!({"a": {"type": ["string", "null"], "x-mcp-header": "A"}}),
        json!({"a": {"x-mcp-header": "A"}}),
        json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
        json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
        json!({"a": {"oneOf": [{"type": "string", "x-mcp-header": "A"}]}}),
    ] {
        let (_relay, mut host) = with_entries(vec![annotated(properties.clone()), entry("list_rooms")]);
        assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"], "{properties}");
        host.wait_for_stderr("tool list_jobs is left out: x-mcp-header");
    }
}

#[test]
fn an_annotation_of_a_tool_that_is_not_exposed_matters_to_nobody() {
    let mut stranger = annotated(json!({"a": {"type": "number", "x-mcp-header": "A"}}));
    stranger["name"] = "publish_event".into();
    let (_relay, mut host) = with_entries(vec![stranger, entry("list_rooms")]);
    assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"]);
    assert!(!host.end().stderr.contains("left out"));
}
