//! A relay that puts other words, rooms, people, kinds or times into the templates it returns.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, program};
use tinyagent_relay::{Event, Matcher, Options, Relay, Reply, Served, Template};

use crate::agent::Agent;
use crate::calls::{TOOLS, arguments};
use crate::dice::Dice;

/// Calls with the rule; issue 6 asks for a thousand at least.
const CALLS: usize = 1400;
/// Calls without it.
const UNBOUND_CALLS: usize = 300;

fn hostile(seed: u64) -> Options {
    Options { hostile: true, hostile_seed: seed, ..Options::default() }
}

/// A call and the template that came for it.
struct Case {
    arguments: Value,
    served: Served,
    answered: String,
    event: Option<Event>,
}

/// Makes so many calls and keeps those for which a template came.
fn calls(agent: &mut Agent, count: usize, seed: u64) -> Vec<Case> {
    let mut dice = Dice::new(seed);
    let mut cases = Vec::new();
    for number in 0..count {
        // The first three make what the others act on; until there is some, those are called more often.
        let wanted = if number < 150 && number % 2 == 0 { &TOOLS[..3] } else { &TOOLS[..] };
        let tool = *dice.pick(wanted);
        let Some(asked) = arguments(agent, tool, number, &mut dice) else { continue };
        let outcome = agent.call(tool, &asked);
        let answered = outcome.text().to_owned();
        let served = outcome.served.unwrap_or_else(|| panic!("{tool} {asked}: {answered}"));
        assert_eq!(served.tool, tool);
        cases.push(Case { arguments: asked, served, answered, event: outcome.event });
    }
    cases
}

fn is_event_of(event: &Event, template: &Template) -> bool {
    (event.kind, event.created_at, &event.tags, &event.content)
        == (template.kind, template.created_at, &template.tags, &template.content)
}

/// How often each field was altered, `honest` where none was.
fn counted(cases: &[Case]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for case in cases {
        *counts.entry(case.served.altered.unwrap_or("honest")).or_default() += 1;
    }
    counts
}

/// The words of the contract for a kind or a power that the tool does not have.
fn contract_refuses(text: &str) -> bool {
    text.starts_with("the relay returned an unsigned event this tool is not expected to publish: kind ")
        || (text.starts_with("refused to sign a kind ") && text.contains(" authorization event returned by "))
}

#[test]
fn with_the_rule_nothing_altered_is_signed_and_everything_honest_is() {
    let mut agent = Agent::start(hostile(7), &["--bind-arguments"]);
    let cases = calls(&mut agent, CALLS, 0x2545_f491_4f6c_dd1d);
    let counts = counted(&cases);
    println!("{} templates: {counts:?}", cases.len());
    assert!(cases.len() >= 1000, "{counts:?}");
    for field in [
        "honest",
        "content",
        "kind",
        "created_at",
        "power",
        "h",
        "p",
        "title",
        "subject",
        "request",
        "expiration",
        "grant",
    ] {
        assert!(counts.get(field).is_some_and(|count| *count > 3), "{field}: {counts:?}");
    }
    // What left the programs at all, counted from the relay's side.
    let submitted: Vec<Event> = agent.relay.posts().iter().filter_map(|request| request.event()).collect();
    let altered_signed = cases
        .iter()
        .filter(|case| case.served.altered.is_some())
        .filter(|case| submitted.iter().any(|event| is_event_of(event, &case.served.returned)))
        .count();
    assert_eq!(altered_signed, 0);
    assert_eq!(submitted.len(), counts["honest"]);
    for case in &cases {
        let (tool, asked, answered) = (&case.served.tool, &case.arguments, &case.answered);
        let Some(field) = case.served.altered else {
            let event = case.event.as_ref().unwrap_or_else(|| panic!("{tool} {asked}: {answered}"));
            assert!(is_event_of(event, &case.served.honest));
            continue;
        };
        assert!(case.event.is_none());
        if matches!(field, "kind" | "power") {
            assert!(contract_refuses(answered), "{tool} {asked}: {answered}");
            continue;
        }
        let said = answered.strip_prefix("signer: refused (arguments-mismatch): the template");
        let said = said.unwrap_or_else(|| panic!("{tool} {asked}: {answered}"));
        let names_it = match field {
            "content" | "created_at" => said.contains(field),
            tag => {
                said.contains(&format!(" {tag} tag "))
                    || said.contains(&format!(" tag {tag} "))
                    || tag_of(tag, said)
            }
        };
        assert!(names_it, "{field}: {answered}");
    }
    check_the_signer_alone(&agent, &cases);
}

/// The title may stand in a tag of either name; the refusal has the tool's first.
fn tag_of(tag: &str, said: &str) -> bool {
    matches!(tag, "title" | "subject") && (said.contains(" title tag ") || said.contains(" subject tag "))
}

/// A signer by itself, as whoever owns its socket would use it: JSON lines on standard input and output.
struct Signer {
    child: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Signer {
    fn start(relay: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(program("tinyagent-signer"))
            .args(["--stdio", "--relay", relay, "--allow-writes", "--max-events-per-minute", "1000000"])
            .args(arguments)
            .env_clear()
            .env(KEY_VARIABLE, KEY)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the signer starts");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, answers }
    }

    fn publish(&mut self, case: &Case) -> Value {
        let request = json!({"publish": {
            "id": 1, "tool": case.served.tool, "arguments": case.arguments, "template": case.served.returned,
        }});
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{request}").expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same templates put to signers without a facade before them: with the rule and without.
fn check_the_signer_alone(agent: &Agent, cases: &[Case]) {
    let mut bound = Signer::start(&agent.relay.url(), &["--bind-arguments"]);
    let mut unbound = Signer::start(&agent.relay.url(), &[]);
    for case in cases {
        let (with, without) = (bound.publish(case), unbound.publish(case));
        let context = || format!("{} {}: {with}", case.served.tool, case.arguments);
        let of_the_contract = ["kind-not-expected", "authorization-kind", "grant-tag", "request-tag"];
        match case.served.altered {
            None => assert!(with.get("published").is_some(), "{}", context()),
            Some("kind" | "power") => {
                let rule = with["refused"]["rule"].as_str().unwrap_or_default();
                assert!(of_the_contract.contains(&rule), "{}", context());
                assert_eq!(with["refused"], without["refused"]);
                continue;
            }
            Some(_) => assert_eq!(with["refused"]["rule"], "arguments-mismatch", "{}", context()),
        }
        let event = Event::parse(&without["published"]["event"].to_string()).expect("an event");
        assert!(is_event_of(&event, &case.served.returned), "{without}");
    }
}

#[test]
fn without_the_rule_the_contract_s_rules_hold_and_the_rest_is_signed_as_returned() {
    let mut agent = Agent::start(hostile(11), &[]);
    let cases = calls(&mut agent, UNBOUND_CALLS, 0x9e37_79b9_7f4a_7c15);
    for case in &cases {
        match case.served.altered {
            Some("kind" | "power") => {
                assert!(case.event.is_none() && contract_refuses(&case.answered), "{}", case.answered);
            }
            _ => {
                let event = case.event.as_ref().unwrap_or_else(|| panic!("{}", case.answered));
                assert!(is_event_of(event, &case.served.returned));
            }
        }
    }
    let altered = cases.iter().filter(|case| case.event.is_some() && case.served.altered.is_some()).count();
    assert!(altered > UNBOUND_CALLS / 3, "only {altered} altered templates were signed");
}

const HELLO: &str = r#"{"room":"general","content":"hi"}"#;
const OTHER_WORDS: &str = r#"{"kind":9,"tags":[["h","general"]],"content":"I resign"}"#;

#[test]
fn the_refusal_names_the_field_and_not_what_stands_in_it() {
    let relay = Relay::start(Options::default());
    relay.script(Matcher::tool("post_message"), Reply::template(OTHER_WORDS));
    let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes", "--bind-arguments"]));
    let answer = host.call("post_message", HELLO);
    let text = "signer: refused (arguments-mismatch): the template's content is not the content argument; \
                nothing was signed";
    assert_eq!(answer["result"]["content"][0]["text"], text);
    assert_eq!(answer["result"]["isError"], true);
    assert!(!answer.to_string().contains("I resign"), "{answer}");
    assert_eq!(relay.calls_of("post_message").len(), 1);
    // The agent goes on.
    assert_eq!(host.call("post_message", HELLO)["result"]["structuredContent"]["accepted"], true);
}

#[test]
fn a_template_in_the_second_answer_is_the_contract_s_refusal_whatever_it_says() {
    let relay = Relay::start(Options::default());
    let honest = r#"{"kind":9,"tags":[["h","general"]],"content":"hi"}"#;
    relay.script(Matcher::tool("post_message"), Reply::template(honest));
    relay.script(Matcher::tool("post_message"), Reply::template(OTHER_WORDS));
    let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes", "--bind-arguments"]));
    let text = host.text("post_message", HELLO);
    assert!(contract_refuses(&text), "{text}");
    assert_eq!(relay.calls_of("post_message").len(), 2);
}
