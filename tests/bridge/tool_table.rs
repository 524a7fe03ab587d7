//! Contract 2: tools/list, whatever the relay's table is like.

use serde_json::{Value, json};
use tinyagent_harness::catalog::{READ, WRITE};
use tinyagent_harness::{Host, HostOptions, request};
use tinyagent_relay::{Matcher, Options, Relay, Reply};

use crate::outcome::assert_answered;

pub fn tools(host: &mut Host) -> Vec<Value> {
    let answer = host.ask("tools/list", "{}");
    answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no tools: {answer}")).clone()
}

pub fn names(host: &mut Host) -> Vec<String> {
    tools(host).iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
}

/// A host whose relay serves exactly these entries.
pub fn with_entries(entries: Vec<Value>) -> (Relay, Host) {
    let relay = Relay::start(Options::default());
    relay.set_listed_tools(entries);
    let host = Host::start(&relay);
    (relay, host)
}

pub fn entry(name: &str) -> Value {
    json!({"name": name, "description": "d", "inputSchema": {"type": "object"}})
}

/// A page of the table with this cursor to the next one, both as JSON text.
pub fn page(entries: &str, cursor: &str) -> Reply {
    Reply::result_text(&format!(r#"{{"resultType":"complete","tools":{entries},"nextCursor":{cursor}}}"#))
}

pub fn lists(relay: &Relay) -> usize {
    relay.posts().iter().filter(|post| post.rpc_method() == Some("tools/list")).count()
}

#[test]
fn the_exposed_tools_are_listed_in_the_contracts_order_and_tiny_diagnose_comes_last() {
    let relay = Relay::start(Options::default());
    assert_eq!(names(&mut Host::start(&relay)), [&READ[..], &["tiny_diagnose"]].concat());
    let all = [&READ[..], &WRITE.map(|(name, _)| name), &["tiny_diagnose"]].concat();
    assert_eq!(names(&mut Host::with_writes(&relay)), all);
    let mut chosen = Host::with(&relay, HostOptions::args(&["--tools", " read_room,,list_jobs ,read_room"]));
    assert_eq!(names(&mut chosen), ["read_room", "list_jobs", "tiny_diagnose"]);
}

#[test]
fn a_tool_that_the_relay_does_not_serve_is_simply_absent() {
    let relay = Relay::start(Options { without_tools: vec!["list_jobs".into()], ..Options::default() });
    let mut host = Host::with(&relay, HostOptions::args(&["--tools", "list_jobs,list_rooms"]));
    assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"]);
}

#[test]
fn each_tool_has_the_relays_words_and_no_other_key() {
    let whole = json!({
        "name": "list_rooms", "title": "Rooms", "description": "All of them", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "annotations": {"readOnlyHint": true, "title": "R"}, "outputSchema": {"type": "object"}, "_meta": {"a": 1},
        "icons": [], "execution": {"taskSupport": "required"}, "x": 1,
    });
    let (_relay, mut host) = with_entries(vec![whole.clone()]);
    let mut expected = whole;
    for key in ["outputSchema", "_meta", "icons", "execution", "x"] {
        expected.as_object_mut().expect("an object").remove(key);
    }
    assert_eq!(tools(&mut host)[0], expected);
}

#[test]
fn case_72_no_output_schema_is_ever_shown() {
    let mut entries: Vec<Value> = READ.iter().map(|name| entry(name)).collect();
    entries.iter_mut().for_each(|entry| entry["outputSchema"] = json!({"type": "object", "required": ["x"]}));
    let (relay, mut host) = with_entries(entries);
    assert!(tools(&mut host).iter().all(|tool| tool.get("outputSchema").is_none()));
    relay.script(Matcher::tool("list_rooms"), Reply::result_text(r#"{"content":[]}"#));
    assert_eq!(host.call("list_rooms", "{}")["result"], json!({"content": []}));
}

#[test]
fn pages_are_followed_to_the_last() {
    for size in [1, 7, 40] {
        let relay = Relay::start(Options { page_size: Some(size), ..Options::default() });
        // 48 entries on pages of one stay below the fifty pages.
        relay.set_listed_tools(READ.iter().rev().map(|name| entry(name)).collect());
        assert_eq!(names(&mut Host::start(&relay)), [&READ[..], &["tiny_diagnose"]].concat());
        assert_eq!(lists(&relay), READ.len().div_ceil(size));
    }
}

#[test]
fn a_repeated_cursor_ends_the_pages() {
    for (cycle, pages) in [(&["a"][..], 2), (&["a", "b"], 3), (&["a", "b", "c", "b"], 4)] {
        let relay = Relay::start(Options::default());
        for at in 0..60 {
            let cursor = format!("\"{}\"", cycle[at % cycle.len()]);
            relay
                .script(Matcher::rpc("tools/list"), page(&json!([entry("list_rooms")]).to_string(), &cursor));
        }
        assert_eq!(names(&mut Host::start(&relay)), ["list_rooms", "tiny_diagnose"]);
        assert_eq!(lists(&relay), pages, "{cycle:?}");
    }
}

#[test]
fn at_most_fifty_pages_are_followed() {
    let relay = Relay::start(Options::default());
    for at in 0..60 {
        let entries = if at == 49 { json!([entry("list_jobs")]) } else { json!([]) };
        relay.script(Matcher::rpc("tools/list"), page(&entries.to_string(), &format!("\"page {at}\"")));
    }
    assert_eq!(names(&mut Host::start(&relay)), ["list_jobs", "tiny_diagnose"]);
    assert_eq!(lists(&relay), 50);
}

#[test]
fn a_cursor_travels_unchanged_and_one_that_is_none_ends_the_pages() {
    let odd = "a \"quoted\" \\ Zürich 🦀\u{7f}\u{2028}\u{1}=?base64?eA==?=";
    let relay = Relay::start(Options::default());
    relay.script(Matcher::rpc("tools/list"), page("[]", &json!(odd).to_string()));
    relay.script(Matcher::rpc("tools/list"), page(&json!([entry("list_jobs")]).to_string(), "\"\""));
    relay.script(Matcher::rpc("tools/list"), page(&json!([entry("list_rooms")]).to_string(), "null"));
    assert_eq!(names(&mut Host::start(&relay)), ["list_rooms", "list_jobs", "tiny_diagnose"]);
    let cursors: Vec<Value> =
        relay.posts().iter().map(|post| post.json().expect("JSON")["params"]["cursor"].take()).collect();
    assert_eq!(cursors, [Value::Null, json!(odd), json!("")]);
    for cursor in [
        "5",
        "{}",
        "[\"a\"]",
        "true",
        r#""\ud800""#,
        &json!("c".repeat(4097)).to_string(),
        &json!("c".repeat(1 << 20)).to_string(),
    ] {
        let relay = Relay::start(Options::default());
        relay.script_always(
            Matcher::rpc("tools/list"),
            page(&json!([entry("list_rooms")]).to_string(), cursor),
        );
        let mut host = Host::start(&relay);
        assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"]);
        assert_eq!(lists(&relay), 1);
        assert_answered(&host.call("list_rooms", "{}"));
    }
}

#[test]
fn a_malformed_entry_is_skipped_and_the_rest_is_offered() {
    let malformed = [
        json!(null),
        json!(5),
        json!("list_jobs"),
        json!([]),
        json!({}),
        json!({"name": 5}),
        json!({"name": null}),
        json!({"name": ""}),
        json!({"name": ["list_jobs"]}),
        json!({"Name": "list_jobs"}),
        json!([{"name": "list_jobs"}]),
    ];
    let entries = malformed.into_iter().chain([entry("list_rooms")]).collect();
    assert_eq!(names(&mut with_entries(entries).1), ["list_rooms", "tiny_diagnose"]);
}

#[test]
fn of_two_entries_with_one_name_the_first_counts() {
    let mut second = entry("list_rooms");
    second["description"] = "second".into();
    let (_relay, mut host) = with_entries(vec![entry("list_rooms"), second]);
    let tools = tools(&mut host);
    assert_eq!((tools.len(), &tools[0]["description"]), (2, &json!("d")));
}

#[test]
fn case_81_a_name_that_looks_like_one_of_ours_is_neither_listed_nor_called() {
    let names_alike = [
        "list jobs",
        "LIST_JOBS",
        "list_jobs\u{200b}",
        "l\u{456}st_jobs",
        "list_jobs ",
        " list_jobs",
        "list_jobs\n",
        "list_jobs\0",
        "list-jobs",
        "lіst_jobs",
        "ﬁle",
        "publish_event",
        "set_policy",
        "read_management",
        "set_status",
    ];
    let long = "x".repeat(200);
    let all: Vec<&str> = names_alike.iter().copied().chain([long.as_str()]).collect();
    let (relay, mut host) = with_entries(all.iter().map(|name| entry(name)).collect());
    assert_eq!(names(&mut host), ["tiny_diagnose"]);
    relay.clear_requests();
    for name in all {
        let id = host.take_id();
        let params = json!({"name": name, "arguments": {}}).to_string();
        host.send(&request(id, "tools/call", &params));
        let answer = host.answer(id);
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.starts_with("Unknown tool: ") && message.len() < 300, "{message}");
    }
    assert!(relay.posts().is_empty());
}

#[test]
fn a_relay_tool_called_tiny_diagnose_is_ignored() {
    let mut theirs = entry("tiny_diagnose");
    theirs["description"] = "theirs".into();
    let (relay, mut host) = with_entries(vec![theirs.clone(), entry("list_rooms"), theirs]);
    let tools = tools(&mut host);
    assert_eq!(
        tools.iter().map(|tool| tool["name"].as_str()).collect::<Vec<_>>(),
        [Some("list_rooms"), Some("tiny_diagnose")]
    );
    assert_ne!(tools[1]["description"], "theirs");
    assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
    assert!(relay.calls_of("tiny_diagnose").is_empty());
}

#[test]
fn a_schema_that_hosts_could_not_use_becomes_one_that_takes_any_object() {
    let any = json!({"type": "object"});
    for (schema, shown) in [
        (json!(null), any.clone()),
        (json!([]), any.clone()),
        (json!(5), any.clone()),
        (json!("object"), any.clone()),
        (json!(true), any.clone()),
        (json!({}), any.clone()),
        (json!({"type": "string"}), any.clone()),
        (json!({"type": "array", "items": {}}), any.clone()),
        (json!({"type": ["object", "null"]}), any.clone()),
        (json!({"type": null}), any.clone()),
        (json!({"type": "object", "properties": []}), any.clone()),
        (json!({"type": "object", "properties": null}), any.clone()),
        (json!({"type": "object", "properties": {"a": 5}}), any.clone()),
        (json!({"type": "object", "required": "a"}), any.clone()),
        (json!({"type": "object", "required": [5]}), any.clone()),
        (json!({"properties": {"a": {}}}), json!({"type": "object", "properties": {"a": {}}})),
        (
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"], "$defs": {}, "oneOf": []}),
            json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"], "$defs": {}, "oneOf": []}),
        ),
    ] {
        let (_relay, mut host) = with_entries(vec![json!({"name": "list_rooms", "inputSchema": schema})]);
        assert_eq!(tools(&mut host)[0], json!({"name": "list_rooms", "inputSchema": shown}), "{schema}");
    }
    let (_relay, mut host) = with_entries(vec![json!({"name": "list_rooms"})]);
    assert_eq!(tools(&mut host)[0], json!({"name": "list_rooms", "inputSchema": any}));
}

#[test]
fn words_that_hosts_would_refuse_the_whole_table_for_are_left_out() {
    let any = json!({"type": "object"});
    for (key, values) in [
        ("title", vec![json!(5), json!(null), json!([])]),
        ("description", vec![json!(5), json!(null), json!({})]),
        (
            "annotations",
            vec![
                json!(5),
                json!(null),
                json!([]),
                json!({"readOnlyHint": "yes"}),
                json!({"title": 5}),
                json!({"openWorldHint": null}),
            ],
        ),
    ] {
        for value in values {
            let (_relay, mut host) =
                with_entries(vec![json!({"name": "list_rooms", key: value, "inputSchema": any})]);
            assert_eq!(tools(&mut host)[0], json!({"name": "list_rooms", "inputSchema": any}), "{key}");
        }
    }
}

#[test]
fn hostile_text_in_a_definition_stays_one_line_and_the_same_text() {
    let relay = Relay::start(Options::default());
    let entry = "{ \"name\" : \"list_rooms\" ,\r\n \"description\":\"a\u{2028}b\\ud800c\\n\" , \"inputSchema\" : { \"type\":\"object\",\n\"properties\":{ \"\u{85}\" : { } } } }";
    relay.script(Matcher::rpc("tools/list"), Reply::result_text(&format!("{{\"tools\":[{entry}]}}")));
    let expected = json!({"name": "list_rooms", "description": "a\u{2028}b\u{fffd}c\n", "inputSchema": {"type": "object", "properties": {"\u{85}": {}}}});
    assert_eq!(tools(&mut Host::start(&relay))[0], expected);
}

#[test]
fn a_table_of_ten_thousand_tools_is_read_and_reduced() {
    let strangers = (0..10_000).map(|n| {
        let mut stranger = entry(&format!("tool_{n}"));
        stranger["description"] = "d".repeat(200).into();
        stranger
    });
    let entries = strangers.chain(READ.iter().map(|name| entry(name))).collect();
    assert_eq!(names(&mut with_entries(entries).1).len(), 18);
}

#[test]
fn a_definition_of_senseless_size_is_left_out_with_a_warning() {
    let mut large = entry("list_jobs");
    large["description"] = "d".repeat(300 << 10).into();
    let (_relay, mut host) = with_entries(vec![large, entry("list_rooms")]);
    assert_eq!(names(&mut host), ["list_rooms", "tiny_diagnose"]);
    host.wait_for_stderr("tool list_jobs is left out: ");
}

#[test]
fn every_exposed_tool_at_its_largest_fits_a_line() {
    let large = |name: &&str| {
        let mut large = entry(name);
        large["description"] = "d".repeat(190 << 10).into();
        large
    };
    let relay = Relay::start(Options::default());
    relay.set_listed_tools(READ.iter().chain(&WRITE.map(|(name, _)| name)).map(large).collect());
    let listed = tools(&mut Host::with_writes(&relay));
    assert_eq!(listed.len(), 36);
    assert!(json!(listed).to_string().len() < 8 << 20);
}
