//! Contract 4: which bodies are an answer. Everything else is a tool error under the host's own id, the
//! relay was asked once, nothing is signed, and memory stays bounded.

use tinyagent_harness::{Host, status_field};
use tinyagent_relay::{Answer, Framing, Matcher, Options, Relay, Reply, Sse, faults};

use crate::outcome::{assert_answered, error_text, failed_read, failed_submission};

/// The peak of the process's memory, in MiB.
fn peak_mib(host: &Host) -> u64 {
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
fn case_98_the_answer_is_read_from_an_event_stream_in_every_spelling() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    for spelling in Sse::READABLE {
        relay.clear_script();
        relay.script_always(Matcher::any(), Reply::sse(spelling));
        let listed = host.ask("tools/list", "{}");
        assert!(listed["result"]["tools"].as_array().is_some_and(|tools| tools.len() > 30), "{spelling:?}");
        assert_answered(&host.call("list_rooms", "{}"));
        let message = format!(r#"{{"room":"general","content":"{spelling:?}"}}"#);
        assert_answered(&host.call("post_message", &message));
    }
    assert_eq!(relay.published().len(), Sse::READABLE.len());
}

#[test]
fn case_98_a_stream_that_never_ends_after_the_answer_does_not_hold_it_back() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    relay.script_always(Matcher::any(), Reply::sse_never_ends());
    assert_answered(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("post_message", r#"{"room":"general","content":"by stream"}"#));
    assert_eq!(relay.published().len(), 1);
}

#[test]
fn case_98_a_stream_without_the_answer_is_never_an_empty_success() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    for spelling in [Sse::NoAnswer, Sse::NoEmptyLine] {
        let text = failed_read(&relay, &mut host, Reply::sse(spelling));
        assert_eq!(text, "transport: the event stream ended without the answer", "{spelling:?}");
        let (text, event) = failed_submission(&relay, &mut host, Reply::sse(spelling));
        assert_eq!(
            text,
            format!(
                "transport: the event stream ended without the answer; the call may have taken effect (event {event})"
            )
        );
    }
    let stream =
        |body: &str| Reply::http(Answer::new(200).header("Content-Type", "text/event-stream").body(body));
    for body in ["", "\n\n\n", "data:\n\n", "event: message\nid: 1\n\n", "{\"jsonrpc\":\"2.0\"}\n\n"] {
        assert_eq!(
            failed_read(&relay, &mut host, stream(body)),
            "transport: the event stream ended without the answer"
        );
    }
    for body in [
        "data: {\"jsonrpc\":\n\n",
        "data: hello\n\n",
        "data: []\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}\n\n",
    ] {
        assert!(
            failed_read(&relay, &mut host, stream(body)).starts_with("transport: invalid answer: "),
            "{body}"
        );
    }
}

#[test]
fn an_event_stream_is_known_by_its_media_type_and_also_carries_errors() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for kind in ["text/event-stream; charset=utf-8", "TEXT/Event-Stream", "text/event-stream;x=y"] {
        relay.script(
            Matcher::tool("list_rooms"),
            Reply::map(move |_, answer| {
                let body = Sse::Plain.spell(&String::from_utf8_lossy(&answer.body));
                answer.set_header("Content-Type", kind).body(body)
            }),
        );
        assert_answered(&host.call("list_rooms", "{}"));
    }
    for (status, expected) in
        [(200, "relay: full"), (400, "relay: full"), (403, "permission: full"), (429, "relay: full")]
    {
        let error = Reply::with(move |request| {
            let error = format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":1,"message":"full"}}}}"#,
                request.rpc_id()
            );
            Reply::http(
                Answer::new(status)
                    .header("Content-Type", "text/event-stream")
                    .body(Sse::NoiseFirst.spell(&error)),
            )
        });
        assert_eq!(failed_read(&relay, &mut host, error), expected);
    }
}

#[test]
fn case_104_what_is_announced_is_decoded_and_nothing_else() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    for coding in ["gzip", "identity"] {
        relay.script(Matcher::tool("list_rooms"), Reply::encoded(coding));
        assert_answered(&host.call("list_rooms", "{}"));
    }
    let both = Reply::map(|_, answer| {
        let stream = Sse::Crlf.spell(&String::from_utf8_lossy(&answer.body));
        answer
            .set_header("Content-Type", "text/event-stream")
            .header("Content-Encoding", "gzip")
            .body(faults::gzip(stream.as_bytes()))
    });
    relay.script(Matcher::tool("list_rooms"), both);
    assert_answered(&host.call("list_rooms", "{}"));
    for coding in ["br", "zstd", "deflate", "compress", "gzip, br", "snappy"] {
        let text = failed_read(&relay, &mut host, Reply::encoded(coding));
        assert_eq!(text, format!("transport: HTTP 200 OK with the unsupported content-encoding {coding}"));
    }
    assert!(relay.posts().iter().all(|post| post.headers_named("accept-encoding").eq(["gzip"])));
}

#[test]
fn case_104_compressed_bytes_that_cannot_be_decoded_are_a_transport_error() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let broken: [fn(Vec<u8>) -> Vec<u8>; 4] = [
        |_| b"no gzip at all".to_vec(),
        |body| body[..body.len() / 2].to_vec(),
        |body| body[..5].to_vec(),
        |mut body| {
            let at = body.len() - 6;
            body[at] ^= 0xff;
            body
        },
    ];
    for breaking in broken {
        let reply = Reply::map(move |_, answer| {
            let body = breaking(faults::gzip(&answer.body));
            answer.header("Content-Encoding", "gzip").body(body)
        });
        assert!(
            failed_read(&relay, &mut host, reply).starts_with("transport: the answer (HTTP 200) broke off: ")
        );
    }
}

#[test]
fn an_answer_over_32_mib_is_refused_in_bounded_memory_however_it_comes() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let large =
        |framing: Framing| Reply::http(Answer::json_text(200, vec![b' '; (32 << 20) + 1]).framing(framing));
    for reply in [
        Reply::gzip_bomb(512 << 20),
        Reply::endless_body(),
        large(Framing::Length),
        large(Framing::Chunked(1 << 20)),
        large(Framing::UntilClose),
        Reply::http(
            Answer::new(200)
                .header("Content-Type", "text/event-stream")
                .body([&b"data: "[..], &vec![b'a'; 33 << 20]].concat()),
        ),
        Reply::http(
            Answer::new(200)
                .header("Content-Type", "text/event-stream")
                .body(b"data: aaaaaaaa\n".repeat(5 << 20)),
        ),
    ] {
        assert_eq!(failed_read(&relay, &mut host, reply), "transport: the answer exceeds 32 MiB");
        assert!(peak_mib(&host) < 120, "{} MiB", peak_mib(&host));
    }
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
        Reply::raw(format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(2000))),
        Reply::raw(vec![0; 4096]),
    ] {
        let text = failed_read(&relay, &mut host, reply);
        assert!(text.starts_with("transport: no valid HTTP answer: "), "{text}");
        assert!(peak_mib(&host) < 120);
    }
}

#[test]
fn an_answer_of_31_mib_is_read() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let text = "a".repeat(31 << 20);
    relay.script(
        Matcher::tool("list_rooms"),
        Reply::result_text(&format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)),
    );
    let answer = host.call("list_rooms", "{}");
    let shown = answer["result"]["content"][0]["text"].as_str().expect("text");
    assert!(shown.ends_with(&format!("\n[truncated: 65536 of {} bytes shown]", 31 << 20)), "{}", shown.len());
    assert!(peak_mib(&host) < 120, "{} MiB", peak_mib(&host));
}
