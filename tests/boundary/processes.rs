//! Claims 3, 7 and 8 on the real pair: who can look in and when, what is left behind, and what the report
//! says as root, as an ordinary user, and where a kernel or a container offers less.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use tinyagent_harness::{
    Host, HostOptions, KEY_VARIABLE, PATIENCE, Stderr, children, environ, signer_of, status_field, wait_gone,
};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply};

use crate::support::{Directory, NewKey, hardening, is_root, program, with_key};

/// The user that the tests run programs as, beside root.
const NOBODY: u32 = 65534;

/// How soon the signer is gone once its facade is (THREAT_MODEL.md, claim 7).
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// The measures of each process, in the order in which they are taken.
const SIGNER_MEASURES: [&str; 11] = [
    "core-limit",
    "not-dumpable",
    "signals",
    "descriptors",
    "memfd-secret",
    "memory-lock",
    "no-new-privs",
    "capabilities",
    "parent-death",
    "landlock",
    "seccomp",
];
const FACADE_MEASURES: [&str; 8] = [
    "core-limit",
    "not-dumpable",
    "no-new-privs",
    "capabilities",
    "landlock",
    "network-ports",
    "seccomp",
    "signer-memory",
];

fn start(relay: &Relay, args: &[&str]) -> Host {
    Host::with(relay, with_key(&NewKey::make().hex, args))
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("the process is there");
}

#[test]
fn the_signer_is_gone_within_a_second_of_its_facade_s_sudden_end() {
    let relay = Relay::start(Options::default());
    for args in [&[][..], &["--allow-writes"]] {
        let mut host = start(&relay, args);
        let signer = host.signer();
        send(host.pid(), Signal::SIGKILL);
        assert!(wait_gone(signer, GONE_WITHIN), "the signer outlives its facade");
        assert_eq!(host.wait(PATIENCE).signal, Some(libc::SIGKILL));
    }
}

#[test]
fn the_signer_is_gone_within_a_second_also_in_the_middle_of_a_call() {
    let (relay, gate) = (Relay::start(Options::default()), Gate::new());
    relay.script_always(Matcher::tool("read_room"), Reply::hold(&gate));
    let mut host = start(&relay, &[]);
    let signer = host.signer();
    host.begin_call("read_room", r#"{"id":"general"}"#);
    assert!(relay.wait_for_matching(1, PATIENCE, |request| request.tool() == Some("read_room")));
    send(host.pid(), Signal::SIGKILL);
    assert!(wait_gone(signer, GONE_WITHIN), "the signer outlives its facade");
    host.wait(PATIENCE);
    gate.open();
}

#[test]
fn the_family_is_two_processes_before_during_and_after_work_and_none_at_the_end() {
    let relay = Relay::start(Options::default());
    let mut host = start(&relay, &["--allow-writes"]);
    let (facade, signer) = (host.pid(), host.signer());
    for _ in 0..5 {
        host.text("post_message", r#"{"room":"general","content":"hi"}"#);
        host.call("tiny_diagnose", "{}");
        assert_eq!(children(facade), [signer]);
        assert_eq!(children(signer), [0; 0]);
    }
    assert_eq!(status_field(signer, "Threads").as_deref(), Some("1"));
    assert_eq!(host.end().code, Some(0));
    assert!(wait_gone(signer, GONE_WITHIN) && wait_gone(facade, GONE_WITHIN));
}

/// Where the kernel writes cores, if that is into the process's own directory.
fn cores_land_in_the_directory() -> bool {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let local = !pattern.starts_with(['|', '/']);
    if !local {
        println!("skipped: this system sends cores elsewhere ({})", pattern.trim());
    }
    local
}

/// Ends `victim` of a session by a signal that dumps core, and gives the files that this left.
fn left_after(signal: Signal, victim: fn(&mut Host) -> u32) -> Vec<String> {
    let (relay, directory) = (Relay::start(Options::default()), Directory::new());
    fs::create_dir(directory.path("here")).expect("a directory");
    let text = format!(
        "ulimit -c unlimited && cd '{}' && exec '{}' \"$@\"",
        directory.path("here").display(),
        program("tinyagent").display()
    );
    let wrapper = directory.script("wrapper", &text);
    let mut host =
        Host::with(&relay, HostOptions { program: Some(wrapper), ..with_key(&NewKey::make().hex, &[]) });
    let (facade, signer, victim) = (host.pid(), host.signer(), victim(&mut host));
    assert_eq!(fs::read_link(format!("/proc/{facade}/cwd")).ok(), Some(directory.path("here")));
    let deadline = Instant::now() + PATIENCE;
    // The runtime's handler of SIGSEGV leaves the end to the next fault, which a signal from outside is not.
    while kill(Pid::from_raw(victim.cast_signed()), signal).is_ok()
        && !wait_gone(victim, Duration::from_millis(50))
    {
        assert!(Instant::now() < deadline, "{signal} does not end it");
    }
    host.wait(PATIENCE);
    assert!(wait_gone(signer, PATIENCE));
    let files = fs::read_dir(directory.path("here")).expect("readable");
    files.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn neither_process_leaves_a_core_file() {
    if !is_root("raising the core limit, and looking where a process that is not dumpable runs")
        || !cores_land_in_the_directory()
    {
        return;
    }
    // The control: a program without these measures leaves one in the same place.
    let directory = Directory::new();
    let script = format!("ulimit -c unlimited && cd '{}' && kill -SEGV $$", directory.path("").display());
    let status = Command::new("/bin/sh").args(["-c", &script]).status().expect("a shell");
    let control = fs::read_dir(directory.path("")).expect("readable").count();
    assert!(control == 1, "control: {status} left {control} files");
    for signal in [Signal::SIGSEGV, Signal::SIGABRT, Signal::SIGSYS] {
        assert_eq!(left_after(signal, |host| host.pid()), [""; 0], "the facade, {signal}");
        assert_eq!(left_after(signal, Host::signer), [""; 0], "the signer, {signal}");
    }
}

#[test]
fn as_root_and_as_an_ordinary_user_every_measure_is_reported_and_may_be_required() {
    let users = if is_root("running as another user") { vec![Some(0), Some(NOBODY)] } else { vec![None] };
    let directory = Directory::installed(0o755);
    let mut states = BTreeMap::new();
    for uid in users {
        let relay = Relay::start(Options::default());
        let key = NewKey::make();
        let options = HostOptions {
            uid,
            program: Some(directory.path("tinyagent")),
            ..with_key(&key.hex, &["--allow-writes"])
        };
        let mut host = Host::with(&relay, options);
        host.text("post_message", r#"{"room":"general","content":"hi"}"#);
        assert_eq!(relay.published().len(), 1);
        for (process, pid, expected) in
            [("signer", host.signer(), &SIGNER_MEASURES[..]), ("facade", host.pid(), &FACADE_MEASURES[..])]
        {
            let report = hardening(&mut host, process);
            let names: Vec<&str> = report.iter().map(|(measure, ..)| measure.as_str()).collect();
            assert_eq!(names, expected, "{process} as {uid:?}");
            for (measure, state, why) in &report {
                assert!(
                    state == "on" || !why.is_empty(),
                    "{measure} of the {process} is {state} without a reason"
                );
            }
            assert_as_the_kernel_sees_it(pid, process, &report);
            if let Some(uid) = uid {
                assert_eq!(status_field(pid, "Uid"), Some(vec![uid.to_string(); 4].join("\t")), "{process}");
            }
            let of_user: Vec<String> =
                report.into_iter().map(|(m, state, _)| format!("{m} {state}")).collect();
            let first = states.entry(process).or_insert_with(|| of_user.clone());
            assert_eq!(*first, of_user, "{process}: every user gets the same");
        }
        assert_eq!(host.end().code, Some(0));
    }
}

/// Compares what a process says of itself with what the kernel says of it.
fn assert_as_the_kernel_sees_it(pid: u32, process: &str, report: &[(String, String, String)]) {
    let on = |name: &str| report.iter().any(|(measure, state, _)| measure == name && state == "on");
    let kernel = |field: &str| status_field(pid, field).unwrap_or_default();
    assert_eq!(on("no-new-privs"), kernel("NoNewPrivs") == "1", "{process}");
    assert_eq!(on("seccomp"), kernel("Seccomp") == "2", "{process}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(!on("capabilities") || kernel(set) == "0".repeat(16), "{process}: {set}");
    }
    // /proc/PID belongs to root where a process is not dumpable (proc(5)).
    let owner = fs::metadata(format!("/proc/{pid}/environ")).expect("a live process").uid();
    assert!(!on("not-dumpable") || owner == 0, "{process}: /proc/{pid} belongs to uid {owner}");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or_default();
    let numbers: Vec<&str> = core.split_whitespace().skip(4).take(2).collect();
    assert!(!on("core-limit") || limits.is_empty() || numbers == ["1", "1"], "{process}: {core}");
}

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

fn number(call: &str) -> i64 {
    match call {
        "memfd_secret" => libc::SYS_memfd_secret,
        "mlock" => libc::SYS_mlock,
        "landlock" => libc::SYS_landlock_create_ruleset,
        "seccomp" => libc::SYS_seccomp,
        "close_range" => libc::SYS_close_range,
        "capset" => libc::SYS_capset,
        "pidfd_open" => libc::SYS_pidfd_open,
        other => panic!("{other} is not in the table"),
    }
}

#[test]
#[ignore = "no test: the tests below start it as the program that denies system calls to tinyagent"]
fn program_with_denied_calls() {
    let arguments: Vec<String> = std::env::args().skip_while(|argument| argument != "--").skip(1).collect();
    let [calls, errno, program, rest @ ..] = &arguments[..] else { panic!("started by a test") };
    let rules = calls.split(',').map(|name| (number(name), vec![])).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known architecture");
    let answer = SeccompAction::Errno(errno.parse().expect("a number"));
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch).expect("a filter");
    let filter: BpfProgram = filter.try_into().expect("a program");
    // The test runner writes to standard output, which the script has put aside.
    let stdout = File::options().write(true).open("/proc/self/fd/9").expect("the host's pipe");
    seccompiler::apply_filter(&filter).expect("installed");
    panic!("{}", Command::new(program).args(rest).stdout(stdout).exec());
}

/// Options that run tinyagent where these system calls are answered with an error.
fn denying(directory: &Directory, calls: &str, errno: i32, args: &[&str]) -> HostOptions {
    let own = std::env::current_exe().expect("the test's own path");
    let text = format!(
        "exec '{}' --ignored --exact processes::program_with_denied_calls -- {calls} {errno} '{}' \"$@\" 9>&1 >/dev/null",
        own.display(),
        program("tinyagent").display()
    );
    let script = directory.script(&format!("without-{}-{errno}", calls.replace(',', "-")), &text);
    HostOptions { program: Some(script), ..with_key(&NewKey::make().hex, args) }
}

/// Kernels and container profiles: what is denied and how, and each measure that then does not hold, as
/// `process measure state`.
const LESS: &[(&str, i32, &[&str])] = &[
    ("memfd_secret", libc::ENOSYS, &["signer memfd-secret unavailable"]),
    ("memfd_secret", libc::EPERM, &["signer memfd-secret failed"]),
    ("memfd_secret,mlock", libc::EPERM, &["signer memfd-secret unavailable", "signer memory-lock failed"]),
    (
        "landlock",
        libc::ENOSYS,
        &["signer landlock unavailable", "facade landlock unavailable", "facade network-ports unavailable"],
    ),
    (
        "landlock",
        libc::EPERM,
        &["signer landlock unavailable", "facade landlock failed", "facade network-ports failed"],
    ),
    ("seccomp", libc::ENOSYS, &["signer seccomp unavailable", "facade seccomp unavailable"]),
    ("seccomp", libc::EPERM, &["signer seccomp failed", "facade seccomp failed"]),
    // At uid 0; any other has none to keep, and so none with which to reach the signer.
    (
        "capset",
        libc::EPERM,
        &["signer capabilities failed", "facade capabilities failed", "facade signer-memory failed"],
    ),
    ("close_range,pidfd_open", libc::ENOSYS, &[]),
    // As Linux 5.4.
    (
        "memfd_secret,landlock,close_range",
        libc::ENOSYS,
        &[
            "signer memfd-secret unavailable",
            "signer landlock unavailable",
            "facade landlock unavailable",
            "facade network-ports unavailable",
        ],
    ),
];

#[test]
fn where_a_kernel_or_container_offers_less_the_pair_works_and_says_so() {
    let (relay, directory) = (Relay::start(Options::default()), Directory::new());
    let mut ordinary = start(&relay, &[]);
    let not_on = |host: &mut Host| -> Vec<String> {
        ["signer", "facade"]
            .into_iter()
            .flat_map(|process| {
                let report = hardening(host, process);
                report.into_iter().map(move |(measure, state, _)| format!("{process} {measure} {state}"))
            })
            .filter(|line| !line.ends_with(" on"))
            .collect()
    };
    let missing_here = not_on(&mut ordinary);
    assert_eq!(ordinary.end().code, Some(0));
    if !missing_here.is_empty() {
        println!("skipped: this kernel itself lacks {missing_here:?}");
        return;
    }
    for (calls, errno, expected) in LESS {
        let mut host = Host::with(&relay, denying(&directory, calls, *errno, &["--allow-writes"]));
        let before = relay.published().len();
        host.text("post_message", r#"{"room":"general","content":"hi"}"#);
        assert_eq!(relay.published().len(), before + 1, "{calls} {errno}");
        let reached =
            |line: &&&str| **line != "facade signer-memory failed" || is_root("that line of the table");
        let expected: Vec<&str> = expected.iter().filter(reached).copied().collect();
        assert_eq!(not_on(&mut host), expected, "{calls} {errno}");
        let ended = host.end();
        assert_eq!(ended.code, Some(0), "{calls} {errno}");
        let line = ended.stderr.lines().find(|line| line.contains("isolation measures on"));
        let line = line.unwrap_or_else(|| panic!("no start line: {}", ended.stderr));
        for measure in expected.iter().filter_map(|text| text.split(' ').nth(1)) {
            assert!(line.contains("not on: ") && line.contains(measure), "{calls} {errno}: {line}");
        }
        assert_eq!(line.contains("not on: "), !expected.is_empty(), "{calls} {errno}: {line}");
    }
}

/// The measures that may be missing under `--require-hardening`.
fn is_optional(measure: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    matches!(measure, "memfd-secret" | "network-ports") || (measure == "landlock" && !root)
}

#[test]
fn with_require_hardening_a_missing_measure_is_one_clear_line_and_no_start() {
    let (relay, directory) = (Relay::start(Options::default()), Directory::new());
    for (calls, errno, missing) in LESS {
        let options = denying(&directory, calls, *errno, &["--require-hardening"]);
        let required = missing.iter().filter_map(|text| text.split(' ').nth(1)).find(|m| !is_optional(m));
        let Some(measure) = required else {
            let mut host = Host::with(&relay, options);
            host.assert_alive();
            assert_eq!(host.end().code, Some(0), "{calls} {errno}");
            continue;
        };
        let ended = Host::with(&relay, HostOptions { silent: true, ..options }).wait(PATIENCE);
        assert_eq!(ended.code, Some(1), "{calls} {errno}: {}", ended.stderr);
        assert!(ended.rest.is_empty());
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{calls} {errno}: {lines:?}");
        assert!(lines[0].contains("--require-hardening") && lines[0].contains(measure), "{lines:?}");
    }
    assert!(relay.posts().is_empty(), "nothing was asked of the relay");
}

#[test]
fn a_facade_whose_signer_was_killed_answers_and_leaves_with_status_70() {
    let relay = Relay::start(Options::default());
    let mut host = start(&relay, &[]);
    let signer = host.signer();
    assert_eq!(signer_of(host.pid()), Some(signer));
    send(signer, Signal::SIGKILL);
    assert!(wait_gone(signer, PATIENCE));
    assert_eq!(host.wait(PATIENCE).code, Some(70));
}

#[test]
fn a_variable_that_holds_the_key_reaches_no_process_that_serves() {
    if !is_root("reading the environment of processes that are not dumpable") {
        return;
    }
    let (relay, key) = (Relay::start(Options::default()), NewKey::make());
    let options = with_key(&key.hex, &[]).env("KEPT", "unrelated").env("LD_LIBRARY_PATH", "/nowhere");
    let mut host = Host::with(&relay, HostOptions { stderr: Stderr::Kept, ..options });
    let (facade, signer) = (environ(host.pid()), environ(host.signer()));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(text(&facade).contains("KEPT=unrelated"), "{}", text(&facade));
    assert!(!text(&facade).contains(KEY_VARIABLE), "{}", text(&facade));
    // The signer was started with the key alone, and wiped it.
    assert!(text(&signer).trim_matches('\0').is_empty(), "{}", text(&signer));
    assert_eq!(host.end().code, Some(0));
}
