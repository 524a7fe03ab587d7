//! The program: one JSON line, then requests served as the library serves them.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use tinyagent_relay::{Key, client};

/// Starts the program; its URL is the first line of its stdout.
fn start(arguments: &[&str]) -> (Child, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tinyagent-relay"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = serde_json::from_str::<Value>(&line).unwrap()["url"].as_str().unwrap().to_owned();
    (child, url)
}

/// Ends the program and returns what it wrote on stderr.
fn end(mut child: Child) -> String {
    child.kill().unwrap();
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn it_prints_its_url_serves_and_logs_without_bodies() {
    let (child, url) = start(&["--prefix", "/r/acme", "--log"]);
    assert!(url.ends_with("/r/acme"));
    let key = Key::random();
    let (event, _) =
        client::publish(&url, &key, "post_message", &json!({"room": "general", "content": "words"}));
    let log = end(child);
    assert!(event.is_some());
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert!(lines[0].starts_with("POST /r/acme/mcp tools/call post_message ("), "{log}");
    assert!(lines[1].contains(" event of kind 9 (") && lines[1].contains(&key.public_hex()[..8]), "{log}");
    assert!(!log.contains("words") && !log.contains(&key.secret_hex()));
}

#[test]
fn its_options_reach_the_relay() {
    let key = Key::random();
    let owner = key.public_hex();
    let (child, url) =
        start(&["--body-limit", "400", "--members-only", "--enforce-grants", "--owner", &owner]);
    assert_eq!(client::call(&url, &key, "read_status", "{}").structured()["health"], "ok");
    let long = format!("{{\"q\":\"{}\"}}", "a".repeat(400));
    assert_eq!(client::call(&url, &key, "list_rooms", &long).status, 413);
    assert_eq!(client::call(&url, &Key::random(), "list_rooms", "{}").json()["result"]["isError"], true);
    end(child);
    let (child, url) = start(&["--hostile", "--hostile-seed", "3", "--log"]);
    for _ in 0..20 {
        client::call(&url, &key, "post_message", r#"{"room":"general","content":"x"}"#);
    }
    let log = end(child);
    assert!(log.contains("template of post_message: altered content"), "{log}");
    assert!(log.contains("altered nothing"), "{log}");
}

#[test]
fn an_address_that_cannot_be_had_is_named_and_ends_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_tinyagent-relay"))
        .args(["--listen", "192.0.2.1:1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("tinyagent-relay: cannot listen: "));
}
