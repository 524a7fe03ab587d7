//! Claim 8: what the hardening report of both processes says, as root, as an ordinary user, and where a
//! kernel or a container offers less; and that `--require-hardening` insists on it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use tinyagent_harness::{Host, HostOptions, KEY_VARIABLE, status_field};
use tinyagent_relay::{Options, Relay};

use crate::support::{Directory, NOBODY, NewKey, hardening, is_root, program, with_key};

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

#[test]
fn as_root_and_as_an_ordinary_user_every_measure_is_reported_as_the_kernel_sees_it() {
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

/// A program that is tinyagent where these system calls are answered with an error.
fn denying(directory: &Directory, calls: &str, errno: i32) -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    let text = format!(
        "exec '{}' --ignored --exact report::program_with_denied_calls -- {calls} {errno} '{}' \"$@\" 9>&1 >/dev/null",
        own.display(),
        program("tinyagent").display()
    );
    directory.script(&format!("without-{}-{errno}", calls.replace(',', "-")), &text)
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

/// The measures that do not hold in a session, as `process measure state`.
fn not_on(host: &mut Host) -> Vec<String> {
    let report = |process: &'static str, host: &mut Host| {
        let measures = hardening(host, process).into_iter();
        measures.map(move |(measure, state, _)| format!("{process} {measure} {state}")).collect::<Vec<_>>()
    };
    let all = [report("signer", host), report("facade", host)].concat();
    all.into_iter().filter(|line| !line.ends_with(" on")).collect()
}

/// Whether this system has everything that the tests then take away; where it has not, says what.
fn has_everything(relay: &Relay) -> bool {
    let mut host = Host::with(relay, with_key(&NewKey::make().hex, &[]));
    let lacking = not_on(&mut host);
    assert_eq!(host.end().code, Some(0));
    if !lacking.is_empty() {
        println!("skipped: this system itself lacks {lacking:?}");
    }
    lacking.is_empty()
}

#[test]
fn where_a_kernel_or_container_offers_less_the_pair_works_and_says_so() {
    let (relay, directory) = (Relay::start(Options::default()), Directory::new());
    if !has_everything(&relay) {
        return;
    }
    for (calls, errno, expected) in LESS {
        let program = Some(denying(&directory, calls, *errno));
        let options = HostOptions { program, ..with_key(&NewKey::make().hex, &["--allow-writes"]) };
        let mut host = Host::with(&relay, options);
        let before = relay.published().len();
        host.text("post_message", r#"{"room":"general","content":"hi"}"#);
        assert_eq!(relay.published().len(), before + 1, "{calls} {errno}");
        let reached =
            |line: &&&str| **line != "facade signer-memory failed" || is_root("that line of the table");
        let expected: Vec<&str> = expected.iter().filter(reached).copied().collect();
        assert_eq!(not_on(&mut host), expected, "{calls} {errno}");
        host.wait_for_stderr("isolation measures on");
        let stderr = host.stderr();
        let line = stderr.lines().find(|line| line.contains("isolation measures on")).expect("just seen");
        for measure in expected.iter().filter_map(|text| text.split(' ').nth(1)) {
            assert!(line.contains("not on: ") && line.contains(measure), "{calls} {errno}: {line}");
        }
        assert_eq!(line.contains("not on: "), !expected.is_empty(), "{calls} {errno}: {line}");
        assert_eq!(host.end().code, Some(0), "{calls} {errno}");
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
    if !has_everything(&relay) {
        return;
    }
    for (calls, errno, missing) in LESS {
        let program = denying(&directory, calls, *errno);
        let mut command = Command::new(&program);
        command.args(["mcp", "--require-hardening", "--relay", &relay.url()]).stdin(Stdio::null());
        command.env_clear().env("PATH", "/usr/bin:/bin").env(KEY_VARIABLE, NewKey::make().hex);
        let output = command.output().expect("it starts");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let required = missing.iter().filter_map(|text| text.split(' ').nth(1)).find(|m| !is_optional(m));
        let Some(measure) = required else {
            assert_eq!(output.status.code(), Some(0), "{calls} {errno}: {stderr}");
            continue;
        };
        assert_eq!(output.status.code(), Some(1), "{calls} {errno}: {stderr}");
        assert!(output.stdout.is_empty());
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{calls} {errno}: {lines:?}");
        assert!(lines[0].contains("--require-hardening") && lines[0].contains(measure), "{lines:?}");
    }
}
