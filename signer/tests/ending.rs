//! How it ends: with its peer, at anything that is no request, and not by a signal meant for others.

use std::io::Write;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tinyagent_relay::Key;

use crate::program::{SOON, Signer, Start, ask, call, framed, publish, signer_path};

/// Frames that are no request; each must end the signer with status 65, unanswered.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |text: &str| framed(text.as_bytes());
    vec![
        ("an empty frame", vec![0, 0, 0, 0]),
        ("an oversized frame", 0xffff_ffff_u32.to_be_bytes().into()),
        ("no JSON", frame("hello")),
        ("bad UTF-8", framed(b"{\"describe\":{\"\xff\":1}}")),
        ("an array", frame(r#"["describe",{}]"#)),
        ("no request", frame("{}")),
        ("two requests", frame(r#"{"describe":{},"describe":{}}"#)),
        ("an unknown request", frame(r#"{"sign":{"hash":"00"}}"#)),
        ("another case", frame(r#"{"Describe":{}}"#)),
        ("an unknown field", frame(r#"{"describe":{"x":1}}"#)),
        ("fields by position", frame(r#"{"call_tool":[1,"read_room",{}]}"#)),
        ("a repeated field", frame(r#"{"call_tool":{"id":1,"id":1,"tool":"read_room","arguments":{}}}"#)),
        (
            "a field repeated by escape",
            frame(r#"{"call_tool":{"id":1,"\u0069d":1,"tool":"read_room","arguments":{}}}"#),
        ),
        ("arguments in a string", frame(r#"{"call_tool":{"id":1,"tool":"read_room","arguments":"{}"}}"#)),
        (
            "arguments that break out",
            frame(r#"{"call_tool":{"id":1,"tool":"read_room","arguments":{}},"name":"x"}}"#),
        ),
        ("a float id", frame(r#"{"call_tool":{"id":1.0,"tool":"read_room","arguments":{}}}"#)),
        (
            "a URL of its own",
            frame(r#"{"call_tool":{"id":1,"url":"http://x","tool":"read_room","arguments":{}}}"#),
        ),
        (
            "an event with an id",
            framed(
                publish("post_message", "{}", 9, "h").replace("\"kind\"", "\"id\":\"x\",\"kind\"").as_bytes(),
            ),
        ),
        (
            "a kind as text",
            framed(publish("post_message", "{}", 9, "h").replace(":9,", ":\"9\",").as_bytes()),
        ),
        (
            "half a surrogate pair",
            framed(publish("post_message", "{}", 9, "h").replace("hi", "\\ud800").as_bytes()),
        ),
        (
            "a template too large",
            framed(publish("post_message", "{}", 9, "h").replace("hi", &"x".repeat(1 << 20)).as_bytes()),
        ),
        (
            "a cursor too long",
            framed(format!(r#"{{"list_tools":{{"id":1,"cursor":"{}"}}}}"#, "x".repeat(5000)).as_bytes()),
        ),
        (
            "nesting too deep",
            framed(call("read_room", &("{\"a\":".repeat(600) + "1" + &"}".repeat(600))).as_bytes()),
        ),
    ]
}

#[test]
fn whatever_is_no_request_ends_the_signer_without_an_answer() {
    for (what, bytes) in malformed() {
        let mut signer = Signer::start(&Key::random(), &["--allow-writes"]);
        signer.describe();
        signer.socket.write_all(&bytes).expect(what);
        assert!(ask(&mut signer.socket, br#"{"describe":{}}"#).is_none(), "{what} was answered");
        assert_eq!(signer.wait().code(), Some(65), "{what}");
    }
}

#[test]
fn it_ends_with_its_peer_also_in_the_middle_of_a_frame() {
    for sent in [&b""[..], b"\0\0", b"\0\0\x01\0{\"call"] {
        let mut signer = Signer::start(&Key::random(), &[]);
        signer.describe();
        signer.socket.write_all(sent).expect("sent");
        signer.socket.shutdown(std::net::Shutdown::Both).expect("closed");
        assert_eq!(signer.wait().code(), Some(0));
    }
}

#[test]
fn signals_to_the_group_do_not_end_it_before_its_peer() {
    let mut signer = Signer::start(&Key::random(), &[]);
    signer.describe();
    let pid = Pid::from_raw(signer.pid().cast_signed());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGPIPE] {
        kill(pid, signal).expect("delivered");
        assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some(), "after {signal}");
    }
}

#[test]
fn it_does_not_serve_a_parent_that_is_not_the_expected_one() {
    let start = Start::new(&Key::random().secret_hex(), &[]);
    let mut signer = start.with_socket(&["--inherited", "--relay", "http://h", "--parent", "1"]);
    let answer = ask(&mut signer.socket, br#"{"describe":{}}"#).expect("an answer");
    assert!(answer["failed"]["message"].as_str().is_some_and(|text| text.contains("has ended")), "{answer}");
    assert_eq!(signer.wait().code(), Some(1));
}

#[test]
fn it_dies_with_its_parent_even_while_somebody_holds_the_socket() {
    // A shell in between is the parent, and is killed; we keep the socket open all the while.
    let (mut socket, theirs) = std::os::unix::net::UnixStream::pair().expect("a socketpair");
    socket.set_read_timeout(Some(SOON)).expect("a timeout");
    let script = "\"$0\" --inherited --relay http://h --parent $$ 3<&0 </dev/null & wait";
    let mut parent = Command::new("/bin/sh")
        .args([
            "-c",
            &format!("exec 3<&0; {}", script.replace("3<&0 ", "")),
            signer_path().to_str().expect("text"),
        ])
        .env_clear()
        .env("TINY_PRIVATE_KEY", Key::random().secret_hex())
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .spawn()
        .expect("the shell starts");
    assert!(
        ask(&mut socket, br#"{"describe":{}}"#).is_some_and(|answer| answer.get("description").is_some())
    );
    let signer = tinyagent_harness::signer_of(parent.id()).expect("one child");
    parent.kill().expect("killed");
    parent.wait().expect("reaped");
    assert!(tinyagent_harness::wait_gone(signer, SOON), "the signer outlived its parent");
}
