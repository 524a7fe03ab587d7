//! Contract 4's table of HTTP statuses: what the host is told, how often the relay was asked, and that
//! nothing is ever sent where a redirect points.

use std::time::{Duration, Instant};
use tinyagent_harness::Host;
use tinyagent_relay::{Answer, Matcher, Options, Relay, Reply, clock};

use crate::outcome::{assert_answered, error_text, failed_read, failed_submission};

/// A page such as proxies serve, far larger than any message.
fn page(status: u16) -> Reply {
    let filler = "<p>Bad gateway &amp; more</p>\n".repeat(11_000);
    Reply::http(Answer::html(status, &format!("<!DOCTYPE html>\n<html>{filler}</html>")))
}

fn empty(status: u16) -> Reply {
    Reply::http(Answer::new(status))
}

fn plain(status: u16, text: &str) -> Reply {
    Reply::http(Answer::new(status).header("Content-Type", "text/plain").body(text))
}

/// A JSON-RPC error without an id, as the relay's 401, 403 and 413 are.
fn without_id(status: u16, message: &str) -> Reply {
    Reply::json(status, &format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{message}"}}}}"#))
}

#[test]
fn cases_95_to_97_each_status_gets_the_contracts_prefix_and_one_short_line() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let challenge = Answer::new(401).header("WWW-Authenticate", "Nostr realm=\"tiny\"");
    let rows: Vec<(Reply, &str)> = vec![
        (without_id(401, "the token was used before"), "permission: the token was used before"),
        (Reply::error(401, -32000, "no"), "permission: no"),
        (Reply::http(challenge), "permission: HTTP 401 Unauthorized"),
        (page(401), "permission: HTTP 401 Unauthorized"),
        (without_id(403, "restricted: members only"), "permission: restricted: members only"),
        (plain(403, "members\r\n only\n"), "permission: members only"),
        (Reply::json(403, r#"{"error":"blocked"}"#), "permission: blocked"),
        (Reply::json(403, r#"{"message":"blocked"}"#), "permission: blocked"),
        (empty(403), "permission: HTTP 403 Forbidden"),
        (page(403), "permission: HTTP 403 Forbidden"),
        (Reply::error(404, -32601, "Method not found: x"), "relay: Method not found: x"),
        (empty(404), "transport: HTTP 404 Not Found"),
        (page(404), "transport: HTTP 404 Not Found"),
        (Reply::error(400, -32602, "room is missing"), "relay: room is missing"),
        (Reply::error(400, -32602, ""), "relay: error -32602"),
        (Reply::error(400, -32602, "a\n<b>\tc"), "relay: a <b> c"),
        (plain(400, "nope"), "transport: HTTP 400 Bad Request"),
        (empty(405), "transport: HTTP 405 Method Not Allowed"),
        (without_id(413, "too large"), "relay: too large"),
        (empty(413), "transport: HTTP 413 Payload Too Large"),
        (without_id(406, "Accept must include it"), "relay: Accept must include it"),
        (empty(406), "transport: HTTP 406 Not Acceptable"),
        (without_id(415, "Content-Type must be it"), "relay: Content-Type must be it"),
        (page(415), "transport: HTTP 415 Unsupported Media Type"),
        (empty(418), "transport: HTTP 418 I'm a teapot"),
        (empty(499), "transport: HTTP 499"),
        (empty(500), "transport: HTTP 500 Internal Server Error"),
        (Reply::error(500, -32603, "disk full"), "transport: HTTP 500 Internal Server Error: disk full"),
        (page(502), "transport: HTTP 502 Bad Gateway"),
        (empty(503), "transport: HTTP 503 Service Unavailable"),
        (plain(504, "upstream timed out"), "transport: HTTP 504 Gateway Timeout"),
        (empty(599), "transport: HTTP 599"),
        (empty(201), "transport: HTTP 201 Created instead of an answer"),
        (empty(202), "transport: HTTP 202 Accepted instead of an answer"),
        (empty(204), "transport: HTTP 204 No Content instead of an answer"),
        (
            Reply::json(206, r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#),
            "transport: HTTP 206 Partial Content instead of an answer",
        ),
        (empty(200), "transport: invalid answer: HTTP 200 with an empty body"),
        (page(200), "transport: invalid answer: HTTP 200 with a page instead of JSON"),
    ];
    for (reply, expected) in rows {
        assert_eq!(failed_read(&relay, &mut host, reply), expected);
    }
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn a_refusal_is_one_whatever_its_body_is_like() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let broken: [fn(Answer) -> Answer; 4] = [
        |answer| answer.header("Content-Encoding", "br").body("\u{1}\u{2}"),
        |answer| answer.header("Content-Encoding", "gzip").body("no gzip at all"),
        |answer| answer.header("Content-Type", "text/event-stream").body(": no event\n\n"),
        |answer| answer.header("Content-Type", "text/html").body("a".repeat(40 << 20)),
    ];
    for body in broken {
        for (status, expected) in [
            (401, "permission: HTTP 401 Unauthorized"),
            (403, "permission: HTTP 403 Forbidden"),
            (404, "transport: HTTP 404 Not Found"),
            (429, "relay: rate limited; retry after 7 s"),
            (502, "transport: HTTP 502 Bad Gateway"),
        ] {
            let answer = body(Answer::new(status)).header("Retry-After", "7");
            assert_eq!(failed_read(&relay, &mut host, Reply::http(answer)), expected);
        }
    }
}

#[test]
fn case_96_a_rate_limit_names_the_wait_where_it_is_sane_and_is_not_retried() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let limited = |after: &str| {
        let page = Answer::html(429, "<html>slow down</html>");
        Reply::http(if after.is_empty() { page } else { page.header("Retry-After", after) })
    };
    for (after, expected) in [
        ("", "relay: rate limited"),
        ("2", "relay: rate limited; retry after 2 s"),
        (" 120 ", "relay: rate limited; retry after 120 s"),
        ("1000000000", "relay: rate limited"),
        ("1e9", "relay: rate limited"),
        ("-5", "relay: rate limited"),
        ("soon", "relay: rate limited"),
        ("99999999999999999999999", "relay: rate limited"),
        ("Thu, 01 Jan 1970 00:00:00 GMT", "relay: rate limited"),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "relay: rate limited"),
    ] {
        assert_eq!(failed_read(&relay, &mut host, limited(after)), expected, "{after:?}");
    }
    let date = clock::http_date(clock::unix_now() + 600);
    let text = failed_read(&relay, &mut host, limited(&date));
    let wait =
        text.strip_prefix("relay: rate limited; retry after ").and_then(|rest| rest.strip_suffix(" s"));
    let wait: u64 = wait.and_then(|wait| wait.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    assert!((500..=601).contains(&wait), "{wait}");
    let error = Reply::map(|request, _| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32000,"message":"ten a minute"}}}}"#,
            request.rpc_id()
        );
        Answer::json_text(429, body).header("Retry-After", "30")
    });
    assert_eq!(failed_read(&relay, &mut host, error), "relay: ten a minute; retry after 30 s");
    host.assert_alive();
}

#[test]
fn cases_93_and_94_a_redirect_is_named_and_neither_followed_nor_told_anything() {
    let (relay, other) = (Relay::start(Options::default()), Relay::start(Options::default()));
    let mut host = Host::start(&relay);
    let elsewhere = format!("{}/mcp", other.url());
    let targets = [
        (format!("{}/mcp?next=1", relay.url()), format!("{}/mcp", relay.url())),
        (elsewhere.clone(), elsewhere.clone()),
        ("/elsewhere".into(), "/elsewhere".into()),
        ("//relay.test/x".into(), "//relay.test/x".into()),
        ("data:text/html,<b>".into(), "data:text/html,<b>".into()),
    ];
    for status in [300, 301, 302, 303, 304, 305, 307, 308] {
        for (location, shown) in &targets {
            let text = failed_read(&relay, &mut host, Reply::redirect(status, location));
            assert!(text.starts_with(&format!("transport: HTTP {status}")), "{text}");
            assert!(text.ends_with(&format!(" to {shown}; redirects are not followed")), "{text}");
        }
        let text = failed_read(&relay, &mut host, empty(status));
        assert!(text.ends_with("; redirects are not followed"), "{text}");
    }
    for status in [301, 302, 303, 307, 308] {
        failed_submission(&relay, &mut Host::with_writes(&relay), Reply::redirect(status, &elsewhere));
    }
    assert!(relay.published().is_empty());
    assert!(relay.requests().iter().all(|request| request.method == "POST"));
    assert!(other.requests().is_empty() && other.connections() == 0);
}

#[test]
fn the_table_and_the_diagnosis_do_not_follow_redirects_either() {
    let (relay, other) = (Relay::start(Options::default()), Relay::start(Options::default()));
    relay.script_always(Matcher::any(), Reply::redirect(308, &other.url()));
    let mut host = Host::start(&relay);
    let listed = host.ask("tools/list", "{}");
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(1));
    host.wait_for_stderr("transport: HTTP 308");
    let report = host.call("tiny_diagnose", "{}");
    assert_eq!(report["result"]["structuredContent"]["verdict"], "error", "{report}");
    assert_eq!(other.connections(), 0);
}

#[test]
fn case_106_a_status_after_which_the_outcome_is_open_says_so_and_one_that_refuses_does_not() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let lost = |status: u16| Reply::map(move |_, _| Answer::html(status, "<html>"));
    for status in [500, 502, 503, 504, 599, 201, 202, 204, 303] {
        let (text, event) = failed_submission(&relay, &mut host, lost(status));
        assert!(text.starts_with(&format!("transport: HTTP {status}")), "{text}");
        assert!(text.ends_with(&format!("; the call may have taken effect (event {event})")), "{text}");
    }
    assert_eq!(relay.published().len(), 9);
    for status in [301, 302, 307, 308, 400, 401, 403, 404, 405, 406, 413, 415, 429] {
        let (text, _) = failed_submission(&relay, &mut host, empty(status));
        assert!(!text.contains("may have taken effect"), "{text}");
    }
    assert_eq!(relay.published().len(), 9);
}

#[test]
fn an_open_outcome_of_a_write_without_an_event_is_said_too() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    relay.script(Matcher::tool("upload_attachment"), empty(502));
    let answer = host.call("upload_attachment", r#"{"room":"general","data":"eA==","type":"text/plain"}"#);
    assert_eq!(error_text(&answer), "transport: HTTP 502 Bad Gateway; the call may have taken effect");
    assert_eq!(relay.calls_of("upload_attachment").len(), 1);
}

#[test]
fn a_rate_limit_leaves_the_next_call_free_at_once() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    relay.script(Matcher::tool("list_rooms"), Reply::http(Answer::new(429).header("Retry-After", "3600")));
    let began = Instant::now();
    error_text(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("list_rooms", "{}"));
    assert!(began.elapsed() < Duration::from_secs(120), "it waited");
}
