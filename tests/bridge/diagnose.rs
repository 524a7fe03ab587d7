//! Contract 7, reachability and the signed call, row by row: as the tool, which is never an error, and as the command, whose exit status and
//! one line on stderr say the same.

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, PUBKEY, run};
use tinyagent_relay::{Answer, Gate, Grant, Matcher, Options, Relay, Reply, Step};

/// What a diagnosis said: the verdict, the report, and the advice.
pub struct Told {
    pub verdict: String,
    pub advice: String,
    pub report: Value,
}

/// Diagnoses as tool and as command, which must agree, with the tool's arguments and the command's options.
#[track_caller]
pub fn diagnosed_of(relay: &Relay, arguments: &str, options: &[&str]) -> Told {
    let mut host = Host::with(relay, HostOptions::args(&["--timeout", "4"]));
    let answer = host.call("tiny_diagnose", arguments);
    let result = &answer["result"];
    assert_ne!(result["isError"], true, "{answer}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    let mut report = result["structuredContent"].clone();
    let (verdict, advice) = text.split_once(": ").expect("verdict and advice");
    assert_eq!(
        (report["verdict"].as_str(), report["advice"].as_str()),
        (Some(verdict), Some(advice)),
        "{text}"
    );

    let url = relay.url();
    let args = [&["diagnose", "--relay", &url, "--timeout", "4"], options].concat();
    let output = run(&args, &[(KEY_VARIABLE, KEY)]);
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).expect("UTF-8"), String::from_utf8(output.stderr).expect("UTF-8"));
    let mut printed: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"));
    assert!(stdout.starts_with("{\n  \"relay\": ") && stdout.ends_with("}\n"), "not indented: {stdout}");
    let status = match verdict {
        "ok" => 0,
        "needs-grant" | "not-a-member" | "unauthorized" => 2,
        "unreachable" | "error" => 3,
        other => panic!("no verdict: {other}"),
    };
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    let told: Vec<&str> =
        stderr.lines().filter(|line| !line.contains("WARN") && !line.contains("INFO")).collect();
    let expected = format!("tinyagent: {text}");
    assert_eq!(told, if status == 0 { vec![] } else { vec![expected.as_str()] }, "{stderr}");
    for report in [&mut printed, &mut report] {
        // What differs from run to run.
        report["clock_skew_seconds"].take();
        report.as_object_mut().expect("an object").remove("facade");
    }
    assert_eq!(printed, report, "tool and command differ");
    Told { verdict: verdict.into(), advice: advice.into(), report }
}

#[track_caller]
pub fn diagnosed(relay: &Relay) -> Told {
    diagnosed_of(relay, "{}", &[])
}

pub fn relay_answering(reply: Reply) -> Relay {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::path("/manage/rpc"), reply);
    relay
}

pub fn enforcing() -> Relay {
    Relay::start(Options { grants_enforced: true, ..Options::default() })
}

#[test]
fn the_report_of_a_healthy_relay_says_everything_that_the_contract_lists() {
    let relay = enforcing();
    relay.set_grant(PUBKEY, Grant::active(&["general"], &[9]));
    let told = diagnosed(&relay);
    let report = told.report;
    assert_eq!(told.verdict, "ok");
    assert_eq!(report["relay"], relay.url());
    assert_eq!(report["pubkey"], PUBKEY);
    assert_eq!(
        report["transport"],
        json!({"ok": true, "check": "readyz", "status": 200, "class": null, "error": null})
    );
    assert_eq!(report["authentication"], json!({"ok": true, "status": 200, "class": null, "error": null}));
    assert_eq!(
        (&report["member"], &report["role"], &report["state"]),
        (&json!(true), &json!("agent"), &json!("active"))
    );
    assert_eq!(
        (&report["enforced"], &report["rate"], &report["expires"]),
        (&json!(true), &json!(60), &Value::Null)
    );
    assert_eq!(report["allows"], json!({"rooms": ["general"], "kinds": [9]}));
    assert_eq!(report["grant"]["rooms"], json!(["general"]));
    assert!(report["signer"]["hardening"].as_array().is_some_and(|measures| !measures.is_empty()));
    assert!(report.get("needs").is_none() && report.get("missing").is_none());
}

#[test]
fn case_124_the_signed_call_is_a_nip_86_request_with_its_own_media_type_and_a_proof_of_its_body() {
    let relay = Relay::start(Options { prefix: "/r/acme".into(), ..Options::default() });
    for (arguments, options, body) in [
        ("{}", &[][..], r#"{"method":"browsegrant","params":[{}]}"#),
        (
            r#"{"rooms":["general"]}"#,
            &["--rooms", "general"],
            r#"{"method":"browsegrant","params":[{"rooms":["general"]}]}"#,
        ),
        (
            r#"{"kinds":[9,12]}"#,
            &["--kinds", "9,12"],
            r#"{"method":"browsegrant","params":[{"kinds":[9,12]}]}"#,
        ),
        (
            r#"{"kinds":[0],"rooms":["a","b"]}"#,
            &["--kinds", "0", "--rooms", "a, b"],
            r#"{"method":"browsegrant","params":[{"rooms":["a","b"],"kinds":[0]}]}"#,
        ),
    ] {
        relay.clear_requests();
        diagnosed_of(&relay, arguments, options);
        let posts = relay.posts();
        assert_eq!(posts.len(), 2);
        for post in posts {
            assert_eq!(post.target, "/r/acme/manage/rpc");
            assert_eq!(post.header("content-type"), Some("application/nostr+json+rpc"));
            assert_eq!(std::str::from_utf8(&post.body), Ok(body));
            assert!(post.proof.as_ref().is_some_and(|proof| proof.tag("payload").is_some()));
        }
        let probes: Vec<String> =
            relay.requests().iter().filter(|r| r.method == "GET").map(|r| r.target.clone()).collect();
        assert_eq!(probes, ["/r/acme/readyz", "/r/acme/readyz"]);
        assert!(
            relay
                .requests()
                .iter()
                .filter(|r| r.method == "GET")
                .all(|r| r.header("authorization").is_none())
        );
    }
}

#[test]
fn the_relay_is_reachable_by_readyz_or_by_its_information_document() {
    let readyz = || Matcher::path("/readyz");
    let nip11 = || Matcher::path("/").and(|request| request.method == "GET");
    for (ready, information, check, status) in [
        (204, None, "readyz", 204),
        (404, None, "nip11", 200),
        (301, None, "nip11", 200),
        (500, Some(401), "nip11", 401),
        (503, Some(404), "nip11", 404),
        (404, Some(302), "nip11", 302),
        (429, Some(499), "nip11", 499),
    ] {
        let relay = Relay::start(Options::default());
        relay.script_always(readyz(), Reply::http(Answer::new(ready)));
        if let Some(status) = information {
            relay.script_always(nip11(), Reply::http(Answer::new(status)));
        }
        let told = diagnosed(&relay);
        assert_eq!(told.verdict, "ok", "{ready}");
        assert_eq!(
            (&told.report["transport"]["check"], &told.report["transport"]["status"]),
            (&json!(check), &json!(status))
        );
        let asked =
            relay.requests().into_iter().find(|request| request.target == "/" && request.method == "GET");
        assert_eq!(
            asked.and_then(|request| request.header("accept").map(str::to_owned)).as_deref(),
            (check == "nip11").then_some("application/nostr+json")
        );
    }
}

#[test]
fn readiness_that_has_an_odd_body_is_readiness_all_the_same() {
    let odd: [Reply; 4] = [
        Reply::http(Answer::new(200).header("Content-Encoding", "br").body("\u{1}")),
        Reply::http(Answer::new(200).header("Content-Type", "text/event-stream").body(": hello\n\n")),
        Reply::http(Answer::html(200, &"<p>".repeat(1 << 20))),
        Reply::truncated(1),
    ];
    for reply in odd {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::path("/readyz"), reply);
        let told = diagnosed(&relay);
        assert_eq!((told.verdict.as_str(), &told.report["transport"]["check"]), ("ok", &json!("readyz")));
    }
}

#[test]
fn a_relay_that_is_not_ready_is_unreachable_and_asked_for_nothing_signed() {
    for (ready, information) in [(500, 500), (404, 503), (503, 599)] {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::path("/readyz"), Reply::http(Answer::new(ready)));
        relay.script_always(Matcher::path("/"), Reply::http(Answer::new(information)));
        let told = diagnosed(&relay);
        assert_eq!(told.verdict, "unreachable");
        assert_eq!(
            (&told.report["transport"]["ok"], &told.report["transport"]["class"]),
            (&json!(false), &json!("transport"))
        );
        assert_eq!(told.report["transport"]["status"], information);
        assert!(relay.posts().is_empty());
    }
}

#[test]
fn a_relay_that_hangs_closes_or_is_not_there_is_unreachable() {
    for reply in
        [Reply::hang(), Reply::close(), Reply::reset(), Reply::raw("SSH-2.0-x\r\n"), Reply::endless_head()]
    {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::any(), reply);
        let told = diagnosed(&relay);
        assert_eq!(
            (told.verdict.as_str(), &told.report["transport"]["class"]),
            ("unreachable", &json!("transport"))
        );
        assert!(relay.posts().is_empty());
    }
    let relay = Relay::start(Options::default());
    let url = relay.url();
    drop(relay);
    let output = run(&["diagnose", "--relay", &url], &[(KEY_VARIABLE, KEY)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.starts_with("tinyagent: unreachable: ") && stderr.contains("Connection refused"),
        "{stderr}"
    );
}

#[test]
fn a_report_for_people_is_a_few_lines_that_end_with_what_to_do() {
    let relay = Relay::start(Options::default());
    let said = |url: &str| {
        let output = run(&["diagnose", "--relay", url, "--human"], &[(KEY_VARIABLE, KEY)]);
        assert_eq!(output.stderr, b"");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let url = relay.url();
    let (status, text) = said(&url);
    assert!(status == Some(0) && text.lines().count() < 24, "{text}");
    assert!(text.contains(&format!("key        {PUBKEY}\nreachable  ok\nsignature  ok\n")), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("ok: ")), "{text}");
    drop(relay);
    let (status, text) = said(&url);
    assert_eq!(status, Some(3));
    assert!(
        text.contains("\nreachable  no: cannot connect to ") && text.contains("\nsignature  not tried\n"),
        "{text}"
    );
    assert!(text.lines().last().is_some_and(|line| line.starts_with("unreachable: ")), "{text}");
}

#[test]
fn case_124_each_answer_to_the_signed_call_has_its_class_and_verdict() {
    let error = |status: u16, text: &str| Reply::json(status, &json!({"error": text}).to_string());
    let bare = |status: u16| Reply::http(Answer::new(status));
    let html = |status: u16| Reply::http(Answer::html(status, "<html><body>a page</body></html>"));
    let ok = |body: &str| Reply::json(200, body);
    let (authorization, protocol, transport) =
        (json!("authorization"), json!("protocol"), json!("transport"));
    for (reply, class, verdict) in [
        (error(401, "authorization required"), &authorization, "unauthorized"),
        (bare(401), &authorization, "unauthorized"),
        (html(401), &authorization, "unauthorized"),
        (error(403, "restricted: not you"), &authorization, "unauthorized"),
        (bare(403), &authorization, "unauthorized"),
        (error(403, "restricted: this relay is members-only"), &authorization, "not-a-member"),
        (error(403, "Members only"), &authorization, "not-a-member"),
        (error(400, "unsupported: method browsegrant"), &Value::Null, "ok"),
        (error(400, "method unsupported: browsegrant"), &protocol, "error"),
        (error(400, "Unsupported: x"), &protocol, "error"),
        (error(400, "unsupported"), &protocol, "error"),
        (bare(400), &protocol, "error"),
        (error(404, "unsupported: x"), &protocol, "error"),
        (html(404), &protocol, "error"),
        (bare(405), &protocol, "error"),
        (bare(415), &protocol, "error"),
        (bare(418), &protocol, "error"),
        (bare(451), &protocol, "error"),
        (Reply::redirect(301, "https://relay.test/"), &protocol, "error"),
        (Reply::redirect(308, "/x"), &protocol, "error"),
        (bare(429), &json!("rate-limited"), "unreachable"),
        (error(429, "slow down"), &json!("rate-limited"), "unreachable"),
        (error(500, "disk full"), &transport, "unreachable"),
        (html(502), &transport, "unreachable"),
        (bare(503), &transport, "unreachable"),
        (bare(202), &transport, "unreachable"),
        (bare(204), &transport, "unreachable"),
        (bare(200), &transport, "unreachable"),
        (html(200), &transport, "unreachable"),
        (ok("{"), &transport, "unreachable"),
        (ok("{}"), &transport, "unreachable"),
        (ok("[]"), &transport, "unreachable"),
        (ok(r#"{"error":"x"}"#), &transport, "unreachable"),
        (ok(r#"{"result":{},"error":"x"}"#), &transport, "unreachable"),
        (ok(r#"{"result":null}"#), &transport, "unreachable"),
        (ok(r#"{"result":[]}"#), &transport, "unreachable"),
        (ok(r#"{"result":"yes"}"#), &transport, "unreachable"),
        (
            ok(&format!(r#"{{"result":{}{}}}"#, r#"{"a":"#.repeat(100_000), "}".repeat(100_000))),
            &transport,
            "unreachable",
        ),
        (Reply::hang(), &transport, "unreachable"),
        (Reply::close(), &transport, "unreachable"),
        (Reply::truncated(5), &transport, "unreachable"),
        (Reply::encoded("br"), &transport, "unreachable"),
        (
            Reply::steps([
                Step::Write(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{".to_vec()),
                Step::Close,
            ]),
            &transport,
            "unreachable",
        ),
    ] {
        let relay = relay_answering(reply);
        let told = diagnosed(&relay);
        assert_eq!(
            (told.verdict.as_str(), &told.report["authentication"]["class"]),
            (verdict, class),
            "{}",
            told.advice
        );
        assert_eq!(told.report["authentication"]["ok"], verdict == "ok");
        assert!(!told.advice.contains(['<', '\n']), "{}", told.advice);
        assert_eq!(relay.posts().len(), 2, "each diagnosis asks once");
    }
}

#[test]
fn a_rate_limit_says_to_retry_later_and_a_redirect_is_not_followed() {
    assert!(diagnosed(&relay_answering(Reply::http(Answer::new(429)))).advice.contains("retry later"));
    let other = Relay::start(Options::default());
    let told = diagnosed(&relay_answering(Reply::redirect(307, &format!("{}/manage/rpc", other.url()))));
    let (said, todo) = ("307", "give --relay the URL it leads to");
    assert!(told.advice.contains(said) && told.advice.contains(todo), "{}", told.advice);
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_diagnosis_does_not_wait_for_calls_and_calls_do_not_wait_for_it() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(Matcher::tool("list_rooms"), Reply::hold(&gate));
    let mut host = Host::start(&relay);
    let call = host.begin_call("list_rooms", "{}");
    assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
    gate.open();
    assert_eq!(host.answer(call)["result"]["isError"], false);
    let gate = Gate::new();
    relay.script(Matcher::path("/manage/rpc"), Reply::hold(&gate));
    let diagnosis = host.begin_call("tiny_diagnose", "{}");
    assert_eq!(host.call("list_rooms", "{}")["result"]["isError"], false);
    gate.open();
    assert!(host.answer(diagnosis)["result"]["structuredContent"]["verdict"] == "ok");
}
