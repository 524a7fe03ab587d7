//! Contract 4: event streams, compressed answers and large ones; what they hold is read, and never more
//! of it than the bound.

use tinyagent_harness::Host;
use tinyagent_relay::{Answer, Framing, Matcher, Options, Relay, Reply, Sse, faults};

use crate::outcome::{assert_answered, failed_read, failed_submission};
use crate::relay_bodies::peak_mib;

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
    for spelled in ["GZIP", "x-gzip", "Identity"] {
        relay.script(
            Matcher::tool("list_rooms"),
            Reply::map(move |_, answer| {
                let compressed = spelled != "Identity";
                let body = if compressed { faults::gzip(&answer.body) } else { answer.body.clone() };
                answer.header("Content-Encoding", spelled).body(body)
            }),
        );
        assert_answered(&host.call("list_rooms", "{}"));
    }
    let in_two_members = Reply::map(|_, answer| {
        let (first, second) = answer.body.split_at(answer.body.len() / 2);
        let body = [faults::gzip(first), faults::gzip(second)].concat();
        answer.header("Content-Encoding", "gzip").body(body)
    });
    relay.script(Matcher::tool("list_rooms"), in_two_members);
    assert_answered(&host.call("list_rooms", "{}"));
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
    let broken: [fn(Vec<u8>) -> Vec<u8>; 6] = [
        |_| b"no gzip at all".to_vec(),
        |_| Vec::new(),
        |body| [&body, &b"more"[..]].concat(),
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
    let compressed_stream = Reply::map(|_, answer| {
        let body = faults::gzip(&[&b"data: "[..], &vec![b'a'; 64 << 20]].concat());
        answer.set_header("Content-Type", "text/event-stream").header("Content-Encoding", "gzip").body(body)
    });
    for reply in [
        compressed_stream,
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
