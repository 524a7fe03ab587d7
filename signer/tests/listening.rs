//! A signer under a user of its own, with several peers that cannot harm each other.

use std::fs;
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use serde_json::Value;
use tinyagent_harness::status_field;
use tinyagent_relay::Key;

use crate::program::{
    Directory, RELAY, SOON, as_nobody, ask, call, framed, is_root, publish, read_answer, rule, signer_path,
    wait,
};

/// A listening signer and its socket.
struct Service {
    child: Child,
    path: String,
}

impl Service {
    fn start(directory: &Directory, arguments: &[&str]) -> Self {
        let path = directory.text("signer.sock");
        let child = Command::new(signer_path())
            .args(["--socket", &path, "--relay", RELAY])
            .args(arguments)
            .env_clear()
            .env("TINY_PRIVATE_KEY", Key::random().secret_hex())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self { child, path }
    }

    fn connect(&self) -> UnixStream {
        let deadline = Instant::now() + SOON;
        loop {
            match UnixStream::connect(&self.path) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(SOON)).expect("a timeout");
                    return stream;
                }
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it by SIGTERM and returns what it logged.
    fn terminate(mut self) -> String {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).expect("delivered");
        wait(&mut self.child);
        std::io::read_to_string(self.child.stderr.take().expect("a pipe")).expect("its log")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answer(stream: &mut UnixStream, request: &str) -> Value {
    ask(stream, request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request}"))
}

#[test]
fn a_connection_is_narrowed_once_and_only_to_less_and_others_keep_the_whole_policy() {
    let directory = Directory::new();
    let service = Service::start(&directory, &["--tools", "read_room,list_rooms"]);
    let (mut one, mut other) = (service.connect(), service.connect());
    for widening in [
        r#"{"narrow":{"tools":["read_file"],"allow_writes":false}}"#,
        r#"{"narrow":{"tools":["post_message"],"allow_writes":false}}"#,
        r#"{"narrow":{"tools":["read_room"],"allow_writes":true}}"#,
    ] {
        assert_eq!(rule(&answer(&mut one, widening)), "narrow-widens");
    }
    let narrowed = answer(&mut one, r#"{"narrow":{"tools":["read_room"],"allow_writes":false}}"#);
    assert_eq!(narrowed["description"]["policy"]["tools"].as_array().map(Vec::len), Some(1));
    let again = answer(&mut one, r#"{"narrow":{"tools":["read_room"],"allow_writes":false}}"#);
    assert_eq!(rule(&again), "narrow-twice");
    assert_eq!(rule(&answer(&mut one, &call("list_rooms", "{}"))), "tool-not-exposed");
    assert!(answer(&mut other, &call("list_rooms", "{}")).get("proof").is_some());
}

#[test]
fn a_bad_frame_ends_its_own_connection_alone() {
    let directory = Directory::new();
    let service = Service::start(&directory, &[]);
    let (mut bad, mut good) = (service.connect(), service.connect());
    assert!(answer(&mut bad, r#"{"describe":{}}"#).get("description").is_some());
    assert!(ask(&mut bad, b"[]").is_none());
    assert!(answer(&mut good, &call("read_room", "{}")).get("proof").is_some());
}

#[test]
fn descriptors_sent_along_are_dropped() {
    if !is_root("listing the descriptors of a process that is not dumpable") {
        return;
    }
    let directory = Directory::new();
    let service = Service::start(&directory, &[]);
    let mut stream = service.connect();
    answer(&mut stream, r#"{"describe":{}}"#);
    let open = || fs::read_dir(format!("/proc/{}/fd", service.child.id())).expect("descriptors").count();
    let before = open();
    let bytes = framed(br#"{"describe":{}}"#);
    let descriptor = [std::io::stderr().as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptor)];
    sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&bytes)], &rights, MsgFlags::empty(), None)
        .expect("sent");
    assert!(read_answer(&mut stream).is_some_and(|answer| answer.get("description").is_some()));
    assert_eq!(open(), before);
}

#[test]
fn peers_that_send_half_or_never_read_do_not_hold_up_the_others_or_the_memory() {
    let directory = Directory::new();
    let service = Service::start(&directory, &["--allow-writes", "--max-events-per-minute", "100000"]);
    let mut halves: Vec<UnixStream> = (0..8).map(|_| service.connect()).collect();
    for half in &mut halves {
        half.write_all(&(40_u32 << 20).to_be_bytes()).expect("a header");
        half.write_all(&[b'{'; 60 << 10]).expect("a part");
    }
    // One that never reads its answers, until its send buffer is full.
    let mut deaf = service.connect();
    deaf.set_nonblocking(true).expect("non-blocking");
    let request = framed(publish("post_message", "{}", 9, "h").as_bytes());
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline && deaf.write(&request).is_ok() {}
    let mut good = service.connect();
    for _ in 0..20 {
        assert!(answer(&mut good, &call("read_room", "{}")).get("proof").is_some());
    }
    let large = call("read_room", &format!(r#"{{"data":"{}"}}"#, "x".repeat(4 << 20)));
    drop(halves);
    assert!(answer(&mut good, &large).get("proof").is_some());
    let peak = status_field(service.child.id(), "VmHWM").expect("a size");
    let kibibytes: u64 = peak.trim_end_matches(" kB").parse().expect("a number");
    assert!(kibibytes < 64 << 10, "peak {peak}");
}

#[test]
fn fifty_peers_at_once_each_get_their_own_answers() {
    let directory = Directory::new();
    let service = Service::start(&directory, &["--allow-writes"]);
    std::thread::scope(|scope| {
        for peer in 0..50 {
            let mut stream = service.connect();
            scope.spawn(move || {
                for number in 0..10 {
                    let mine = format!("peer {peer} message {number}");
                    let request = publish("post_message", "{}", 9, "h").replace("hi", &mine);
                    let answer = answer(&mut stream, &request);
                    assert_eq!(answer["published"]["event"]["content"], mine, "{answer}");
                }
            });
        }
    });
}

#[test]
#[ignore = "no test: the test below starts it as the program of another user that connects"]
fn program_that_connects() {
    let mut stream = UnixStream::connect(std::env::var("SIGNER_SOCKET").expect("a path")).expect("connected");
    let answer = ask(&mut stream, br#"{"describe":{}}"#);
    println!("{}", if answer.is_some() { "was answered" } else { "was not answered" });
}

#[test]
fn only_the_allowed_users_are_served() {
    if !is_root("connecting as another user") {
        return;
    }
    let directory = Directory::new();
    let command = as_nobody(&directory, &std::env::current_exe().expect("the test's own path"));
    let connect = |service: &Service| {
        drop(service.connect());
        fs::set_permissions(&service.path, fs::Permissions::from_mode(0o666)).expect("open to all");
        let output = Command::new(&command[0])
            .args(&command[1..])
            .args(["--ignored", "--nocapture", "--exact", "listening::program_that_connects"])
            .env("SIGNER_SOCKET", &service.path)
            .output()
            .expect("setpriv starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let service = Service::start(&directory, &[]);
    let seen = connect(&service);
    assert!(seen.contains("was not answered"), "{seen}");
    let log = service.terminate();
    assert!(log.contains("refused a connection from uid 65534"), "{log}");
    let service = Service::start(&directory, &["--allow-uid", "65534"]);
    let seen = connect(&service);
    assert!(seen.contains("was answered"), "{seen}");
}

#[test]
fn the_socket_is_for_owner_and_group_and_one_left_behind_is_replaced_but_a_living_one_is_not() {
    let directory = Directory::new();
    let service = Service::start(&directory, &[]);
    drop(service.connect());
    assert_eq!(fs::metadata(&service.path).expect("a socket").permissions().mode() & 0o777, 0o660);
    let mut second = Service::start(&directory, &[]);
    assert_eq!(wait(&mut second.child).code(), Some(1));
    assert!(answer(&mut service.connect(), r#"{"describe":{}}"#).get("description").is_some());
    service.terminate();
    let third = Service::start(&directory, &[]);
    assert!(answer(&mut third.connect(), r#"{"describe":{}}"#).get("description").is_some());
    drop(third);
    directory.file("signer.sock.file", "not a socket", 0o600);
    fs::rename(directory.path("signer.sock.file"), directory.path("signer.sock")).expect("in its place");
    let mut fourth = Service::start(&directory, &[]);
    assert_eq!(wait(&mut fourth.child).code(), Some(1));
}

#[test]
fn a_socket_that_the_service_manager_hands_over_is_served() {
    let directory = Directory::new();
    let path = directory.text("handed-over.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let script =
        "exec env LISTEN_PID=$$ LISTEN_FDS=1 \"$0\" --socket unused --relay http://h 3<&0 </dev/null";
    let child = Command::new("/bin/sh")
        .args(["-c", script, signer_path().to_str().expect("text")])
        .env("TINY_PRIVATE_KEY", Key::random().secret_hex())
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stderr(Stdio::piped())
        .spawn()
        .expect("the shell starts");
    let service = Service { child, path };
    assert!(answer(&mut service.connect(), r#"{"describe":{}}"#).get("description").is_some());
}
