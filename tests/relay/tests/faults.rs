//! Faults: each scripted reply does on the wire what its name says, and the record stays true.

use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tinyagent_relay::client::{self, Post};
use tinyagent_relay::*;

const SOON: Duration = Duration::from_secs(10);

fn start() -> (Relay, Key) {
    (Relay::start(Options::default()), Key::random())
}

/// A raw request for list_rooms on a kept connection.
fn raw(relay: &Relay, key: &Key) -> Vec<u8> {
    let post = Post::call(&relay.url(), key, "list_rooms", "{}");
    let mut bytes = format!("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n", relay.port()).into_bytes();
    for (name, value) in &post.headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(format!("Content-Length: {}\r\n\r\n", post.body.len()).bytes());
    bytes.extend(&post.body);
    bytes
}

fn connect(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", relay.port())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Reads one answer with a Content-Length.
fn read_answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("Content-Length: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

#[test]
fn a_connection_is_kept_and_requests_on_it_are_told_apart() {
    let (relay, key) = start();
    let mut stream = connect(&relay);
    for _ in 0..3 {
        stream.write_all(&raw(&relay, &key)).unwrap();
        assert!(read_answer(&mut stream).0.starts_with("HTTP/1.1 200 OK\r\n"));
    }
    let both = [raw(&relay, &key), raw(&relay, &key)].concat();
    stream.write_all(&both).unwrap();
    read_answer(&mut stream);
    read_answer(&mut stream);
    assert_eq!(relay.connections(), 1);
    assert!(
        relay
            .requests()
            .iter()
            .enumerate()
            .all(|(at, request)| (request.number, request.connection) == (at, 0))
    );
    assert_eq!(relay.executed("list_rooms"), 5);
}

#[test]
fn a_chunked_body_is_put_together() {
    let (relay, key) = start();
    let post = Post::call(&relay.url(), &key, "list_rooms", "{}");
    let mut bytes =
        format!("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nTransfer-Encoding: chunked\r\n", relay.port())
            .into_bytes();
    for (name, value) in &post.headers {
        bytes.extend(format!("{name}: {value}\r\n").bytes());
    }
    bytes.extend(b"\r\n");
    for chunk in post.body.chunks(50) {
        bytes.extend(format!("{:X};x=y\r\n", chunk.len()).bytes());
        bytes.extend(chunk);
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"0\r\nTrailer: 1\r\n\r\n");
    let mut stream = connect(&relay);
    for byte in bytes {
        stream.write_all(&[byte]).unwrap();
    }
    assert!(read_answer(&mut stream).0.starts_with("HTTP/1.1 200 "));
    assert_eq!(relay.requests()[0].body, post.body);
}

#[test]
fn scripts_match_in_order_once_always_and_from_the_nth_on() {
    let (relay, key) = start();
    relay.script(Matcher::tool("list_rooms").nth(2), Reply::http(Answer::html(502, "<html>")));
    relay.script_always(Matcher::tool("read_job"), Reply::result(json!({"content": []})));
    relay.script(Matcher::rpc("tools/list"), Reply::error(400, -32020, "no"));
    let call = |tool| client::call(&relay.url(), &key, tool, "{}");
    assert_eq!(call("list_rooms").status, 200);
    assert_eq!(relay.unused_scripts(), 2);
    assert_eq!(call("list_rooms").status, 502);
    assert_eq!(call("list_rooms").status, 200);
    assert_eq!(call("read_job").json()["result"], json!({"content": []}));
    assert_eq!(call("read_job").json()["id"], 1);
    let list = || Post::list(&relay.url(), &key, None).send();
    assert_eq!(list().json()["error"], json!({"code": -32020, "message": "no"}));
    assert_eq!(list().status, 200);
    relay.clear_script();
    assert_eq!(call("read_job").json()["result"]["isError"], true);
    assert_eq!(relay.executed("read_job"), 0);
}

#[test]
fn a_call_can_take_effect_while_its_answer_is_lost() {
    let (relay, key) = start();
    relay.script(Matcher::resubmission("post_message"), Reply::lose_answer());
    let (event, answer) =
        client::publish(&relay.url(), &key, "post_message", &json!({"room": "general", "content": "x"}));
    assert_eq!(answer.status, 0);
    assert_eq!(relay.published(), [event.unwrap()]);
    relay.script(Matcher::resubmission("post_message"), Reply::close());
    client::publish(&relay.url(), &key, "post_message", &json!({"room": "general", "content": "y"}));
    assert_eq!(relay.published().len(), 1);
    assert_eq!(relay.executed("post_message+event"), 1);
}

#[test]
fn closing_and_resetting_are_told_apart_by_the_client() {
    let (relay, key) = start();
    for (reply, expected) in [(Reply::close(), Ok(0)), (Reply::reset(), Err(ErrorKind::ConnectionReset))] {
        relay.script(Matcher::any(), reply);
        let mut stream = connect(&relay);
        stream.write_all(&raw(&relay, &key)).unwrap();
        assert_eq!(stream.read(&mut [0; 10]).map_err(|error| error.kind()), expected);
    }
    for (fault, expected) in
        [(AcceptFault::Close, Ok(0)), (AcceptFault::Reset, Err(ErrorKind::ConnectionReset))]
    {
        relay.on_accept(fault);
        assert_eq!(connect(&relay).read(&mut [0; 10]).map_err(|error| error.kind()), expected);
    }
}

#[test]
fn idle_connections_end_as_told() {
    let (relay, key) = start();
    for (idle, expected) in [
        (Idle::Close(Duration::ZERO), Ok(0)),
        (Idle::Close(Duration::from_millis(30)), Ok(0)),
        (Idle::Reset(Duration::ZERO), Err(ErrorKind::ConnectionReset)),
        (Idle::Reset(Duration::from_millis(30)), Err(ErrorKind::ConnectionReset)),
    ] {
        relay.set_idle(idle);
        let mut stream = connect(&relay);
        stream.write_all(&raw(&relay, &key)).unwrap();
        read_answer(&mut stream);
        assert_eq!(stream.read(&mut [0; 10]).map_err(|error| error.kind()), expected, "{idle:?}");
    }
    assert_eq!(relay.executed("list_rooms"), 4);
}

#[test]
fn a_gate_holds_answers_until_it_is_opened() {
    let (relay, key) = start();
    let gate = Gate::new();
    relay.script(Matcher::any(), Reply::hold(&gate));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| client::call(&relay.url(), &key, "list_rooms", "{}"));
        assert!(gate.wait_arrived(1, SOON));
        assert_eq!((relay.executed("list_rooms"), call.is_finished()), (0, false));
        gate.open();
        assert_eq!(call.join().unwrap().status, 200);
    });
    assert!(relay.wait_for(1, SOON) && !relay.wait_for(2, Duration::from_millis(10)));
}

#[test]
fn a_hung_request_ends_when_the_client_leaves_or_the_relay_stops() {
    let (relay, key) = start();
    relay.script(Matcher::any(), Reply::hang());
    let mut stream = connect(&relay);
    stream.write_all(&raw(&relay, &key)).unwrap();
    assert!(relay.wait_for(1, SOON));
    drop(stream);
    let started = Instant::now();
    while relay.open_connections() > 0 {
        assert!(started.elapsed() < SOON);
        std::thread::yield_now();
    }
    relay.script(Matcher::any(), Reply::steps([Step::Stall]));
    let mut stream = connect(&relay);
    stream.write_all(&raw(&relay, &key)).unwrap();
    assert!(relay.wait_for(2, SOON));
    let port = relay.port();
    drop(relay);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn a_reply_before_the_body_leaves_it_unread() {
    let (relay, key) = start();
    relay.script(Matcher::path("/mcp").before_body(), Reply::http(Answer::new(503)));
    let arguments = format!("{{\"q\":\"{}\"}}", "a".repeat(500_000));
    assert_eq!(client::call(&relay.url(), &key, "list_rooms", &arguments).status, 503);
    assert_eq!(relay.requests()[0].unread, Some(Unread::Scripted));
    assert_eq!(client::call(&relay.url(), &key, "list_rooms", &arguments).status, 200);
}

#[test]
fn a_large_body_is_refused_and_the_refusal_can_be_read() {
    let (relay, key) = start();
    let arguments = format!("{{\"q\":\"{}\"}}", "a".repeat(12 << 20));
    for _ in 0..5 {
        assert_eq!(client::call(&relay.url(), &key, "list_rooms", &arguments).status, 413);
    }
    assert_eq!(relay.requests()[4].unread, Some(Unread::TooLarge));
    let large = Relay::start(Options { body_limit: 16 << 20, ..Options::default() });
    assert_eq!(client::call(&large.url(), &key, "list_rooms", &arguments).status, 200);
    assert_eq!(large.requests()[0].arguments(), Some(arguments.as_str()));
}

#[test]
fn event_streams_are_spelled_in_every_way() {
    let (relay, key) = start();
    for spelling in Sse::READABLE {
        relay.script(Matcher::any(), Reply::sse(spelling));
        let answer = client::call(&relay.url(), &key, "list_rooms", "{}");
        assert!(answer.head.contains("Content-Type: text/event-stream"));
        let text = String::from_utf8(answer.body).unwrap();
        let lines = text.trim_start_matches('\u{feff}').split(['\r', '\n']);
        let data: Vec<&str> =
            lines.filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
        let answer =
            data.iter().position(|line| line.contains("\"id\"") || line.ends_with("2.0\",")).unwrap();
        let whole = if spelling == Sse::TwoDataLines { data.concat() } else { data[answer].to_owned() };
        let json: serde_json::Value = serde_json::from_str(&whole).unwrap();
        assert_eq!(json["result"]["isError"], false, "{spelling:?}: {text}");
    }
    relay.script(Matcher::any(), Reply::sse(Sse::NoAnswer));
    assert!(
        !String::from_utf8(client::call(&relay.url(), &key, "list_rooms", "{}").body)
            .unwrap()
            .contains("result")
    );
    relay.script(Matcher::any(), Reply::sse_never_ends());
    let mut stream = connect(&relay);
    stream.write_all(&raw(&relay, &key)).unwrap();
    let mut seen: Vec<u8> = Vec::new();
    while !seen.windows(4).any(|window| window == b"\n\n\r\n") {
        let mut piece = [0; 4096];
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0);
        seen.extend(&piece[..n]);
    }
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn bodies_are_compressed_cut_dripped_and_left_unfinished() {
    let (relay, key) = start();
    let call = || client::call(&relay.url(), &key, "list_rooms", "{}");
    let whole = call().body;
    let decoded = |bytes: &[u8]| {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).unwrap();
        text
    };
    relay.script(Matcher::any(), Reply::encoded("gzip"));
    let answer = call();
    assert!(answer.head.contains("Content-Encoding: gzip"));
    assert_eq!(decoded(&answer.body), whole);
    relay.script(Matcher::any(), Reply::encoded("br"));
    assert_eq!(call().body, whole);
    relay.script(Matcher::any(), Reply::gzip_bomb(50 << 20));
    let bomb = call().body;
    assert!(bomb.len() < 1 << 20 && decoded(&bomb).len() > 50 << 20);
    relay.script(Matcher::any(), Reply::truncated(20));
    let cut = call();
    assert_eq!(cut.body, whole[..20]);
    assert!(cut.head.contains(&format!("Content-Length: {}", whole.len())));
    relay.script(Matcher::any(), Reply::truncated_by_reset(20));
    let mut stream = connect(&relay);
    stream.write_all(&raw(&relay, &key)).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    relay.script(Matcher::any(), Reply::chunked_unfinished());
    let body = String::from_utf8(call().body).unwrap();
    assert!(body.starts_with("200\r\n") && !body.ends_with("0\r\n\r\n"), "{body}");
    relay.script(Matcher::any(), Reply::drip(100, Duration::from_millis(1)));
    relay.script(Matcher::any(), Reply::drip_body(100, Duration::from_millis(1)));
    assert_eq!((call().body, call().body), (whole.clone(), whole));
}

#[test]
fn endless_answers_go_on_until_the_client_leaves() {
    let (relay, key) = start();
    for reply in [Reply::endless_body(), Reply::endless_head()] {
        relay.script(Matcher::any(), reply);
        let mut stream = connect(&relay);
        stream.write_all(&raw(&relay, &key)).unwrap();
        let mut sink = vec![0; 1 << 20];
        stream.read_exact(&mut sink).unwrap();
    }
    let started = Instant::now();
    while relay.open_connections() > 0 {
        assert!(started.elapsed() < SOON);
        std::thread::yield_now();
    }
}

#[test]
fn odd_json_answers_are_sent_as_written() {
    let (relay, key) = start();
    let call = || client::call(&relay.url(), &key, "list_rooms", "{}");
    let text = |answer: client::Received| String::from_utf8(answer.body).unwrap();
    relay.script(Matcher::any(), Reply::result_text("{\r\n  \"content\": [\"\\ud800\"]\r\n}"));
    assert_eq!(
        text(call()),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\r\n  \"content\": [\"\\ud800\"]\r\n}}"
    );
    relay.script(Matcher::any(), Reply::result_with_id("\"1\"", "{}"));
    assert_eq!(text(call()), r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
    relay.script(Matcher::any(), Reply::json(200, r#"{"id":$ID,"result":{},"error":{}}"#));
    assert_eq!(text(call()), r#"{"id":1,"result":{},"error":{}}"#);
    relay.script(Matcher::any(), Reply::redirect(308, "http://other.example/mcp"));
    let redirect = call();
    assert!(redirect.status == 308 && redirect.head.contains("Location: http://other.example/mcp"));
    relay.script(Matcher::any(), Reply::template(r#"{"kind":9.0,"tags":[],"content":"\u0008"}"#));
    assert!(text(call()).contains(r#""unsigned":{"kind":9.0,"tags":[],"content":"\u0008"}"#));
    relay.script(Matcher::any(), Reply::http(Answer::new(204)));
    let empty = call();
    assert!(empty.status == 204 && !empty.head.contains("Content-Length"));
}

#[test]
fn several_addresses_share_one_port() {
    let both = Options { listen: vec!["127.0.0.1:0".into(), "[::1]:0".into()], ..Options::default() };
    let (relay, key) = (Relay::start(both), Key::random());
    for host in ["127.0.0.1", "[::1]", "localhost"] {
        assert_eq!(client::call(&relay.url_for(host), &key, "list_rooms", "{}").status, 200, "{host}");
    }
    let six = Relay::start(Options { listen: vec!["[::1]:0".into()], ..Options::default() });
    assert!(six.url().starts_with("http://[::1]:"));
    assert_eq!(client::call(&six.url(), &key, "list_rooms", "{}").status, 200);
}

#[test]
fn annotated_inputs_must_be_mirrored_in_headers() {
    let schema = json!({"type": "object", "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "inner": {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
    }});
    let extra = json!({"name": "far", "inputSchema": schema});
    let (relay, key) =
        (Relay::start(Options { extra_tools: vec![extra], ..Options::default() }), Key::random());
    let post = |arguments: &str| Post::call(&relay.url(), &key, "far", arguments);
    let both = r#"{"region":"e\u00e9","inner":{"n":7}}"#;
    let headers = |post: Post| post.header("Mcp-Param-Region", "=?base64?ZcOp?=").header("mcp-param-n", "7");
    assert_eq!(headers(post(both)).send().status, 200);
    assert_eq!(post("{\"region\":null}").send().status, 200);
    for wrong in [post(both), headers(post(both)).header("Mcp-Param-N", "7.0"), headers(post("{}"))] {
        assert_eq!(wrong.send().json()["error"]["code"], -32020);
    }
}

#[test]
fn the_hostile_mode_alters_one_field_and_says_which() {
    let options = |seed| Options { hostile: true, hostile_seed: seed, ..Options::default() };
    let (relay, key) = (Relay::start(options(7)), Key::random());
    let arguments = json!({"room": "general", "content": "hello", "mentions": ["ab".repeat(32)]});
    for _ in 0..200 {
        client::call(&relay.url(), &key, "post_message", &arguments.to_string());
    }
    let served = relay.served_templates();
    assert_eq!(served.len(), 200);
    for one in &served {
        assert_eq!(one.altered.is_none(), one.honest == one.returned, "{one:?}");
        let differs = [
            ("kind", one.honest.kind != one.returned.kind),
            ("content", one.honest.content != one.returned.content),
            ("created_at", one.honest.created_at.abs_diff(one.returned.created_at) >= 3600),
        ];
        for (field, differs) in differs {
            assert_eq!(one.altered == Some(field), differs, "{one:?}");
        }
    }
    for field in
        [None, Some("kind"), Some("content"), Some("created_at"), Some("h"), Some("p"), Some("power")]
    {
        assert!(served.iter().any(|one| one.altered == field), "{field:?}");
    }
    // A client that signs whatever it is given gets altered words published, as the hostile relay wants it.
    while relay.published().iter().all(|event| event.content == "hello") {
        client::publish(&relay.url(), &key, "post_message", &arguments);
    }
    let same = |seed| {
        let relay = Relay::start(options(seed));
        (0..20).for_each(|_| {
            client::call(&relay.url(), &key, "post_message", &arguments.to_string());
        });
        relay.served_templates().into_iter().map(|one| one.altered).collect::<Vec<_>>()
    };
    assert_eq!(same(1), same(1));
    assert_ne!(same(1), same(2));
}
