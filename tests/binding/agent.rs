//! An agent with a relay of its own: it knows what stands there, and remembers what it has published.

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, PUBKEY};
use tinyagent_relay::{Event, Grant, Options, Relay, Served};

/// More events a minute than any test signs.
const NO_BOUND: [&str; 3] = ["--allow-writes", "--max-events-per-minute", "1000000"];

/// An agent.
pub struct Agent {
    /// Its relay.
    pub relay: Relay,
    /// Its program.
    pub host: Host,
    /// The owner of the relay's one repository and the author of all that is there from the start.
    pub owner: String,
    /// The issue that is there from the start.
    pub issue: String,
    /// The pull request.
    pub pull_request: String,
    /// The wiki page's version.
    pub page: String,
    /// What the agent has published.
    pub published: Vec<Event>,
    served: usize,
}

/// What a call came to.
pub struct Outcome {
    /// The answer.
    pub answer: Value,
    /// The template, where the relay is hostile and returned one.
    pub served: Option<Served>,
    /// The event, where one was published.
    pub event: Option<Event>,
}

impl Outcome {
    /// The text of the first block.
    pub fn text(&self) -> &str {
        self.answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
    }
}

impl Agent {
    /// Starts relay and program, with these arguments beside those that allow writes.
    pub fn start(options: Options, arguments: &[&str]) -> Self {
        let relay = Relay::start(options);
        relay.set_grant(PUBKEY, Grant::active(&["general"], &[9]));
        let mut host = Host::with(&relay, HostOptions::args(&[&NO_BOUND, arguments].concat()));
        let mut read = |tool: &str, arguments: Value| {
            host.call(tool, &arguments.to_string())["result"]["structuredContent"].clone()
        };
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let owner = text(&read("list_repositories", json!({}))["repositories"][0]["owner"]);
        let repository = json!({"owner": owner, "repo": "garden"});
        let issue = text(&read("list_issues", repository.clone())["issues"][0]["id"]);
        let pull_request = text(&read("list_pull_requests", repository)["pull_requests"][0]["id"]);
        let page = text(&read("read_wiki_page", json!({"d": "seeds"}))["version"]);
        Self { relay, host, owner, issue, pull_request, page, published: Vec::new(), served: 0 }
    }

    /// Calls a write tool and looks at what the relay made of it.
    pub fn call(&mut self, tool: &str, arguments: &Value) -> Outcome {
        let answer = self.host.call(tool, &arguments.to_string());
        let mut templates = self.relay.served_templates();
        let served = (templates.len() > self.served).then(|| templates.pop()).flatten();
        self.served += usize::from(served.is_some());
        let id = answer["result"]["structuredContent"]["event_id"].as_str();
        let event = id.map(|id| {
            let event = self.relay.published().pop().expect("an event");
            assert_eq!(event.id, id);
            event
        });
        self.published.extend(event.clone());
        Outcome { answer, served, event }
    }

    /// The newest published events of this kind, the newest first.
    pub fn newest(&self, kind: u64) -> impl Iterator<Item = &Event> {
        self.published.iter().rev().filter(move |event| event.kind == kind)
    }
}
