use super::*;

fn check(text: &str) -> Result<Traits, JsonError> {
    Json::check(text.as_bytes()).map(|(_, traits)| traits)
}

#[test]
fn accepts_exactly_what_serde_json_accepts_on_the_grammar_s_edges() {
    for text in [
        "",
        " ",
        "0",
        "-0",
        "-",
        "01",
        "1.",
        "1.0",
        ".5",
        "1e",
        "1e+",
        "1E+2",
        "1e400",
        "-1.5e-7",
        "true",
        "tru",
        "nul",
        "null",
        "[]",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1}x",
        "{}{}",
        "\"\\u12\"",
        "\"\\x\"",
        "\"\u{1}\"",
        "\"tab\there\"",
        "\"\\ud83e\\udd80\"",
        "[{\"a\":[{}]}]",
        "]",
        "}",
        "[}",
        "{]",
        "\"open",
        "\u{feff}1",
        "+1",
        "NaN",
        "[1]]",
        "\t[ 1 , 2 ]\r\n",
        "\"é\u{2028}\"",
        "1 1",
        "--1",
        "1.e1",
        "{\"a\":1 \"b\":2}",
    ] {
        let ours = check(text).is_ok();
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
        assert_eq!(ours, theirs, "{text:?}");
    }
}

#[test]
fn nesting_ends_at_the_limit_and_never_on_the_stack() {
    let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(check(&nest(MAX_DEPTH)).is_ok());
    assert_eq!(check(&nest(MAX_DEPTH + 1)), Err(JsonError::Depth));
    assert_eq!(check(&"{\"a\":".repeat(1_000_000)), Err(JsonError::Depth));
    let mixed = "[{\"a\":".repeat(256) + "1" + &"}]".repeat(256);
    assert!(check(&mixed).is_ok());
}

#[test]
fn notices_surrogates_separators_and_space() {
    let none = Traits::default();
    assert_eq!(check(r#"{"a":"\ud83e\udd80 \\ud800"}"#), Ok(none));
    for lone in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\ud800x""#, r#""\ud800\u0041""#] {
        assert_eq!(check(lone), Ok(Traits { lone_surrogate: true, ..none }), "{lone}");
    }
    for separator in ["\"\u{85}\"", "\"\u{2028}\"", "\"a\u{2029}b\""] {
        assert_eq!(check(separator), Ok(Traits { line_separator: true, ..none }));
    }
    assert_eq!(check("\"\u{2027}\u{86}\""), Ok(none));
    assert_eq!(check("{ \"a\":1}"), Ok(Traits { spaced: true, ..none }));
    assert_eq!(check(" {\"a\":1} \n"), Ok(none));
}

#[test]
fn reads_members_and_elements_in_place() {
    let text = br#" {"a" : [1, {"b":"}]"}, "x"] , "n\u0061me":"q\"\\\n\ud83e\udd80","c":-1.5e3,"d":{}} "#;
    let (json, _) = Json::check(text).expect("valid");
    let members: Vec<_> = json.members().map(|(k, v)| (k.into_owned(), v.text().to_owned())).collect();
    assert_eq!(members[0], ("a".into(), r#"[1, {"b":"}]"}, "x"]"#.into()));
    assert_eq!(members[1].0, "name");
    assert_eq!(json.get("name").and_then(Json::as_str).as_deref(), Some("q\"\\\n🦀"));
    assert_eq!(members[2].1, "-1.5e3");
    assert_eq!(members[3].1, "{}");
    let elements: Vec<_> = json.get("a").expect("a").elements().map(Json::text).collect();
    assert_eq!(elements, ["1", r#"{"b":"}]"}"#, r#""x""#]);
    assert_eq!(json.get("d").expect("d").members().count(), 0);
    assert_eq!(json.repeated_key(), None);
}

#[test]
fn sees_a_repeated_key_through_its_escapes() {
    let (json, _) = Json::check(br#"{"name":1,"n\u0061me":2}"#).expect("valid");
    assert_eq!(json.repeated_key().as_deref(), Some("name"));
}

#[test]
fn integers_are_digits_alone() {
    let number = |text: &'static str| Json::check(text.as_bytes()).expect("valid").0.as_u64();
    assert_eq!(number("9"), Some(9));
    for other in ["9.0", "\"9\"", "-1", "-0", "9e0", "18446744073709551616", "true"] {
        assert_eq!(number(other), None, "{other}");
    }
}

#[test]
fn finds_a_repeated_key_among_many() {
    let many: Vec<String> = (0..100).map(|n| format!("\"k{n}\":{n}")).collect();
    let once = format!("{{{}}}", many.join(","));
    let (json, _) = Json::check(once.as_bytes()).expect("valid");
    assert_eq!(json.repeated_key(), None);
    let twice = format!("{{{},\"k7\":0}}", many.join(","));
    let (json, _) = Json::check(twice.as_bytes()).expect("valid");
    assert_eq!(json.repeated_key().as_deref(), Some("k7"));
}

/// Every object of up to five members with three keys in two spellings each, behind as many other members
/// as lead up to the point where keys are compared in another way, and beyond it.
#[test]
fn fields_finds_what_get_finds_and_the_first_key_that_is_repeated() {
    const SPELLINGS: [&str; 6] = ["a", "b", "", "\\u0061", "\\u0062", "bb"];
    for others in [0, FEW_KEYS - 5, FEW_KEYS - 3, FEW_KEYS, FEW_KEYS + 2] {
        for members in 0..=5 {
            for choice in 0..SPELLINGS.len().pow(members) {
                let chosen =
                    (0..members).map(|at| SPELLINGS[choice / SPELLINGS.len().pow(at) % SPELLINGS.len()]);
                let keys: Vec<String> =
                    (0..others).map(|n| n.to_string()).chain(chosen.map(Into::into)).collect();
                let text: Vec<String> =
                    keys.iter().enumerate().map(|(n, key)| format!("\"{key}\":{n}")).collect();
                let text = format!("{{{}}}", text.join(","));
                let (json, _) = Json::check(text.as_bytes()).expect("valid");
                let keys: Vec<Cow<'_, str>> = json.members().map(|(key, _)| key).collect();
                let repeated = (0..keys.len()).find(|at| keys[..*at].contains(&keys[*at]));
                let fields = json.fields(["b", "a", "none", "0"]);
                let value = |key: &str| json.get(key).map(Json::text);
                assert_eq!(
                    fields.values.map(|v| v.map(Json::text)),
                    ["b", "a", "none", "0"].map(value),
                    "{text}"
                );
                assert_eq!(fields.repeated.as_ref(), repeated.map(|at| &keys[at]), "{text}");
                assert_eq!(json.repeated_key(), fields.repeated, "{text}");
            }
        }
    }
    for other in ["[]", "null", "5", "\"a\""] {
        let (json, _) = Json::check(other.as_bytes()).expect("valid");
        let fields = json.fields(["a"]);
        assert!(fields.values[0].is_none() && fields.repeated.is_none(), "{other}");
    }
}
