//! Random calls of the seventeen publishing tools, each of which an honest relay answers with a template.
//! Every call says something that no other call says, so that its template can be told apart.

use serde_json::{Value, json};
use tinyagent_relay::Event;

use crate::agent::Agent;
use crate::dice::Dice;

/// The tools that publish, those first on whose events others act.
pub const TOOLS: [&str; 17] = [
    "start_thread",
    "request_job",
    "publish_wiki_page",
    "create_issue",
    "create_pull_request",
    "comment",
    "post_message",
    "reply_in_thread",
    "react",
    "propose_wiki_merge",
    "request_decision",
    "request_grant",
    "accept_job",
    "job_progress",
    "job_result",
    "job_error",
    "cancel_job",
];

/// Arguments for a call of this tool, the `number`th of all; `None` while there is nothing to call it on.
pub fn arguments(agent: &Agent, tool: &str, number: usize, dice: &mut Dice) -> Option<Value> {
    let words = *dice.pick(&["hi", "Zürich 🦀", "two\nlines", "\"quoted\" \\ and <&>", " spaces around "]);
    let content = format!("{words} {number}");
    let room = *dice.pick(&["general", "workshop"]);
    let mut asked = match tool {
        "start_thread" => json!({"room": room, "content": content}),
        "request_job" => json!({"content": content}),
        "publish_wiki_page" => json!({"d": "seeds", "title": format!("Seeds {number}"), "content": content}),
        "create_issue" => {
            json!({"owner": agent.owner, "repo": "garden", "title": format!(" Beds {number}"), "content": content})
        }
        "create_pull_request" => json!({
            "owner": agent.owner, "repo": "garden", "title": format!("Beds {number}"), "content": content,
            "commit": "7".repeat(40), "clone": "https://relay.example/garden.git",
        }),
        "comment" => json!({"root": commented_on(agent, dice), "content": content}),
        "post_message" => json!({"room": room, "content": content}),
        "reply_in_thread" => {
            let root = some_of(agent, &[11, 12], dice)?;
            json!({"room": root.tag("h")?, "root": root.id, "content": content})
        }
        "react" => {
            json!({"target": some_of(agent, &[9, 11, 12, 1621], dice)?.id, "content": format!("r{number}")})
        }
        "propose_wiki_merge" => {
            let version = agent.newest(30818).next().map_or(&agent.page, |page| &page.id);
            json!({"d": "seeds", "author": agent.owner, "version": version, "content": content})
        }
        "request_decision" => {
            let request = *dice.pick(&["approve", "decide", "question"]);
            json!({"pubkey": person(dice), "request": request, "content": content})
        }
        "request_grant" => {
            let changes = match dice.roll(3) {
                0 => json!({"kinds": [30617, number]}),
                1 => json!({"rooms": ["workshop", "é\n"], "rate": number, "wiki": true}),
                _ => json!({"repos": [{"owner": agent.owner, "identifier": "garden", "level": "maintain"}]}),
            };
            json!({"reason": content, "changes": changes})
        }
        _ => json!({"job": some_of(agent, &[43001], dice)?.id, "content": content}),
    };
    embellish(agent, tool, number, dice, &mut asked);
    Some(asked)
}

/// Adds some of the optional arguments.
fn embellish(agent: &Agent, tool: &str, number: usize, dice: &mut Dice, asked: &mut Value) {
    let target = agent.published.iter().find(|event| asked["target"] == event.id.as_str());
    let mut maybe = |name: &str, value: Value| {
        if dice.once_in(2) {
            asked[name] = value;
        }
    };
    let expiration = json!(4_000_000_000_u64 + number as u64);
    match tool {
        "start_thread" => maybe("title", json!(format!(" Title {number} "))),
        "request_job" => {
            maybe("pubkey", json!(agent.owner));
            maybe("room", json!("general"));
            maybe("expiration", expiration);
        }
        "publish_wiki_page" => {
            maybe("summary", json!(format!("Summary {number}")));
            maybe("fork_author", json!(agent.owner));
            maybe("fork_event", json!(agent.page));
        }
        "create_issue" => maybe("labels", json!(["wet", "bed"])),
        "create_pull_request" => {
            maybe("labels", json!(["wet"]));
            maybe("branch", json!("north"));
        }
        "post_message" => maybe("mentions", json!([agent.owner, "ab".repeat(32)])),
        "react" => {
            maybe("room", json!(target.and_then(|event| event.tag("h"))));
            maybe("pubkey", json!(target.map(|event| &event.pubkey)));
        }
        "propose_wiki_merge" => maybe("base", json!(agent.page)),
        "job_progress" => maybe("percent", json!(number % 101)),
        "request_decision" => {
            maybe("subject", json!(format!("Subject {number} ")));
            maybe("expiration", expiration);
            place_decision(agent, dice, asked);
        }
        _ => {}
    }
    if matches!(tool, "post_message" | "start_thread" | "reply_in_thread") && dice.once_in(3) {
        let files = 1 + dice.roll(2);
        asked["attachments"] = (0..files).map(|file| descriptor(number, file)).collect();
        if dice.once_in(4) {
            asked.as_object_mut().expect("an object").remove("content");
        }
    }
    if tool == "comment" && asked["root"] == agent.pull_request.as_str() && dice.once_in(2) {
        asked["file"] = json!("plan/beds.txt");
        asked["line"] = json!(1 + number % 9);
        asked["side"] = json!(dice.pick(&["old", "new"]));
    }
    if tool == "comment" && asked["root"] == agent.issue.as_str() && dice.once_in(2) {
        asked["root_kind"] = json!(1621);
        asked["root_pubkey"] = json!(agent.owner);
    }
}

/// A decision is asked in a room, in a thread of it, or under an event, known to the relay or not.
fn place_decision(agent: &Agent, dice: &mut Dice, asked: &mut Value) {
    let thread = some_of(agent, &[11, 12], dice).filter(|_| dice.once_in(2));
    match (dice.roll(3), thread) {
        (0, Some(thread)) => {
            asked["room"] = json!(thread.tag("h"));
            asked["root"] = json!(thread.id);
        }
        (0 | 1, _) => asked["room"] = json!("general"),
        _ if dice.once_in(2) => asked["root"] = json!(agent.issue),
        _ => {
            asked["root"] = json!("ef".repeat(32));
            asked["root_kind"] = json!(1618);
            asked["root_pubkey"] = json!(agent.owner);
        }
    }
}

fn person(dice: &mut Dice) -> String {
    dice.pick(&["cd", "01", "7f"]).repeat(32)
}

/// What a comment may be on: the issue, the pull request, or a comment that the agent made.
fn commented_on(agent: &Agent, dice: &mut Dice) -> String {
    let is_comment = |event: &&Event| event.tag("grant").is_none() && event.tag("request").is_none();
    match (dice.roll(3), agent.newest(1111).find(is_comment)) {
        (0, Some(comment)) => comment.id.clone(),
        (1, _) => agent.pull_request.clone(),
        _ => agent.issue.clone(),
    }
}

/// One of the agent's newest events of these kinds.
fn some_of<'a>(agent: &'a Agent, kinds: &[u64], dice: &mut Dice) -> Option<&'a Event> {
    let found: Vec<&Event> =
        agent.published.iter().rev().filter(|e| kinds.contains(&e.kind)).take(10).collect();
    (!found.is_empty()).then(|| *dice.pick(&found))
}

/// What upload_attachment returns for a file.
fn descriptor(number: usize, file: usize) -> Value {
    let hash = format!("{number:060x}{file:04x}");
    let (media_type, name) =
        if file == 0 { ("image/png", "north bed.png") } else { ("text/plain", "plan.txt") };
    json!({
        "url": format!("https://relay.example/media/{hash}.bin"), "sha256": hash, "size": 100 + number,
        "type": media_type, "filename": name, "uploaded": 1_700_000_000,
    })
}
