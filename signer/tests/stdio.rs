//! JSON lines for auditors: the same answers, one a line.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tinyagent_relay::Key;

use crate::program::{RELAY, call, proof, publish, rule, signer_path};

fn audit(lines: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(signer_path())
        .args(["--stdio", "--relay", RELAY])
        .args(arguments)
        .env_clear()
        .env("TINY_PRIVATE_KEY", Key::random().secret_hex())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("written");
    child.wait_with_output().expect("it ends")
}

fn answers(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect()
}

#[test]
fn each_line_is_answered_by_one_line_and_blank_ones_and_a_missing_end_are_forgiven() {
    let lines =
        format!("\n{}\r\n\n  {}\n{}", r#"{"describe":{}}"#, call("nope", "{}"), call("read_room", "{}"));
    let output = audit(&lines, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answers = answers(&output);
    assert_eq!(answers.len(), 3);
    assert!(answers[0].get("description").is_some());
    assert_eq!(rule(&answers[1]), "tool-not-exposed");
    proof(&answers[2]["proof"]);
}

#[test]
fn a_malformed_line_ends_it_with_a_reason_after_the_answers_before() {
    let lines = format!("{}\n{{\"sign\":{{}}}}\n{}\n", r#"{"describe":{}}"#, r#"{"describe":{}}"#);
    let output = audit(&lines, &[]);
    assert_eq!((output.status.code(), answers(&output).len()), (Some(65), 1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("malformed request: not a known request"));
}

#[test]
fn one_refusal_of_each_policy_rule_can_be_had_by_hand() {
    let lines: Vec<String> = vec![
        call("publish_event", "{}"),
        publish("post_message", r#"{"event":1}"#, 9, "h"),
        publish("post_message", "{}", 1, "h"),
        publish("post_message", "{}", 27235, "h"),
        publish("post_message", "{}", 9, "grant"),
        publish("post_message", "{}", 9, "request"),
        r#"{"narrow":{"tools":[],"allow_writes":false}}"#.into(),
    ];
    let output = audit(&lines.join("\n"), &["--allow-writes"]);
    let rules: Vec<String> = answers(&output).iter().map(|answer| rule(answer).to_owned()).collect();
    let expected = [
        "tool-not-exposed",
        "event-argument",
        "kind-not-expected",
        "authorization-kind",
        "grant-tag",
        "request-tag",
        "narrow-not-offered",
    ];
    assert_eq!(rules, expected);
}
