//! Contract 4: which bodies are an answer. Everything else is a tool error under the host's own id, the
//! relay was asked once, nothing is signed, and memory stays bounded.

use std::time::Duration;

use tinyagent_harness::{Host, status_field};
use tinyagent_relay::{Answer, Framing, Matcher, Options, Relay, Reply, Request, Sse, Step};

use crate::outcome::{assert_answered, error_text, failed_read};
use crate::relay_repeats::wait_until_closed;

/// The peak of the process's memory, in MiB.
pub fn peak_mib(host: &Host) -> u64 {
    let peak = status_field(host.pid(), "VmHWM").expect("a peak");
    peak.trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

const RESULT: &str = r#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#;

#[test]
fn cases_99_and_100_only_one_json_rpc_response_to_this_request_is_an_answer() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let message = |members: &str| format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
    let error = r#""error":{"code":-32000,"message":"no such room"}"#;
    for (body, expected) in [
        (message(&format!(r#""id":$ID0,"result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":-$ID,"result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":"$ID","result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":null,"result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":[$ID],"result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":true,"result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""result":{RESULT}"#)), "it answers another request"),
        (message(&format!(r#""id":$ID0,{error}"#)), "it answers another request"),
        (message(&format!(r#""id":"$ID",{error}"#)), "it answers another request"),
        (
            message(&format!(r#""id":$ID,"result":{RESULT},{error}"#)),
            "it needs exactly one of result and error",
        ),
        (
            message(&format!(r#""id":$ID,"result":{RESULT},"error":null"#)),
            "it needs exactly one of result and error",
        ),
        (message(&format!(r#""id":$ID,"result":null,{error}"#)), "it needs exactly one of result and error"),
        (message(r#""id":$ID"#), "it needs exactly one of result and error"),
        (message(r#""id":$ID,"method":"ping""#), "it needs exactly one of result and error"),
        (message(r#""id":$ID,"result":null"#), "the result is no object"),
        (message(r#""id":$ID,"result":[]"#), "the result is no object"),
        (message(r#""id":$ID,"result":5"#), "the result is no object"),
        (message(r#""id":$ID,"result":"x""#), "the result is no object"),
        (message(r#""id":$ID,"error":5"#), "the error has no code and message"),
        (message(r#""id":$ID,"error":"x""#), "the error has no code and message"),
        (message(r#""id":$ID,"error":{}"#), "the error has no code and message"),
        (message(r#""id":$ID,"error":null"#), "the error has no code and message"),
        (message(r#""id":$ID,"error":{"code":"1","message":"x"}"#), "the error has no code and message"),
        (message(r#""id":$ID,"error":{"code":1,"message":5}"#), "the error has no code and message"),
        (format!(r#"{{"id":$ID,"result":{RESULT}}}"#), "not JSON-RPC 2.0"),
        (format!(r#"{{"jsonrpc":"1.0","id":$ID,"result":{RESULT}}}"#), "not JSON-RPC 2.0"),
        (format!(r#"{{"jsonrpc":2.0,"id":$ID,"result":{RESULT}}}"#), "not JSON-RPC 2.0"),
        (format!(r#"{{"JSONRPC":"2.0","id":$ID,"result":{RESULT}}}"#), "not JSON-RPC 2.0"),
        (message(&format!(r#""id":$ID,"id":$ID,"result":{RESULT}"#)), "a key is repeated"),
        (message(&format!(r#""id":$ID,"result":{RESULT},"result":{RESULT}"#)), "a key is repeated"),
        (message(r#""id":$ID,"result":{"content":[],"content":[]}"#), "a key of the result is repeated"),
        (format!("[{}]", message(&format!(r#""id":$ID,"result":{RESULT}"#))), "not one JSON object"),
        ("[]".into(), "not one JSON object"),
        ("5".into(), "not one JSON object"),
        ("null".into(), "not one JSON object"),
        (r#""text""#.into(), "not one JSON object"),
    ] {
        let text = failed_read(&relay, &mut host, Reply::json(200, &body));
        assert_eq!(text.strip_prefix("transport: invalid answer: "), Some(expected), "{body}");
    }
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn case_99_an_error_without_an_id_is_shown_and_one_for_another_request_is_not() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for (status, expected) in
        [(200, "relay: no such room"), (400, "relay: no such room"), (404, "relay: no such room")]
    {
        for id in [r#""id":null,"#, "", r#""id":$ID,"#] {
            let body =
                format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32000,"message":"no such room"}}}}"#);
            assert_eq!(failed_read(&relay, &mut host, Reply::json(status, &body)), expected, "{id}");
        }
    }
    for id in ["$ID0", r#""$ID""#, "true", "{}"] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32000,"message":"no such room"}}}}"#);
        assert_eq!(
            failed_read(&relay, &mut host, Reply::json(400, &body)),
            "transport: HTTP 400 Bad Request"
        );
    }
}

#[test]
fn what_is_not_json_is_a_transport_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let whole = |members: &str| format!(r#"{{"jsonrpc":"2.0","id":$ID,{members}}}"#);
    let deep = |depth: usize| {
        format!(r#"{{"content":[],"structuredContent":{}1{}}}"#, r#"{"a":"#.repeat(depth), "}".repeat(depth))
    };
    for body in [
        r#"{"jsonrpc":"#.into(),
        whole(&format!(r#""result":{RESULT}"#)) + "x",
        whole(&format!(r#""result":{RESULT}"#)) + &whole(&format!(r#""result":{RESULT}"#)),
        whole(&format!(r#""result":{RESULT},"#)),
        whole(r#""result":{'content':[]}"#),
        whole(r#""result":{"content":[],"structuredContent":{"n":NaN}}"#),
        whole(r#""result":{"content":[],"structuredContent":{"n":01}}"#),
        whole("\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\tb\"}]}"),
        whole(&format!(r#""result":{}"#, deep(511))),
        whole(&format!(r#""result":{}"#, deep(1_000_000))),
        format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{}"#, "[".repeat(1_000_000)),
        "OK".into(),
        " ".into(),
    ] {
        let text = failed_read(&relay, &mut host, Reply::json(200, &body));
        assert!(text.starts_with("transport: invalid answer: "), "{text}");
    }
    let bad_text = Reply::with(|request| {
        let body = request.result_text(r#"{"content":[{"type":"text","text":"@"}]}"#).into_bytes();
        Reply::http(Answer::json_text(
            200,
            body.into_iter().map(|b| if b == b'@' { 0xff } else { b }).collect::<Vec<_>>(),
        ))
    });
    assert!(failed_read(&relay, &mut host, bad_text).starts_with("transport: invalid answer: "));
    assert!(peak_mib(&host) < 120);
}

#[test]
fn nesting_of_512_is_read() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let (open, close) = (r#"{"a":"#.repeat(509), "}".repeat(509));
    // Too large to be shown, so that this test needs no reader of such nesting itself.
    let wide = format!(
        r#"{{"content":[],"structuredContent":{{"w":"{}","d":{open}1{close}}}}}"#,
        "w".repeat(300_000)
    );
    relay.script(Matcher::tool("list_rooms"), Reply::result_text(&wide));
    let answer = host.call("list_rooms", "{}");
    assert_eq!(answer["result"]["structuredContent"]["truncated"], true, "{answer}");
}

#[test]
fn case_100_what_is_no_answer_is_never_signed() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    let unsigned =
        r#"{"content":[],"structuredContent":{"unsigned":{"kind":9,"tags":[],"content":"x","created_at":5}}"#;
    for body in [
        format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{unsigned}}},"error":{{"code":1,"message":"x"}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":$ID0,"result":{unsigned}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","result":{unsigned}}}}}"#),
        format!(r#"[{{"jsonrpc":"2.0","id":$ID,"result":{unsigned}}}}}]"#),
        format!(r#"{{"id":$ID,"result":{unsigned}}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{unsigned},"resultType":"input_required"}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{unsigned},"resultType":null}}}}"#),
    ] {
        relay.script(Matcher::tool("post_message"), Reply::json(200, &body));
        let answer = host.call("post_message", r#"{"room":"general","content":"hi"}"#);
        assert!(error_text(&answer).starts_with("transport: "), "{answer}");
    }
    relay.script(
        Matcher::tool("post_message"),
        Reply::json(202, &format!(r#"{{"jsonrpc":"2.0","id":$ID,"result":{unsigned}}}}}"#)),
    );
    error_text(&host.call("post_message", r#"{"room":"general","content":"hi"}"#));
    assert_eq!(relay.calls_of("post_message").len(), 8);
    assert!(relay.published().is_empty());
}

#[test]
fn case_88_a_result_of_another_type_is_a_tool_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for kind in
        [r#""input_required""#, r#""zzz""#, r#""""#, r#""Complete""#, "null", "5", "{}", r#"["complete"]"#]
    {
        let result = format!(
            r#"{{"resultType":{kind},"content":[],"inputRequests":{{"a":{{"method":"elicitation/create"}}}},"requestState":"x"}}"#
        );
        let text = failed_read(&relay, &mut host, Reply::result_text(&result));
        assert!(
            text.starts_with("transport: ") && text.contains("which this bridge does not take part in"),
            "{text}"
        );
    }
    relay.script(Matcher::tool("list_rooms"), Reply::result_text(RESULT));
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn a_head_without_end_and_a_head_that_is_none_are_transport_errors() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for reply in [
        Reply::endless_head(),
        Reply::raw("SSH-2.0-OpenSSH_9.6\r\n"),
        Reply::raw("HTTP/1.1 two hundred\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
        Reply::raw("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"),
        Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: folded\r\n line\r\n\r\nhello"),
        Reply::raw("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(2000))),
        Reply::raw(vec![0; 4096]),
    ] {
        let text = failed_read(&relay, &mut host, reply);
        assert!(text.starts_with("transport: no valid HTTP answer: "), "{text}");
        assert!(peak_mib(&host) < 120);
    }
}

#[test]
fn an_answer_is_read_however_http_frames_it() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let framed: [fn(&str) -> String; 10] = [
        |body| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
        |body| format!("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{body}"),
        |body| format!("HTTP/1.1 200 \r\nconnection: close\r\n\r\n{body}"),
        |body| {
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: Application/JSON;charset=utf-8\r\nContent-Length:{}\r\n\r\n{body}",
                body.len()
            )
        },
        |body| {
            format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        },
        |body| {
            format!(
                "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
        },
        |body| {
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:X};x=y\r\n{body}\r\n0\r\nTrailer: z\r\n\r\n",
                body.len()
            )
        },
        |body| format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n{body}", body.len()),
        |body| {
            let length = body.len();
            format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nContent-Length: {length}\r\n\r\n{body}")
        },
        // The length does not count where chunks are announced (RFC 9112, 6.3).
        |body| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
                body.len()
            )
        },
    ];
    for frame in framed {
        let reply = Reply::with(move |request| {
            Reply::steps([Step::Write(frame(&request.result_text(RESULT)).into_bytes()), Step::Close])
        });
        relay.script(Matcher::tool("list_rooms"), reply);
        assert_answered(&host.call("list_rooms", "{}"));
    }
}

#[test]
fn bytes_behind_an_answer_are_never_taken_for_the_next_one() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for id in ["2", "3", "4"] {
        let behind = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"smuggled"}}]}}}}"#
        );
        let reply = Reply::from_answer(move |_, answer| {
            let whole = Answer::json_text(200, behind.clone()).to_bytes("");
            Reply::raw([answer.to_bytes(""), whole].concat())
        });
        relay.script(Matcher::tool("list_rooms"), reply);
        for _ in 0..2 {
            let answer = host.call("list_rooms", "{}");
            assert_answered(&answer);
            assert!(!answer.to_string().contains("smuggled"), "{answer}");
        }
    }
}

#[test]
fn bytes_that_come_late_behind_an_answer_are_never_taken_for_the_next_one() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let smuggled = |request: &Request| {
        let next = request.rpc_id().parse::<u64>().expect("a number") + 1;
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{next},"result":{{"content":[{{"type":"text","text":"smuggled"}}]}}}}"#
        );
        Answer::json_text(200, body).to_bytes("")
    };
    let soon = || Step::Sleep(Duration::from_millis(20));
    let behind_a_whole_one = Reply::from_answer(move |request, answer| {
        Reply::steps([Step::Write(answer.to_bytes("")), soon(), Step::Write(smuggled(request))])
    });
    let as_the_rest_of_a_stream = Reply::from_answer(move |request, answer| {
        let event = Sse::Plain.spell(&String::from_utf8_lossy(&answer.body)).into_bytes();
        let answer = answer.set_header("Content-Type", "text/event-stream").body(event);
        let begun = answer.framing(Framing::ChunkedUnfinished(usize::MAX)).to_bytes("");
        let end = Step::Write([b"0\r\n\r\n", &smuggled(request)[..]].concat());
        Reply::steps([Step::Write(begun), soon(), end])
    });
    let behind_a_refusal = Reply::with(move |request| {
        let refused = Answer::json_text(429, r#"{"message":"slowly"}"#).to_bytes("");
        Reply::steps([Step::Write(refused), soon(), Step::Write(smuggled(request))])
    });
    let mut next_after = |reply: &Reply, wait: bool| {
        relay.script(Matcher::tool("list_rooms"), reply.clone());
        host.call("list_rooms", "{}");
        if wait {
            wait_until_closed(&relay);
        }
        let answer = host.call("list_jobs", "{}");
        assert_answered(&answer);
        assert!(!answer.to_string().contains("smuggled"), "{answer}");
    };
    // Whatever comes before the next request ends the connection; the rest of an answer does so at any time.
    for reply in [&behind_a_whole_one, &as_the_rest_of_a_stream, &behind_a_refusal] {
        next_after(reply, true);
    }
    next_after(&as_the_rest_of_a_stream, false);
}

#[test]
fn a_connection_is_kept_exactly_as_long_as_the_relay_says() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for status in [400, 401, 403, 404, 429, 500, 503] {
        failed_read(&relay, &mut host, Reply::error(status, -32000, "no"));
    }
    assert_answered(&host.call("list_rooms", "{}"));
    assert_eq!(relay.connections(), 1, "a refusal costs no connection");
    let closing = Reply::map(|_, answer| answer.header("Connection", "close"));
    let old = Reply::from_answer(|_, answer| {
        let text = String::from_utf8_lossy(&answer.to_bytes("")).replacen("HTTP/1.1", "HTTP/1.0", 1);
        Reply::steps([Step::Write(text.into()), Step::UntilClientLeaves])
    });
    for (count, reply) in [closing, old].into_iter().enumerate() {
        relay.script(Matcher::tool("list_rooms"), reply);
        assert_answered(&host.call("list_rooms", "{}"));
        assert_answered(&host.call("list_rooms", "{}"));
        assert_eq!(relay.connections(), count as u64 + 2);
    }
}
