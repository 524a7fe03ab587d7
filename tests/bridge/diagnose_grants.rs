//! Contract 7: membership, grants, the clock, and what a diagnosis may be asked.

use serde_json::{Value, json};
use tinyagent_harness::{Host, KEY, KEY_VARIABLE, PUBKEY, run};
use tinyagent_relay::{Answer, Grant, GrantState, Matcher, Membership, Options, Relay, Reply, Role, clock};

use crate::diagnose::{diagnosed, diagnosed_of, enforcing, relay_answering};
use crate::outcome::error_text;

#[test]
fn a_key_that_is_no_member_is_told_so() {
    for membership in [Membership::Listed, Membership::MembersOnly] {
        let relay = Relay::start(Options { membership, grants_enforced: true, ..Options::default() });
        let told = diagnosed(&relay);
        assert_eq!(told.verdict, "not-a-member", "{membership:?}");
        assert!(
            told.advice.ends_with(&format!("ask its owner to add the pubkey {PUBKEY}")),
            "{}",
            told.advice
        );
        relay.set_role(PUBKEY, Role::Agent);
        assert_eq!(diagnosed(&relay).verdict, "needs-grant");
        relay.set_role(PUBKEY, Role::Moderator);
        assert_eq!(diagnosed(&relay).verdict, "ok");
    }
}

#[test]
fn each_state_of_a_grant_has_its_verdict_and_advice() {
    let relay = enforcing();
    assert!(diagnosed(&relay).advice.contains("no grant"));
    relay.set_grant(PUBKEY, Grant::active(&["general"], &[9]));
    for (state, verdict, word) in [
        (GrantState::Active, "ok", "active"),
        (GrantState::Paused, "needs-grant", "paused"),
        (GrantState::Revoked, "needs-grant", "revoked"),
        (GrantState::Expired, "needs-grant", "expired"),
        (GrantState::Active, "ok", "active"),
    ] {
        relay.set_grant_state(PUBKEY, state);
        let told = diagnosed(&relay);
        assert_eq!((told.verdict.as_str(), &told.report["state"]), (verdict, &json!(word)));
        assert!(told.advice.contains(word), "{}", told.advice);
    }
    relay.enforce_grants(false);
    relay.set_grant_state(PUBKEY, GrantState::Revoked);
    let told = diagnosed(&relay);
    assert_eq!(
        (told.verdict.as_str(), &told.report["enforced"], &told.report["state"]),
        ("ok", &json!(false), &json!("revoked"))
    );
}

#[test]
fn what_the_grant_lacks_is_named_and_asked_for() {
    let relay = enforcing();
    relay.set_grant(PUBKEY, Grant::active(&["general"], &[9, 11]));
    for (arguments, options, missing, verdict, advice) in [
        (
            r#"{"rooms":["general"],"kinds":[9]}"#,
            &["--rooms", "general", "--kinds", "9"][..],
            json!({"rooms": [], "kinds": []}),
            "ok",
            "",
        ),
        (
            r#"{"rooms":["general","ops"]}"#,
            &["--rooms", "general,ops"],
            json!({"rooms": ["ops"], "kinds": []}),
            "needs-grant",
            "call request_grant with rooms ops",
        ),
        (
            r#"{"kinds":[9,12,1111]}"#,
            &["--kinds", "9,12,1111"],
            json!({"rooms": [], "kinds": [12, 1111]}),
            "needs-grant",
            "call request_grant with kinds 12, 1111",
        ),
        (
            r#"{"rooms":["ops","lab"],"kinds":[7]}"#,
            &["--rooms", "ops,lab", "--kinds", "7"],
            json!({"rooms": ["ops", "lab"], "kinds": [7]}),
            "needs-grant",
            "call request_grant with rooms ops, lab and kinds 7",
        ),
    ] {
        let told = diagnosed_of(&relay, arguments, options);
        assert_eq!((told.verdict.as_str(), &told.report["missing"]), (verdict, &missing), "{arguments}");
        assert!(told.advice.contains(advice), "{}", told.advice);
        assert!(told.report["needs"].is_object());
    }
    relay.enforce_grants(false);
    assert_eq!(diagnosed_of(&relay, r#"{"rooms":["ops"]}"#, &["--rooms", "ops"]).verdict, "ok");
}

#[test]
fn what_is_missing_is_worked_out_where_the_relay_does_not_say_it() {
    let result = json!({"result": {"member": true, "enforced": true, "state": "active", "grant": {}, "allows": {"rooms": ["general"], "kinds": [9]}}});
    let relay = relay_answering(Reply::json(200, &result.to_string()));
    let told = diagnosed_of(
        &relay,
        r#"{"rooms":["general","ops"],"kinds":[9,7]}"#,
        &["--rooms", "general,ops", "--kinds", "9,7"],
    );
    assert_eq!(
        (told.verdict.as_str(), &told.report["missing"]),
        ("needs-grant", &json!({"rooms": ["ops"], "kinds": [7]}))
    );
}

#[test]
fn a_result_of_odd_types_is_read_as_far_as_it_goes() {
    for result in [
        json!({"member": "yes", "enforced": 1, "state": 5, "role": [], "grant": 5, "allows": [], "rate": "x", "expires": {}}),
        json!({"member": null, "enforced": null, "state": "unheard-of", "missing": {"rooms": 5, "kinds": ["9"]}}),
        json!({"state": "active\u{2028}", "role": "a\nb", "grant": {"\u{85}": 1}}),
    ] {
        let relay = relay_answering(Reply::json(200, &json!({"result": result}).to_string()));
        let told = diagnosed_of(&relay, r#"{"rooms":["a"]}"#, &["--rooms", "a"]);
        assert_eq!(told.report["authentication"]["ok"], true);
    }
}

#[test]
fn a_report_over_the_bound_is_cut_like_every_other_result() {
    let result = json!({"result": {"member": true, "enforced": false, "grant": {"x": "g".repeat(300_000)}}});
    let relay = relay_answering(Reply::json(200, &result.to_string()));
    let answer = Host::start(&relay).call("tiny_diagnose", "{}");
    assert_eq!(answer["result"]["structuredContent"]["truncated"], true);
    let text = answer["result"]["content"][0]["text"].as_str().expect("a text");
    assert!(text.starts_with("ok: ") && text.contains("[structuredContent truncated: "), "{text}");
}

#[test]
fn a_clock_that_is_off_is_named_where_the_signature_was_refused() {
    for (offset, said) in
        [(-300, "300 s ahead of"), (300, "300 s behind"), (-90, "90 s ahead of"), (3600, "3600 s behind")]
    {
        let relay = Relay::start(Options { clock_offset: offset, ..Options::default() });
        let output = run(&["diagnose", "--relay", &relay.url()], &[(KEY_VARIABLE, KEY)]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let advice = report["advice"].as_str().expect("advice");
        let skew = report["clock_skew_seconds"].as_i64().expect("a skew");
        assert!((skew + offset).abs() <= 2, "{skew}");
        // A second may have passed since the relay wrote its date.
        let near =
            |delta: i64| said.replacen(&offset.abs().to_string(), &(offset.abs() + delta).to_string(), 1);
        assert!((-2..=2).any(|delta| advice.contains(&near(delta))), "{advice}");
        assert_eq!((output.status.code(), &report["verdict"]), (Some(2), &json!("unauthorized")));
    }
}

#[test]
fn a_small_skew_and_one_that_did_no_harm_are_reported_and_not_blamed() {
    for (offset, reply) in [(-10, Some(Reply::http(Answer::new(401)))), (-50, None)] {
        let relay = Relay::start(Options { clock_offset: offset, ..Options::default() });
        if let Some(reply) = reply {
            relay.script_always(Matcher::path("/manage/rpc"), reply);
        }
        let output = run(&["diagnose", "--relay", &relay.url()], &[(KEY_VARIABLE, KEY)]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!((report["clock_skew_seconds"].as_i64().expect("a skew") + offset).abs() <= 2);
        assert!(report["advice"].as_str().is_some_and(|advice| !advice.contains("clock")), "{report}");
    }
    let date = clock::http_date(0);
    let relay =
        relay_answering(Reply::map(move |_, answer| answer.header("Date", &date.replace("1970", "soon"))));
    relay.script_always(Matcher::path("/readyz"), Reply::http(Answer::new(200).header("Date", "")));
    let report = Host::start(&relay).call("tiny_diagnose", "{}")["result"]["structuredContent"].take();
    assert_eq!((&report["clock_skew_seconds"], &report["verdict"]), (&Value::Null, &json!("ok")));
}

#[test]
fn a_bad_argument_is_a_tool_error_that_names_the_field() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let many = format!("[{}1]", "1,".repeat(1024));
    for (field, values) in [
        (
            "rooms",
            vec![
                "5",
                "\"general\"",
                "{}",
                "true",
                "[5]",
                "[null]",
                "[\"\"]",
                "[\" \"]",
                "[\"a\",\"\\t\\n\"]",
                "[[\"a\"]]",
                r#"["\ud800"]"#,
            ],
        ),
        (
            "kinds",
            vec![
                "9",
                "\"9\"",
                "{}",
                "false",
                "[\"9\"]",
                "[-1]",
                "[65536]",
                "[9.0]",
                "[9.5]",
                "[1e3]",
                "[null]",
                "[[9]]",
                "[99999999999999999999]",
                &many,
            ],
        ),
    ] {
        for value in values {
            let answer = host.call("tiny_diagnose", &format!(r#"{{"{field}":{value}}}"#));
            assert!(error_text(&answer).starts_with(&format!("{field} must be an array of ")), "{answer}");
        }
    }
    assert!(relay.requests().is_empty());
    for good in [
        "{}",
        r#"{"rooms":null,"kinds":null}"#,
        r#"{"rooms":[],"kinds":[]}"#,
        r#"{"kinds":[0,65535]}"#,
        r#"{"other":5}"#,
    ] {
        assert!(host.text("tiny_diagnose", good).starts_with("ok: "), "{good}");
    }
}

#[test]
fn a_bad_option_is_a_usage_error_that_names_it() {
    for options in [
        ["--kinds", "nine"],
        ["--kinds", "65536"],
        ["--kinds", "9,-1"],
        ["--kinds", "9.0"],
        ["--kinds", "9;12"],
    ] {
        let output = run(
            &[&["diagnose", "--relay", "http://127.0.0.1:1"], &options[..]].concat(),
            &[(KEY_VARIABLE, KEY)],
        );
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains("kinds"), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}
