//! A short session of a host with the real `tinyagent`, against the development relay, with a throw-away
//! key. It prints what the host sent and saw, what the relay received, and which process held the key.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use serde_json::{Value, json};
use tinyagent_harness::{children, environ, program, wait_gone};
use tinyagent_relay::{Matcher, Options, Relay, Reply};

/// What Hermes leaves of the environment of a server that it starts.
const KEPT: [&str; 9] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TERM", "SHELL", "TMPDIR", "LOGNAME"];

struct Host {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Host {
    fn ask(&mut self, about: &str, method: &str, params: &Value) -> Value {
        let line =
            json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params}).to_string();
        self.next_id += 1;
        println!("\n{about}\n  host sends  {}", shortened(&line));
        writeln!(self.stdin, "{line}").expect("tinyagent reads its stdin");
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).expect("tinyagent answers");
        let answer: Value = serde_json::from_str(&answer).expect("one JSON-RPC answer a line");
        answer["result"].clone()
    }

    fn call(&mut self, about: &str, tool: &str, arguments: &Value) -> Value {
        let result = self.ask(about, "tools/call", &json!({"name": tool, "arguments": arguments}));
        let kind = if result["isError"] == true { "tool error" } else { "result" };
        println!(
            "  host sees   {kind}: {}",
            shortened(result["content"][0]["text"].as_str().unwrap_or_default())
        );
        result
    }
}

fn main() -> ExitCode {
    let relay = Relay::start(Options::default());
    println!("The development relay serves {}", relay.url());

    let keygen = Command::new(program("tinyagent")).arg("keygen").output().expect("tinyagent keygen runs");
    let key: Value = serde_json::from_slice(&keygen.stdout).expect("one JSON line");
    let secret = key["secret"].as_str().expect("a secret").to_owned();
    println!("A throw-away key was made: {}", key["npub"].as_str().unwrap_or_default());

    let mut command = Command::new(program("tinyagent"));
    command.args(["mcp", "--relay", &relay.url(), "--allow-writes"]);
    command.env_clear().envs(std::env::vars().filter(|(name, _)| KEPT.contains(&name.as_str())));
    command.env("TINY_PRIVATE_KEY", &secret).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("tinyagent starts");
    let stdin = child.stdin.take().expect("a pipe");
    let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut host = Host { child, stdin, stdout, next_id: 1 };

    let client = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "demo", "version": "1"}});
    let hello = host.ask("1. The host starts tinyagent and shakes hands.", "initialize", &client);
    println!("  host sees   {}", shortened(&hello.to_string()));

    let list = host.ask("2. It lists the tools.", "tools/list", &json!({}));
    let names: Vec<&str> =
        list["tools"].as_array().expect("tools").iter().filter_map(|t| t["name"].as_str()).collect();
    println!("  host sees   {} tools: {}", names.len(), shortened(&names.join(" ")));

    host.call("3. It reads a room.", "read_room", &json!({"id": "general", "limit": 1}));

    let message = json!({"room": "general", "content": "Hello from the demo."});
    let posted =
        host.call("4. It posts a message; tinyagent signs the relay's template.", "post_message", &message);

    let forbidden = json!({"kind": 27235, "content": "", "tags": [["u", "https://elsewhere.example/"], ["method", "POST"]]});
    let result =
        json!({"resultType": "complete", "content": [], "structuredContent": {"unsigned": forbidden}});
    relay.script(Matcher::tool("post_message"), Reply::result(result));
    let refused = host.call(
        "5. The relay now asks for a signature that opens another server.",
        "post_message",
        &message,
    );

    let diagnosed = host.call(
        "6. It asks for a diagnosis.",
        "tiny_diagnose",
        &json!({"rooms": ["general"], "kinds": [9]}),
    );

    println!("\nThe relay received:");
    for request in relay.requests() {
        let proof = request.proof.as_ref().map(|proof| format!("signed by {}…", &proof.pubkey[..8]));
        let what = request.tool().or(request.rpc_method()).unwrap_or_default();
        println!(
            "  {} {} {what:<14} {}",
            request.method,
            request.path(),
            proof.as_deref().unwrap_or("unsigned")
        );
    }

    let facade = host.child.id();
    let signer = children(facade);
    println!("\nThe processes:");
    let mut key_seen = false;
    for (name, pid) in [("facade", Some(facade)), ("signer", signer.first().copied())] {
        let Some(pid) = pid else { continue };
        let held = environ(pid).windows(secret.len()).any(|window| window == secret.as_bytes());
        key_seen |= held;
        println!("  {name} {pid}: its environment holds {}", if held { "THE KEY" } else { "no key" });
    }
    println!(
        "  The signer alone read the key, from the environment that it was started with, and wiped it there."
    );

    drop(host.stdin);
    let status = host.child.wait().expect("tinyagent ends");
    let gone = signer.iter().all(|pid| wait_gone(*pid, std::time::Duration::from_secs(1)));
    println!(
        "\nThe host closed stdin: tinyagent ended with {status}, the signer is {}.",
        if gone { "gone" } else { "STILL THERE" }
    );

    let fine = posted["structuredContent"]["accepted"] == true
        && refused["isError"] == true
        && diagnosed["structuredContent"]["verdict"] == "ok"
        && status.success()
        && gone
        && !key_seen;
    println!("{}", if fine { "All as it should be." } else { "SOMETHING IS WRONG; see above." });
    if fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn shortened(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(160).collect();
    if text.chars().nth(160).is_some() { line + "…" } else { line }
}
