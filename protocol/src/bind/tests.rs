//! For each row one template that says what was asked for, and then one field changed at a time: exactly
//! the expected refusal, or none where the table says that the field is unbound.

mod samples;

use serde_json::{Value, json};

use self::samples::samples;
use super::Mismatch::{Content, Repeated, Spelling, Tag, Time, TooMany, Type, Unasked, Unlisted};
use super::table::TABLE;
use super::*;
use crate::catalog::{self, CATALOG};
use crate::json::Json;

const NOW: u64 = 1_700_000_000;
const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const C: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

/// A call and the template that an honest relay returns for it.
#[derive(Clone)]
struct Sample {
    tool: &'static str,
    arguments: Value,
    template: Template,
}

impl Sample {
    fn new(tool: &'static str, kind: u64, arguments: Value, content: &str, tags: Value) -> Self {
        let tags = serde_json::from_value(tags).expect("tags");
        let template = Template { kind, tags, content: content.into(), created_at: Some(NOW) };
        Self { tool, arguments, template }
    }

    fn judged(&self) -> Result<(), Mismatch> {
        judged(self.tool, &self.arguments.to_string(), &self.template)
    }

    fn tag(&mut self, name: &str) -> &mut Vec<String> {
        self.template.tags.iter_mut().find(|tag| tag[0] == name).unwrap_or_else(|| panic!("no tag {name}"))
    }
}

fn judged(tool: &str, arguments: &str, template: &Template) -> Result<(), Mismatch> {
    let tool = catalog::tool(tool).expect("a tool");
    let arguments = Arguments::new(Json::check(arguments.as_bytes()).expect("JSON").0).expect("an object");
    judge(tool, arguments, template, NOW)
}

/// One change of a sample.
enum Change {
    /// The content becomes this.
    Says(&'static str),
    /// This tag goes.
    Without(&'static str),
    /// The value of this tag becomes this.
    Tagged(&'static str, &'static str),
    /// A tag comes.
    With(&'static [&'static str]),
    /// This argument becomes this; null takes it away.
    Asked(&'static str, Value),
}
use Change::{Asked as AskedFor, Says, Tagged, With, Without};

impl Change {
    fn apply(&self, sample: &mut Sample) {
        match self {
            Says(content) => sample.template.content = (*content).into(),
            Without(name) => {
                let before = sample.template.tags.len();
                sample.template.tags.retain(|tag| tag[0] != *name);
                assert_ne!(before, sample.template.tags.len(), "no tag {name}");
            }
            Tagged(name, value) => sample.tag(name)[1] = (*value).into(),
            With(tag) => sample.template.tags.push(tag.iter().map(|text| (*text).into()).collect()),
            AskedFor(name, value) => sample.arguments[*name] = value.clone(),
        }
    }
}

fn check(sample: &Sample, changes: Vec<(Change, Result<(), Mismatch>)>) {
    assert_eq!(sample.judged(), Ok(()), "{} as it should be", sample.tool);
    for (at, (change, expected)) in changes.into_iter().enumerate() {
        let mut changed = sample.clone();
        change.apply(&mut changed);
        assert_eq!(changed.judged(), expected, "{} kind {} change {at}", sample.tool, sample.template.kind);
    }
}

fn sample(tool: &str, kind: u64) -> Sample {
    let is_it = |sample: &Sample| sample.tool == tool && sample.template.kind == kind;
    samples().into_iter().find(is_it).expect("a sample")
}

#[test]
fn each_kind_of_each_tool_has_one_row_and_one_sample() {
    let mut rows = 0;
    for tool in &CATALOG {
        for kind in tool.kinds {
            let found = TABLE.iter().filter(|row| row.tool == tool.name && row.kind == *kind).count();
            assert_eq!(found, 1, "{} {kind}", tool.name);
            assert_eq!(sample(tool.name, *kind).judged(), Ok(()), "{} {kind}", tool.name);
            rows += 1;
        }
    }
    assert_eq!(rows, TABLE.len());
    assert_eq!(judged("post_message", "{}", &sample("react", 7).template), Err(Mismatch::NoRow));
}

#[test]
fn whatever_the_tool_words_time_and_tags_of_the_relay_s_own_are_refused() {
    for sample in samples() {
        let words = if sample.tool == "request_grant" { "reason" } else { "content" };
        check(
            &sample,
            vec![
                (Says("something else"), Err(Content(words))),
                (Says(""), Err(Content(words))),
                (Says("I resign. hi"), Err(Content(words))),
                (Says("hi, I resign"), Err(Content(words))),
                (Says("hi\u{200b}"), Err(Content(words))),
                (With(&["zap", A]), Err(Unlisted)),
                (With(&["alt", "I resign"]), Err(Unlisted)),
                (With(&["q", A]), Err(Unlisted)),
                (AskedFor(words, json!(7)), Err(Type(words))),
                (AskedFor(words, Value::Null), Err(Content(words))),
            ],
        );
        for (at, expected) in [
            (Some(NOW - 600), Ok(())),
            (Some(NOW + 600), Ok(())),
            (Some(NOW - 601), Err(Time)),
            (Some(NOW + 601), Err(Time)),
            (Some(0), Err(Time)),
            (Some(u64::MAX), Err(Time)),
            (None, Ok(())),
        ] {
            let template = Template { created_at: at, ..sample.template.clone() };
            assert_eq!(judged(sample.tool, &sample.arguments.to_string(), &template), expected);
        }
    }
}

#[test]
fn repositories_people_titles_and_commits_are_those_of_the_call() {
    for (tool, kind) in [("create_issue", 1621), ("create_pull_request", 1618)] {
        check(
            &sample(tool, kind),
            vec![
                (Tagged("a", "30617:x:garden"), Err(Tag("a", "repo"))),
                (Without("a"), Err(Tag("a", "repo"))),
                (Tagged("p", B), Err(Tag("p", "owner"))),
                (With(&["p", B]), Err(Tag("p", "owner"))),
                (Without("p"), Err(Tag("p", "owner"))),
                (Tagged("subject", "Weeds"), Err(Tag("subject", "title"))),
                (With(&["title", "Weeds"]), Err(Tag("subject", "title"))),
                (With(&["title", "Beds"]), Ok(())),
                (With(&["subject", "Beds", "and more"]), Err(Tag("subject", "title"))),
                (Without("subject"), Err(Tag("subject", "title"))),
                (AskedFor("title", Value::Null), Err(Unasked("subject"))),
                (AskedFor("owner", Value::Null), Err(Unasked("a"))),
                (AskedFor("repo", json!("field")), Err(Tag("a", "repo"))),
                (AskedFor("repo", json!(["garden"])), Err(Type("repo"))),
                (With(&["r", "77"]), Ok(())),
                (With(&["h", "general"]), Err(Unlisted)),
            ],
        );
    }
    check(
        &sample("create_issue", 1621),
        vec![
            (Tagged("t", "z"), Err(Tag("t", "labels"))),
            (With(&["t", "z"]), Err(Tag("t", "labels"))),
            (Without("t"), Err(Tag("t", "labels"))),
            (AskedFor("labels", json!([])), Err(Unasked("t"))),
            (AskedFor("labels", json!("x")), Err(Type("labels"))),
            (AskedFor("labels", json!(["x", 7])), Err(Type("labels"))),
            (AskedFor("labels", json!(["x", "y", "z"])), Err(Tag("t", "labels"))),
        ],
    );
    check(
        &sample("create_pull_request", 1618),
        vec![
            (Tagged("c", "78"), Err(Tag("c", "commit"))),
            (Without("c"), Err(Tag("c", "commit"))),
            (Tagged("clone", "https://evil.example/"), Err(Tag("clone", "clone"))),
            (With(&["clone", "https://evil.example/"]), Err(Tag("clone", "clone"))),
            (Tagged("branch-name", "dry"), Err(Tag("branch-name", "branch"))),
            (AskedFor("branch", Value::Null), Err(Unasked("branch-name"))),
        ],
    );
}

#[test]
fn a_comment_is_on_what_was_named_and_at_the_line_that_was_named() {
    check(
        &sample("comment", 1111),
        vec![
            (Tagged("e", C), Err(Tag("e", "root"))),
            (With(&["e", C]), Err(Tag("e", "root"))),
            (Without("e"), Err(Tag("e", "root"))),
            (Tagged("E", C), Ok(())),
            (With(&["E", C]), Err(Unasked("E"))),
            (Tagged("E", "I resign"), Err(Unasked("E"))),
            (Tagged("p", C), Err(Tag("p", "root_pubkey"))),
            (With(&["p", C]), Err(Tag("p", "root_pubkey"))),
            (AskedFor("root_pubkey", Value::Null), Ok(())),
            (AskedFor("root_pubkey", json!(A)), Err(Tag("p", "root_pubkey"))),
            (Tagged("P", C), Ok(())),
            (With(&["P", C]), Err(Unasked("P"))),
            (Tagged("k", "7"), Err(Tag("k", "root_kind"))),
            (AskedFor("root_kind", Value::Null), Ok(())),
            (AskedFor("root_kind", json!("1618")), Err(Type("root_kind"))),
            (Tagged("K", "1617"), Ok(())),
            (Tagged("file", "b.rs"), Err(Tag("file", "file"))),
            (Without("file"), Err(Tag("file", "file"))),
            (AskedFor("file", Value::Null), Err(Unasked("file"))),
            (Tagged("line", "8"), Err(Tag("line", "line"))),
            (Without("line"), Err(Tag("line", "line"))),
            (With(&["line", "9", "new"]), Err(Tag("line", "line"))),
            (AskedFor("side", json!("old")), Err(Tag("line", "line"))),
            (AskedFor("line", json!(7.5)), Err(Type("line"))),
            (AskedFor("root", Value::Null), Err(Unasked("e"))),
            (AskedFor("root", json!([A])), Err(Type("root"))),
        ],
    );
}

#[test]
fn messages_stand_in_the_room_and_thread_that_were_named_and_mention_nobody_else() {
    for (tool, kind) in [("post_message", 9), ("start_thread", 11), ("reply_in_thread", 12)] {
        check(
            &sample(tool, kind),
            vec![
                (Tagged("h", "workshop"), Err(Tag("h", "room"))),
                (With(&["h", "workshop"]), Err(Tag("h", "room"))),
                (With(&["h"]), Err(Tag("h", "room"))),
                (Without("h"), Err(Tag("h", "room"))),
                (AskedFor("room", Value::Null), Err(Tag("h", "room"))),
                (AskedFor("room", json!(7)), Err(Type("room"))),
                (With(&["previous", "abcd"]), Ok(())),
            ],
        );
    }
    check(
        &sample("post_message", 9),
        vec![
            (Tagged("p", C), Err(Tag("p", "mentions"))),
            (With(&["p", C]), Err(Tag("p", "mentions"))),
            (With(&["p", A]), Ok(())),
            (Without("p"), Err(Tag("p", "mentions"))),
            (AskedFor("mentions", json!([A])), Err(Tag("p", "mentions"))),
            (AskedFor("mentions", json!([A, B, C])), Err(Tag("p", "mentions"))),
            (AskedFor("mentions", Value::Null), Err(Unasked("p"))),
            (AskedFor("mentions", json!({"a": A})), Err(Type("mentions"))),
            (With(&["e", C]), Err(Unlisted)),
        ],
    );
    check(
        &sample("start_thread", 11),
        vec![
            (Tagged("title", "Weeds"), Err(Tag("title", "title"))),
            (Without("title"), Err(Tag("title", "title"))),
            (AskedFor("title", Value::Null), Err(Unasked("title"))),
            (With(&["p", C]), Err(Unlisted)),
        ],
    );
    check(
        &sample("reply_in_thread", 12),
        vec![
            (Tagged("e", B), Ok(())),
            (With(&["e", B]), Ok(())),
            (Tagged("e", "I resign"), Err(Tag("e", "root"))),
            (Without("e"), Err(Tag("e", "root"))),
            (AskedFor("root", Value::Null), Err(Unasked("e"))),
            (Tagged("p", C), Ok(())),
            (Without("p"), Ok(())),
            (With(&["p", C]), Ok(())),
        ],
    );
    let mut crowd = sample("reply_in_thread", 12);
    With(&["e", B]).apply(&mut crowd);
    With(&["e", C]).apply(&mut crowd);
    assert_eq!(crowd.judged(), Err(Tag("e", "root")));
    let mut crowd = sample("reply_in_thread", 12);
    With(&["p", A]).apply(&mut crowd);
    With(&["p", C]).apply(&mut crowd);
    assert_eq!(crowd.judged(), Err(Unasked("p")));
}

#[test]
fn what_follows_a_message_is_references_to_its_attachments_alone() {
    let told = "hi\n\n![a b.png](https://r.example/f.png)";
    for (tool, kind) in [("post_message", 9), ("start_thread", 11), ("reply_in_thread", 12)] {
        check(
            &sample(tool, kind),
            vec![
                (Says("hi"), Ok(())),
                (Says("hi\n\n[a b.png](https://r.example/f.png)\n"), Ok(())),
                (Says("hi ![image](https://r.example/f.png)"), Ok(())),
                (Says("hi\nhttps://r.example/f.png"), Ok(())),
                (Says("hi\nhttps://r.example/f.png2"), Err(Content("content"))),
                (Says("hi ![I resign](https://r.example/f.png)"), Err(Content("content"))),
                (Says("hi ![a b.png](https://evil.example/f.png)"), Err(Content("content"))),
                (Says("hi ![a b.png](https://r.example/f.png) I resign"), Err(Content("content"))),
                (Says("hi, I resign"), Err(Content("content"))),
                (AskedFor("attachments", Value::Null), Err(Content("content"))),
                (AskedFor("attachments", json!([])), Err(Content("content"))),
                (AskedFor("attachments", json!({})), Err(Type("attachments"))),
                (AskedFor("attachments", json!(["x"])), Err(Type("attachments"))),
                (AskedFor("attachments", json!([{"url": 7}])), Err(Type("attachments"))),
                (AskedFor("attachments", json!([{"sha256": C}])), Err(Type("attachments"))),
                (Without("imeta"), Err(Tag("imeta", "attachments"))),
                (Tagged("imeta", "url https://evil.example/"), Err(Tag("imeta", "attachments"))),
                (With(&["imeta", "url https://r.example/f.png", "x 00"]), Err(Tag("imeta", "attachments"))),
                (
                    With(&["imeta", "url https://r.example/f.png", "alt I resign"]),
                    Err(Tag("imeta", "attachments")),
                ),
                (With(&["imeta", "m image/png"]), Err(Tag("imeta", "attachments"))),
            ],
        );
        let mut plain = sample(tool, kind);
        plain.arguments["attachments"] = Value::Null;
        plain.template.content = "hi".into();
        assert_eq!(plain.judged(), Err(Unasked("imeta")));
        let mut silent = sample(tool, kind);
        silent.arguments["content"] = Value::Null;
        silent.template.content = told[4..].into();
        assert_eq!(silent.judged(), Ok(()));
        let mut many = sample(tool, kind);
        many.arguments["attachments"] = json!(vec![json!({"url": "https://r.example/f.png"}); 9]);
        assert_eq!(many.judged(), Err(TooMany));
    }
}

#[test]
fn a_reaction_is_to_the_event_that_was_named() {
    check(
        &sample("react", 7),
        vec![
            (Says("-"), Err(Content("content"))),
            (Tagged("e", C), Err(Tag("e", "target"))),
            (With(&["e", C]), Err(Tag("e", "target"))),
            (Without("e"), Err(Tag("e", "target"))),
            (AskedFor("target", Value::Null), Err(Unasked("e"))),
            (Tagged("p", C), Err(Tag("p", "pubkey"))),
            (AskedFor("pubkey", Value::Null), Ok(())),
            (Tagged("h", "workshop"), Err(Tag("h", "room"))),
            (Without("h"), Err(Tag("h", "room"))),
            (AskedFor("room", Value::Null), Err(Unasked("h"))),
            (Tagged("k", "11"), Ok(())),
            (Without("k"), Ok(())),
            (With(&["a", "30818:x:y"]), Ok(())),
        ],
    );
}

#[test]
fn wiki_pages_replace_fork_and_merge_what_was_named() {
    check(
        &sample("publish_wiki_page", 30818),
        vec![
            (Tagged("d", "weeds"), Err(Tag("d", "d"))),
            (With(&["d", "weeds"]), Err(Tag("d", "d"))),
            (Without("d"), Err(Tag("d", "d"))),
            (AskedFor("d", Value::Null), Ok(())),
            (Tagged("title", "Weeds"), Err(Tag("title", "title"))),
            (Tagged("summary", "other"), Err(Tag("summary", "summary"))),
            (AskedFor("summary", Value::Null), Err(Unasked("summary"))),
            (Tagged("a", "30818:x:seeds"), Err(Tag("a", "fork_author"))),
            (AskedFor("fork_author", Value::Null), Err(Unasked("a"))),
            (Tagged("e", C), Err(Tag("e", "fork_event"))),
            (AskedFor("fork_event", Value::Null), Err(Unasked("e"))),
        ],
    );
    let swapped = format!("30818:{A}:weeds");
    check(
        &sample("propose_wiki_merge", 818),
        vec![
            (Tagged("a", Box::leak(swapped.into_boxed_str())), Err(Tag("a", "d"))),
            (Without("a"), Err(Tag("a", "d"))),
            (Tagged("p", C), Err(Tag("p", "author"))),
            (With(&["p", C]), Err(Tag("p", "author"))),
            (Tagged("e", A), Err(Tag("e", "version"))),
            (With(&["e", A]), Err(Tag("e", "version"))),
            (With(&["e", C, "", "source"]), Err(Tag("e", "version"))),
            (AskedFor("base", Value::Null), Err(Tag("e", "version"))),
            (AskedFor("version", json!(C)), Err(Tag("e", "version"))),
        ],
    );
}

#[test]
fn a_decision_is_asked_of_the_person_in_the_place_and_under_the_words_that_were_named() {
    for kind in [9, 1111] {
        check(
            &sample("request_decision", kind),
            vec![
                (Tagged("request", "decide"), Err(Tag("request", "request"))),
                (With(&["request", "decide"]), Err(Tag("request", "request"))),
                (Without("request"), Err(Tag("request", "request"))),
                (AskedFor("request", Value::Null), Err(Tag("request", "request"))),
                (Tagged("expiration", "1800000001"), Err(Tag("expiration", "expiration"))),
                (Without("expiration"), Err(Tag("expiration", "expiration"))),
                (AskedFor("expiration", Value::Null), Err(Unasked("expiration"))),
                (AskedFor("expiration", json!("1800000000")), Err(Type("expiration"))),
                (AskedFor("expiration", json!(-1)), Err(Type("expiration"))),
                (Tagged("subject", "Weeds"), Err(Tag("subject", "subject"))),
                (Without("subject"), Err(Tag("subject", "subject"))),
                (AskedFor("subject", Value::Null), Err(Unasked("subject"))),
                (Without("p"), Err(Tag("p", "pubkey"))),
                (AskedFor("pubkey", json!(B)), Err(Tag("p", "pubkey"))),
            ],
        );
    }
    check(
        &sample("request_decision", 9),
        vec![
            (Tagged("h", "workshop"), Err(Tag("h", "room"))),
            (AskedFor("room", Value::Null), Err(Tag("h", "room"))),
            (Tagged("e", C), Ok(())),
            (Without("e"), Err(Tag("e", "root"))),
            (AskedFor("root", Value::Null), Err(Unasked("e"))),
            (With(&["p", C]), Err(Tag("p", "pubkey"))),
        ],
    );
    check(
        &sample("request_decision", 1111),
        vec![
            (AskedFor("room", json!("general")), Err(Tag("h", "room"))),
            (With(&["h", "general"]), Err(Unasked("h"))),
            (Tagged("e", C), Err(Tag("e", "root"))),
            (Tagged("E", C), Ok(())),
            (With(&["p", B]), Err(Unasked("p"))),
            (Tagged("p", B), Err(Tag("p", "pubkey"))),
            (AskedFor("root_pubkey", Value::Null), Ok(())),
            (Tagged("k", "7"), Err(Tag("k", "root_kind"))),
        ],
    );
}

#[test]
fn a_grant_is_asked_for_as_the_host_asked_for_it() {
    let told = |text: &'static str| Tagged("grant", text);
    check(
        &sample("request_grant", 1111),
        vec![
            (Without("grant"), Err(Tag("grant", "changes"))),
            (With(&["grant", "{}"]), Err(Tag("grant", "changes"))),
            (told(r#"{"base":"","changes":{"kinds":[0]}}"#), Err(Tag("grant", "changes"))),
            (told("no JSON"), Err(Tag("grant", "changes"))),
            (told("[]"), Err(Tag("grant", "changes"))),
            (AskedFor("changes", json!({"kinds": [30617]})), Err(Tag("grant", "changes"))),
            (AskedFor("changes", json!("all")), Err(Type("changes"))),
            (AskedFor("changes", Value::Null), Err(Type("changes"))),
            (With(&["e", B]), Err(Unasked("e"))),
            (With(&["p", B]), Err(Unasked("p"))),
            (With(&["expiration", "1800000000"]), Err(Unlisted)),
        ],
    );
    // Key order, escapes and a further id change nothing; any other word does.
    let changes = r#"{"kinds":[1],"rooms":["a"]}"#;
    let arguments = format!(r#"{{"reason":" to work ","changes":{changes}}}"#);
    let reordered = r#""changes":{"rooms":["\u0061"],"kinds":[1]}"#;
    for (grant, content, expected) in [
        (format!(r#"{{{reordered}}}"#), "to work", Ok(())),
        (format!(r#"{{{reordered},"base":"{C}","reason":"to work"}}"#), "to work", Ok(())),
        (format!(r#"{{{reordered},"reason":" to work "}}"#), "", Ok(())),
        (format!(r#"{{{reordered}}}"#), "", Err(Content("reason"))),
        (format!(r#"{{{reordered},"reason":"to own"}}"#), "", Err(Content("reason"))),
        (format!(r#"{{{reordered},"reason":"to own"}}"#), "to work", Err(Tag("grant", "changes"))),
        (format!(r#"{{{reordered},"Changes":"{C}"}}"#), "to work", Err(Tag("grant", "changes"))),
        (format!(r#"{{{reordered},{reordered}}}"#), "to work", Err(Tag("grant", "changes"))),
        (format!(r#"{{{reordered},"base":"words"}}"#), "to work", Err(Tag("grant", "changes"))),
        (
            r#"{"changes":{"kinds":[1],"rooms":["a"],"rate":9}}"#.into(),
            "to work",
            Err(Tag("grant", "changes")),
        ),
        (r#"{"changes":{"kinds":[1]}}"#.into(), "to work", Err(Tag("grant", "changes"))),
        (r#"{"changes":{"kinds":["1"],"rooms":["a"]}}"#.into(), "to work", Err(Tag("grant", "changes"))),
        (r#"{"changes":{"kinds":[1,1],"rooms":["a"]}}"#.into(), "to work", Err(Tag("grant", "changes"))),
        (
            r#"{"changes":{"rooms":["a"],"kinds":[0],"kinds":[1]}}"#.into(),
            "to work",
            Err(Tag("grant", "changes")),
        ),
        (
            r#"{"changes":{"kinds":[1],"kinds":[1],"rooms":["a"]}}"#.into(),
            "to work",
            Err(Tag("grant", "changes")),
        ),
    ] {
        let mut template = sample("request_grant", 1111).template;
        template.tags.retain(|tag| tag[0] != "grant");
        template.tags.push(vec!["grant".into(), grant.clone()]);
        template.content = content.into();
        assert_eq!(judged("request_grant", &arguments, &template), expected, "{grant}");
    }
    // The host's own repeated keys say two things at once.
    let twice = r#"{"reason":"to work","changes":{"kinds":[1],"kinds":[1],"rooms":["a"]}}"#;
    let mut template = sample("request_grant", 1111).template;
    template.tags.retain(|tag| tag[0] != "grant");
    template.tags.push(vec!["grant".into(), format!(r#"{{"changes":{changes}}}"#)]);
    assert_eq!(judged("request_grant", twice, &template), Err(Tag("grant", "changes")));
}

#[test]
fn jobs_are_bound_as_far_as_a_source_states_and_not_further() {
    check(
        &sample("request_job", 43001),
        vec![
            (Tagged("p", B), Err(Tag("p", "pubkey"))),
            (With(&["p", B]), Err(Tag("p", "pubkey"))),
            (AskedFor("pubkey", Value::Null), Err(Unasked("p"))),
            (Tagged("h", "workshop"), Err(Tag("h", "room"))),
            (Tagged("expiration", "1"), Err(Tag("expiration", "expiration"))),
            (With(&["param", "a", "b"]), Ok(())),
            (With(&["i", "data", "text"]), Ok(())),
            (With(&["e", B]), Err(Unlisted)),
        ],
    );
    for tool in ["accept_job", "job_progress", "job_result", "job_error", "cancel_job"] {
        let kind = catalog::tool(tool).expect("a tool").kinds[0];
        check(
            &sample(tool, kind),
            vec![
                (Tagged("e", C), Err(Tag("e", "job"))),
                (With(&["e", C]), Err(Tag("e", "job"))),
                (Without("e"), Err(Tag("e", "job"))),
                (AskedFor("job", Value::Null), Ok(())),
                (Tagged("p", C), Ok(())),
                (Without("p"), Ok(())),
                (With(&["p", C]), Err(Unasked("p"))),
                (With(&["status", "success"]), Ok(())),
                (With(&["subject", "I resign"]), Err(Unlisted)),
            ],
        );
    }
    check(
        &sample("job_progress", 43003),
        vec![
            (Tagged("percent", "41"), Err(Tag("percent", "percent"))),
            (Without("percent"), Err(Tag("percent", "percent"))),
            (AskedFor("percent", Value::Null), Ok(())),
            (AskedFor("percent", json!("40")), Err(Type("percent"))),
        ],
    );
}

#[test]
fn arguments_that_two_readers_would_read_differently_are_refused() {
    let mut template = sample("post_message", 9).template;
    template.tags.truncate(1);
    template.content = "hi".into();
    for (arguments, expected) in [
        (r#"{"room":"general","content":"hi"}"#, Ok(())),
        (r#"{"room":"general","content":"h\u0069","mentions":null,"other":1}"#, Ok(())),
        (r#"{"room":"general","content":"hi","content":"hi"}"#, Err(Repeated)),
        (r#"{"room":"general","content":"hi","c\u006fntent":"hi"}"#, Err(Repeated)),
        (r#"{"room":"general","content":"hi","Content":"hi"}"#, Err(Repeated)),
        (r#"{"room":"general","content":"hi","CONTENT":null}"#, Err(Repeated)),
        (r#"{"room":"general","content":"hi","x":1,"x":1}"#, Err(Repeated)),
        (r#"{"Room":"general","content":"hi"}"#, Err(Spelling("room"))),
        (r#"{"room":"general","content":"hi","mention\u017f":[]}"#, Err(Spelling("mentions"))),
        (
            r#"{"room":"general","content":"hi","attachments":[{"url":"u","url":"u"}]}"#,
            Err(Type("attachments")),
        ),
        (r#"{"room":"general","content":"\ud800"}"#, Err(Type("content"))),
    ] {
        assert_eq!(judged("post_message", arguments, &template), expected, "{arguments}");
    }
    let many: Vec<String> = (0..65).map(|n| format!("\"a{n}\":0")).collect();
    assert_eq!(judged("post_message", &format!("{{{}}}", many.join(",")), &template), Err(TooMany));
}

#[test]
fn no_size_or_depth_of_arguments_or_template_is_costly() {
    let mentions: Vec<String> = (0..200_000).map(|n| format!("\"{n:064x}\"")).collect();
    let arguments = format!(r#"{{"room":"general","content":"hi","mentions":[{}]}}"#, mentions.join(","));
    let mut template = sample("post_message", 9).template;
    template.content = "hi".into();
    assert_eq!(judged("post_message", &arguments, &template), Err(Tag("p", "mentions")));
    let deep = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    let arguments = format!(r#"{{"reason":"to work","changes":{{"kinds":{deep}}}}}"#);
    let mut grant = sample("request_grant", 1111);
    grant.tag("grant")[1] = format!(r#"{{"changes":{{"kinds":{deep}}}}}"#);
    assert_eq!(judged("request_grant", &arguments, &grant.template), Err(Tag("grant", "changes")));
    let wide: Vec<String> = (0..50_000).map(|n| format!("\"k{n}\":0")).collect();
    let wide = format!("{{{}}}", wide.join(","));
    grant.tag("grant")[1] = format!(r#"{{"changes":{wide}}}"#);
    let arguments = format!(r#"{{"reason":"to work","changes":{wide}}}"#);
    assert_eq!(judged("request_grant", &arguments, &grant.template), Ok(()));
}
