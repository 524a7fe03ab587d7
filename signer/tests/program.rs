//! Starts the real signer and speaks to it byte by byte, so that a test can also say what no honest
//! peer would.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tinyagent_harness::copy_program;
use tinyagent_relay::{Event, Key};

/// The relay that every test names; nothing listens there, and the signer never connects.
pub const RELAY: &str = "http://127.0.0.1:9/r";

/// How long anything that should happen at once may take on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

/// The signer's program.
pub fn signer_path() -> PathBuf {
    tinyagent_harness::program("tinyagent-signer")
}

/// A signer started as the launcher starts it: the socket at descriptor 3, the key alone in its
/// environment.
pub struct Signer {
    /// Its process.
    pub child: Child,
    /// Our end of its socket.
    pub socket: UnixStream,
}

/// How to start one.
pub struct Start {
    /// The program and what stands before it, such as `setpriv`.
    pub command: Vec<String>,
    /// Its environment.
    pub environment: Vec<(String, String)>,
    /// Arguments after the mode and the relay.
    pub arguments: Vec<String>,
}

impl Start {
    /// With this key and these arguments.
    pub fn new(key: &str, arguments: &[&str]) -> Self {
        Self {
            command: vec![signer_path().to_str().expect("a path of text").into()],
            environment: vec![("TINY_PRIVATE_KEY".into(), key.into())],
            arguments: arguments.iter().map(|argument| (*argument).into()).collect(),
        }
    }

    /// Starts it with `--inherited`, the test as its parent.
    pub fn inherited(self) -> Signer {
        let parent = std::process::id().to_string();
        let arguments = ["--inherited", "--relay", RELAY, "--parent", &parent];
        self.with_socket(&arguments)
    }

    /// Starts it with exactly `arguments` before its own, and a socket at descriptor 3.
    pub fn with_socket(self, arguments: &[&str]) -> Signer {
        let (socket, theirs) = UnixStream::pair().expect("a socketpair");
        // The shell moves the socket to descriptor 3 and becomes the program, in the same process.
        let child = Command::new("/bin/sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 </dev/null"])
            .args(&self.command)
            .args(arguments)
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        socket.set_read_timeout(Some(SOON)).expect("a timeout");
        Signer { child, socket }
    }
}

impl Signer {
    /// With a key and arguments, started as the launcher would.
    pub fn start(key: &Key, arguments: &[&str]) -> Self {
        Start::new(&key.secret_hex(), arguments).inherited()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks and returns the answer.
    pub fn ask(&mut self, request: &str) -> Value {
        ask(&mut self.socket, request.as_bytes()).unwrap_or_else(|| panic!("no answer to {request}"))
    }

    /// Its description.
    pub fn describe(&mut self) -> Value {
        let mut answer = self.ask(r#"{"describe":{}}"#);
        assert!(answer.get("description").is_some(), "{answer}");
        answer["description"].take()
    }

    /// The state and reason of a measure in its description.
    pub fn measure(&mut self, name: &str) -> (String, String) {
        let description = self.describe();
        let measures = description["hardening"].as_array().expect("a list").clone();
        let measure = measures.into_iter().find(|m| m["measure"] == name);
        let measure = measure.unwrap_or_else(|| panic!("no measure {name}"));
        let text = |key: &str| measure[key].as_str().unwrap_or_default().to_owned();
        (text("state"), text("why"))
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a child's end, at most for [`SOON`].
pub fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(status) = child.try_wait().expect("a child to wait for") {
            return status;
        }
        assert!(Instant::now() < deadline, "the signer did not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a frame and reads the answer; None where the signer closes instead.
pub fn ask(socket: &mut UnixStream, request: &[u8]) -> Option<Value> {
    socket.write_all(&framed(request)).ok()?;
    read_answer(socket)
}

/// A frame of this content.
pub fn framed(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a frame's length");
    [&length.to_be_bytes(), content].concat()
}

/// Reads one answer; None at the end of the stream.
pub fn read_answer(socket: &mut UnixStream) -> Option<Value> {
    let mut header = [0; 4];
    socket.read_exact(&mut header).ok()?;
    let mut content = vec![0; u32::from_be_bytes(header) as usize];
    socket.read_exact(&mut content).ok()?;
    Some(serde_json::from_slice(&content).expect("an answer is JSON"))
}

/// The event inside an `Authorization` value, with its signature checked.
pub fn proof(answer: &Value) -> Event {
    let value = answer["authorization"].as_str().expect("an authorization");
    let token = value.strip_prefix("Nostr ").expect("the scheme");
    let text = String::from_utf8(STANDARD.decode(token).expect("base64")).expect("text");
    let event = Event::parse(&text).expect("an event");
    event.verify().expect("a valid signature");
    event
}

/// The rule that refused, or a panic with what came instead.
pub fn rule(answer: &Value) -> &str {
    answer["refused"]["rule"].as_str().unwrap_or_else(|| panic!("not refused: {answer}"))
}

/// A `call_tool` request.
pub fn call(tool: &str, arguments: &str) -> String {
    format!(r#"{{"call_tool":{{"id":1,"tool":"{tool}","arguments":{arguments}}}}}"#)
}

/// A `publish` request with a template of this kind and tag.
pub fn publish(tool: &str, arguments: &str, kind: u64, tag: &str) -> String {
    format!(
        r#"{{"publish":{{"id":1,"tool":"{tool}","arguments":{arguments},"template":{{"kind":{kind},"tags":[["{tag}","x"]],"content":"hi","created_at":1700000000}}}}}}"#
    )
}

/// A directory of one test's own, removed with it, in which every user may look.
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tinyagent-signer-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        Self(path)
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A path in it, as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("a path of text").into()
    }

    /// A file in it with this content and mode.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> String {
        fs::write(self.path(name), content).expect("a file");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("its mode");
        self.text(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether the tests run as root; where they do not, says what is left out.
pub fn is_root(otherwise: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: {otherwise} needs root");
    }
    root
}

/// The start of a command line that runs a copy of a program as the user `nobody`, who might not reach
/// the program itself.
pub fn as_nobody(directory: &Directory, program: &Path) -> Vec<String> {
    let copy = directory.text("program");
    copy_program(program, Path::new(&copy), 0o755);
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", &copy].map(Into::into).into()
}
