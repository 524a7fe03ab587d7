//! Claim 6 on the socket: frames that are partial, oversized, empty, too many, or carry descriptors.

use std::io::{IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tinyagent_harness::status_field;

use crate::peer::{MALFORMED, Peer, call};
use crate::support::is_root;

/// The largest request (protocol::frame): a host line of 48 MiB, a template, and the keys around them.
const MAX_REQUEST_BYTES: u32 = (48 << 20) + (1 << 20) + (64 << 10);

#[test]
fn frames_that_are_none_end_the_signer_unanswered() {
    let header = |length: u32| length.to_be_bytes().to_vec();
    for (what, bytes) in [
        ("an empty frame", header(0)),
        ("one byte too large", header(MAX_REQUEST_BYTES + 1)),
        ("four gigabytes", header(u32::MAX)),
        ("a frame of one byte", [header(1), b"{".to_vec()].concat()),
        ("white space", [header(4), b" \n\t ".to_vec()].concat()),
        ("no JSON", [header(5), b"hello".to_vec()].concat()),
        ("bad UTF-8", [header(16), b"{\"describe\":\"\xff\"".to_vec()].concat()),
        ("two objects", [header(32), br#"{"describe":{}} {"describe":{}} "#.to_vec()].concat()),
        ("HTTP", b"POST /mcp HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        let mut peer = Peer::with_everything();
        assert!(peer.ask(r#"{"describe":{}}"#).get("description").is_some());
        peer.socket.write_all(&bytes).expect("the signer reads");
        // A request that would be answered if the signer went on.
        peer.send(br#"{"describe":{}}"#);
        assert_eq!(peer.receive(), None, "{what}");
        assert_eq!(peer.end(), Some(MALFORMED), "{what}");
    }
}

#[test]
fn half_a_frame_and_the_end_of_the_socket_end_the_signer() {
    for sent in [&b""[..], b"\0", b"\0\0\0", b"\0\0\0\x10", b"\0\0\0\x10{\"describe", b"\x03\0\0\0{"] {
        let mut peer = Peer::with_everything();
        assert!(peer.ask(r#"{"describe":{}}"#).get("description").is_some());
        peer.socket.write_all(sent).expect("the signer reads");
        peer.socket.shutdown(Shutdown::Write).expect("our end");
        assert_eq!(peer.receive(), None);
        assert_eq!(peer.end(), Some(0), "{sent:?}");
    }
}

#[test]
fn a_frame_in_single_bytes_is_one_request() {
    let mut peer = Peer::with_everything();
    let content = call("read_room", "{}");
    for byte in [&u32::try_from(content.len()).expect("small").to_be_bytes(), content.as_bytes()].concat() {
        peer.socket.write_all(&[byte]).expect("the signer reads");
    }
    assert!(peer.receive().is_some_and(|answer| answer.get("proof").is_some()));
}

fn peak_bytes(pid: u32) -> u64 {
    let peak = status_field(pid, "VmHWM").expect("a live process");
    peak.trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn a_flood_is_answered_in_order_in_little_memory() {
    const REQUESTS: usize = 20_000;
    let mut peer = Peer::with_everything();
    let mut writer = peer.socket.try_clone().expect("a second handle");
    let content = r#"{"call_tool":{"id":1,"tool":"nothing","arguments":{}}}"#.as_bytes();
    let frame = [&u32::try_from(content.len()).expect("small").to_be_bytes(), content].concat();
    let flood = std::thread::spawn(move || {
        for number in 0..REQUESTS {
            let frame = if number % 1000 == 0 { describe() } else { frame.clone() };
            writer.write_all(&frame).expect("the signer reads");
        }
    });
    for number in 0..REQUESTS {
        let answer = peer.receive().expect("an answer to each");
        assert_eq!(answer.get("description").is_some(), number % 1000 == 0, "{number}: {answer}");
    }
    flood.join().expect("everything was written");
    assert!(peak_bytes(peer.pid()) < 64 << 20, "{} bytes at the peak", peak_bytes(peer.pid()));
}

fn describe() -> Vec<u8> {
    [&15_u32.to_be_bytes()[..], br#"{"describe":{}}"#].concat()
}

#[test]
fn an_announced_length_reserves_no_memory() {
    let mut peer = Peer::with_everything();
    assert!(peer.ask(r#"{"describe":{}}"#).get("description").is_some());
    let before = peak_bytes(peer.pid());
    peer.socket.write_all(&MAX_REQUEST_BYTES.to_be_bytes()).expect("the signer reads");
    peer.socket.write_all(&[b'{'; 1000]).expect("the signer reads");
    let after = peak_bytes(peer.pid());
    assert!(after < before + (1 << 20), "{before} bytes before, {after} after");
    peer.socket.shutdown(Shutdown::Write).expect("our end");
    assert_eq!(peer.end(), Some(0));
}

#[test]
fn descriptors_sent_over_the_socket_are_dropped() {
    if !is_root("listing the descriptors of a process that is not dumpable") {
        return;
    }
    let mut peer = Peer::with_everything();
    assert!(peer.ask(r#"{"describe":{}}"#).get("description").is_some());
    let open = |pid| std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count();
    let before = open(peer.pid());
    let descriptors = [peer.socket.as_raw_fd(), std::io::stdin().as_raw_fd()];
    for _ in 0..3 {
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let sent = sendmsg::<()>(
            peer.socket.as_raw_fd(),
            &[IoSlice::new(&describe())],
            &rights,
            MsgFlags::empty(),
            None,
        );
        assert_eq!(sent, Ok(describe().len()));
    }
    for _ in 0..3 {
        assert!(peer.receive().is_some_and(|answer| answer.get("description").is_some()));
    }
    assert_eq!(open(peer.pid()), before);
}
