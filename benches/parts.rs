//! The parts of a call, each alone: body, policy, event id, frame, bounds, and the signer's round trip.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tinyagent_facade::result::HostResult;
use tinyagent_protocol::event::{PublicKey, UnsignedEvent};
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Arguments, CallTool, Message, Request};
use tinyagent_protocol::policy::Policy;
use tinyagent_protocol::relay_url::RelayUrl;

const SIZES: [(&str, usize); 3] = [("64KiB", 64 << 10), ("1MiB", 1 << 20), ("4MiB", 4 << 20)];

fn policy() -> Policy {
    let relay = RelayUrl::parse("http://127.0.0.1:1").expect("a URL");
    Policy::new(relay, None, true).expect("a policy")
}

fn call(text: &str) -> CallTool<'_> {
    let (json, _) = Json::check(text.as_bytes()).expect("JSON");
    CallTool { id: 1, tool: "read_file".into(), arguments: Arguments::new(json).expect("an object") }
}

fn requests(c: &mut Criterion) {
    let policy = policy();
    let small = r#"{"id":"general","limit":20}"#;
    c.bench_function("policy decision", |b| b.iter(|| policy.judge_call(black_box(call(small)))));
    let approved = policy.judge_call(call(small)).expect("approved");
    c.bench_function("body builder and its hash", |b| b.iter(|| approved.body().payload()));
    c.bench_function("frame, written and read", |b| {
        b.iter(|| {
            let message = Message { request: Request::CallTool(call(small)), client: None };
            let (head, arguments, tail) = message.pieces();
            Message::parse((head + arguments + &tail).as_bytes()).map(|message| message.client.is_some())
        });
    });
    let event = UnsignedEvent {
        pubkey: PublicKey([7; 32]),
        created_at: 1_700_000_000,
        kind: 9,
        tags: vec![vec!["h".into(), "general".into()]],
        content: "hello".repeat(20),
    };
    c.bench_function("event id", |b| b.iter(|| black_box(&event).id()));
    let mut sizes = c.benchmark_group("body hash by size");
    for (name, size) in SIZES {
        let text = format!("{{\"text\":\"{}\"}}", "x".repeat(size));
        let approved = policy.judge_call(call(&text)).expect("approved");
        sizes.throughput(Throughput::Bytes(size as u64));
        sizes.bench_function(name, |b| b.iter(|| approved.body().payload()));
    }
}

fn results(c: &mut Criterion) {
    let mut sizes = c.benchmark_group("result bounds");
    for (name, size) in SIZES {
        let image =
            format!(r#"{{"content":[{{"type":"image","data":"{}"}}],"isError":false}}"#, "A".repeat(size));
        let image = Bytes::from(image);
        sizes.throughput(Throughput::Bytes(size as u64));
        sizes
            .bench_function(name, |b| b.iter(|| HostResult::from_relay(&image).map(HostResult::into_pieces)));
    }
}

/// One proof from the real signer, over its pipes: frame, policy, hash, signature.
fn signer(c: &mut Criterion) {
    let mut signer = Command::new(env!("CARGO_BIN_EXE_tinyagent-signer"))
        .args(["--stdio", "--relay", "http://127.0.0.1:1"])
        .env("TINY_PRIVATE_KEY", "07".repeat(32))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the signer starts");
    let mut stdin = signer.stdin.take().expect("a pipe");
    let mut stdout = BufReader::new(signer.stdout.take().expect("a pipe"));
    let mut answer = String::new();
    c.bench_function("a proof from the signer's process", |b| {
        b.iter(|| {
            stdin
                .write_all(
                    b"{\"call_tool\":{\"id\":1,\"tool\":\"read_room\",\"arguments\":{\"id\":\"general\"}}}\n",
                )
                .expect("the signer reads");
            answer.clear();
            stdout.read_line(&mut answer).expect("the signer answers");
            assert!(answer.starts_with("{\"proof\":"), "{answer}");
        });
    });
    drop(stdin);
    signer.wait().expect("the signer ends");
}

criterion_group!(parts, requests, results, signer);
criterion_main!(parts);
