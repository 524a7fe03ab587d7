//! One signer behind a socket, fifty agents on it: none waits for another's turn twice, none gets what was
//! signed for another, and the signer's memory does not grow with them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, PUBKEY, Service, status_field};
use tinyagent_relay::{Matcher, Options, Relay, Reply};

/// The agents.
const AGENTS: usize = 50;
/// What each of them publishes.
const MESSAGES: usize = 4;
/// The most that the signer may hold for fifty agents that send small requests, in kB.
const PEAK_KB: u64 = 32 << 10;

/// A signer that binds arguments and bounds nothing that these tests count.
fn service(relay: &str) -> Service {
    Service::start(relay, &["--allow-writes", "--bind-arguments", "--max-events-per-minute", "1000000"])
}

fn signal(service: &Service, signal: Signal) {
    kill(Pid::from_raw(service.pid().cast_signed()), signal).expect("delivered");
}

fn peak_kb(service: &Service) -> u64 {
    let peak = status_field(service.pid(), "VmHWM").expect("a live process");
    peak.trim_end_matches(" kB").parse().expect("a number")
}

/// The published events' records, in order of the decisions.
fn published_records(service: &Service) -> Vec<Value> {
    service.records().into_iter().filter(|record| record["request"] == "publish").collect()
}

#[test]
fn fifty_facades_on_one_signer_each_publish_their_own_words_and_get_their_own_ids_back() {
    let relay = Relay::start(Options::default());
    let service = service(&relay.url());
    let socket = service.socket();
    let mut hosts: Vec<Host> = (0..AGENTS)
        .map(|_| {
            let args = HostOptions::args(&["--signer", &socket, "--allow-writes"]);
            Host::with(&relay, HostOptions { without_key: true, ..args })
        })
        .collect();
    let words = |agent: usize, number: usize| format!("agent {agent} says {number}");
    // Everything is under way at once; the answers are looked at afterwards.
    let mut asked = Vec::new();
    for number in 0..MESSAGES {
        for (agent, host) in hosts.iter_mut().enumerate() {
            let arguments = json!({"room": "general", "content": words(agent, number)});
            asked.push((agent, number, host.begin_call("post_message", &arguments.to_string())));
        }
    }
    let mut ids = BTreeMap::new();
    for (agent, number, call) in asked {
        let answer = hosts[agent].answer(call);
        let id = answer["result"]["structuredContent"]["event_id"].as_str();
        let id = id.unwrap_or_else(|| panic!("{answer}")).to_owned();
        assert!(ids.insert(id, words(agent, number)).is_none(), "two calls share an event");
    }
    let published = relay.published();
    assert_eq!(published.len(), AGENTS * MESSAGES);
    for event in &published {
        event.verify().expect("a valid event");
        assert_eq!((event.pubkey.as_str(), &event.content), (PUBKEY, &ids[&event.id]));
    }
    assert_eq!(published_records(&service).len(), AGENTS * MESSAGES);
    let peak = peak_kb(&service);
    println!("{AGENTS} facades, {} events, the signer's peak {peak} kB", published.len());
    assert!(peak < PEAK_KB, "the signer held {peak} kB");
    for host in hosts {
        assert_eq!(host.end().code, Some(0));
    }
}

/// The signer's command line decides; a facade that connects follows it without being told.
#[test]
fn a_signer_that_binds_arguments_binds_those_of_every_facade_on_it() {
    let relay = Relay::start(Options::default());
    let other_words = r#"{"kind":9,"tags":[["h","general"]],"content":"I resign"}"#;
    relay.script(Matcher::tool("post_message"), Reply::template(other_words));
    let service = service(&relay.url());
    let args = HostOptions::args(&["--signer", &service.socket(), "--allow-writes"]);
    let mut host = Host::with(&relay, HostOptions { without_key: true, ..args });
    let hello = r#"{"room":"general","content":"hi"}"#;
    let refused = host.text("post_message", hello);
    assert!(refused.starts_with("signer: refused (arguments-mismatch): "), "{refused}");
    assert_eq!(host.call("post_message", hello)["result"]["structuredContent"]["accepted"], true);
}

/// Reads one frame.
fn read(stream: &mut UnixStream) -> Value {
    let mut header = [0; 4];
    stream.read_exact(&mut header).expect("a header");
    let mut content = vec![0; u32::from_be_bytes(header) as usize];
    stream.read_exact(&mut content).expect("an answer");
    serde_json::from_slice(&content).expect("JSON")
}

fn frame(request: &Value) -> Vec<u8> {
    let content = request.to_string().into_bytes();
    let length = u32::try_from(content.len()).expect("a frame's length");
    [&length.to_be_bytes()[..], &content].concat()
}

/// However much each peer has queued, the signer takes one request of each in turn.
#[test]
fn peers_that_queue_requests_are_served_in_turn() {
    let service = service("http://127.0.0.1:9");
    let mut peers: Vec<UnixStream> = (0..AGENTS).map(|_| service.connect()).collect();
    for peer in &mut peers {
        peer.write_all(&frame(&json!({"describe": {}}))).expect("sent");
        assert!(read(peer).get("description").is_some());
    }
    let words = |agent: usize, number: usize| format!("agent {agent} says {number}");
    // The signer stands still until every request is there, so that its own order alone counts.
    signal(&service, Signal::SIGSTOP);
    for (agent, peer) in peers.iter_mut().enumerate() {
        for number in 0..MESSAGES {
            let arguments = json!({"room": "general", "content": words(agent, number)});
            let template = json!({"kind": 9, "tags": [["h", "general"]], "content": words(agent, number)});
            let publish = json!({
                "client": format!("agent {agent}"), "id": 1, "tool": "post_message", "arguments": arguments,
                "template": template,
            });
            peer.write_all(&frame(&json!({"publish": publish}))).expect("sent");
        }
    }
    signal(&service, Signal::SIGCONT);
    for (agent, peer) in peers.iter_mut().enumerate() {
        for number in 0..MESSAGES {
            let answer = read(peer);
            assert_eq!(answer["published"]["event"]["content"], words(agent, number), "{answer}");
        }
    }
    let mut served: BTreeMap<String, usize> =
        (0..AGENTS).map(|agent| (format!("agent-{agent}"), 0)).collect();
    for record in published_records(&service) {
        let client = record["client"].as_str().expect("a label");
        *served.get_mut(client).expect("a known label") += 1;
        let (most, least) = (served.values().max(), served.values().min());
        let ahead = most.zip(least).map(|(most, least)| most - least);
        assert!(ahead.is_some_and(|ahead| ahead <= 2), "{client} is ahead of others: {served:?}");
    }
    assert!(served.values().all(|count| *count == MESSAGES), "{served:?}");
}
