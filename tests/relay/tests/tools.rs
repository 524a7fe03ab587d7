//! The tools: every write becomes readable, every refusal says why, grants bind, and nothing is stored twice.

use serde_json::{Value, json};
use tinyagent_harness::catalog::{HIDDEN, READ, WRITE};
use tinyagent_relay::client::{self, Post};
use tinyagent_relay::*;

struct Session {
    relay: Relay,
    key: Key,
}

impl Session {
    fn start(options: Options) -> Session {
        Session { relay: Relay::start(options), key: Key::random() }
    }

    fn read(&self, tool: &str, arguments: Value) -> Value {
        let answer = client::call(&self.relay.url(), &self.key, tool, &arguments.to_string());
        let result = answer.json()["result"].clone();
        assert_eq!(result["isError"], false, "{tool}: {answer:?}");
        result["structuredContent"].clone()
    }

    fn refusal(&self, tool: &str, arguments: Value) -> String {
        let result =
            client::call(&self.relay.url(), &self.key, tool, &arguments.to_string()).json()["result"].clone();
        assert_eq!(result["isError"], true, "{tool}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Publishes through the tool and checks what the relay says of it.
    fn publish(&self, tool: &str, arguments: Value) -> Event {
        let (event, answer) = client::publish(&self.relay.url(), &self.key, tool, &arguments);
        let event = event.unwrap_or_else(|| panic!("{tool} returned no template: {answer:?}"));
        assert_eq!(
            answer.structured(),
            json!({"event_id": event.id, "accepted": true, "message": ""}),
            "{tool}: {answer:?}"
        );
        let (_, kinds) = WRITE.iter().find(|(name, _)| *name == tool).unwrap();
        assert!(kinds.contains(&event.kind), "{tool}");
        assert_eq!(self.relay.published().last(), Some(&event));
        event
    }

    fn owner_of_garden(&self) -> String {
        self.read("list_repositories", json!({}))["repositories"][0]["owner"].as_str().unwrap().to_owned()
    }
}

fn tag<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).to_vec()
}

#[test]
fn the_table_holds_every_tool_of_the_contract_and_those_to_be_hidden() {
    let session = Session::start(Options::default());
    let list = Post::list(&session.relay.url(), &session.key, None).send().json();
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in READ.iter().chain(&HIDDEN).chain(WRITE.iter().map(|(name, _)| name)) {
        assert_eq!(names.iter().filter(|listed| *listed == name).count(), 1, "{name}");
    }
    for tool in tools {
        let reads = READ.contains(&tool["name"].as_str().unwrap());
        assert!(tool["title"].is_string() && tool["description"].as_str().unwrap().ends_with('.'), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert!(!reads || tool["annotations"]["readOnlyHint"] == true, "{tool}");
    }
}

#[test]
fn messages_threads_replies_and_reactions_become_readable() {
    let session = Session::start(Options::default());
    let other = "ab".repeat(32);
    let message = session.publish(
        "post_message",
        json!({"room": "general", "content": "Zürich 🦀\n\u{8}\u{1f}\u{7f}\u{2028}<&/", "mentions": [other]}),
    );
    assert_eq!(message.tags, [tag(["h", "general"]), tag(["p", &other])]);
    let room = session.read("read_room", json!({"id": "general", "limit": 2}));
    assert_eq!(room["messages"][0]["content"], message.content);
    assert!(room["members"].as_array().unwrap().contains(&json!(session.key.public_hex())));
    let older = session.read("read_room", json!({"id": "general", "limit": 50, "cursor": room["next"]}));
    assert_eq!(older["messages"].as_array().unwrap().len(), 1);

    let root = session
        .publish("start_thread", json!({"room": "general", "title": " Beds ", "content": "Which first?"}));
    assert_eq!(root.tags, [tag(["h", "general"]), tag(["title", "Beds"])]);
    let reply =
        session.publish("reply_in_thread", json!({"room": "general", "root": root.id, "content": "North."}));
    let nested =
        session.publish("reply_in_thread", json!({"room": "general", "root": reply.id, "content": "Why?"}));
    assert_eq!(nested.tag("e"), Some(root.id.as_str()), "a reply's id resolves to the thread's root");
    session.publish("react", json!({"target": nested.id, "content": "🦀", "room": "general"}));
    let thread = session.read("read_thread", json!({"id": "general", "event": reply.id}));
    assert_eq!(thread["root"]["id"], root.id);
    assert_eq!(thread["replies"][0]["reactions"], json!(["🦀"]));
    assert_eq!(thread["replies"].as_array().unwrap().len(), 2);
    assert_eq!(
        (session.relay.executed("post_message"), session.relay.executed("post_message+event")),
        (1, 1)
    );
}

#[test]
fn attachments_are_stored_referenced_and_read_back() {
    let session = Session::start(Options::default());
    let (_, answer) = client::publish(
        &session.relay.url(),
        &session.key,
        "upload_attachment",
        &json!({"room": "general", "data": "aGVsbG8=", "type": "image/png", "filename": "a.png"}),
    );
    let descriptor = answer.structured();
    assert_eq!((&descriptor["sha256"], &descriptor["size"]), (&json!(sha256_hex(b"hello")), &json!(5)));
    let url = descriptor["url"].as_str().unwrap();
    let event = session
        .publish("post_message", json!({"room": "general", "content": "see", "attachments": [descriptor]}));
    assert_eq!(event.content, format!("see\n\n![a.png]({url})"));
    assert_eq!(event.tags[1][..2], tag(["imeta", &format!("url {url}")]));
    let without_text =
        session.publish("start_thread", json!({"room": "general", "attachments": [descriptor]}));
    assert_eq!(without_text.content, format!("![a.png]({url})"));
    let read = client::call(
        &session.relay.url(),
        &session.key,
        "read_attachment",
        &json!({"sha256": descriptor["sha256"]}).to_string(),
    );
    assert_eq!(
        read.json()["result"]["content"][0],
        json!({"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"})
    );
    assert_eq!(read.structured()["data"], "aGVsbG8=");
    assert_eq!(session.read("read_file", json!({"sha256": descriptor["sha256"]}))["room"], "general");
    assert_eq!(session.read("list_files", json!({}))["files"].as_array().unwrap().len(), 1);
}

#[test]
fn issues_pull_requests_and_comments_become_readable() {
    let session = Session::start(Options::default());
    let owner = session.owner_of_garden();
    let place = |more: Value| {
        let mut arguments = json!({"owner": owner, "repo": "garden"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let issue = session
        .publish("create_issue", place(json!({"title": " Slugs ", "content": "Many.", "labels": ["bug"]})));
    assert_eq!(
        issue.tags,
        [
            tag(["a", &format!("30617:{owner}:garden")]),
            tag(["p", &owner]),
            tag(["subject", "Slugs"]),
            tag(["t", "bug"])
        ]
    );
    let listed = session.read("list_issues", place(json!({"label": "bug"})));
    assert_eq!(listed["issues"][0]["title"], "Slugs");
    let comment = session.publish("comment", json!({"root": issue.id, "content": "Beer helps."}));
    let (author, kind) = (session.key.public_hex(), "1621");
    assert_eq!(
        comment.tags,
        [
            tag(["E", &issue.id, "", &author]),
            tag(["K", kind]),
            tag(["P", &author]),
            tag(["e", &issue.id, "", &author]),
            tag(["k", kind]),
            tag(["p", &author]),
        ]
    );
    let nested = session.publish("comment", json!({"root": comment.id, "content": "Does it?"}));
    assert_eq!(
        (nested.tag("E"), nested.tag("e"), nested.tag("k")),
        (Some(&*issue.id), Some(&*comment.id), Some("1111"))
    );
    let read = session.read("read_issue", json!({"id": issue.id}));
    assert_eq!(read["issue"]["replies"].as_array().unwrap().len(), 2);

    let request = session.publish("create_pull_request", place(json!({"title": "Fence", "content": "", "commit": "a".repeat(40), "clone": "https://x.example/g.git"})));
    session.publish(
        "comment",
        json!({"root": request.id, "content": "?", "file": "plan/beds.txt", "line": 2, "side": "new"}),
    );
    let read = session.read("read_pull_request", json!({"id": request.id}));
    assert_eq!(
        (&read["pull_request"]["replies"][0]["line"], &read["pull_request"]["commit"]),
        (&json!("2"), &json!("a".repeat(40)))
    );
    assert!(
        session
            .refusal(
                "comment",
                json!({"root": issue.id, "content": "?", "file": "x", "line": 1, "side": "old"})
            )
            .contains("pull request")
    );
    let file = session.read("read_repository", place(json!({"view": "file", "path": "README.md"})));
    assert_eq!(
        file["text"],
        "# Garden

Beds, seeds and a watering plan.
"
    );
}

#[test]
fn wiki_pages_and_jobs_become_readable() {
    let session = Session::start(Options::default());
    let page = session.publish(
        "publish_wiki_page",
        json!({"d": "seeds", "title": "Seeds", "content": "More.", "fork_author": session.owner_of_garden()}),
    );
    assert_eq!(session.read("read_wiki_page", json!({"d": "seeds"}))["version"], page.id);
    let merge = session.publish(
        "propose_wiki_merge",
        json!({"d": "seeds", "author": session.owner_of_garden(), "version": page.id}),
    );
    let read = session.read("read_wiki_page", json!({"d": "seeds", "author": session.owner_of_garden()}));
    assert_eq!(
        (&read["merge_requests"], &read["history"][0]["version"]),
        (&json!([merge.id]), &json!(page.id))
    );
    assert_ne!(read["version"], json!(page.id), "the named author's version is preferred");
    assert_eq!(session.read("list_wiki", json!({"q": "Seed"}))["pages"].as_array().unwrap().len(), 1);

    let job = session.publish(
        "request_job",
        json!({"content": "dig", "pubkey": "cd".repeat(32), "expiration": 4_000_000_000u64}),
    );
    assert_eq!(job.tags, [tag(["p", &"cd".repeat(32)]), tag(["expiration", "4000000000"])]);
    for (tool, status) in [
        ("accept_job", "accepted"),
        ("job_progress", "processing"),
        ("job_error", "error"),
        ("job_result", "success"),
        ("cancel_job", "cancelled"),
    ] {
        session.publish(tool, json!({"job": job.id, "content": tool}));
        assert_eq!(session.read("read_job", json!({"id": job.id}))["status"], status);
    }
    assert_eq!(session.read("list_jobs", json!({"state": "open"}))["jobs"], json!([]));
    assert_eq!(
        session.read("list_jobs", json!({"mine": true}))["jobs"][0]["feedback"].as_array().unwrap().len(),
        5
    );
}

#[test]
fn decisions_and_grants_are_requested_with_their_tags() {
    let session = Session::start(Options::default());
    let person = "ef".repeat(32);
    let asked = session.publish(
        "request_decision",
        json!({
            "pubkey": person, "request": "approve", "content": "May I?", "room": "general",
            "expiration": 4_000_000_000u64, "subject": " Digging ",
        }),
    );
    assert_eq!(
        asked.tags,
        [
            tag(["h", "general"]),
            tag(["p", &person]),
            tag(["request", "approve"]),
            tag(["expiration", "4000000000"]),
            tag(["subject", "Digging"]),
        ]
    );
    let on_event = session.publish("request_decision", json!({
        "pubkey": person, "request": "question", "content": "Why?", "root": "12".repeat(32), "root_kind": 30023, "root_pubkey": person,
    }));
    assert_eq!(
        (on_event.kind, on_event.tag("K"), on_event.tag("request")),
        (1111, Some("30023"), Some("question"))
    );
    assert_eq!(on_event.tags.iter().filter(|tag| tag[0] == "p").count(), 1);

    let changes = json!({"kinds": [30617], "rooms": ["workshop"]});
    let arguments = json!({"reason": "to dig", "changes": changes});
    assert!(session.refusal("request_grant", arguments.clone()).starts_with("restricted: "));
    session.relay.set_grant(&session.key.public_hex(), Grant::active(&[], &[]));
    session.relay.enforce_grants(true);
    let request = session.publish("request_grant", arguments);
    let grant: Value = serde_json::from_str(request.tag("grant").unwrap()).unwrap();
    assert_eq!(grant, json!({"base": "9".repeat(64), "changes": changes}));
    assert_eq!((request.content.as_str(), request.tag("K")), ("to dig", Some("30392")));
    assert!(session.refusal("request_grant", json!({"reason": "x", "changes": {}})).contains("changes"));
    assert!(
        session
            .refusal("request_grant", json!({"reason": "é".repeat(501), "changes": changes}))
            .contains("reason")
    );
}

#[test]
fn arguments_that_do_not_fit_the_schema_are_errors_of_the_tool() {
    let session = Session::start(Options::default());
    for (tool, arguments, named) in [
        ("read_room", json!({}), "argument id is required"),
        ("read_room", json!({"id": 5}), "argument id must be"),
        ("read_room", json!({"id": "general", "limit": 0}), "argument limit must be"),
        ("read_room", json!({"id": "general", "limit": 1.5}), "argument limit must be"),
        ("read_room", json!({"id": "nowhere"}), "there is no room nowhere"),
        ("post_message", json!({"room": "general"}), "content is required"),
        ("post_message", json!({"room": "nowhere", "content": "x"}), "there is no room"),
        ("react", json!({"target": "AB".repeat(32), "content": "+"}), "argument target must be"),
        (
            "request_decision",
            json!({"pubkey": "ab".repeat(32), "request": "beg", "content": "x"}),
            "one of approve",
        ),
        ("read_status", json!({}), "restricted: only the owner"),
        ("set_policy", json!({}), "restricted: only the owner"),
        ("publish_event", json!({}), "argument event"),
    ] {
        let text = session.refusal(tool, arguments);
        assert!(text.contains(named), "{tool}: {text}");
        assert_eq!(session.relay.executed(tool), 0);
    }
    assert_eq!(
        session.read("read_room", json!({"id": "general", "limit": 1.0, "other": [1]}))["messages"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn an_event_that_does_not_fit_is_not_published() {
    let session = Session::start(Options::default());
    let url = session.relay.url();
    let template = || Template {
        kind: 9,
        created_at: clock::unix_now(),
        tags: vec![tag(["h", "general"])],
        content: "x".into(),
    };
    let submit = |event: &Event| {
        client::call(&url, &session.key, "post_message", &json!({"event": event}).to_string()).json()["result"].clone()
    };
    let good = session.key.sign(template());
    let mut cases = vec![
        ("kind 1;", session.key.sign(Template { kind: 1, ..template() })),
        ("no h tag", session.key.sign(Template { tags: vec![], ..template() })),
        ("no room", session.key.sign(Template { tags: vec![tag(["h", "nowhere"])], ..template() })),
        ("created_at", session.key.sign(Template { created_at: clock::unix_now() - 1000, ..template() })),
        ("not by the key", Key::random().sign(template())),
    ];
    for (text, change) in [("hash", "content"), ("signature", "sig")] {
        let mut event = good.clone();
        match change {
            "content" => event.content = "y".into(),
            _ => event.sig = format!("{}{}", &event.sig[2..], &event.sig[..2]),
        }
        cases.push((text, event));
    }
    for (text, event) in cases {
        let result = submit(&event);
        assert_eq!(result["isError"], true, "{text}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(text), "{text}: {result}");
    }
    assert!(session.relay.published().is_empty());
    assert_eq!(submit(&good)["structuredContent"]["message"], "");
    assert!(submit(&good)["structuredContent"]["message"].as_str().unwrap().starts_with("duplicate:"));
    assert_eq!(session.relay.published(), [good]);
    // As in the field, a look-alike key is the event too.
    let other = session.key.sign(Template { content: "z".into(), ..template() });
    client::call(
        &url,
        &session.key,
        "post_message",
        &json!({"room": "general", "content": "x", "EVENT": other}).to_string(),
    );
    assert_eq!(session.relay.published().len(), 2);
}

#[test]
fn an_enforced_grant_binds_what_is_published() {
    let session = Session::start(Options { grants_enforced: true, ..Options::default() });
    let (url, pubkey) = (session.relay.url(), session.key.public_hex());
    let count = std::cell::Cell::new(0);
    let post = || {
        // Two equal posts in one second are one event.
        let content = count.replace(count.get() + 1).to_string();
        let (_, answer) = client::publish(
            &url,
            &session.key,
            "post_message",
            &json!({"room": "general", "content": content}),
        );
        let result = answer.json()["result"].clone();
        if result["isError"] == true {
            result["content"][0]["text"].as_str().unwrap().to_owned()
        } else {
            String::new()
        }
    };
    assert!(post().starts_with("auth-required: "));
    session.relay.set_grant(&pubkey, Grant::active(&["general"], &[9]));
    assert_eq!(post(), "");
    for (state, word) in
        [(GrantState::Paused, "paused"), (GrantState::Revoked, "revoked"), (GrantState::Expired, "expired")]
    {
        assert!(session.relay.set_grant_state(&pubkey, state));
        assert_eq!(post(), format!("restricted: the grant of this key is {word}"));
    }
    session.relay.set_grant(
        &pubkey,
        Grant { expires: Some(clock::unix_now() - 1), ..Grant::active(&["general"], &[9]) },
    );
    assert!(post().ends_with("expired"));
    session.relay.set_grant(&pubkey, Grant::active(&["workshop"], &[9]));
    assert_eq!(post(), "restricted: the grant does not cover room general");
    session.relay.set_grant(&pubkey, Grant::active(&["general"], &[11]));
    assert_eq!(post(), "restricted: the grant does not cover kind 9");
    session.relay.set_role(&pubkey, Role::Moderator);
    assert_eq!(post(), "");
    session.relay.set_role(&pubkey, Role::Agent);
    session.relay.remove_grant(&pubkey);
    assert!(post().starts_with("auth-required: "));
    session.relay.set_membership(Membership::MembersOnly);
    session.relay.remove_member(&pubkey);
    assert!(session.refusal("list_rooms", json!({})).contains("members only"));
    assert_eq!(session.relay.published().len(), 2);
}

#[test]
fn browsegrant_tells_a_key_what_it_is() {
    let session = Session::start(Options { grants_enforced: true, ..Options::default() });
    let (url, pubkey) = (session.relay.url(), session.key.public_hex());
    let browse = |params: Value| {
        Post::manage(&url, &session.key, &json!({"method": "browsegrant", "params": params})).send()
    };
    let result = browse(json!([])).json()["result"].clone();
    assert_eq!(
        (&result["member"], &result["role"], &result["state"], &result["grant"]),
        (&json!(true), &json!("member"), &json!("none"), &Value::Null)
    );
    assert!(result.get("needs").is_none());

    session.relay.set_grant(
        &pubkey,
        Grant { rate: 7, expires: Some(4_000_000_000), ..Grant::active(&["general"], &[9]) },
    );
    let result =
        browse(json!([{"rooms": ["general", "workshop"], "kinds": [9, 11]}])).json()["result"].clone();
    assert_eq!(
        (&result["role"], &result["state"], &result["enforced"]),
        (&json!("agent"), &json!("active"), &json!(true))
    );
    assert_eq!(result["allows"], json!({"rooms": ["general"], "kinds": [9]}));
    assert_eq!((&result["rate"], &result["expires"]), (&json!(7), &json!(4_000_000_000u64)));
    assert_eq!(result["missing"], json!({"rooms": ["workshop"], "kinds": [11]}));
    session.relay.set_grant_state(&pubkey, GrantState::Paused);
    assert_eq!(browse(json!([])).json()["result"]["state"], "paused");

    session.relay.set_membership(Membership::Listed);
    session.relay.remove_grant(&pubkey);
    assert_eq!(browse(json!([])).json()["result"]["member"], false);
    session.relay.set_membership(Membership::MembersOnly);
    let stranger = browse(json!([]));
    assert_eq!(stranger.status, 403);
    assert!(stranger.json()["error"].as_str().unwrap().contains("members-only"));
    session.relay.set_role(&pubkey, Role::Member);
    session.relay.enforce_grants(false);
    assert_eq!(browse(json!([])).json()["result"]["enforced"], false);
}

#[test]
fn the_management_endpoint_refuses_what_it_should() {
    let session = Session::start(Options::default());
    let url = session.relay.url();
    let body = json!({"method": "browsegrant", "params": []});
    let post = || Post::manage(&url, &session.key, &body);
    let front = Post { url: format!("{url}/"), ..post() }.signed(&session.key);
    for (post, status) in [
        (post(), 200),
        (front, 200),
        (post().without("Authorization"), 401),
        (post().header("Content-Type", "application/json"), 415),
        (Post { body: b"[]".to_vec(), ..post() }.signed(&session.key), 400),
        (
            Post::manage(&url, &session.key, &json!({"method": "browsegrant", "params": [{"kinds": ["9"]}]})),
            400,
        ),
    ] {
        let answer = post.send();
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let unknown = Post::manage(&url, &session.key, &json!({"method": "banpubkey", "params": []})).send();
    assert_eq!(unknown.status, 400);
    assert_eq!(unknown.json()["error"], "unsupported: method banpubkey");
}
