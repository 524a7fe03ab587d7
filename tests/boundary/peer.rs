//! The facade's end of the signer's socket, in the hands of a test: what a taken-over facade could send,
//! byte by byte, and what it would get.
//!
//! It starts the real signer by itself, with the standard library alone, and speaks none of the product's
//! own client code.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tinyagent_relay::{Event, Key};

use crate::support::program;

/// The relay of the signer's policy. Nothing listens there; the signer never connects.
pub const RELAY: &str = "http://127.0.0.1:9/r/acme";

/// How long anything that should happen at once may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// The status with which the signer ends at a request that is none.
pub const MALFORMED: i32 = 65;

/// A signer whose one peer is the test.
pub struct Peer {
    child: Child,
    /// Our end of its socket.
    pub socket: UnixStream,
    /// The public key of its key.
    pub public: String,
}

impl Peer {
    /// With these arguments after the relay, and a key of its own.
    pub fn start(arguments: &[&str]) -> Self {
        Self::at(RELAY, arguments)
    }

    /// The same for another relay.
    pub fn at(relay: &str, arguments: &[&str]) -> Self {
        let key = Key::random();
        Self::holding(&key.secret_hex(), key.public_hex(), relay, arguments)
    }

    /// The same with this key.
    pub fn holding(secret: &str, public: String, relay: &str, arguments: &[&str]) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("a socketpair");
        socket.set_read_timeout(Some(SOON)).expect("a timeout");
        // The shell moves the socket to descriptor 3 and becomes the program, in the same process.
        let child = Command::new("/bin/sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 </dev/null"])
            .arg(program("tinyagent-signer"))
            .args(["--inherited", "--relay", relay, "--parent", &std::process::id().to_string()])
            .args(arguments)
            .env_clear()
            .env("TINY_PRIVATE_KEY", secret)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .expect("the shell starts");
        Self { child, socket, public }
    }

    /// With every tool and no bound that a test could reach.
    pub fn with_everything() -> Self {
        Self::start(&["--allow-writes", "--max-events-per-minute", "4000000000"])
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a frame of this content; false where the signer has gone.
    pub fn send(&mut self, content: &[u8]) -> bool {
        let length = u32::try_from(content.len()).expect("a frame's length");
        self.socket.write_all(&[&length.to_be_bytes(), content].concat()).is_ok()
    }

    /// Reads one answer; None at the end of the stream.
    pub fn receive(&mut self) -> Option<Value> {
        let mut header = [0; 4];
        self.socket.read_exact(&mut header).ok()?;
        let mut content = vec![0; u32::from_be_bytes(header) as usize];
        self.socket.read_exact(&mut content).ok()?;
        Some(serde_json::from_slice(&content).expect("an answer is JSON"))
    }

    /// Sends a frame and reads its answer; None where the signer ended instead.
    pub fn try_ask(&mut self, content: &[u8]) -> Option<Value> {
        if self.send(content) { self.receive() } else { None }
    }

    /// Sends a request that must be answered.
    pub fn ask(&mut self, request: &str) -> Value {
        self.try_ask(request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request}"))
    }

    /// The exit status with which it ends by itself.
    pub fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the signer did not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The event inside an `Authorization` value, its signature checked with the relay's own code.
pub fn proof_in(answer: &Value) -> Event {
    let value = answer["authorization"].as_str().unwrap_or_else(|| panic!("no authorization: {answer}"));
    let token = value.strip_prefix("Nostr ").expect("the scheme");
    let event = Event::parse(std::str::from_utf8(&STANDARD.decode(token).expect("base64")).expect("UTF-8"));
    let event = event.expect("an event");
    event.verify().expect("a valid proof");
    event
}

/// The event that was signed for a publication, its signature checked.
pub fn event_in(answer: &Value) -> Event {
    let event = Event::parse(&answer["published"]["event"].to_string()).expect("an event");
    event.verify().expect("a valid event");
    event
}

/// The rule and the message of a refusal; anything else is a panic. Nothing signed may stand beside it.
pub fn refusal(answer: &Value) -> (&str, &str) {
    let keys: Vec<&String> = answer.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["refused"], "not refused: {answer}");
    let text = |name: &str| answer["refused"][name].as_str().expect("a text");
    assert_eq!(answer["refused"].as_object().map(|refused| refused.len()), Some(2), "{answer}");
    (text("rule"), text("message"))
}

/// A `call_tool` request.
pub fn call(tool: &str, arguments: &str) -> String {
    format!(r#"{{"call_tool":{{"id":1,"tool":"{tool}","arguments":{arguments}}}}}"#)
}

/// A `publish` request with a template of this kind and these tags.
pub fn publish(tool: &str, arguments: &str, kind: u64, tags: &str) -> String {
    format!(
        r#"{{"publish":{{"id":1,"tool":"{tool}","arguments":{arguments},"template":{{"kind":{kind},"tags":{tags},"content":"hi","created_at":1700000000}}}}}}"#
    )
}

/// Sends what is no request to a signer of its own, and insists that it ends it without an answer.
pub fn assert_ends(what: &str, content: &[u8]) {
    let mut peer = Peer::with_everything();
    assert!(peer.ask(r#"{"describe":{}}"#).get("description").is_some());
    let answer = peer.try_ask(content);
    assert!(answer.is_none(), "{what} was answered: {answer:?}");
    assert_eq!(peer.end(), Some(MALFORMED), "{what}");
}
