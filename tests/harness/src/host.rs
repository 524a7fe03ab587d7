//! One `tinyagent mcp` with a host's end of its pipes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tinyagent_relay::Relay;

use crate::process::{children, is_alive, program, wait_gone};
use crate::{INITIALIZE, INITIALIZED, KEY, KEY_VARIABLE, PATIENCE, call, ping, request};

/// What stdin is.
#[derive(Default)]
pub enum Input {
    /// A pipe that the test writes to.
    #[default]
    Pipe,
    /// Anything else, such as a file or /dev/null.
    Other(Stdio),
}

/// What becomes of stderr.
#[derive(Default)]
pub enum Stderr {
    /// Read and kept, for [`Host::stderr`].
    #[default]
    Kept,
    /// Anything else; a pipe made by the test may stay unread.
    Other(Stdio),
}

/// How to start the program.
#[derive(Default)]
pub struct HostOptions {
    /// Arguments after `mcp --relay URL`.
    pub args: Vec<String>,
    /// Variables beside `PATH` and the key.
    pub env: Vec<(String, String)>,
    /// Leave the key variable out.
    pub without_key: bool,
    /// Stdin.
    pub input: Input,
    /// Stderr.
    pub stderr: Stderr,
    /// Do not read stdout until [`Host::start_reading`].
    pub late_reader: bool,
    /// Do not send initialize.
    pub silent: bool,
    /// Run under this user and group, where the test runs as root.
    pub uid: Option<u32>,
    /// Run another program than the built one.
    pub program: Option<std::path::PathBuf>,
}

impl HostOptions {
    /// With these arguments after `mcp --relay URL`.
    pub fn args(args: &[&str]) -> Self {
        Self { args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..Self::default() }
    }

    /// With a variable more.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// What is left of a program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code, none where a signal ended it.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// Everything on stderr.
    pub stderr: String,
    /// Every line on stdout that no one took.
    pub rest: Vec<Value>,
    /// From the wish to end to the exit.
    pub took: Duration,
}

/// A running `tinyagent mcp`.
pub struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<std::process::ChildStdout>,
    lines: Option<Receiver<Vec<u8>>>,
    stderr: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
    /// Answers that came before anybody asked for them.
    early: Vec<Value>,
    answered: HashMap<String, usize>,
    asked: HashMap<String, usize>,
    next_id: u64,
    signer: Option<u32>,
    ended: bool,
}

impl Host {
    /// Starts with the default tools against this relay, initialized.
    pub fn start(relay: &Relay) -> Host {
        Host::with(relay, HostOptions::default())
    }

    /// Starts with `--allow-writes`.
    pub fn with_writes(relay: &Relay) -> Host {
        Host::with(relay, HostOptions::args(&["--allow-writes"]))
    }

    /// Starts as the options say.
    pub fn with(relay: &Relay, options: HostOptions) -> Host {
        Host::at(&relay.url(), options)
    }

    /// Starts against a URL.
    pub fn at(url: &str, options: HostOptions) -> Host {
        let mut command = Command::new(options.program.unwrap_or_else(|| program("tinyagent")));
        command.args(["mcp", "--relay", url]).args(&options.args);
        command.env_clear().env("PATH", "/usr/bin:/bin");
        if !options.without_key {
            command.env(KEY_VARIABLE, KEY);
        }
        command.envs(options.env);
        if let Some(uid) = options.uid {
            command.uid(uid).gid(uid);
        }
        command.stdin(match options.input {
            Input::Pipe => Stdio::piped(),
            Input::Other(other) => other,
        });
        command.stdout(Stdio::piped());
        let kept = matches!(options.stderr, Stderr::Kept);
        command.stderr(match options.stderr {
            Stderr::Kept => Stdio::piped(),
            Stderr::Other(other) => other,
        });
        // A group of its own, so that a test may signal the whole group.
        command.process_group(0);
        let mut child = command.spawn().expect("tinyagent starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        let stderr_reader = kept.then(|| {
            let pipe = child.stderr.take().expect("a piped stderr");
            let text = stderr.clone();
            thread::spawn(move || {
                let mut pipe = BufReader::new(pipe);
                let mut line = Vec::new();
                while matches!(pipe.read_until(b'\n', &mut line), Ok(1..)) {
                    text.lock().expect("stderr").push_str(&String::from_utf8_lossy(&line));
                    line.clear();
                }
            })
        });
        let mut host = Host {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            child,
            lines: None,
            stderr,
            stderr_reader,
            early: Vec::new(),
            answered: HashMap::new(),
            asked: HashMap::new(),
            next_id: 1000,
            signer: None,
            ended: false,
        };
        if !options.late_reader {
            host.start_reading();
        }
        if !options.silent && host.stdin.is_some() {
            host.send(INITIALIZE);
            if !options.late_reader {
                host.answer(0);
                host.signer = children(host.pid()).first().copied();
            }
            host.send(INITIALIZED);
        }
        host
    }

    /// Starts to read stdout.
    pub fn start_reading(&mut self) {
        let Some(stdout) = self.stdout.take() else { return };
        let (sender, lines) = channel();
        self.lines = Some(lines);
        thread::spawn(move || {
            let mut stdout = BufReader::with_capacity(1 << 16, stdout);
            let mut line = Vec::new();
            while matches!(stdout.read_until(b'\n', &mut line), Ok(1..)) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
    }

    /// The facade's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The signer's process id.
    pub fn signer(&mut self) -> u32 {
        let found = children(self.pid()).first().copied();
        self.signer = self.signer.or(found);
        self.signer.expect("a signer")
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) {
        self.note(line);
        self.send_bytes(line.as_bytes());
        self.send_bytes(b"\n");
    }

    /// Sends bytes as they are; their ids are not counted as asked.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("an open stdin");
        stdin.write_all(bytes).and_then(|()| stdin.flush()).expect("the program reads");
    }

    fn note(&mut self, line: &str) {
        if let Ok(Value::Object(message)) = serde_json::from_str(line)
            && message.contains_key("method")
            && let Some(id) = message.get("id")
        {
            *self.asked.entry(id.to_string()).or_default() += 1;
        }
    }

    /// Sends a request and gives its answer.
    pub fn ask(&mut self, method: &str, params: &str) -> Value {
        let id = self.take_id();
        self.send(&request(id, method, params));
        self.answer(id)
    }

    /// Calls a tool and gives the answer; the arguments travel exactly as given.
    pub fn call(&mut self, tool: &str, arguments: &str) -> Value {
        let id = self.begin_call(tool, arguments);
        self.answer(id)
    }

    /// Calls a tool without waiting; gives the id.
    pub fn begin_call(&mut self, tool: &str, arguments: &str) -> u64 {
        let id = self.take_id();
        self.send(&call(id, tool, arguments));
        id
    }

    /// Calls a tool and gives the text of the first block.
    pub fn text(&mut self, tool: &str, arguments: &str) -> String {
        let answer = self.call(tool, arguments);
        answer["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text: {answer}"))
            .to_owned()
    }

    /// A fresh id.
    pub fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Waits for the answer to an id.
    pub fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.wait_for_answer(&id, PATIENCE)
            .unwrap_or_else(|| panic!("no answer to {id}; stderr: {}", self.stderr()))
    }

    /// Waits for the answer to an id, at most for `limit`.
    pub fn wait_for_answer(&mut self, id: &Value, limit: Duration) -> Option<Value> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(at) = self.early.iter().position(|line| line.get("id") == Some(id)) {
                return Some(self.early.remove(at));
            }
            let line = self.next_line(deadline.saturating_duration_since(Instant::now()))?;
            self.early.push(line);
        }
    }

    /// The next line on stdout, whatever it answers.
    pub fn next_answer(&mut self) -> Value {
        if !self.early.is_empty() {
            return self.early.remove(0);
        }
        self.next_line(PATIENCE).unwrap_or_else(|| panic!("no line; stderr: {}", self.stderr()))
    }

    /// Whether nothing comes on stdout for this long.
    pub fn is_quiet_for(&mut self, time: Duration) -> bool {
        match self.early.is_empty().then(|| self.next_line(time)).flatten() {
            Some(line) => {
                self.early.push(line);
                false
            }
            None => self.early.is_empty(),
        }
    }

    fn next_line(&mut self, limit: Duration) -> Option<Value> {
        let line = match self.lines.as_ref().expect("a reader").recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        };
        let text = line.strip_suffix(b"\n").expect("a whole line on stdout");
        assert!(!text.contains(&b'\r'), "a carriage return on stdout");
        let text = std::str::from_utf8(text).expect("UTF-8 on stdout");
        for separator in ['\u{85}', '\u{2028}', '\u{2029}'] {
            assert!(!text.contains(separator), "a line separator on stdout");
        }
        assert!(!text.contains(KEY), "the key on stdout");
        let value: Value = serde_json::from_str(text)
            .unwrap_or_else(|error| panic!("no JSON on stdout ({error}): {}", shortened(text)));
        assert_eq!(value["jsonrpc"], "2.0", "not JSON-RPC: {}", shortened(text));
        let keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
        assert!(
            matches!(keys[..], ["id", "jsonrpc", "result"] | ["error", "id", "jsonrpc"]),
            "odd keys on stdout: {keys:?}"
        );
        if !value["id"].is_null() {
            *self.answered.entry(value["id"].to_string()).or_default() += 1;
        }
        Some(value)
    }

    /// What stderr holds so far.
    pub fn stderr(&self) -> String {
        self.stderr.lock().expect("stderr").clone()
    }

    /// Waits until stderr holds this text.
    pub fn wait_for_stderr(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.stderr().contains(text) {
            assert!(Instant::now() < deadline, "stderr never said {text:?}: {}", self.stderr());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Insists that the program still answers.
    pub fn assert_alive(&mut self) {
        let id = self.take_id();
        self.send(&ping(id));
        assert_eq!(self.answer(id)["result"], serde_json::json!({}));
    }

    /// Closes stdin without waiting.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Closes the reading end of stdout; only where nothing reads it yet.
    pub fn close_stdout(&mut self) {
        assert!(self.stdout.take().is_some(), "stdout is being read");
    }

    /// Sends a signal to the facade alone.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("the facade is there");
    }

    /// Sends a signal to the facade's whole process group.
    pub fn signal_group(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        nix::sys::signal::killpg(pid, signal).expect("the group is there");
    }

    /// Closes stdin and waits for the end, with every check of the harness.
    pub fn end(mut self) -> Ended {
        let began = Instant::now();
        self.close_stdin();
        self.finish(began, PATIENCE)
    }

    /// Waits for an end that the test has brought about, with every check of the harness.
    pub fn wait(mut self, limit: Duration) -> Ended {
        self.finish(Instant::now(), limit)
    }

    fn finish(&mut self, began: Instant, limit: Duration) -> Ended {
        self.ended = true;
        let signer = self.signer;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                break status;
            }
            if began.elapsed() > limit {
                let stderr = self.stderr();
                self.child.kill().expect("our child");
                panic!("still running {:?} after its end was wished; stderr: {stderr}", began.elapsed());
            }
            thread::sleep(Duration::from_millis(1));
        };
        let took = began.elapsed();
        if let Some(signer) = signer {
            assert!(wait_gone(signer, Duration::from_secs(2)), "the signer {signer} is left behind");
        }
        let mut rest = std::mem::take(&mut self.early);
        if self.lines.is_some() {
            while let Some(line) = self.next_line(Duration::from_secs(5)) {
                rest.push(line);
            }
        }
        // What was written before the end may not have been read yet.
        let reader_deadline = Instant::now() + PATIENCE;
        while self.stderr_reader.as_ref().is_some_and(|reader| !reader.is_finished()) {
            assert!(Instant::now() < reader_deadline, "someone still holds stderr open");
            thread::sleep(Duration::from_millis(1));
        }
        let stderr = self.stderr();
        assert!(!stderr.contains(KEY), "the key on stderr");
        assert!(!stderr.contains("panicked"), "a panic: {stderr}");
        for (id, answers) in &self.answered {
            let asked = self.asked.get(id).copied().unwrap_or(usize::MAX);
            assert!(*answers <= asked, "{answers} answers to {asked} requests of the id {id}");
        }
        Ended { code: status.code(), signal: status.signal(), stderr, rest, took }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
            if let Some(mut stdout) = self.stdout.take() {
                let _ = stdout.read(&mut [0; 1]);
            }
            if let Some(signer) = self.signer.filter(|_| !thread::panicking()) {
                assert!(wait_gone(signer, Duration::from_secs(2)), "the signer {signer} is left behind");
            }
            debug_assert!(!is_alive(self.child.id()));
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}
