//! For each row a call and the template that an honest relay returns for it.

use serde_json::json;

use super::{A, B, C, Sample};

/// One sample a row.
pub fn samples() -> Vec<Sample> {
    let repository = format!("30617:{A}:garden");
    let page = format!("30818:{A}:seeds");
    let grant = format!("30392:{A}:{B}");
    let file = json!([{"url": "https://r.example/f.png", "sha256": C, "filename": "a b.png", "size": 7}]);
    let imeta = json!(["imeta", "url https://r.example/f.png", "m image/png", format!("x {C}"), "size 7"]);
    let attached = "hi\n\n![a b.png](https://r.example/f.png)";
    let asked = json!({"kinds": [30617, 7], "repos": [{"owner": B, "level": "maintain"}]});
    let answer = |tool, kind| {
        let tags = json!([["e", A], ["p", B]]);
        Sample::new(tool, kind, json!({"job": A, "content": "hi"}), "hi", tags)
    };
    vec![
        Sample::new(
            "create_issue",
            1621,
            json!({"owner": A, "repo": "garden", "title": " Beds ", "content": "hi", "labels": ["x", "y"]}),
            "hi",
            json!([["a", repository], ["p", A], ["subject", "Beds"], ["t", "x"], ["t", "y"]]),
        ),
        Sample::new(
            "create_pull_request",
            1618,
            json!({
                "owner": A, "repo": "garden", "title": "Beds", "content": "hi", "commit": "77",
                "clone": "https://r.example/g.git", "branch": "wet",
            }),
            "hi",
            json!([
                ["a", repository],
                ["p", A],
                ["subject", "Beds"],
                ["c", "77"],
                ["clone", "https://r.example/g.git"],
                ["branch-name", "wet"],
            ]),
        ),
        Sample::new(
            "comment",
            1111,
            json!({
                "root": A, "root_kind": 1618, "root_pubkey": B, "content": "hi", "file": "a.rs", "line": 7,
                "side": "new",
            }),
            "hi",
            json!([
                ["E", A, "", B],
                ["K", "1618"],
                ["P", B],
                ["e", A, "", B],
                ["k", "1618"],
                ["p", B],
                ["file", "a.rs"],
                ["line", "7", "new"],
            ]),
        ),
        Sample::new(
            "post_message",
            9,
            json!({"room": "general", "content": "hi", "mentions": [A, B], "attachments": file}),
            attached,
            json!([["h", "general"], ["p", A], ["p", B], imeta]),
        ),
        Sample::new(
            "start_thread",
            11,
            json!({"room": "general", "title": "Beds", "content": "hi", "attachments": file}),
            attached,
            json!([["h", "general"], ["title", "Beds"], imeta]),
        ),
        Sample::new(
            "reply_in_thread",
            12,
            json!({"room": "general", "root": A, "content": "hi", "attachments": file}),
            attached,
            json!([["h", "general"], ["e", A, "", "root"], ["p", B], imeta]),
        ),
        Sample::new(
            "react",
            7,
            json!({"target": A, "content": "+", "pubkey": B, "room": "general"}),
            "+",
            json!([["e", A], ["p", B], ["k", "9"], ["h", "general"]]),
        ),
        Sample::new(
            "publish_wiki_page",
            30818,
            json!({
                "d": "seeds", "title": "Seeds", "content": "hi", "summary": "sum", "fork_author": A,
                "fork_event": B,
            }),
            "hi",
            json!([
                ["d", "seeds"],
                ["title", "Seeds"],
                ["summary", "sum"],
                ["a", page, "", "fork"],
                ["e", B, "", "fork"],
            ]),
        ),
        Sample::new(
            "propose_wiki_merge",
            818,
            json!({"d": "seeds", "author": A, "version": B, "base": C, "content": "hi"}),
            "hi",
            json!([["a", page], ["p", A], ["e", C], ["e", B, "", "source"]]),
        ),
        Sample::new(
            "request_decision",
            9,
            json!({
                "pubkey": A, "request": "approve", "content": "hi", "room": "general", "root": B,
                "subject": "Beds", "expiration": 1_800_000_000,
            }),
            "hi",
            json!([
                ["h", "general"],
                ["e", B, "", "root"],
                ["p", A],
                ["request", "approve"],
                ["expiration", "1800000000"],
                ["subject", "Beds"],
            ]),
        ),
        Sample::new(
            "request_decision",
            1111,
            json!({
                "pubkey": A, "request": "approve", "content": "hi", "root": B, "root_kind": 1621,
                "root_pubkey": C, "subject": "Beds", "expiration": 1_800_000_000,
            }),
            "hi",
            json!([
                ["E", B, "", C],
                ["K", "1621"],
                ["P", C],
                ["e", B, "", C],
                ["k", "1621"],
                ["p", C],
                ["p", A],
                ["request", "approve"],
                ["expiration", "1800000000"],
                ["subject", "Beds"],
            ]),
        ),
        Sample::new(
            "request_grant",
            1111,
            json!({"reason": "to work", "changes": asked}),
            "to work",
            json!([
                ["A", grant],
                ["a", grant],
                ["E", C, "", A],
                ["K", "30392"],
                ["P", A],
                ["e", C, "", A],
                ["k", "30392"],
                ["p", A],
                ["grant", json!({"base": C, "changes": asked}).to_string()],
            ]),
        ),
        Sample::new(
            "request_job",
            43001,
            json!({"content": "hi", "pubkey": A, "room": "general", "expiration": 1_800_000_000}),
            "hi",
            json!([["p", A], ["h", "general"], ["expiration", "1800000000"]]),
        ),
        answer("accept_job", 43002),
        Sample::new(
            "job_progress",
            43003,
            json!({"job": A, "content": "hi", "percent": 40}),
            "hi",
            json!([["e", A], ["p", B], ["percent", "40"]]),
        ),
        answer("job_result", 43004),
        answer("job_error", 43006),
        answer("cancel_job", 43005),
    ]
}
