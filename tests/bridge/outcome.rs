//! What a host is told of a call, in the shape that tests ask about. Nothing here talks to a relay.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, call, program};
use tinyagent_relay::{Matcher, Relay, Reply};

/// The text of a tool error: one text block, `isError`, and nothing else.
#[track_caller]
pub fn error_text(answer: &Value) -> &str {
    let result = &answer["result"];
    assert_eq!(result["isError"], true, "no tool error: {answer}");
    assert_eq!(result["content"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(result["structuredContent"], Value::Null, "{answer}");
    let text = result["content"][0]["text"].as_str().expect("a text block");
    assert!(!text.contains('\n') && text.len() < 1500, "not one short line: {text}");
    text
}

/// Insists on a result that is no error.
#[track_caller]
pub fn assert_answered(answer: &Value) {
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

/// A host whose calls may take this many seconds.
pub fn impatient(relay: &Relay, seconds: u32, more: &[&str]) -> Host {
    let seconds = seconds.to_string();
    Host::with(relay, HostOptions::args(&[&["--timeout", &seconds], more].concat()))
}

/// Answers one `list_rooms` like this and gives the text of the tool error that the host sees; the relay
/// was asked exactly once.
#[track_caller]
pub fn failed_read(relay: &Relay, host: &mut Host, reply: Reply) -> String {
    let before = relay.calls_of("list_rooms").len();
    relay.script(Matcher::tool("list_rooms"), reply);
    let answer = host.call("list_rooms", "{}");
    assert_eq!(relay.calls_of("list_rooms").len(), before + 1, "the read was repeated: {answer}");
    error_text(&answer).to_owned()
}

/// Answers the submission of one message like this and gives the text of the tool error with the id of the
/// submitted event; the relay was asked for the template once and given the event once.
#[track_caller]
pub fn failed_submission(relay: &Relay, host: &mut Host, reply: Reply) -> (String, String) {
    let before = relay.calls_of("post_message").len();
    relay.script(Matcher::resubmission("post_message"), reply);
    let content = format!(r#"{{"room":"general","content":"message {before}"}}"#);
    let answer = host.call("post_message", &content);
    let calls = relay.calls_of("post_message");
    assert_eq!(calls.len(), before + 2, "not one template and one submission: {answer}");
    (error_text(&answer).to_owned(), calls[before + 1].event().expect("the event").id)
}

/// A host that keeps the program's lines as they are, for tests of single bytes.
pub struct RawHost {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl RawHost {
    /// Starts against this relay; nothing is sent.
    pub fn start(relay: &Relay) -> Self {
        let mut command = Command::new(program("tinyagent"));
        command.args(["mcp", "--relay", &relay.url()]).env_clear().env(KEY_VARIABLE, KEY);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("tinyagent starts");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        RawHost { child, stdin, stdout }
    }

    /// Sends one line and gives the next one of the program, without its end.
    pub fn ask(&mut self, line: &str) -> String {
        self.stdin.write_all(format!("{line}\n").as_bytes()).expect("the program reads");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("a line in UTF-8");
        answer.strip_suffix('\n').expect("a whole line").to_owned()
    }

    /// Calls a tool.
    pub fn call(&mut self, tool: &str, arguments: &str) -> String {
        self.ask(&call(1, tool, arguments))
    }
}

impl Drop for RawHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
