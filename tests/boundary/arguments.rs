//! Claim 4 at the one place where a peer's own text enters a body: arguments that name an event, that try to
//! break out, and that only look as if they did.

use tinyagent_harness::catalog::WRITE;
use tinyagent_relay::sha256_hex;

use crate::peer::{Peer, assert_ends, call, event_in, proof_in, publish, refusal};
use crate::wire;

/// Every way to write the word: each letter small, large, or as an escape of either.
fn spellings_of_event() -> Vec<String> {
    let forms = |letter: char| {
        let large = letter.to_ascii_uppercase();
        [
            letter.into(),
            large.into(),
            format!("\\u{:04x}", u32::from(letter)),
            format!("\\u{:04X}", u32::from(large)),
        ]
    };
    "event".chars().map(forms).fold(vec![String::new()], |words, forms| {
        words.iter().flat_map(|word| forms.iter().map(move |form| format!("{word}{form}"))).collect()
    })
}

#[test]
fn an_event_argument_is_refused_in_every_spelling_and_place() {
    let mut peer = Peer::with_everything();
    let spellings = spellings_of_event();
    assert_eq!(spellings.len(), 1024);
    let text = "the event argument is filled in by tinyagent; leave it out";
    for spelling in &spellings {
        let answer = peer.ask(&call("post_message", &format!(r#"{{"{spelling}":1}}"#)));
        assert_eq!(refusal(&answer), ("event-argument", text), "{spelling}");
    }
    for arguments in [
        r#"{"event":null}"#,
        r#"{"event":{"kind":1}}"#,
        r#"{"a":1,"event":{}}"#,
        r#"{"event":{},"a":1}"#,
        "{ \n\t\"event\" : 1 }",
        r#"{"a":{"b":[1,2]},"EVENT":[]}"#,
        r#"{"event":1,"event":2}"#,
    ] {
        for (tool, kinds) in WRITE {
            let answer = peer.ask(&call(tool, arguments));
            assert_eq!(refusal(&answer), ("event-argument", text), "{tool} {arguments}");
            let kind = kinds.first().copied().unwrap_or(9);
            let answer = peer.ask(&publish(tool, arguments, kind, r#"[["x","y"]]"#));
            assert_eq!(refusal(&answer), ("event-argument", text), "{tool} {arguments}");
        }
    }
    // Further in it is the host's own data; and a longer word is another word.
    for arguments in [r#"{"a":{"event":1}}"#, r#"{"events":1}"#, r#"{"even":1}"#] {
        assert!(peer.ask(&call("post_message", arguments)).get("proof").is_some(), "{arguments}");
    }
}

#[test]
fn text_that_would_break_out_of_the_arguments_ends_the_signer() {
    for arguments in [
        r#"{}},"name":"publish_event","x":{"y":{}"#,
        r#"{}}"#,
        r#"{}{}"#,
        r#"{},{}"#,
        r#"{"#,
        r#"}"#,
        r#"{"a":1}}"#,
        r#"{"a":"}"#,
        r#"{"a":1,}"#,
        r#"{"a":1}//"#,
        r#"{"a":1}/**/"#,
        r#"{'a':1}"#,
        r#"{"a":NaN}"#,
        r#"{"a":01}"#,
        r#"{"a":1}x"#,
        r#"{"a":"\x"}"#,
        "{\"a\":\"\n\"}",
        "{\"a\":\"\0\"}",
        "\u{feff}{}",
        r#"[]"#,
        r#"[{}]"#,
        r#""{}""#,
        r#"null"#,
        r#"1"#,
        r#"true"#,
        "",
    ] {
        for request in [call("read_room", arguments), publish("post_message", arguments, 9, r#"[["x","y"]]"#)]
        {
            assert_ends(&request, request.as_bytes());
        }
    }
}

#[test]
fn text_inside_the_arguments_stays_there() {
    let mut peer = Peer::with_everything();
    for arguments in [
        r#"{"a":"}},\"name\":\"publish_event\",\"x\":{\"y\":\""}"#,
        r#"{"a":"\u0022}},\u0022name\u0022:\u0022publish_event\u0022"}"#,
        r#"{"name":"publish_event","arguments":{},"method":"tools/list","params":{}}"#,
        r#"{"Name":"publish_event","_meta":{"x":1},"__proto__":{}}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"n":9007199254740993,"e": 1E+2,"big":123456789012345678901234567890}"#,
        "{ }",
        "{\n\"a\"\t:\r1 }",
    ] {
        let proof = proof_in(&peer.ask(&call("read_room", arguments))["proof"]);
        let body = wire::call_body("1", "read_room", arguments);
        assert_eq!(proof.tag("payload"), Some(sha256_hex(body.as_bytes()).as_str()), "{arguments}");
        let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&read["method"], &read["params"]["name"]), (&"tools/call".into(), &"read_room".into()));

        let answer = peer.ask(&publish("post_message", arguments, 9, r#"[["h","general"]]"#));
        let event = event_in(&answer);
        let proof = proof_in(&answer["published"]);
        let arguments = wire::with_event(arguments, &wire::json(&event));
        let body = wire::call_body("1", "post_message", &arguments);
        assert_eq!(proof.tag("payload"), Some(sha256_hex(body.as_bytes()).as_str()), "{arguments}");
        let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(read["params"]["name"], "post_message");
        assert_eq!(read["params"]["arguments"]["event"]["id"], event.id);
    }
}
