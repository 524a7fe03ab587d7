//! Old kernels and container profiles, emulated: system calls that answer ENOSYS or EPERM.
//!
//! The report must say so, `--require-hardening` must insist, and the signer must work otherwise.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::{SeccompAction, SeccompFilter, TargetArch};
use tinyagent_relay::Key;

use crate::program::{Start, ask, call, is_root, signer_path};

/// System calls that a signer finds denied.
pub struct Denied {
    /// Their names.
    pub calls: &'static [&'static str],
    /// What they answer.
    pub errno: i32,
}

fn number(name: &str) -> i64 {
    match name {
        "memfd_secret" => libc::SYS_memfd_secret,
        "mlock" => libc::SYS_mlock,
        "landlock_create_ruleset" => libc::SYS_landlock_create_ruleset,
        "landlock_restrict_self" => libc::SYS_landlock_restrict_self,
        "seccomp" => libc::SYS_seccomp,
        "close_range" => libc::SYS_close_range,
        "capset" => libc::SYS_capset,
        other => panic!("{other} is not in the table"),
    }
}

/// A signer that is started by [`program_with_denied_calls`].
pub fn denying(key: &Key, denied: &Denied, arguments: &[&str]) -> Start {
    let mut start = Start::new(&key.secret_hex(), arguments);
    let own = std::env::current_exe().expect("the test's own path");
    let own = own.to_str().expect("a path of text").to_owned();
    let name = "degradation::program_with_denied_calls";
    start.command = vec![own, "--ignored".into(), "--exact".into(), name.into(), "--".into()];
    start.environment.push(("DENIED_CALLS".into(), denied.calls.join(",")));
    start.environment.push(("DENIED_ERRNO".into(), denied.errno.to_string()));
    start
}

#[test]
#[ignore = "no test: the tests below start it as the program that denies system calls to a signer"]
fn program_with_denied_calls() {
    let calls = std::env::var("DENIED_CALLS").expect("started by a test");
    let errno: u32 = std::env::var("DENIED_ERRNO").expect("set").parse().expect("a number");
    let rules: BTreeMap<i64, Vec<_>> = calls.split(',').map(|name| (number(name), vec![])).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known architecture");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    let program: seccompiler::BpfProgram = filter.expect("a filter").try_into().expect("a program");
    seccompiler::apply_filter(&program).expect("installed");
    let arguments = std::env::args().skip_while(|argument| argument != "--").skip(1);
    panic!("{}", Command::new(signer_path()).args(arguments).exec());
}

/// What is denied, and the measure that must show it: its state and a part of its reason.
const CASES: &[(Denied, &str, &str, &str)] = &[
    (Denied { calls: &["memfd_secret"], errno: libc::ENOSYS }, "memfd-secret", "unavailable", "ENOSYS"),
    (Denied { calls: &["memfd_secret"], errno: libc::EPERM }, "memfd-secret", "failed", "EPERM"),
    (Denied { calls: &["memfd_secret"], errno: libc::ENOSYS }, "memory-lock", "on", "mlock"),
    (Denied { calls: &["memfd_secret", "mlock"], errno: libc::EPERM }, "memory-lock", "failed", "mlock"),
    (
        Denied { calls: &["landlock_create_ruleset"], errno: libc::ENOSYS },
        "landlock",
        "unavailable",
        "not offer",
    ),
    (
        Denied { calls: &["landlock_create_ruleset"], errno: libc::EPERM },
        "landlock",
        "unavailable",
        "not offer",
    ),
    (Denied { calls: &["landlock_restrict_self"], errno: libc::EPERM }, "landlock", "failed", "refused"),
    (Denied { calls: &["seccomp"], errno: libc::ENOSYS }, "seccomp", "unavailable", "ENOSYS"),
    (Denied { calls: &["seccomp"], errno: libc::EPERM }, "seccomp", "failed", "EPERM"),
    (Denied { calls: &["capset"], errno: libc::EPERM }, "capabilities", "failed", "EPERM"),
    (Denied { calls: &["close_range"], errno: libc::ENOSYS }, "descriptors", "on", ""),
];

#[test]
fn what_is_denied_is_reported_and_the_signer_works_without_it() {
    for (denied, measure, state, why) in CASES {
        let mut signer = denying(&Key::random(), denied, &[]).inherited();
        let reported = signer.measure(measure);
        assert_eq!(reported.0, *state, "{:?} {}: {}", denied.calls, denied.errno, reported.1);
        assert!(reported.1.contains(why), "{measure}: {}", reported.1);
        assert!(signer.ask(&call("read_room", "{}")).get("proof").is_some());
    }
}

#[test]
fn require_hardening_refuses_what_is_missing_and_names_it() {
    for (denied, measure, state, _) in CASES {
        // memfd_secret may fall back to mlock; Landlock is required of root alone.
        let optional = *measure == "memfd-secret"
            || (*measure == "landlock" && !is_root("requiring Landlock"))
            || *state == "on";
        let mut signer = denying(&Key::random(), denied, &["--require-hardening"]).inherited();
        let answer = ask(&mut signer.socket, br#"{"describe":{}}"#)
            .unwrap_or_else(|| panic!("no answer with {:?} denied: {:?}", denied.calls, signer.wait()));
        if optional {
            assert!(answer.get("description").is_some(), "{measure}: {answer}");
        } else {
            let message = answer["failed"]["message"].as_str().unwrap_or_default();
            let expected = format!("--require-hardening: {measure} is not in force");
            assert!(message.starts_with(&expected), "{measure}: {answer}");
            assert_eq!(signer.wait().code(), Some(1));
        }
    }
}
