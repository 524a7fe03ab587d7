//! Contract 3: exactly the curated tools are offered, in their order, whatever the relay lists.

use serde_json::{Value, json};
use tinyagent_harness::catalog::{HIDDEN, READ, WRITE};
use tinyagent_harness::{Host, HostOptions};
use tinyagent_relay::{Key, Options, Relay, client};

use crate::support::error_of;

fn listed(host: &mut Host) -> Vec<Value> {
    host.ask("tools/list", "{}")["result"]["tools"].as_array().expect("a list").clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[test]
fn the_read_tools_are_offered_by_default_in_order_and_tiny_diagnose_last() {
    let relay = Relay::start(Options::default());
    let tools = listed(&mut Host::start(&relay));
    assert_eq!(names(&tools), [&READ[..], &["tiny_diagnose"]].concat());
}

#[test]
fn allow_writes_adds_the_write_tools_in_order_and_nothing_else() {
    let relay = Relay::start(Options::default());
    let tools = listed(&mut Host::with_writes(&relay));
    let writes = WRITE.map(|(name, _)| name);
    assert_eq!(names(&tools), [&READ[..], &writes, &["tiny_diagnose"]].concat());
}

#[test]
fn an_offered_tool_is_described_as_the_relay_describes_it() {
    let relay = Relay::start(Options::default());
    let list = client::Post::list(&relay.url(), &Key::random(), None).send().json();
    let theirs = list["result"]["tools"].as_array().expect("a list");
    for tool in listed(&mut Host::with_writes(&relay)) {
        let Some(origin) = theirs.iter().find(|origin| origin["name"] == tool["name"]) else {
            assert_eq!(tool["name"], "tiny_diagnose");
            continue;
        };
        for key in ["title", "description", "inputSchema", "annotations"] {
            assert_eq!(tool[key], origin[key], "{key} of {}", tool["name"]);
        }
        assert_eq!(tool.as_object().expect("an object").len(), 5, "{tool}");
    }
}

#[test]
fn tools_replaces_the_list_keeps_its_order_and_drops_blanks_and_doubles() {
    let relay = Relay::start(Options::default());
    for (tools, offered) in [
        ("read_room", &["read_room"][..]),
        (" read_room , list_rooms,,list_jobs ,read_room", &["read_room", "list_rooms", "list_jobs"]),
        ("react,read_room,post_message", &["react", "read_room", "post_message"]),
        ("\tlist_files\n,\u{a0}list_wiki", &["list_files", "list_wiki"]),
    ] {
        let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes", "--tools", tools]));
        assert_eq!(names(&listed(&mut host)), [offered, &["tiny_diagnose"]].concat(), "{tools}");
        assert_eq!(error_of(&host.call("read_status", "{}")).0, -32602);
    }
}

#[test]
fn a_tool_that_the_relay_does_not_serve_is_accepted_and_absent_from_the_list() {
    let without_tools = vec!["list_wiki".into(), "react".into()];
    let relay = Relay::start(Options { without_tools, ..Options::default() });
    let args = ["--allow-writes", "--tools", "list_wiki,list_rooms,react"];
    let mut host = Host::with(&relay, HostOptions::args(&args));
    assert_eq!(names(&listed(&mut host)), ["list_rooms", "tiny_diagnose"]);
    let text = host.text("list_wiki", "{}");
    assert!(text.starts_with("relay: "), "{text}");
}

#[test]
fn nothing_outside_the_list_can_be_called_and_the_relay_is_not_contacted() {
    let odd = [
        "list_jobs\u{200b}",
        "lіst_jobs",
        "LIST_JOBS",
        "List_Jobs",
        " list_jobs",
        "list_jobs ",
        "list jobs",
        "list_jobs/",
        "tools/list",
        "Tiny_Diagnose",
        "tiny_diagnose ",
        "no_such",
        "_",
        "\u{0}",
        "__proto__",
    ];
    for writes in [false, true] {
        let relay = Relay::start(Options::default());
        let args: &[&str] = if writes { &["--allow-writes"] } else { &[] };
        let mut host = Host::with(&relay, HostOptions::args(args));
        let denied = WRITE.iter().map(|(name, _)| *name).filter(|_| !writes);
        for name in HIDDEN.into_iter().chain(odd).chain(denied) {
            let answer = host.ask("tools/call", &json!({"name": name, "arguments": {}}).to_string());
            assert_eq!(error_of(&answer).0, -32602, "{name}");
            let message = answer["error"]["message"].as_str().expect("a message");
            assert!(message.starts_with("Unknown tool: "), "{message}");
            assert!(
                name.contains(|c: char| !c.is_ascii_graphic()) || message == format!("Unknown tool: {name}")
            );
        }
        let long = "x".repeat(100_000);
        let answer = host.ask("tools/call", &json!({"name": long}).to_string());
        assert!(answer["error"]["message"].as_str().expect("a message").len() < 200);
        assert!(relay.requests().is_empty(), "the relay was contacted");
    }
}

#[test]
fn hidden_tools_stay_hidden_whatever_the_relay_says_of_them() {
    let annotations = json!({"readOnlyHint": true, "destructiveHint": false, "title": "Harmless"});
    let entry =
        |name: &str| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations});
    let extra_tools = ["publish_events", "tiny_diagnose", "list_rooms2"].map(entry).to_vec();
    let relay = Relay::start(Options { extra_tools, ..Options::default() });
    let tools = listed(&mut Host::with_writes(&relay));
    let expected = [&READ[..], &WRITE.map(|(name, _)| name), &["tiny_diagnose"]].concat();
    assert_eq!(names(&tools), expected);
}

#[test]
fn case_081_no_name_is_too_long_for_a_host_that_puts_its_own_before_it() {
    let longest = READ.into_iter().chain(WRITE.map(|(name, _)| name)).map(str::len).max();
    // Cursor: the server's name and the tool's at most 60 characters together.
    assert!(longest.expect("tools") + "mcp__tinyagent__".len() <= 60);
}

#[test]
fn every_offered_read_tool_reaches_the_relay_by_its_name() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for name in READ {
        host.call(name, "{}");
        let request = relay.requests().pop().expect("a request");
        assert_eq!((request.tool(), request.header("mcp-name")), (Some(name), Some(name)));
        assert!(request.proof.is_some(), "{:?}", request.proof_error);
    }
}
