//! What an honest relay returns is signed, with `--bind-arguments` as without.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, run};
use tinyagent_relay::{Options, Relay};

use crate::agent::Agent;
use crate::calls::{TOOLS, arguments};
use crate::dice::Dice;

/// Rounds over all tools.
const ROUNDS: usize = 12;

#[test]
fn templates_of_an_honest_relay_are_signed_for_all_seventeen_tools() {
    let mut agent = Agent::start(Options::default(), &["--bind-arguments"]);
    let mut dice = Dice::new(0x9e37_79b9_7f4a_7c15);
    let mut published: BTreeMap<&str, usize> = BTreeMap::new();
    for round in 0..ROUNDS {
        for (at, tool) in TOOLS.iter().enumerate() {
            let asked =
                arguments(&agent, tool, round * TOOLS.len() + at, &mut dice).expect("something to act on");
            let outcome = agent.call(tool, &asked);
            assert!(outcome.event.is_some(), "{tool} {asked}: {}", outcome.answer);
            *published.entry(tool).or_default() += 1;
        }
    }
    assert!(TOOLS.iter().all(|tool| published[tool] == ROUNDS), "{published:?}");
    assert_eq!(agent.host.end().code, Some(0));
}

#[test]
fn a_template_without_a_time_is_filled_and_signed() {
    let relay = Relay::start(Options::default());
    relay.script(
        tinyagent_relay::Matcher::tool("post_message"),
        tinyagent_relay::Reply::template(r#"{"kind":9,"tags":[["h","general"]],"content":"hi"}"#),
    );
    let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes", "--bind-arguments"]));
    let answer = host.call("post_message", r#"{"room":"general","content":"hi"}"#);
    assert_eq!(answer["result"]["structuredContent"]["accepted"], true, "{answer}");
}

#[test]
fn the_signer_shows_the_rule_in_its_policy_and_a_host_cannot_ask_it_of_a_signer_of_another_user() {
    let shown = std::process::Command::new(tinyagent_harness::program("tinyagent-signer"))
        .args(["policy", "--relay", "http://relay.example", "--allow-writes", "--bind-arguments"])
        .output()
        .expect("the signer starts");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!(shown["policy"]["bind_arguments"], json!(true));
    let args = ["mcp", "--relay", "http://relay.example", "--signer", "/nonexistent", "--bind-arguments"];
    let refused = run(&args, &[(KEY_VARIABLE, KEY)]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("--bind-arguments") && said.contains("--signer"), "{said}");
}
