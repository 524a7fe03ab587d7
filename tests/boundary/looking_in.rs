//! Claim 3 from outside: what another process of the same user can see of the two, and when. What code
//! inside the facade could do is attempted in facade/tests/sandbox.rs.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tinyagent_harness::{Host, HostOptions, KEY_VARIABLE, PATIENCE, environ, status_field};
use tinyagent_relay::{Options, Relay};

use crate::support::{Directory, NOBODY, NewKey, is_root, with_key};

/// What another process of this user is told when it reads a file of a process.
fn read_as_nobody(path: &str) -> Result<Vec<u8>, String> {
    let mut command = Command::new("cat");
    command.arg(path).uid(NOBODY).gid(NOBODY);
    let output = command.output().expect("there is a cat");
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn another_process_of_the_same_user_cannot_look_into_either_process() {
    if !is_root("running as another user") {
        return;
    }
    let (relay, directory) = (Relay::start(Options::default()), Directory::installed(0o755));
    let options = HostOptions {
        uid: Some(NOBODY),
        program: Some(directory.path("tinyagent")),
        ..with_key(&NewKey::make().hex, &[])
    };
    let mut host = Host::with(&relay, options);
    let mut plain =
        Command::new("sleep").arg("60").uid(NOBODY).gid(NOBODY).spawn().expect("there is a sleep");
    for file in ["environ", "mem", "maps", "auxv", "syscall"] {
        for pid in [host.pid(), host.signer()] {
            let seen = read_as_nobody(&format!("/proc/{pid}/{file}"));
            assert!(seen.as_ref().is_err_and(|error| error.contains("ermission")), "{file}: {seen:?}");
        }
        // The control: an ordinary process of that user can be looked into. (Nothing is mapped at the
        // first address of its memory, which is another error.)
        let control = read_as_nobody(&format!("/proc/{}/{file}", plain.id()));
        assert!(control.as_ref().map_or_else(|e| !e.contains("ermission"), |_| true), "{file}: {control:?}");
    }
    plain.kill().expect("our child");
    plain.wait().expect("reaped");
    assert_eq!(host.end().code, Some(0));
}

/// Starts the program of a directory as nobody and holds it before its first instruction: the dynamic
/// loader is asked to explain itself into a pipe that is full.
fn held_before_main(directory: &Directory, key: &NewKey, look: impl FnOnce(u32)) {
    let (reader, mut full) = std::io::pipe().expect("a pipe");
    full.write_all(&[b'.'; 64 << 10]).expect("as much as a pipe holds (pipe(7))");
    let program = directory.path("tinyagent");
    let mut command = Command::new(&program);
    command.args(["mcp", "--relay", "http://127.0.0.1:9"]).uid(NOBODY).gid(NOBODY).env_clear();
    command.env(KEY_VARIABLE, &key.hex).env("LD_DEBUG", "all");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(full).spawn().expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    while !status_field(child.id(), "State").is_some_and(|state| state.starts_with('S')) {
        assert!(Instant::now() < deadline, "it is not held");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(fs::read_link(format!("/proc/{}/exe", child.id())).ok(), Some(program));
    look(child.id());
    child.kill().expect("our child");
    child.wait().expect("reaped");
    drop(reader);
}

#[test]
fn the_launch_window_is_open_with_an_ordinary_install_and_closed_with_mode_0711() {
    if !is_root("installing programs of another owner") {
        return;
    }
    let key = NewKey::make();
    let holds_key = |bytes: &[u8]| memchr::memmem::find(bytes, key.hex.as_bytes()).is_some();
    held_before_main(&Directory::installed(0o755), &key, |pid| {
        assert!(holds_key(&environ(pid)), "root sees that the key is there");
        let seen = read_as_nobody(&format!("/proc/{pid}/environ"));
        assert!(seen.as_ref().is_ok_and(|bytes| holds_key(bytes)), "the window is open: {seen:?}");
    });
    held_before_main(&Directory::installed(0o711), &key, |pid| {
        assert!(holds_key(&environ(pid)), "root sees that the key is there");
        for file in ["environ", "mem"] {
            let seen = read_as_nobody(&format!("/proc/{pid}/{file}"));
            assert!(seen.as_ref().is_err_and(|error| error.contains("ermission")), "{file}: {seen:?}");
        }
    });
}

#[test]
fn programs_of_mode_0711_work_for_an_ordinary_user() {
    if !is_root("installing programs of another owner") {
        return;
    }
    let (relay, directory) = (Relay::start(Options::default()), Directory::installed(0o711));
    let options = HostOptions {
        uid: Some(NOBODY),
        program: Some(directory.path("tinyagent")),
        ..with_key(&NewKey::make().hex, &["--allow-writes", "--require-hardening"])
    };
    let mut host = Host::with(&relay, options);
    host.text("post_message", r#"{"room":"general","content":"hi"}"#);
    assert_eq!((relay.published().len(), host.end().code), (1, Some(0)));
}

#[test]
fn a_variable_that_holds_the_key_reaches_no_process_that_serves() {
    if !is_root("reading the environment of processes that are not dumpable") {
        return;
    }
    let (relay, key) = (Relay::start(Options::default()), NewKey::make());
    let options = with_key(&key.hex, &[]).env("KEPT", "unrelated").env("LD_LIBRARY_PATH", "/nowhere");
    let mut host = Host::with(&relay, options);
    let (facade, signer) = (environ(host.pid()), environ(host.signer()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(text(&facade).contains("KEPT=unrelated"), "{}", text(&facade));
    assert!(!text(&facade).contains(KEY_VARIABLE), "{}", text(&facade));
    // The signer was started with the key alone, and wiped it.
    assert!(text(&signer).trim_matches('\0').is_empty(), "{}", text(&signer));
    assert_eq!(host.end().code, Some(0));
}
