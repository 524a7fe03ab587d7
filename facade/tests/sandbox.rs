//! The facade's sandbox from inside: every denial by its exact errno, what must stay possible, and how
//! the report reads where a kernel or container offers less.
//!
//! Each run has a control without the sandbox, in which the same attempt must be answered otherwise. All
//! of it is done as the user who runs the tests and, where that is root, as uid 65534 too.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;
use tinyagent_harness::copy_program;

/// Attempts that Landlock denies.
const NO_ACCESS: [&str; 11] = [
    "open the victim's memory",
    "read the victim's environment",
    "list the victim's descriptors",
    "read a file of the user",
    "write a file of the user",
    "list the root directory",
    "create a file",
    "write below /etc",
    "read own status",
    "connect to another port",
    "bind a port",
];

/// Attempts that need privileges anyway: an ordinary user's control says EPERM as well.
const PRIVILEGED: [&str; 18] = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "mount_setattr",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "open_by_handle_at",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "socket AF_PACKET",
    "socket raw",
    "write below /etc",
];

/// A user to run the probe as, by the command that becomes it; none is whoever runs the tests.
struct User {
    name: &'static str,
    become_it: &'static [&'static str],
    /// Becomes the same user for the victim. At uid 0 without capabilities: a process that dropped its own
    /// cannot reach one that holds some, whatever the sandbox does.
    become_victim: &'static [&'static str],
    is_root: bool,
}

const NOBODY: &[&str] = &["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn users() -> Vec<User> {
    if !nix::unistd::geteuid().is_root() {
        println!("not root: only as the user of the tests");
        return vec![User { name: "the tests' user", become_it: &[], become_victim: &[], is_root: false }];
    }
    let has_setpriv = Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_ok();
    assert!(has_setpriv, "as root these tests need setpriv (Debian: util-linux)");
    let without_capabilities = &["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    vec![
        User { name: "root", become_it: &[], become_victim: without_capabilities, is_root: true },
        User { name: "uid 65534", become_it: NOBODY, become_victim: NOBODY, is_root: false },
    ]
}

/// `program`, run by the command `become_it` where there is one.
fn command_as(become_it: &[&str], program: &Path) -> Command {
    let [first, rest @ ..] = become_it else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}

/// The probe, a process and a file for it to attempt things on, and two listening ports.
struct Stage {
    directory: PathBuf,
    victim: Child,
    allowed_port: u16,
    denied: TcpListener,
}

impl Stage {
    fn new(user: &User) -> Self {
        let own = std::env::current_exe().expect("a test has a program");
        let examples = own.parent().and_then(Path::parent).expect("target/PROFILE/deps").join("examples");
        let unique = format!("tinyagent-sandbox-{}-{:?}", std::process::id(), thread::current().id());
        let directory = std::env::temp_dir().join(unique);
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        // Any user may do here what the sandbox is to deny.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let probe = examples.join("sandbox_probe");
        assert!(probe.exists(), "run `cargo build --examples`, or all tests of the package");
        copy_program(&probe, &directory.join("probe"), 0o755);
        fs::write(directory.join("file"), "the host's configuration").expect("it is ours");
        fs::set_permissions(directory.join("file"), fs::Permissions::from_mode(0o666)).expect("it is ours");
        let mut cat = command_as(user.become_victim, Path::new("cat"));
        let victim = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("there is a cat");
        let mut stage = Self { directory, victim, allowed_port: answer_requests(), denied: listener() };
        stage.wait_for_victim();
        stage
    }

    /// Until the victim is `cat` and nothing before it.
    fn wait_for_victim(&mut self) {
        let input = self.victim.stdin.as_mut().expect("piped");
        input.write_all(b"!").and_then(|()| input.flush()).expect("cat reads");
        self.victim.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("cat writes");
    }

    fn probe(&self, user: &User, options: &[&str]) -> Value {
        let denied = self.denied.local_addr().expect("bound").port();
        let output = command_as(user.become_it, &self.directory.join("probe"))
            .args([self.victim.id().to_string(), self.allowed_port.to_string(), denied.to_string()])
            .arg(self.directory.join("file"))
            .args(options)
            .output()
            .expect("the probe runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} as {}: {stderr}", output.status, user.name);
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.victim.stdin.take());
        let _ = self.victim.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports")
}

/// A port where every request gets 204, until the tests end.
fn answer_requests() -> u16 {
    let listener = listener();
    let port = listener.local_addr().expect("bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 1024];
            if stream.read(&mut request).is_ok_and(|length| length > 0) {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
            }
        }
    });
    port
}

fn states(outcome: &Value) -> Vec<(String, String, String)> {
    let measures = outcome["report"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    measures.iter().map(|m| (text(&m["measure"]), text(&m["state"]), text(&m["why"]))).collect()
}

fn state<'s>(states: &'s [(String, String, String)], measure: &str) -> (&'s str, &'s str) {
    let found = states.iter().find(|(name, ..)| name == measure);
    found.map(|(_, state, why)| (state.as_str(), why.as_str())).expect("every measure is reported")
}

/// What the sandbox answers to an attempt.
fn denial(attempt: &str) -> &'static str {
    match attempt {
        "clone3" => "ENOSYS",
        "x32" if cfg!(not(target_arch = "x86_64")) => "ENOSYS",
        attempt if NO_ACCESS.contains(&attempt) => "EACCES",
        _ => "EPERM",
    }
}

#[test]
fn every_attempt_is_denied_by_its_errno_and_the_control_shows_that_it_counts() {
    for user in users() {
        let stage = Stage::new(&user);
        let sandboxed = stage.probe(&user, &[]);
        let control = stage.probe(&user, &["bare"]);
        let answers = sandboxed["answers"].as_object().expect("by name");
        assert!(answers.len() > 80, "all attempts were made");
        for (attempt, answer) in answers {
            let denial = denial(attempt);
            assert_eq!(answer, denial, "{attempt} as {}", user.name);
            if !user.is_root && PRIVILEGED.contains(&attempt.as_str()) {
                println!("{attempt}: denied to {} without the sandbox too, no control", user.name);
            } else {
                assert_ne!(control["answers"][attempt], denial, "control of {attempt} as {}", user.name);
            }
        }
    }
}

/// Landlock and the lack of capabilities deny some system calls as well, so that an entry missing from
/// the filter's list would not show beside them.
#[test]
fn the_filter_alone_denies_every_system_call_on_its_list() {
    for user in users() {
        let stage = Stage::new(&user);
        let outcome = stage.probe(&user, &["refuse=landlock:38,capset:1"]);
        for (attempt, answer) in outcome["answers"].as_object().expect("by name") {
            if !NO_ACCESS.contains(&attempt.as_str()) {
                assert_eq!(answer, denial(attempt), "{attempt} as {}", user.name);
            }
        }
    }
}

/// And the other way round: without the filter, Landlock keeps other processes out of reach by itself.
#[test]
fn landlock_alone_keeps_other_processes_out_of_reach() {
    for user in users() {
        let stage = Stage::new(&user);
        let outcome = stage.probe(&user, &["refuse=seccomp:38"]);
        let by_landlock = ["ptrace", "kcmp", "kill", "tgkill", "tkill"];
        for attempt in by_landlock.into_iter().chain(NO_ACCESS) {
            assert_eq!(outcome["answers"][attempt], denial(attempt), "{attempt} as {}", user.name);
        }
    }
}

#[test]
fn what_the_facade_needs_still_works() {
    for user in users() {
        let stage = Stage::new(&user);
        for options in [&["bare"][..], &[]] {
            let outcome = stage.probe(&user, options);
            for (need, problem) in outcome["needs"].as_object().expect("by name") {
                assert_eq!(problem, &Value::Null, "{need} as {} {options:?}", user.name);
            }
        }
    }
}

#[test]
fn the_report_says_what_holds_and_notices_a_signer_in_reach() {
    for user in users() {
        let stage = Stage::new(&user);
        let outcome = stage.probe(&user, &[]);
        let states = states(&outcome);
        for measure in ["core-limit", "not-dumpable", "no-new-privs", "capabilities", "landlock", "seccomp"] {
            assert_eq!(state(&states, measure).0, "on", "{measure} as {}: {states:?}", user.name);
        }
        // The victim plays a signer without hardening: in reach until Landlock hides it.
        let (verdict, why) = state(&states, "signer-memory");
        assert_eq!((verdict, why), ("failed", "before Landlock and seccomp, its memory can be opened"));
        let missing = outcome["missing"].as_array().expect("a list");
        assert_eq!(missing.len(), 1, "{missing:?}");
    }
}

#[test]
fn the_report_is_honest_where_a_kernel_or_container_offers_less() {
    const ENOSYS: &str = "unavailable";
    const EPERM: &str = "failed";
    for user in users() {
        let stage = Stage::new(&user);
        for (options, measure, expected) in [
            ("refuse=landlock:38", "landlock", ENOSYS),
            ("refuse=landlock:95", "landlock", ENOSYS),
            ("refuse=landlock:1", "landlock", EPERM),
            ("refuse=landlock:38", "network-ports", ENOSYS),
            ("refuse=seccomp:38", "seccomp", ENOSYS),
            ("refuse=seccomp:22", "seccomp", ENOSYS),
            ("refuse=seccomp:1", "seccomp", EPERM),
            ("refuse=capset:1", "capabilities", EPERM),
        ] {
            let outcome = stage.probe(&user, &[options]);
            let states = states(&outcome);
            assert_eq!(state(&states, measure).0, expected, "{options} as {}: {states:?}", user.name);
            let missing = outcome["missing"].as_array().expect("a list");
            let is_missing = missing.iter().any(|missing| missing["measure"] == measure);
            let is_required = match measure {
                "network-ports" => false,
                "landlock" => user.is_root,
                _ => true,
            };
            assert_eq!(is_missing, is_required, "{options} as {}: {missing:?}", user.name);
            // What is left still works and still denies.
            let answers = &outcome["answers"];
            let landlocked =
                if measure == "landlock" || measure == "network-ports" { "ok" } else { "EACCES" };
            assert_eq!(answers["list the root directory"], landlocked, "{options}");
            let filtered = if measure == "seccomp" { "ok" } else { "EPERM" };
            assert_eq!(answers["unshare"], filtered, "{options}");
        }
    }
}
