use super::*;

fn host(relay: &str) -> serde_json::Value {
    let bytes = Bytes::from(clean(relay));
    let line = HostResult::from_relay(&bytes).expect("a result").into_pieces().concat();
    assert!(!line.contains(&b'\n'));
    serde_json::from_slice(&line).expect("JSON")
}

#[test]
fn cleans_space_half_characters_and_separators() {
    let dirty = "{ \"a\" : [ 1 ,\r\n\t\"x \\ud800y \\ud83e\\udd80 \\\\ud800 \\\" \u{2028}\u{85}\" ] , \"\\udc00\" : { } }";
    let cleaned = clean(dirty);
    assert_eq!(
        cleaned,
        "{\"a\":[1,\"x \\ufffdy \\ud83e\\udd80 \\\\ud800 \\\" \\u2028\\u0085\"],\"\\ufffd\":{}}"
    );
    assert_eq!(Json::check(cleaned.as_bytes()).map(|(_, traits)| traits), Ok(Default::default()));
}

#[test]
fn passes_known_keys_alone() {
    let got = host(
        r#"{"resultType":"complete","content":[{"type":"text","text":"hi"}],"structuredContent":null,"isError":null,
        "ttlMs":5,"cacheScope":"private","_meta":{},"other":1}"#,
    );
    assert_eq!(got, serde_json::json!({"content": [{"type": "text", "text": "hi"}]}));
    for other in [r#"{"content":"x"}"#, r#"{"content":[1]}"#] {
        assert!(HostResult::from_relay(&Bytes::from_static(other.as_bytes())).is_err(), "{other}");
    }
}

#[test]
fn cuts_text_at_the_byte_and_on_a_character() {
    let text = |text: &str| {
        host(&format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#))["content"][0]["text"].clone()
    };
    let exact = "a".repeat(TEXT_LIMIT_BYTES);
    assert_eq!(text(&exact), exact);
    assert_eq!(text(&(exact.clone() + "b")), format!("{exact}\n[truncated: 65536 of 65537 bytes shown]"));
    let crab = "a".repeat(TEXT_LIMIT_BYTES - 2) + "🦀";
    let cut = "a".repeat(TEXT_LIMIT_BYTES - 2) + "\n[truncated: 65534 of 65538 bytes shown]";
    assert_eq!(text(&crab), cut);
}

#[test]
fn replaces_structured_content_past_its_limit() {
    let of = |bytes: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
    let whole = host(&format!(r#"{{"content":[],"structuredContent":{}}}"#, of(STRUCTURED_LIMIT_BYTES)));
    assert!(whole["structuredContent"]["a"].is_string());
    let cut = host(&format!(r#"{{"structuredContent": {}}}"#, of(STRUCTURED_LIMIT_BYTES + 1)));
    assert_eq!(cut["structuredContent"], serde_json::json!({"truncated": true, "bytes": 262_145}));
    let note = "[structuredContent truncated: 262145 bytes exceeds the 262144 byte limit]";
    assert_eq!(cut["content"][0]["text"], note);
    let both = host(&format!(
        r#"{{"content":[{{"type":"image","data":""}},{{"type":"text","text":"hi"}}],"structuredContent":{}}}"#,
        of(STRUCTURED_LIMIT_BYTES + 1)
    ));
    assert_eq!(both["content"][1]["text"], format!("hi\n{note}"));
}

#[test]
fn marks_permission_where_the_relay_said_it() {
    let texts = |relay: &str| {
        let got = host(relay);
        let blocks = got["content"].as_array().expect("blocks").clone();
        blocks.iter().map(|block| block["text"].as_str().unwrap_or("-").to_owned()).collect::<Vec<_>>()
    };
    let restricted = r#"{"type":"text","text":"restricted: no"}"#;
    let plain = r#"{"type":"text","text":"no"}"#;
    assert_eq!(
        texts(&format!(r#"{{"isError":true,"content":[{plain},{restricted}]}}"#)),
        ["no", "permission: restricted: no"]
    );
    assert_eq!(texts(&format!(r#"{{"content":[{restricted}]}}"#)), ["restricted: no"]);
    let message = r#""structuredContent":{"message":"auth-required: key"}"#;
    assert_eq!(
        texts(&format!(
            r#"{{"isError":true,{message},"content":[{{"type":"image"}},{plain},{restricted}]}}"#
        )),
        ["-", "permission: auth-required: key", "restricted: no"]
    );
    assert_eq!(texts(&format!(r#"{{"isError":true,{message}}}"#)), ["permission: auth-required: key"]);
}

#[test]
fn a_line_stays_under_its_limit() {
    let image = |n: usize| format!(r#"{{"type":"image","data":"{}"}}"#, "A".repeat(n));
    let line = |blocks: &str| {
        let bytes = Bytes::from(format!(r#"{{"content":[{blocks}]}}"#));
        HostResult::from_relay(&bytes).expect("a result").into_pieces().concat()
    };
    assert!(line(&image(4 << 20)).len() > 4 << 20);
    let two = line(&[image(5 << 20), image(4 << 20)].join(","));
    assert!(two.len() > 4 << 20 && two.len() < 5 << 20);
    let text = format!(r#"{{"type":"text","text":"{}"}}"#, "a".repeat(60_000));
    let many = line(&vec![text; 200].join(","));
    assert!(many.len() < LINE_LIMIT_BYTES && many.len() > 7 << 20);
    let tiny = line(&vec![r#"{"type":"image"}"#; 1_000_000].join(","));
    assert!(tiny.len() < LINE_LIMIT_BYTES);
}
