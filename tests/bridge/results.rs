//! Contract 4 and 6: what becomes of a relay's result on its way to the host, at the exact byte.

use serde_json::{Value, json};
use tinyagent_harness::Host;
use tinyagent_relay::{Answer, Matcher, Options, Relay, Reply};

use crate::outcome::{RawHost, failed_read};

/// What the host sees of a `list_rooms` that the relay answers with this result.
fn shown(result: &str) -> Value {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    relay.script(Matcher::tool("list_rooms"), Reply::result_text(result));
    let answer = host.call("list_rooms", "{}");
    answer.get("result").unwrap_or_else(|| panic!("no result: {answer}")).clone()
}

/// The line that the host reads for the same, byte for byte.
fn shown_line(result: &str) -> String {
    let relay = Relay::start(Options::default());
    relay.script(Matcher::tool("list_rooms"), Reply::result_text(result));
    RawHost::start(&relay).call("list_rooms", "{}")
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn with_text(text: &str) -> String {
    json!({"content": [text_block(text)]}).to_string()
}

#[test]
fn case_85_a_text_block_is_cut_at_65536_bytes_on_a_character_boundary() {
    let a = |count: usize| "a".repeat(count);
    let crab_at = |count: usize| format!("{}🦀{}", a(count), a(10));
    for (text, kept) in [
        (a(65_535), 65_535),
        (a(65_536), 65_536),
        ("é".repeat(32_768), 65_536),
        ("\n".repeat(65_536), 65_536),
        (a(65_537), 65_536),
        (a(200_000), 65_536),
        (crab_at(65_532), 65_536),
        (crab_at(65_533), 65_533),
        (crab_at(65_534), 65_534),
        (crab_at(65_535), 65_535),
        (crab_at(65_536), 65_536),
        (format!("a{}", "é".repeat(32_768)), 65_535),
        ("\u{2028}".repeat(30_000), 65_535),
    ] {
        let expected = if text.len() == kept && kept <= 65_536 {
            text.clone()
        } else {
            format!("{}\n[truncated: {kept} of {} bytes shown]", &text[..kept], text.len())
        };
        assert_eq!(shown(&with_text(&text))["content"], json!([text_block(&expected)]));
    }
}

#[test]
fn case_85_the_bound_counts_the_text_and_not_its_escapes() {
    let escaped =
        |count: usize| format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, r"\u00e9".repeat(count));
    assert_eq!(shown(&escaped(32_768))["content"][0]["text"], "é".repeat(32_768));
    let cut = format!("{}\n[truncated: 65536 of 65538 bytes shown]", "é".repeat(32_768));
    assert_eq!(shown(&escaped(32_769))["content"][0]["text"], cut);
}

#[test]
fn case_85_each_of_several_blocks_is_bounded_for_itself() {
    let blocks: Vec<Value> = (0..10).map(|n| text_block(&"b".repeat(65_532 + n))).collect();
    let result = shown(&json!({"content": blocks}).to_string());
    for n in 0..5 {
        assert_eq!(result["content"][n], blocks[n]);
    }
    for n in 5..10 {
        let cut = format!("{}\n[truncated: 65536 of {} bytes shown]", "b".repeat(65_536), 65_532 + n);
        assert_eq!(result["content"][n], text_block(&cut));
    }
}

/// `structuredContent` of exactly this many bytes.
fn structured(bytes: usize) -> String {
    format!(r#"{{"a":"{}"}}"#, "s".repeat(bytes - 8))
}

#[test]
fn case_85_structured_content_is_replaced_above_262144_bytes_and_the_first_text_says_so() {
    let whole = shown(&format!(r#"{{"content":[],"structuredContent":{}}}"#, structured(262_144)));
    assert_eq!(whole["structuredContent"].to_string(), structured(262_144));
    assert_eq!(whole["content"], json!([]));
    let note = "[structuredContent truncated: 262145 bytes exceeds the 262144 byte limit]";
    let image = json!({"type": "image", "data": "eA==", "mimeType": "image/png"});
    for (content, expected) in [
        (json!([]), json!([text_block(note)])),
        (
            json!([text_block("one"), text_block("two")]),
            json!([text_block(&format!("one\n{note}")), text_block("two")]),
        ),
        (json!([image]), json!([image, text_block(note)])),
        (json!([image, text_block("")]), json!([image, text_block(&format!("\n{note}"))])),
    ] {
        let result =
            shown(&format!(r#"{{"content":{content},"structuredContent":{}}}"#, structured(262_145)));
        assert_eq!(result["structuredContent"], json!({"truncated": true, "bytes": 262_145}));
        assert_eq!(result["content"], expected);
    }
    let absent = shown(&format!(r#"{{"structuredContent":{}}}"#, structured(262_145)));
    assert_eq!(absent["content"], json!([text_block(note)]));
}

#[test]
fn case_85_a_text_that_is_cut_keeps_its_note_beside_the_other_one() {
    let text = "t".repeat(65_537);
    let result = shown(&format!(
        r#"{{"content":[{}],"structuredContent":{}}}"#,
        text_block(&text),
        structured(300_000)
    ));
    let expected = format!(
        "{}\n[truncated: 65536 of 65537 bytes shown]\n[structuredContent truncated: 300000 bytes exceeds the 262144 byte limit]",
        &text[..65_536]
    );
    assert_eq!(result["content"][0]["text"], expected);
}

#[test]
fn case_85_the_bound_counts_compact_json() {
    let loose = |bytes: usize| structured(bytes).replacen(':', " :\r\n\t ", 1);
    let fits = shown(&format!(r#"{{"content":[],"structuredContent":{}}}"#, loose(262_144)));
    assert_eq!(fits["structuredContent"].to_string(), structured(262_144));
    let over = shown(&format!(r#"{{"content":[],"structuredContent":{}}}"#, loose(262_145)));
    assert_eq!(over["structuredContent"]["bytes"], 262_145);
}

#[test]
fn case_85_other_blocks_pass_unchanged_and_a_line_stays_under_8_mib() {
    let image =
        |bytes: usize| json!({"type": "image", "data": "A".repeat(bytes), "mimeType": "image/png", "x": 1});
    let small = shown(&json!({"content": [image(4 << 20)]}).to_string());
    assert_eq!(small["content"], json!([image(4 << 20)]));
    let line =
        shown_line(&json!({"content": [image(5 << 20), text_block("caption"), image(4 << 20)]}).to_string());
    assert!(line.len() < 8 << 20, "{}", line.len());
    let result: Value = serde_json::from_str::<Value>(&line).expect("JSON")["result"].take();
    let left_out = result["content"][0]["text"].as_str().expect("a note");
    let size = image(5 << 20).to_string().len();
    assert!(left_out.contains("image") && left_out.contains(&size.to_string()), "{left_out}");
    assert_eq!(result["content"][1], text_block("caption"));
    assert_eq!(result["content"][2], image(4 << 20));
}

#[test]
fn texts_and_small_blocks_that_are_too_many_are_left_out_from_the_end() {
    let texts: Vec<Value> = (0..300).map(|n| text_block(&format!("{n:03}{}", "t".repeat(60_000)))).collect();
    let links: Vec<Value> = (0..200_000)
        .map(|n| json!({"type": "resource_link", "uri": format!("nostr:{n}"), "name": "n"}))
        .collect();
    for blocks in [texts, links] {
        let line = shown_line(&json!({"content": blocks}).to_string());
        assert!(line.len() < 8 << 20 && line.len() > 7 << 20, "{}", line.len());
        let result: Value = serde_json::from_str::<Value>(&line).expect("JSON")["result"].take();
        let content = result["content"].as_array().expect("blocks");
        let (note, kept) = content.split_last().expect("some");
        assert_eq!(kept, &blocks[..kept.len()]);
        let left_out = (blocks.len() - kept.len()).to_string();
        assert!(note["text"].as_str().is_some_and(|text| text.contains(&left_out)), "{note}");
    }
}

#[test]
fn case_73_structured_content_is_an_object_or_absent_and_is_error_a_boolean_or_absent() {
    for structured in ["null", "[]", "5", r#""x""#, "true"] {
        let result = shown(&format!(r#"{{"content":[],"structuredContent":{structured}}}"#));
        assert_eq!(result, json!({"content": []}));
    }
    for flag in ["null", "0", r#""true""#, "[]"] {
        assert_eq!(shown(&format!(r#"{{"content":[],"isError":{flag}}}"#)), json!({"content": []}));
    }
    let whole = json!({"content": [], "structuredContent": {}, "isError": false});
    assert_eq!(shown(&whole.to_string()), whole);
    assert_eq!(shown("{}"), json!({"content": []}));
}

#[test]
fn case_87_nothing_but_the_three_keys_of_a_result_reaches_the_host() {
    let result = json!({
        "resultType": "complete", "content": [], "structuredContent": {"resultType": "x", "_meta": 1},
        "isError": false, "_meta": {"a": 1}, "ttlMs": 5, "cacheScope": "public", "unknown": {}, "Content": [],
    });
    let expected =
        json!({"content": [], "structuredContent": {"resultType": "x", "_meta": 1}, "isError": false});
    assert_eq!(shown(&result.to_string()), expected);
}

#[test]
fn content_that_is_no_list_of_blocks_is_a_transport_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for content in [
        "null",
        "{}",
        r#""text""#,
        "[null]",
        "[5]",
        r#"["x"]"#,
        "[[]]",
        "[{}]",
        r#"[{"type":5}]"#,
        r#"[{"text":"x"}]"#,
    ] {
        let text = failed_read(&relay, &mut host, Reply::result_text(&format!(r#"{{"content":{content}}}"#)));
        assert_eq!(text, "transport: invalid answer: content is not a list of blocks", "{content}");
    }
}

#[test]
fn case_10_characters_that_end_lines_for_some_hosts_are_escaped_and_stay_the_same_text() {
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}\u{c}\u{1c}\u{7f}\u{0}e";
    let result = json!({"content": [text_block(text)], "structuredContent": {text: [text]}});
    let line = shown_line(&result.to_string());
    assert!(!line.contains(['\u{2028}', '\u{2029}', '\u{85}']));
    assert!(line.bytes().all(|byte| byte >= 0x20));
    let seen: Value = serde_json::from_str::<Value>(&line).expect("JSON")["result"].take();
    assert_eq!(seen, result);
}

#[test]
fn case_11_half_a_character_becomes_the_replacement_character_wherever_it_stands() {
    let result = r#"{"content":[{"type":"text","text":"x\ud800y"},{"type":"text","text":"\ud83e\udd80\udc00\ud800\\ud800\uD83E"}],
        "structuredContent":{"\udc00":"\uDFFF","k":["\ud800\ud800\udc00"]}}"#;
    let line = shown_line(result);
    let seen: Value = serde_json::from_str(&line).expect("every parser reads it");
    assert_eq!(seen["result"]["content"][0]["text"], "x\u{fffd}y");
    assert_eq!(seen["result"]["content"][1]["text"], "🦀\u{fffd}\u{fffd}\\ud800\u{fffd}");
    assert_eq!(
        seen["result"]["structuredContent"],
        json!({"\u{fffd}": "\u{fffd}", "k": ["\u{fffd}\u{10000}"]})
    );
}

#[test]
fn case_11_half_a_character_in_an_error_is_replaced_too() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for status in [200, 400, 403] {
        let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"x\ud800y\u2028z","data":"\udc00"}}"#;
        let text = failed_read(&relay, &mut host, Reply::json(status, body));
        assert!(text.ends_with(": x\u{fffd}y z"), "{text}");
    }
}

#[test]
fn case_21_a_pretty_printed_answer_is_one_line() {
    let relay = Relay::start(Options::default());
    let pretty = Reply::map(|_, answer| {
        let value: Value = serde_json::from_slice(&answer.body).expect("JSON");
        let text = serde_json::to_string_pretty(&value).expect("JSON").replace('\n', "\r\n");
        Answer::json_text(answer.status, text)
    });
    relay.script_always(Matcher::any(), pretty);
    let mut host = RawHost::start(&relay);
    let listed = host.ask(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let called = host.call("list_rooms", "{}");
    assert!(listed.contains(r#""name":"list_rooms","title":"#) && !listed.contains("  "), "{listed}");
    assert!(
        called.contains(r#""content":[{"text":"{\"rooms\""#) || called.contains(r#""isError":false"#),
        "{called}"
    );
    assert!(![listed, called].concat().contains(['\r', '\t']));
}

#[test]
fn case_74_the_numbers_of_a_result_keep_their_digits() {
    let numbers = r#"{"n":9007199254740993,"m":18446744073709551616,"f":0.10,"e":1E+2,"z":-0,"big":123456789012345678901234567890,"x":1.0,"t":1e-400}"#;
    let line = shown_line(&format!(r#"{{"content":[],"structuredContent":{numbers}}}"#));
    assert!(line.contains(numbers), "{line}");
    let spaced = numbers.replace(',', " ,\n ");
    let line = shown_line(&format!(r#"{{"content":[],"structuredContent":{spaced}}}"#));
    assert!(line.contains(numbers), "{line}");
}

#[test]
fn the_key_order_and_the_urls_of_a_result_are_the_relays() {
    let structured = r#"{"z":"https://127.0.0.1/x","a":"\/r\/acme\/mcp","m":{"b":1,"a":2}}"#;
    let line = shown_line(&format!(r#"{{"isError":false,"structuredContent":{structured},"content":[]}}"#));
    assert!(line.contains(structured), "{line}");
}

#[test]
fn what_the_relay_calls_restricted_is_a_permission_and_nothing_else_changes() {
    let text = |text: &str| json!([text_block(text)]);
    let error = |content: Value, structured: Value| json!({"content": content, "structuredContent": structured, "isError": true});
    let message = |message: &str| json!({"message": message, "x": 1});
    for word in ["restricted: members only", "auth-required: no grant"] {
        let marked = format!("permission: {word}");
        for (result, expected) in [
            (error(text(word), json!({})), error(text(&marked), json!({}))),
            (error(text(word), message(word)), error(text(&marked), message(word))),
            (error(text("failed"), message(word)), error(text(&marked), message(word))),
            (error(json!([]), message(word)), error(text(&marked), message(word))),
            (
                error(
                    json!([{"type": "image", "data": "", "mimeType": "x"}, text_block("a"), text_block("b")]),
                    message(word),
                ),
                error(
                    json!([{"type": "image", "data": "", "mimeType": "x"}, text_block(&marked), text_block("b")]),
                    message(word),
                ),
            ),
            (
                error(json!([text_block("a"), text_block(word)]), json!({})),
                error(json!([text_block("a"), text_block(&marked)]), json!({})),
            ),
        ] {
            assert_eq!(shown(&result.to_string()), expected);
        }
        let unmarked = json!({"content": text(word), "structuredContent": message(word), "isError": false});
        assert_eq!(shown(&unmarked.to_string()), unmarked);
    }
    for other in ["Restricted: x", " restricted: x", "restricted", "error: restricted: x", "invalid: x"] {
        let result = error(text(other), message(other));
        assert_eq!(shown(&result.to_string()), result);
    }
}
