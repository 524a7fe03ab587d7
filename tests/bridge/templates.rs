//! Contract 5 and cases 76 and 79: what is a template, what is none, and that it is signed as written.

use serde_json::{Value, json};
use tinyagent_harness::Host;
use tinyagent_relay::{Matcher, Options, Relay, Reply, clock};

use crate::sign_and_resubmit::{HELLO, events, relay_that_returns};
use crate::support::{assert_answered, tool_error};

#[test]
fn a_template_that_cannot_be_signed_as_written_is_a_tool_error_and_nothing_is_signed() {
    let large = format!(r#"{{"kind":9,"tags":[],"content":"{}"}}"#, "x".repeat(1 << 20));
    let large_extra = format!(r#"{{"kind":9,"tags":[],"content":"","x":"{}"}}"#, "x".repeat(1 << 20));
    for template in [
        r#"{"kind":9,"kind":1,"tags":[],"content":""}"#,
        r#"{"kind":9,"kind":9,"tags":[],"content":""}"#,
        r#"{"kind":9,"kin\u0064":1,"tags":[],"content":""}"#,
        r#"{"kind":9,"tags":[],"tags":[["h","x"]],"content":""}"#,
        r#"{"kind":9,"tags":[],"content":"","content":"x"}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":1,"created_at":2}"#,
        r#"{"kind":9,"tags":[],"content":"","x":1,"x":2}"#,
        r#"{"kind":9,"tags":[],"content":"\ud800"}"#,
        r#"{"kind":9,"tags":[],"content":"\udc00\ud800"}"#,
        r#"{"kind":9,"tags":[["h","\ud83e"]],"content":""}"#,
        r#"{"kind":18446744073709551616,"tags":[],"content":""}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":18446744073709551616}"#,
        &large,
        &large_extra,
    ] {
        let relay = relay_that_returns(template);
        let mut host = Host::with_writes(&relay);
        let text = "transport: the relay returned an event template that cannot be signed as written";
        assert_eq!(
            tool_error(&host.call("post_message", HELLO)),
            text,
            "{}",
            &template[..60.min(template.len())]
        );
        assert_eq!((events(&relay).len(), relay.posts().len()), (0, 1));
    }
}

#[test]
fn a_doubled_unsigned_key_is_not_signed_whichever_of_the_two_is_meant() {
    let good = r#"{"kind":9,"tags":[],"content":""}"#;
    let relay = Relay::start(Options::default());
    let result = format!(r#"{{"content":[],"structuredContent":{{"unsigned":{good},"unsigned":{good}}}}}"#);
    relay.script_always(Matcher::any(), Reply::result_text(&result));
    let answer = Host::with_writes(&relay).call("post_message", HELLO);
    assert!(tool_error(&answer).ends_with("cannot be signed as written"), "{answer}");
    assert_eq!(relay.posts().len(), 1);
}

#[test]
fn case_079_what_is_no_template_passes_unchanged() {
    for unsigned in [
        "null",
        "[]",
        "{}",
        "5",
        r#""x""#,
        "true",
        r#"[9,[],""]"#,
        r#"{"kind":9,"tags":[]}"#,
        r#"{"kind":9,"content":""}"#,
        r#"{"tags":[],"content":""}"#,
        r#"{"kind":"9","tags":[],"content":""}"#,
        r#"{"kind":9.0,"tags":[],"content":""}"#,
        r#"{"kind":9e0,"tags":[],"content":""}"#,
        r#"{"kind":-1,"tags":[],"content":""}"#,
        r#"{"kind":-0,"tags":[],"content":""}"#,
        r#"{"kind":null,"tags":[],"content":""}"#,
        r#"{"Kind":9,"tags":[],"content":""}"#,
        r#"{"kind":9,"tags":{},"content":""}"#,
        r#"{"kind":9,"tags":null,"content":""}"#,
        r#"{"kind":9,"tags":[[]],"content":""}"#,
        r#"{"kind":9,"tags":["h"],"content":""}"#,
        r#"{"kind":9,"tags":[["h",1]],"content":""}"#,
        r#"{"kind":9,"tags":[["h",null]],"content":""}"#,
        r#"{"kind":9,"tags":[["h"],5],"content":""}"#,
        r#"{"kind":9,"tags":[],"content":5}"#,
        r#"{"kind":9,"tags":[],"content":null}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":null}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":-5}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":1.5}"#,
        r#"{"kind":9,"tags":[],"content":"","created_at":"5"}"#,
    ] {
        let relay = relay_that_returns(unsigned);
        let result = Host::with_writes(&relay).call("post_message", HELLO)["result"].clone();
        let expected: Value = serde_json::from_str(unsigned).expect("JSON");
        assert_eq!(result["structuredContent"]["unsigned"], expected, "{unsigned}");
        assert_eq!((&result["isError"], &result["content"][0]["text"]), (&json!(false), &json!("sign")));
        assert_eq!(relay.posts().len(), 1, "{unsigned}");
    }
}

#[test]
fn a_template_elsewhere_in_the_result_is_no_template() {
    let good = r#"{"kind":9,"tags":[],"content":""}"#;
    for result in [
        format!(r#"{{"content":[],"unsigned":{good}}}"#),
        format!(r#"{{"content":[],"structuredContent":{{"Unsigned":{good}}}}}"#),
        format!(r#"{{"content":[],"structuredContent":{{"a":{{"unsigned":{good}}}}}}}"#),
        format!(r#"{{"content":[],"structuredContent":[{{"unsigned":{good}}}]}}"#),
        format!(r#"{{"content":[{{"type":"text","text":"x","unsigned":{good}}}]}}"#),
    ] {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::any(), Reply::result_text(&result));
        let answer = Host::with_writes(&relay).call("post_message", HELLO);
        assert_answered(&answer);
        assert_eq!(relay.posts().len(), 1, "{result}");
    }
}

#[test]
fn a_result_that_is_an_error_is_shown_and_its_template_never_signed() {
    let relay = Relay::start(Options::default());
    let result = json!({
        "content": [{"type": "text", "text": "no"}], "isError": true,
        "structuredContent": {"unsigned": {"kind": 9, "tags": [], "content": ""}},
    });
    relay.script_always(Matcher::any(), Reply::result(result));
    let answer = Host::with_writes(&relay).call("post_message", HELLO);
    assert_eq!(tool_error(&answer), "no");
    assert_eq!(relay.posts().len(), 1);
}

#[test]
fn case_088_a_result_that_is_not_complete_is_a_tool_error_and_its_template_never_signed() {
    for kind in [r#""input_required""#, r#""zzz""#, r#""""#, r#""Complete""#, "5", "null"] {
        let relay = Relay::start(Options::default());
        relay.script_always(
            Matcher::any(),
            Reply::result_text(&format!(
                r#"{{"resultType":{kind},"content":[],"structuredContent":{{"unsigned":{{"kind":9,"tags":[],"content":""}}}}}}"#
            )),
        );
        let answer = Host::with_writes(&relay).call("post_message", HELLO);
        assert_eq!(answer["result"]["isError"], true, "{kind}");
        assert_eq!(relay.posts().len(), 1, "{kind}");
    }
}

#[test]
fn case_076_the_event_is_signed_exactly_as_returned_whatever_its_escapes() {
    let template = r#"{ "content" : "\u00e9\/\u0008\f\n\r\t\"\\\u0000\u001f\u007f<>&'\u2028\u2029\u0085\ud83e\udd80ü \ufeff\ufffd\uffff" , "kind":9,
        "tags":[["h","general"],["x","","\u00e9\/","a\\b\"c"],["\u0000"]],"created_at":7,
        "id":"ff","pubkey":"00","sig":1,"Kind":1,"relay_note":{"a":[1,2,{"b":null}]}}"#;
    let relay = relay_that_returns(template);
    let answer = Host::with_writes(&relay).call("post_message", HELLO);
    assert_eq!(answer["result"]["structuredContent"]["taken"], true, "{answer}");
    let event = events(&relay).pop().expect("an event");
    let content =
        "é/\u{8}\u{c}\n\r\t\"\\\0\u{1f}\u{7f}<>&'\u{2028}\u{2029}\u{85}🦀ü \u{feff}\u{fffd}\u{ffff}";
    assert_eq!((event.kind, event.created_at, event.content.as_str()), (9, 7, content));
    assert_eq!(event.tags, [vec!["h", "general"], vec!["x", "", "é/", "a\\b\"c"], vec!["\0"]]);
}

#[test]
fn every_character_below_a_space_and_around_delete_is_hashed_as_nip_01_says() {
    let escaped: String = (0..=0x9f_u32).map(|code| format!("\\u{code:04x}")).collect();
    let plain: String = (0..=0x9f_u8).map(char::from).collect();
    let relay = relay_that_returns(&format!(r#"{{"kind":9,"tags":[["{escaped}"]],"content":"{escaped}"}}"#));
    Host::with_writes(&relay).call("post_message", HELLO);
    let event = events(&relay).pop().expect("an event");
    assert_eq!((&event.content, &event.tags), (&plain, &vec![vec![plain.clone()]]));
}

#[test]
fn a_template_of_just_under_1_mib_is_signed() {
    let content = "é".repeat((1 << 19) - 100);
    let relay = relay_that_returns(&format!(r#"{{"kind":9,"tags":[],"content":"{content}"}}"#));
    Host::with_writes(&relay).call("post_message", HELLO);
    assert_eq!(relay.posts().len(), 2);
}

#[test]
fn an_absent_time_is_filled_with_the_present_and_a_given_one_is_kept() {
    let relay = relay_that_returns(r#"{"kind":9,"tags":[],"content":""}"#);
    let before = clock::unix_now();
    Host::with_writes(&relay).call("post_message", HELLO);
    let filled = events(&relay)[0].created_at;
    assert!((before..=clock::unix_now()).contains(&filled), "{filled}");
    for given in [0, 1, 1_700_000_000, 4_294_967_296, u64::MAX] {
        let template = format!(r#"{{"kind":9,"tags":[],"content":"","created_at":{given}}}"#);
        let relay = relay_that_returns(&template);
        Host::with_writes(&relay).call("post_message", HELLO);
        assert_eq!(events(&relay)[0].created_at, given);
    }
}
