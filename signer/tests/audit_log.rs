//! The audit log of the real program: written before the answer, kept whole, and in the way of every
//! signature that cannot be recorded.

use std::fs;
use std::process::Command;

use tinyagent_relay::{Event, Key};

use crate::program::{Directory, Signer, Start, ask, call, is_root, proof, publish, rule, signer_path};

fn verify(path: &str) -> (Option<i32>, String) {
    let output = Command::new(signer_path()).args(["verify-log", path]).output().expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn each_decision_is_on_record_when_its_answer_arrives_without_any_content() {
    let directory = Directory::new();
    let path = directory.text("audit.jsonl");
    let key = Key::random();
    let mut signer = Signer::start(&key, &["--allow-writes", "--audit-log", &path]);
    let last = || -> serde_json::Value {
        let log = fs::read_to_string(&path).expect("the log");
        serde_json::from_str(log.lines().last().expect("a record")).expect("a JSON line")
    };
    let request = call("read_room", r#"{"room":"the-content"}"#).replacen(
        "\"id\"",
        "\"client\":\"Claude Code\",\"id\"",
        1,
    );
    let answer = proof(&signer.ask(&request)["proof"]);
    let record = last();
    assert_eq!(
        (&record["request"], &record["tool"], &record["decision"]),
        (&"call_tool".into(), &"read_room".into(), &"signed".into())
    );
    assert_eq!(record["client"], "claude-code");
    assert_eq!(
        (record["proof"].as_str(), record["body"].as_str()),
        (Some(answer.id.as_str()), answer.tag("payload"))
    );

    let answer = signer.ask(&publish("post_message", "{}", 9, "h").replace("hi", "the-content"));
    let event = Event::parse(&answer["published"]["event"].to_string()).expect("an event");
    assert_eq!((last()["event"].as_str(), &last()["kind"]), (Some(event.id.as_str()), &9.into()));

    assert_eq!(rule(&signer.ask(&publish("post_message", "{}", 1, "h"))), "kind-not-expected");
    assert_eq!((&last()["decision"], &last()["rule"]), (&"refused".into(), &"kind-not-expected".into()));

    let log = fs::read_to_string(&path).expect("the log");
    assert!(
        !log.contains("the-content") && !log.contains(&key.secret_hex()) && !log.contains(&event.sig),
        "{log}"
    );
    assert_eq!(verify(&path), (Some(0), "4 records of 1 start in 1 file: the chain is whole\n".into()));
    fs::write(&path, log.replacen("\"kind\":9", "\"kind\":7", 1)).expect("edited");
    let (status, text) = verify(&path);
    assert!(status == Some(2) && text.contains("line 4"), "{text}");
}

#[test]
fn a_second_signer_and_a_log_that_was_replaced_get_no_signature() {
    let directory = Directory::new();
    let path = directory.text("audit.jsonl");
    let mut signer = Signer::start(&Key::random(), &["--audit-log", &path]);
    signer.describe();
    let mut second = Start::new(&Key::random().secret_hex(), &["--audit-log", &path]).inherited();
    let answer = ask(&mut second.socket, br#"{"describe":{}}"#).expect("an answer");
    assert!(
        answer["failed"]["message"].as_str().is_some_and(|m| m.contains("in use by another signer")),
        "{answer}"
    );

    fs::rename(&path, directory.path("moved")).expect("moved");
    assert_eq!(rule(&signer.ask(&call("read_room", "{}"))), "audit-log");
    fs::rename(directory.path("moved"), &path).expect("moved back");
    assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some());
}

/// A small file system of its own under a directory, unmounted with it.
struct SmallDisk(String);

impl SmallDisk {
    fn mount(directory: &Directory) -> Option<Self> {
        let path = directory.text("disk");
        fs::create_dir(&path).expect("a directory");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=32k", "none", &path]).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(path));
        }
        println!("skipped: no file system can be mounted here");
        None
    }

    fn resize(&self, size: &str) {
        let option = format!("remount,size={size}");
        assert!(Command::new("mount").args(["-o", &option, &self.0]).status().is_ok_and(|s| s.success()));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", &self.0]).status();
    }
}

#[test]
fn a_full_disk_refuses_every_signature_until_there_is_space() {
    if !is_root("a small file system") {
        return;
    }
    let directory = Directory::new();
    let Some(disk) = SmallDisk::mount(&directory) else { return };
    let path = format!("{}/audit.jsonl", disk.0);
    let mut signer = Signer::start(&Key::random(), &["--audit-log", &path]);
    let refused = (0..1000).map(|_| signer.ask(&call("read_room", "{}"))).find(|a| a.get("proof").is_none());
    let refused = refused.expect("the disk fills");
    assert_eq!(rule(&refused), "audit-log");
    let message = refused["refused"]["message"].as_str().expect("a message");
    assert!(message.contains("No space left") && message.ends_with("nothing was signed"), "{message}");
    assert_eq!(rule(&signer.ask(&call("read_room", "{}"))), "audit-log");
    disk.resize("256k");
    assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some());
    assert!(verify(&path).1.ends_with("the chain is whole\n"), "{}", verify(&path).1);
}

#[test]
fn the_log_is_rotated_by_the_closed_in_program() {
    let directory = Directory::new();
    let path = directory.text("audit.jsonl");
    let mut signer = Signer::start(&Key::random(), &["--audit-log", &path]);
    // A refused tool name is the longest thing that a record holds; about 400 bytes each.
    let request = call(&"\\u0001".repeat(64), "{}");
    let deadline = 40_000;
    let rotated = (0..deadline).any(|_| {
        assert_eq!(rule(&signer.ask(&request)), "tool-not-exposed");
        fs::exists(directory.path("audit.jsonl.1")).expect("looked at")
    });
    assert!(rotated, "no second file after {deadline} records");
    assert!(fs::metadata(directory.path("audit.jsonl.1")).expect("the first file").len() <= 5 << 20);
    let (status, text) = verify(&path);
    assert!(status == Some(0) && text.contains("in 2 files"), "{text}");
}
