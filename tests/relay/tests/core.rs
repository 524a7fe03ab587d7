//! The relay's HTTP side: proofs, the order of its checks, its error table, and what it records.

use serde_json::json;
use tinyagent_relay::client::{self, Post};
use tinyagent_relay::*;

fn now() -> u64 {
    clock::unix_now()
}

/// A call of list_rooms with a proof changed by `change` before it is signed.
fn with_proof(relay: &Relay, key: &Key, change: impl FnOnce(&mut Template)) -> Post {
    let post = Post::call(&relay.url(), key, "list_rooms", "{}");
    let mut template = proof_template("POST", &post.url, &post.body, now());
    change(&mut template);
    post.header("Authorization", &header_value(&key.sign(template)))
}

fn set_tag(template: &mut Template, name: &str, value: Option<&str>) {
    template.tags.retain(|tag| tag[0] != name);
    template.tags.extend(value.map(|value| vec![name.to_owned(), value.to_owned()]));
}

#[test]
fn a_valid_call_is_executed_and_recorded_byte_for_byte() {
    let (relay, key) = (Relay::start(Options::default()), Key::random());
    let arguments = r#"{"n":9007199254740993,"x":1.0,"e":1E+2, "s":"\u00e9"}"#;
    let answer = client::call(&relay.url(), &key, "list_rooms", arguments);
    assert_eq!(answer.status, 200, "{answer:?}");
    let rooms = answer.structured();
    assert_eq!(rooms["rooms"][0]["id"], "general");
    let result = &answer.json()["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["content"][0]["text"], rooms.to_string());
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "tinyrelay");

    let requests = relay.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.arguments(), Some(arguments));
    assert_eq!(request.argument("e"), Some("1E+2"));
    assert_eq!(request.proof.as_ref().unwrap().pubkey, key.public_hex());
    assert_eq!((request.tool(), request.rpc_id()), (Some("list_rooms"), "1"));
    let head = String::from_utf8(request.head.clone()).unwrap();
    assert!(head.starts_with("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:"), "{head}");
    assert!(head.contains("\r\nMcp-Name: list_rooms\r\n") && head.ends_with("\r\n\r\n"));
    assert_eq!(relay.executed("list_rooms"), 1);
}

#[test]
fn each_single_defect_of_a_proof_is_refused() {
    let (relay, key) = (Relay::start(Options::default()), Key::random());
    let url = format!("{}/mcp", relay.url());
    type Defect = Box<dyn FnOnce(&mut Template)>;
    let defects: Vec<(&str, Defect)> = vec![
        ("kind", Box::new(|t| t.kind = 27236)),
        ("content", Box::new(|t| t.content = "x".into())),
        ("minute", Box::new(|t| t.created_at -= 62)),
        ("minute", Box::new(|t| t.created_at += 62)),
        ("no u tag", Box::new(|t| set_tag(t, "u", None))),
        ("another URL", Box::new(|t| set_tag(t, "u", Some("http://127.0.0.1:1/mcp")))),
        (
            "another URL",
            Box::new({
                let u = format!("{url}/");
                move |t| set_tag(t, "u", Some(&u))
            }),
        ),
        (
            "another URL",
            Box::new({
                let u = format!("{url}?");
                move |t| set_tag(t, "u", Some(&u))
            }),
        ),
        (
            "another URL",
            Box::new({
                let u = url.replace("mcp", "MCP");
                move |t| set_tag(t, "u", Some(&u))
            }),
        ),
        (
            "another URL",
            Box::new({
                let u = url.replace("http:", "https:");
                move |t| set_tag(t, "u", Some(&u))
            }),
        ),
        ("no method tag", Box::new(|t| set_tag(t, "method", None))),
        ("another method", Box::new(|t| set_tag(t, "method", Some("GET")))),
        ("another method", Box::new(|t| set_tag(t, "method", Some("post")))),
        ("no payload tag", Box::new(|t| set_tag(t, "payload", None))),
        ("hash of the body", Box::new(|t| set_tag(t, "payload", Some(&sha256_hex(b"other"))))),
        (
            "more than one payload",
            Box::new(|t| {
                let tag = t.tags[2].clone();
                t.tags.push(tag)
            }),
        ),
    ];
    for (text, defect) in defects {
        let answer = with_proof(&relay, &key, defect).send();
        let message = answer.json()["error"]["message"].to_string();
        assert_eq!(answer.status, 401, "{text}: {answer:?}");
        assert!(message.contains(text), "{text}: {message}");
        assert!(answer.head.contains("WWW-Authenticate: Nostr realm=\"tiny\""));
        assert!(answer.json().get("id").is_none());
    }
    let upper_case_host = with_proof(&relay, &key, |t| set_tag(t, "u", Some(&url.replace("http", "HTTP"))));
    assert_eq!(upper_case_host.send().status, 200);
}

#[test]
fn a_proof_that_is_damaged_or_used_is_refused() {
    let (relay, key) = (Relay::start(Options::default()), Key::random());
    let post = Post::call(&relay.url(), &key, "list_rooms", "{}");
    let event = key.sign(proof_template("POST", &post.url, &post.body, now()));
    let refused = |change: &dyn Fn(&mut Event)| {
        let mut event = event.clone();
        change(&mut event);
        post.clone().header("Authorization", &header_value(&event)).send().status
    };
    assert_eq!(refused(&|e| e.id = "0".repeat(64)), 401);
    assert_eq!(refused(&|e| e.sig = "0".repeat(128)), 401);
    assert_eq!(refused(&|e| e.pubkey = Key::random().public_hex()), 401);
    assert_eq!(refused(&|e| e.tags[3][1] = "other nonce".into()), 401);
    let good = header_value(&event);
    for header in [
        good.replace("Nostr", "nostr"),
        good.replace("Nostr ", "Bearer "),
        good.trim_end_matches('=')[..good.len() - 3].to_owned(),
    ] {
        assert_eq!(post.clone().header("Authorization", &header).send().status, 401, "{header}");
    }
    assert_eq!(post.clone().without("Authorization").send().status, 401);
    assert_eq!(post.clone().header("Authorization", &good).send().status, 200);
    let again = post.header("Authorization", &good).send();
    assert_eq!(again.status, 401);
    assert!(again.json()["error"]["message"].as_str().unwrap().contains("used before"));
    assert_eq!(relay.executed("list_rooms"), 1);
}

#[test]
fn the_error_table_answers_row_by_row() {
    let (relay, key) = (Relay::start(Options { body_limit: 2000, ..Options::default() }), Key::random());
    let post = || Post::call(&relay.url(), &key, "list_rooms", "{}");
    let body = |text: &str| Post { body: text.into(), ..post() }.signed(&key);
    let changed = |from: &str, to: &str| {
        let text = String::from_utf8(post().body).unwrap();
        assert!(text.contains(from), "{from}");
        body(&text.replace(from, to))
    };
    let origin = relay.origin();
    let rows: Vec<(Post, u16, i64)> = vec![
        (post(), 200, 0),
        (post().header("Origin", &origin), 200, 0),
        (Post { method: "GET".into(), ..post() }, 405, -32000),
        (Post { method: "DELETE".into(), ..post() }, 405, -32000),
        (post().header("Origin", "http://other.example"), 403, -32000),
        (body(&" ".repeat(2001)), 413, -32000),
        (post().without("Authorization"), 401, -32000),
        (post().header("Accept", "text/event-stream"), 406, -32000),
        (post().without("Accept"), 406, -32000),
        (post().header("Content-Type", "text/plain"), 415, -32000),
        (post().without("Content-Type"), 415, -32000),
        (body("{"), 400, -32700),
        (body(""), 400, -32700),
        (body("[]"), 400, -32600),
        (changed("\"2.0\"", "\"1.0\""), 400, -32600),
        (changed("\"id\":1", "\"id\":{}"), 400, -32600),
        (changed("tools/call", "initialize").header("Mcp-Method", "initialize"), 404, -32601),
        (changed("tools/call", "ping").header("Mcp-Method", "ping"), 404, -32601),
        (post().without("MCP-Protocol-Version"), 400, -32020),
        (post().header("MCP-Protocol-Version", "2025-11-25"), 400, -32020),
        (post().without("Mcp-Method"), 400, -32020),
        (post().header("Mcp-Method", "tools/list"), 400, -32020),
        (post().without("Mcp-Name"), 400, -32020),
        (post().header("Mcp-Name", "read_room"), 400, -32020),
        (post().header("Mcp-Name", "=?base64?bGlzdF9yb29tcw==?="), 200, 0),
        (post().header("Mcp-Name", "=?base64?bGlzdF9yb29t?="), 400, -32020),
        (changed("2026-07-28", "2025-11-25").header("MCP-Protocol-Version", "2025-11-25"), 400, -32022),
        (changed("io.modelcontextprotocol/clientCapabilities", "x"), 400, -32602),
        (changed("io.modelcontextprotocol/protocolVersion", "x"), 400, -32602),
        (changed("list_rooms", "no_such").header("Mcp-Name", "no_such"), 400, -32602),
        (changed("\"arguments\":{}", "\"arguments\":[]"), 400, -32602),
    ];
    for (index, (post, status, code)) in rows.into_iter().enumerate() {
        let answer = post.send();
        assert_eq!(answer.status, status, "row {index}: {answer:?}");
        assert_eq!(answer.json()["error"]["code"].as_i64().unwrap_or(0), code, "row {index}");
        assert_eq!(answer.json().get("id").is_some(), status < 401 || status == 404, "row {index}");
    }
    let version = changed("2026-07-28", "2025-11-25").header("MCP-Protocol-Version", "2025-11-25").send();
    assert_eq!(version.json()["error"]["data"]["supported"], json!(["2026-07-28"]));
    let get = Post { method: "GET".into(), ..post() }.send();
    assert!(get.head.contains("Allow: POST"));
}

#[test]
fn checks_come_in_the_order_of_the_relay() {
    let (relay, key) = (Relay::start(Options { body_limit: 100, ..Options::default() }), Key::random());
    let mut post =
        Post::call(&relay.url(), &key, "list_rooms", "{}").header("Origin", "http://other.example");
    post.headers.retain(|(name, _)| name == "Origin");
    post.method = "PUT".into();
    let mut statuses = vec![post.send().status];
    post.method = "POST".into();
    statuses.push(post.send().status);
    post = post.without("Origin");
    statuses.push(post.send().status);
    post.body = b"{".to_vec();
    statuses.push(post.send().status);
    post = post.signed(&key);
    statuses.push(post.send().status);
    post = post.signed(&key).header("Accept", "application/json");
    statuses.push(post.send().status);
    post = post.signed(&key).header("Content-Type", "application/json");
    statuses.push(post.send().status);
    assert_eq!(statuses, [405, 403, 413, 401, 406, 415, 400]);
}

#[test]
fn notifications_are_taken_without_an_answer() {
    let (relay, key) = (Relay::start(Options::default()), Key::random());
    let post = Post::rpc(&relay.url(), &key, "notifications/cancelled", "", None);
    let text = String::from_utf8(post.body.clone()).unwrap().replace("\"id\":1,", "");
    let answer = Post { body: text.into_bytes(), ..post }.signed(&key).send();
    assert_eq!((answer.status, answer.body.len()), (202, 0));
}

#[test]
fn the_table_is_paged_and_can_be_altered() {
    let options = Options {
        page_size: Some(7),
        extra_tools: vec![json!({"name": "tiny_diagnose"}), json!(5)],
        without_tools: vec!["list_jobs".into()],
        ..Options::default()
    };
    let (relay, key) = (Relay::start(options), Key::random());
    let (mut names, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let answer = Post::list(&relay.url(), &key, cursor.as_deref()).send().json();
        let result = &answer["result"];
        assert_eq!((&result["cacheScope"], &result["resultType"]), (&json!("private"), &json!("complete")));
        let tools = result["tools"].as_array().unwrap();
        assert!(tools.len() <= 7);
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap_or("?").to_owned()));
        cursor = result["nextCursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert!(names.contains(&"post_message".into()) && !names.contains(&"list_jobs".into()));
    assert_eq!(names[names.len() - 2..], ["tiny_diagnose", "?"]);
    assert_eq!(
        client::call(&relay.url(), &key, "tiny_diagnose", "{\"a\":1}").structured(),
        json!({"arguments": {"a": 1}})
    );
    assert_eq!(client::call(&relay.url(), &key, "list_jobs", "{}").status, 400);
    assert_eq!(Post::list(&relay.url(), &key, Some("after-9999")).send().status, 400);
}

#[test]
fn a_tenant_prefix_is_part_of_every_path() {
    let (relay, key) =
        (Relay::start(Options { prefix: "/r/acme".into(), ..Options::default() }), Key::random());
    assert!(relay.url().ends_with("/r/acme"));
    assert_eq!(client::call(&relay.url(), &key, "list_rooms", "{}").status, 200);
    assert_eq!(client::call(&relay.origin(), &key, "list_rooms", "{}").status, 404);
    let get = |url: String| {
        Post {
            url,
            method: "GET".into(),
            headers: vec![("Accept".into(), "application/nostr+json".into())],
            body: vec![],
        }
        .send()
    };
    assert_eq!(get(format!("{}/readyz", relay.url())).status, 200);
    assert_eq!(get(format!("{}/", relay.url())).json()["software"], "tinyagent-relay");
}

#[test]
fn a_clock_that_is_off_refuses_proofs_and_says_its_date() {
    let (relay, key) = (Relay::start(Options { clock_offset: -300, ..Options::default() }), Key::random());
    let answer = client::call(&relay.url(), &key, "list_rooms", "{}");
    assert_eq!(answer.status, 401);
    let dates: Vec<String> =
        (299..=302).map(|off| format!("Date: {}", clock::http_date(now() - off))).collect();
    assert!(dates.iter().any(|date| answer.head.contains(date)), "{}", answer.head);
}
