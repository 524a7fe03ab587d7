use super::*;
use crate::json::Json;

const NOW: u64 = 1_700_000_000;

fn policy(tools: Option<&str>, writes: bool) -> Policy {
    Policy::new(RelayUrl::parse("http://localhost:1").expect("url"), tools, writes).expect("policy")
}

fn arguments(text: &'static str) -> Arguments<'static> {
    Arguments::new(Json::check(text.as_bytes()).expect("valid").0).expect("object")
}

fn template(kind: u64, tag: &str) -> Template {
    Template { kind, tags: vec![vec![tag.into(), "x".into()]], content: "hi".into(), created_at: None }
}

#[test]
fn the_tool_list_is_trimmed_deduplicated_and_checked() {
    let relay = RelayUrl::parse("http://localhost:1").expect("url");
    let names = |policy: &Policy| policy.exposed().iter().map(|t| t.name).collect::<Vec<_>>();
    assert_eq!(names(&policy(Some(" read_room ,, list_jobs,read_room"), false)), ["read_room", "list_jobs"]);
    assert_eq!(names(&policy(None, false)).len(), 17);
    assert_eq!(names(&policy(None, true)).len(), 35);
    for (list, error) in [
        ("publish_event", "unknown tool \"publish_event\" in --tools"),
        ("post_message", "tool post_message publishes events; add --allow-writes to expose it"),
        (" , ", "--tools names no tool"),
    ] {
        assert_eq!(Policy::new(relay.clone(), Some(list), false).expect_err(list).to_string(), error);
    }
}

#[test]
fn each_rule_refuses_the_one_changed_field() {
    let policy = policy(None, true);
    let publish = |tool: &'static str, args: &'static str, template| {
        let request = Publish { id: 1, tool: tool.into(), arguments: arguments(args), template };
        policy.judge_publication(request, NOW).map(|_| ()).map_err(|refusal| refusal.rule)
    };
    assert_eq!(publish("post_message", "{}", template(9, "h")), Ok(()));
    assert_eq!(publish("publish_event", "{}", template(9, "h")), Err(Rule::ToolNotExposed));
    assert_eq!(publish("post_message", r#"{"Event":1}"#, template(9, "h")), Err(Rule::EventArgument));
    assert_eq!(publish("post_message", "{}", template(1, "h")), Err(Rule::KindNotExpected));
    assert_eq!(publish("read_room", "{}", template(9, "h")), Err(Rule::KindNotExpected));
    assert_eq!(publish("upload_attachment", "{}", template(9, "h")), Err(Rule::KindNotExpected));
    assert_eq!(publish("post_message", "{}", template(27235, "h")), Err(Rule::AuthorizationKind));
    assert_eq!(publish("post_message", "{}", template(9, "grant")), Err(Rule::GrantTag));
    assert_eq!(publish("comment", "{}", template(1111, "grant")), Err(Rule::GrantTag));
    assert_eq!(publish("post_message", "{}", template(9, "request")), Err(Rule::RequestTag));
    assert_eq!(publish("request_grant", "{}", template(1111, "grant")), Ok(()));
    assert_eq!(publish("request_decision", "{}", template(9, "request")), Ok(()));
    assert_eq!(publish("request_decision", "{}", template(1111, "request")), Ok(()));
}

#[test]
fn without_writes_no_template_is_judged_at_all() {
    let policy = policy(None, false);
    let request = Publish {
        id: 1,
        tool: "post_message".into(),
        arguments: arguments("{}"),
        template: template(9, "h"),
    };
    assert_eq!(policy.judge_publication(request, NOW).expect_err("refused").rule, Rule::WritesNotAllowed);
}

#[test]
fn narrowing_never_widens() {
    let read = policy(Some("read_room,list_rooms"), false);
    let left = read.narrowed(&["list_rooms".into()], false).expect("less");
    assert_eq!(left.exposed().len(), 1);
    for (tools, writes) in [(vec!["read_file"], false), (vec!["post_message"], false), (vec![], true)] {
        let tools: Vec<Cow<'_, str>> = tools.into_iter().map(Cow::from).collect();
        assert_eq!(read.narrowed(&tools, writes).expect_err("more").rule, Rule::NarrowWidens);
    }
}

#[test]
fn every_rule_has_its_own_tag() {
    for rule in Rule::ALL {
        assert_eq!(Rule::from_tag(rule.tag()), Some(rule));
    }
}
