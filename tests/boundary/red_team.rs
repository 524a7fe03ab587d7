//! Claim 4, attack by attack: whoever owns the facade's end of the socket, with the whole catalog allowed,
//! changes one thing of a valid request, and gets the exact refusal, or the end of the signer, and no
//! signature.

use tinyagent_harness::catalog::{AUTHORIZATIONS, READ, WRITE, kinds_of};

use crate::peer::{Peer, RELAY, assert_ends, call, event_in, proof_in, publish, refusal};

/// One valid request of each kind.
fn valid() -> [String; 5] {
    [
        r#"{"describe":{}}"#.into(),
        r#"{"list_tools":{"id":1}}"#.into(),
        call("read_room", r#"{"id":"general"}"#),
        publish("post_message", "{}", 9, r#"[["h","general"]]"#),
        r#"{"browse_grant":{"rooms":["general"],"kinds":[9]}}"#.into(),
    ]
}

#[test]
fn each_valid_request_is_answered() {
    let mut peer = Peer::with_everything();
    for (request, answer) in valid().iter().zip(["description", "proof", "proof", "published", "proof"]) {
        assert!(peer.ask(request).get(answer).is_some(), "{request}");
    }
}

#[test]
fn url_method_body_and_time_cannot_be_given_with_a_request() {
    let smuggled = [
        "url",
        "u",
        "relay",
        "scheme",
        "host",
        "port",
        "path",
        "query",
        "slash",
        "method",
        "headers",
        "body",
        "payload",
        "nonce",
        "created_at",
        "kind",
        "kinds_allowed",
        "pubkey",
        "key",
        "sign",
        "hash",
        "event",
        "authorization",
        "policy",
        "allow_writes",
        "Id",
        "ID",
        "i\\u0064x",
        "Tool",
        "params",
        "_meta",
    ];
    for request in valid() {
        for name in smuggled {
            let at = request.find(":{").expect("a field's place") + 2;
            let comma = if request[at..].starts_with('}') { "" } else { "," };
            let changed = format!("{}\"{name}\":\"x\"{comma}{}", &request[..at], &request[at..]);
            assert_ends(&changed, changed.as_bytes());
        }
    }
}

#[test]
fn a_repeated_or_look_alike_key_ends_the_signer() {
    let call = call("read_room", "{}");
    for (from, to) in [
        (r#""id":1"#, r#""id":1,"id":1"#),
        (r#""id":1"#, r#""id":1,"\u0069d":2"#),
        (r#""tool":"#, r#""tool":"read_room","tool":"#),
        (r#""tool":"#, r#""tool":"read_room","too\u006c":"#),
        (r#""arguments":"#, r#""arguments":{},"arguments":"#),
        (r#""arguments":"#, r#""argument\u017f":{},"arguments":"#),
        (r#""arguments":"#, r#""argumentſ":{},"arguments":"#),
        (r#""arguments":"#, r#""Arguments":"#),
        (r#""call_tool":"#, r#""call_tool":{"id":1,"tool":"read_room","arguments":{}},"call_tool":"#),
        (r#""call_tool":"#, r#""Call_tool":"#),
        (r#""call_tool":"#, r#""call_tool\u0000":"#),
        (r#"{"id":1,"tool":"read_room","arguments":{}}"#, r#"[1,"read_room",{}]"#),
    ] {
        assert!(call.contains(from), "{from}");
        let changed = call.replacen(from, to, 1);
        assert_ends(&changed, changed.as_bytes());
    }
    let publish = publish("post_message", "{}", 9, r#"[["h","general"]]"#);
    for (from, to) in [
        (r#""kind":9"#, r#""kind":9,"kind":1"#),
        (r#""kind":9"#, r#""kind":9,"Kind":1"#),
        (r#""kind":9"#, r#""kind":9,"\u006bind":1"#),
        (r#""kind":9"#, r#""kind":9.0"#),
        (r#""kind":9"#, r#""kind":9e0"#),
        (r#""kind":9"#, r#""kind":-9"#),
        (r#""kind":9"#, r#""kind":"9""#),
        (r#""kind":9"#, r#""kind":99999999999999999999"#),
        (r#""kind":9"#, r#""kind":{"$serde_json::private::Number":"9"}"#),
        (r#""content":"hi""#, r#""content":"\ud800""#),
        (r#""content":"hi""#, r#""content":null"#),
        (r#""content":"hi""#, r#""content":"hi","id":"x""#),
        (r#""content":"hi""#, r#""content":"hi","sig":"x""#),
        (r#""content":"hi""#, r#""content":"hi","pubkey":"x""#),
        (r#""created_at":1700000000"#, r#""created_at":null"#),
        (r#""created_at":1700000000"#, r#""created_at":1.7e9"#),
        (r#"[["h","general"]]"#, r#"[[]]"#),
        (r#"[["h","general"]]"#, r#"[["h",1]]"#),
        (r#"[["h","general"]]"#, r#"{"0":["h","general"]}"#),
        (r#"[["h","general"]]"#, r#"[["h","\udc00"]]"#),
    ] {
        assert!(publish.contains(from), "{from}");
        let changed = publish.replacen(from, to, 1);
        assert_ends(&changed, changed.as_bytes());
    }
}

#[test]
fn a_proof_is_for_the_policy_s_url_and_method_whatever_the_request_says() {
    let mut peer = Peer::with_everything();
    let arguments = r#"{"url":"https://elsewhere.example/","u":"x","method":"GET","payload":"00","_meta":{"x":1},"name":"publish_event"}"#;
    let requests = [
        (call("read_room", arguments), "/mcp"),
        (call("post_message", arguments), "/mcp"),
        (r#"{"list_tools":{"id":1,"cursor":"https://elsewhere.example/"}}"#.into(), "/mcp"),
        (publish("post_message", arguments, 9, r#"[["u","https://elsewhere.example/"]]"#), "/mcp"),
        (r#"{"browse_grant":{"rooms":["https://elsewhere.example/"]}}"#.into(), "/manage/rpc"),
    ];
    for (request, path) in requests {
        let answer = peer.ask(&request);
        let part = if answer.get("proof").is_some() { "proof" } else { "published" };
        let proof = proof_in(&answer[part]);
        let names: Vec<&str> = proof.tags.iter().map(|tag| tag[0].as_str()).collect();
        assert_eq!(names, ["u", "method", "payload", "nonce"], "{request}");
        assert_eq!(proof.tag("u"), Some(format!("{RELAY}{path}").as_str()), "{request}");
        assert_eq!(proof.tag("method"), Some("POST"), "{request}");
        assert_eq!((proof.kind, proof.pubkey == peer.public), (27235, true));
    }
}

#[test]
fn a_name_that_is_no_tool_of_the_catalog_gets_nothing() {
    let mut peer = Peer::with_everything();
    let long = "x".repeat(4096);
    let shown_long = "x".repeat(64) + "…";
    for (name, shown) in [
        ("publish_event", "publish_event"),
        ("read_management", "read_management"),
        ("update_management", "update_management"),
        ("set_status", "set_status"),
        ("delete_repository", "delete_repository"),
        ("tools/list", "tools/list"),
        ("", ""),
        ("Read_room", "Read_room"),
        ("READ_ROOM", "READ_ROOM"),
        ("read_room ", "read_room "),
        (" read_room", " read_room"),
        ("read-room", "read-room"),
        ("read_rооm", "read_rооm"),
        (r"read_room\u0000", r"read_room\0"),
        (r"read_room\u200b", r"read_room\u{200b}"),
        (r#"read_room\",\"name\":\"publish_event"#, r#"read_room\",\"name\":\"publish_event"#),
        (&long, &shown_long),
    ] {
        let expected = format!("tool {shown} is not exposed by the signer's policy");
        for request in [call(name, "{}"), publish(name, "{}", 9, r#"[["h","general"]]"#)] {
            let answer = peer.ask(&request);
            assert_eq!(refusal(&answer), ("tool-not-exposed", expected.as_str()), "{request}");
        }
    }
    assert!(peer.ask(&call("read_room", "{}")).get("proof").is_some(), "the name itself is a tool");
}

#[test]
fn a_tool_outside_the_named_ones_and_a_write_tool_without_writes_get_nothing() {
    let mut named = Peer::start(&["--tools", "read_room,post_message", "--allow-writes"]);
    let mut reading = Peer::start(&[]);
    for tool in READ {
        let answer = named.ask(&call(tool, "{}"));
        assert_eq!(answer.get("proof").is_some(), tool == "read_room", "{tool}: {answer}");
        if tool != "read_room" {
            assert_eq!(refusal(&answer).0, "tool-not-exposed");
        }
        assert!(reading.ask(&call(tool, "{}")).get("proof").is_some(), "{tool}");
    }
    for (tool, kinds) in WRITE {
        let request = publish(tool, "{}", kinds.first().copied().unwrap_or(9), r#"[["x","y"]]"#);
        if tool != "post_message" {
            assert_eq!(refusal(&named.ask(&request)).0, "tool-not-exposed", "{tool}");
        }
        let text = format!("tool {tool} publishes events and the signer was started without --allow-writes");
        for request in [request, call(tool, "{}")] {
            assert_eq!(refusal(&reading.ask(&request)), ("writes-not-allowed", text.as_str()));
        }
    }
}

/// Kinds to try on every tool: all of the catalog, and others that a relay or a thief might like.
fn kinds_to_try() -> Vec<u64> {
    let mut kinds: Vec<u64> = WRITE.iter().flat_map(|(_, kinds)| kinds.iter().copied()).collect();
    kinds.extend([0, 1, 3, 4, 5, 6, 8, 10, 13, 14, 1059, 1984, 5000, 7000, 9735, 10000, 10002, 23194, 24133]);
    kinds.extend([27234, 27236, 22241, 22243, 24241, 24243, 30023, 30078, 30392, 43000, 43007]);
    // What a 32-bit or floating-point reader would take for another number.
    kinds.extend([(1 << 32) + 9, (1 << 32) + 27235, (1 << 53) + 1, u64::MAX]);
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn each_tool_gets_its_own_kinds_signed_and_no_other() {
    let mut peer = Peer::with_everything();
    for tool in READ.into_iter().chain(WRITE.iter().map(|(tool, _)| *tool)) {
        let own = kinds_of(tool).expect("a tool of the catalog");
        for kind in kinds_to_try() {
            let answer = peer.ask(&publish(tool, "{}", kind, r#"[["x","y"]]"#));
            if own.contains(&kind) {
                let event = event_in(&answer);
                assert_eq!((event.kind, &event.pubkey), (kind, &peer.public), "{tool}");
                continue;
            }
            let text = format!(
                "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {tool}"
            );
            assert_eq!(refusal(&answer), ("kind-not-expected", text.as_str()));
        }
    }
}

#[test]
fn an_authorization_is_signed_from_a_template_for_no_tool() {
    let mut peer = Peer::with_everything();
    for tool in READ.into_iter().chain(WRITE.iter().map(|(tool, _)| *tool)) {
        for kind in AUTHORIZATIONS {
            let tags = r#"[["u","https://elsewhere.example/"],["method","POST"]]"#;
            let text = format!("refused to sign a kind {kind} authorization event returned by {tool}");
            let answer = peer.ask(&publish(tool, "{}", kind, tags));
            assert_eq!(refusal(&answer), ("authorization-kind", text.as_str()));
        }
    }
}

#[test]
fn a_power_is_signed_from_its_own_tool_alone() {
    let mut peer = Peer::with_everything();
    for (tag, owner, rule) in
        [("grant", "request_grant", "grant-tag"), ("request", "request_decision", "request-tag")]
    {
        let placed = [
            format!(r#"[["{tag}","x"]]"#),
            format!(r#"[["{tag}"]]"#),
            format!(r#"[["h","general"],["e","x"],["{tag}","x","y"]]"#),
            format!(r#"[["\u{:04x}{}","x"]]"#, u32::from(tag.as_bytes()[0]), &tag[1..]),
        ];
        for (tool, kinds) in WRITE {
            for kind in kinds {
                for tags in &placed {
                    let answer = peer.ask(&publish(tool, "{}", *kind, tags));
                    if tool == owner {
                        assert_eq!(event_in(&answer).kind, *kind);
                        continue;
                    }
                    let text = format!(
                        "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {tool}"
                    );
                    assert_eq!(refusal(&answer), (rule, text.as_str()), "{tool} {tags}");
                }
            }
        }
    }
}

#[test]
fn the_policy_of_a_child_cannot_be_narrowed_or_widened() {
    let mut peer = Peer::start(&["--tools", "read_room"]);
    let before = peer.ask(r#"{"describe":{}}"#);
    for request in [
        r#"{"narrow":{"tools":[],"allow_writes":false}}"#,
        r#"{"narrow":{"tools":["read_room"],"allow_writes":false}}"#,
        r#"{"narrow":{"tools":["read_room","post_message"],"allow_writes":true}}"#,
    ] {
        let answer = peer.ask(request);
        assert_eq!(refusal(&answer).0, "narrow-not-offered", "{answer}");
    }
    assert_eq!(peer.ask(r#"{"describe":{}}"#), before);
}

#[test]
fn rates_are_kept_and_the_refusal_names_the_wait() {
    let mut peer =
        Peer::start(&["--allow-writes", "--max-events-per-minute", "2", "--max-proofs-per-minute", "3"]);
    let request = publish("post_message", "{}", 9, r#"[["h","general"]]"#);
    for _ in 0..2 {
        event_in(&peer.ask(&request));
    }
    let answer = peer.ask(&request);
    let (rule, text) = refusal(&answer);
    assert_eq!(rule, "rate");
    assert!(text.starts_with("the limit of 2 events a minute is reached; try again in "), "{text}");
    assert!(peer.ask(&call("read_room", "{}")).get("proof").is_some(), "the third proof");
    let answer = peer.ask(&call("read_room", "{}"));
    let (rule, text) = refusal(&answer);
    assert_eq!(rule, "proof-rate");
    assert!(text.starts_with("the limit of 3 proofs a minute is reached; try again in "), "{text}");
}
