//! What several modules need beside the harness: reading answers, running the program without it, and
//! judging the few times that the contract names. It holds no expectation of its own.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, PATIENCE, children, program, status_field};

/// The peak memory that contract 2 allows a process, in bytes.
pub const PEAK_MEMORY_BYTES: u64 = 120_000_000;

/// Options of a host that sends nothing by itself.
pub fn silent() -> HostOptions {
    HostOptions { silent: true, ..HostOptions::default() }
}

/// The code and the id of an error answer.
#[track_caller]
pub fn error_of(answer: &Value) -> (i64, &Value) {
    let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"));
    assert!(!answer["error"]["message"].as_str().unwrap_or_default().is_empty(), "no message: {answer}");
    (code, &answer["id"])
}

/// Insists on a result that is no tool error.
#[track_caller]
pub fn assert_answered(answer: &Value) {
    assert!(answer["result"].is_object() && answer["result"]["isError"] != true, "no result: {answer}");
}

/// The text of a tool error; anything else is a panic.
#[track_caller]
pub fn tool_error(answer: &Value) -> &str {
    assert_eq!(answer["result"]["isError"], true, "no tool error: {answer}");
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

/// Waits until the facade has started its signer, of which the harness then sees to it that it ends.
pub fn wait_for_signer(host: &mut Host) {
    let deadline = Instant::now() + PATIENCE;
    while children(host.pid()).is_empty() {
        assert!(Instant::now() < deadline, "no signer: {}", host.stderr());
        thread::sleep(Duration::from_millis(1));
    }
    host.signer();
}

/// A process's peak memory in bytes.
pub fn peak_memory(pid: u32) -> u64 {
    let field = status_field(pid, "VmHWM").expect("a live process");
    let kib: u64 = field.trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Insists that neither process has ever held more memory than contract 2 allows.
#[track_caller]
pub fn assert_memory_is_bounded(host: &mut Host) {
    for (name, pid) in [("facade", host.pid()), ("signer", host.signer())] {
        let peak = peak_memory(pid);
        assert!(peak < PEAK_MEMORY_BYTES, "the {name} held {peak} bytes");
    }
}

/// Insists on an upper bound of the contract for something that can be repeated. The machine may be busy
/// with other tests, so the program has several tries to show that it is fast enough.
#[track_caller]
pub fn assert_within(limit: Duration, what: &str, mut run: impl FnMut() -> Duration) {
    const TRIES: usize = 20;
    let mut fastest = Duration::MAX;
    for _ in 0..TRIES {
        fastest = fastest.min(run());
        if fastest < limit {
            return;
        }
    }
    panic!("{what} took {fastest:?} at the least, and {limit:?} is the bound");
}

/// The time that something takes.
pub fn timed(run: impl FnOnce()) -> Duration {
    let began = Instant::now();
    run();
    began.elapsed()
}

/// `tinyagent mcp` for this relay with the tests' key, without a host around it.
pub fn bare(url: &str) -> Command {
    let mut command = Command::new(program("tinyagent"));
    command.args(["mcp", "--relay", url]).env_clear().env("PATH", "/usr/bin:/bin").env(KEY_VARIABLE, KEY);
    command
}

/// The same started by a shell, which first does this redirection, such as `<&-`.
pub fn redirected(url: &str, redirection: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("exec \"$0\" mcp --relay \"$1\" {redirection}"));
    command.arg(program("tinyagent")).arg(url);
    command.env_clear().env("PATH", "/usr/bin:/bin").env(KEY_VARIABLE, KEY);
    command
}

/// Runs a command to its end, with this input in one write and then the end of stdin.
pub fn piped(mut command: Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stdin = child.stdin.take().expect("a piped stdin");
    stdin.write_all(input).expect("the program reads");
    drop(stdin);
    child.wait_with_output().expect("the command ends")
}

/// The JSON lines of an output.
pub fn lines(stdout: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stdout).expect("UTF-8 on stdout");
    assert!(text.is_empty() || text.ends_with('\n'), "half a line on stdout: {text}");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON on stdout")).collect()
}
