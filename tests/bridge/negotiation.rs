//! Contract 2 and cases 36–40: what is agreed on at the start, what else a host may ask, and pings.

use std::time::Duration;

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, INITIALIZED, PATIENCE, request};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply};

use crate::messages::quiet_host;
use crate::support::{assert_answered, assert_within, timed};

#[test]
fn case_040_the_clients_version_is_taken_where_it_is_known_and_2025_06_18_otherwise() {
    for (asked, agreed) in [
        (r#""2024-11-05""#, "2024-11-05"),
        (r#""2025-03-26""#, "2025-03-26"),
        (r#""2025-06-18""#, "2025-06-18"),
        (r#""2025-11-25""#, "2025-11-25"),
        (r#""2026-07-28""#, "2025-06-18"),
        (r#""1999-01-01""#, "2025-06-18"),
        (r#"" 2025-11-25""#, "2025-06-18"),
        (r#""""#, "2025-06-18"),
        ("5", "2025-06-18"),
        ("null", "2025-06-18"),
        ("{}", "2025-06-18"),
    ] {
        let (relay, mut host) = quiet_host();
        host.send(&request(
            0,
            "initialize",
            &format!(r#"{{"protocolVersion":{asked},"capabilities":{{}}}}"#),
        ));
        let expected = json!({
            "protocolVersion": agreed,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tinyagent", "version": env!("CARGO_PKG_VERSION")},
        });
        assert_eq!(host.next_answer()["result"], expected, "{asked}");
        assert_eq!(relay.posts().len(), 0);
    }
}

#[test]
fn case_040_initialize_without_usable_params_is_answered_all_the_same() {
    let (_relay, mut host) = quiet_host();
    host.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize"}"#);
    assert_eq!(host.next_answer()["result"]["protocolVersion"], "2025-06-18");
    for params in ["null", "{}", "[]", "5", r#"{"clientInfo":5}"#, r#"{"clientInfo":{"name":7}}"#] {
        host.send(&request(1, "initialize", params));
        assert_eq!(host.next_answer()["result"]["protocolVersion"], "2025-06-18", "{params}");
    }
    host.assert_alive();
}

#[test]
fn initialize_may_come_late_twice_or_never() {
    let (relay, mut host) = quiet_host();
    assert_answered(&host.call("list_rooms", "{}"));
    assert!(host.ask("tools/list", "{}")["result"]["tools"].as_array().expect("tools").len() > 1);
    host.send(INITIALIZED);
    for version in ["2024-11-05", "2025-11-25"] {
        let answer = host.ask("initialize", &format!(r#"{{"protocolVersion":"{version}"}}"#));
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert_answered(&host.call("list_rooms", "{}"));
    }
    assert_eq!(relay.executed("list_rooms"), 3);
}

#[test]
fn case_036_server_discover_is_an_unknown_method_before_and_after_initialize() {
    let (relay, mut host) = quiet_host();
    let discover = r#"{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let expected = json!({"code": -32601, "message": "Method not found: server/discover"});
    for _ in 0..2 {
        host.send(discover);
        let answer = host.next_answer();
        assert_eq!((&answer["id"], &answer["error"]), (&json!("server-discover-probe-1"), &expected));
        assert_eq!(host.ask("initialize", "{}")["result"]["protocolVersion"], "2025-06-18");
    }
    host.send(INITIALIZED);
    assert!(relay.requests().is_empty());
}

#[test]
fn case_037_every_other_request_is_an_unknown_method_that_is_named() {
    let (relay, mut host) = quiet_host();
    for method in [
        "logging/setLevel",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tools/Call",
        "TOOLS/LIST",
        "Ping",
        "ping ",
        "tools",
        "",
        "notifications/initialized",
        "notifications/cancelled",
        "rpc.discover",
        "../mcp",
    ] {
        let answer = host.ask(method, r#"{"level":"debug"}"#);
        let expected = json!({"code": -32601, "message": format!("Method not found: {method}")});
        assert_eq!(answer["error"], expected);
    }
    assert_eq!(relay.connections(), 0);
}

#[test]
fn case_039_ping_is_answered_as_the_first_line_and_whatever_its_params() {
    for params in
        ["", r#","params":{}"#, r#","params":null"#, r#","params":[1]"#, r#","params":{"_meta":{}}"#]
    {
        let (_relay, mut host) = quiet_host();
        host.send(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping"{params}}}"#));
        assert_eq!(host.next_answer(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    }
}

#[test]
fn case_039_ping_is_answered_within_100_ms_while_a_call_is_in_flight() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script_always(Matcher::any(), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    assert_within(Duration::from_millis(100), "a ping", || timed(|| host.assert_alive()));
    gate.open();
}

#[test]
fn the_clients_name_labels_the_signers_records_from_initialize_on() {
    let relay = Relay::start(Options::default());
    let path = std::env::temp_dir().join(format!("tinyagent-{}-label.jsonl", std::process::id()));
    let args = ["--audit-log", path.to_str().expect("UTF-8")];
    let mut host = Host::with(&relay, HostOptions { silent: true, ..HostOptions::args(&args) });
    host.call("list_rooms", "{}");
    host.ask("initialize", r#"{"clientInfo":{"name":" My Client! "}}"#);
    host.call("list_rooms", "{}");
    assert_eq!(host.end().code, Some(0));
    let log = std::fs::read_to_string(&path).expect("a log");
    std::fs::remove_file(&path).expect("it was made");
    let records = log.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let calls: Vec<Value> = records.filter(|record: &Value| record["tool"] == "list_rooms").collect();
    let labels: Vec<&Value> = calls.iter().map(|record| &record["client"]).collect();
    assert_eq!(labels, [&Value::Null, &json!("my-client")]);
}

#[test]
fn the_clients_name_is_normalised_before_it_labels_a_log_line() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with(&relay, HostOptions { silent: true, ..HostOptions::args(&["--verbose"]) });
    let params =
        r#"{"protocolVersion":"2025-11-25","clientInfo":{"name":"  My Ünïc\u0000de__Client v2.0!\n"}}"#;
    host.ask("initialize", params);
    host.wait_for_stderr("my-n-c-de-client-v2-0");
}

#[test]
fn a_request_that_names_2026_07_28_itself_gets_the_keys_of_that_revision_and_no_other_request_does() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
    let named = |params: &str| format!("{{{params}{meta}}}");
    for tool in ["list_rooms", "tiny_diagnose"] {
        let plain = host.ask("tools/call", &format!(r#"{{"name":"{tool}"}}"#))["result"].clone();
        let mut modern = host.ask("tools/call", &named(&format!(r#""name":"{tool}","#)))["result"].clone();
        assert_eq!(
            modern.as_object_mut().and_then(|keys| keys.remove("resultType")),
            Some(json!("complete"))
        );
        let keys = |result: &Value| result.as_object().map(|keys| keys.keys().cloned().collect::<Vec<_>>());
        assert_eq!(keys(&modern), keys(&plain));
        assert_eq!(plain.get("resultType"), None);
    }
    let list = host.ask("tools/list", &named(""))["result"].clone();
    assert_eq!((&list["resultType"], &list["ttlMs"]), (&json!("complete"), &json!(0)));
    assert_eq!((&list["cacheScope"], list["tools"].as_array().map(Vec::len)), (&json!("private"), Some(18)));
    assert_eq!(host.ask("ping", &named(""))["result"], json!({"resultType": "complete"}));
    assert_eq!(host.ask("tools/list", "{}")["result"].get("ttlMs"), None);
}
