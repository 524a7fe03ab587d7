use super::*;

fn round_trip(text: &str) -> String {
    let message = Message::parse(text.as_bytes()).expect(text);
    let (head, arguments, tail) = message.pieces();
    head + arguments + &tail
}

#[test]
fn each_request_survives_the_wire() {
    for text in [
        r#"{"describe":{}}"#,
        r#"{"narrow":{"tools":["read_room"],"allow_writes":false}}"#,
        r#"{"list_tools":{"id":1}}"#,
        r#"{"list_tools":{"client":"hermes","id":1,"cursor":"a\"b"}}"#,
        r#"{"call_tool":{"id":2,"tool":"read_room","arguments":{"n": 1E+2}}}"#,
        r#"{"publish":{"client":"x","id":3,"tool":"post_message","arguments":{},"template":{"kind":9,"tags":[["h","g"]],"content":"hi"}}}"#,
        r#"{"browse_grant":{}}"#,
        r#"{"browse_grant":{"rooms":["a"],"kinds":[9,12]}}"#,
        r#"{"browse_grant":{"kinds":[9]}}"#,
    ] {
        assert_eq!(round_trip(text), text);
    }
}

#[test]
fn anything_else_is_malformed() {
    for text in [
        "",
        "[]",
        "{}",
        r#""describe""#,
        r#"{"describe":[]}"#,
        r#"{"describe":null}"#,
        r#"{"describe":{},"describe":{}}"#,
        r#"{"Describe":{}}"#,
        r#"{"sign":{"hash":"00"}}"#,
        r#"{"call_tool":[1,"read_room",{}]}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room"}}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room","arguments":[]}}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room","arguments":"{}"}}"#,
        r#"{"call_tool":{"id":1,"id":1,"tool":"read_room","arguments":{}}}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room","tool":"x","arguments":{}}}"#,
        r#"{"call_tool":{"id":-1,"tool":"read_room","arguments":{}}}"#,
        r#"{"call_tool":{"id":1.0,"tool":"read_room","arguments":{}}}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room","arguments":{},"url":"http://x"}}"#,
        r#"{"call_tool":{"id":1,"tool":"read_room","Arguments":{},"arguments":{}}}"#,
        r#"{"list_tools":{"id":1,"cursor":null}}"#,
        r#"{"publish":{"id":1,"tool":"x","arguments":{},"template":{"kind":9,"tags":[],"content":"","sig":""}}}"#,
        r#"{"browse_grant":{"kinds":["9"]}}"#,
        r#"{"describe":{}} x"#,
    ] {
        assert!(Message::parse(text.as_bytes()).is_err(), "{text}");
    }
    let cursor = format!(r#"{{"list_tools":{{"id":1,"cursor":"{}"}}}}"#, "x".repeat(MAX_CURSOR_BYTES + 1));
    assert!(Message::parse(cursor.as_bytes()).is_err());
}

#[test]
fn answers_survive_the_wire() {
    let refusal = Answer::Refused(Refusal::new(Rule::Rate, "wait 3 s"));
    let Answer::Refused(read) = Answer::parse(refusal.to_json().as_bytes()).expect("refusal") else {
        panic!("another answer")
    };
    assert_eq!(read, Refusal::new(Rule::Rate, "wait 3 s"));
    for text in [
        r#"{"proof":{"authorization":"Nostr aA0+/=="}}"#,
        r#" {"proof": {"authorization":"Nostr aA0+\/=="}}"#,
    ] {
        let Ok(Answer::Proof { authorization }) = Answer::parse(text.as_bytes()) else { panic!("{text}") };
        assert_eq!(authorization, "Nostr aA0+/==");
    }
    for text in [
        r#"{"proof":{"authorization":"Nostr a","authorization":"b"}}"#,
        r#"{"proof":{"authorization":"Nostr a"}}}"#,
        r#"{"proof":{"authorization":"Nostr "a"}}"#,
        r#"{"proof":{"authorization":"Nostr a\"}}"#,
        r#"{"proof":{"authorization":""#,
    ] {
        assert!(Answer::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(Answer::parse(br#"{"refused":{"rule":"other","message":""}}"#).is_err());
    assert!(Answer::parse(br#"{"published":{"event":{},"authorization":""}}"#).is_err());
}
