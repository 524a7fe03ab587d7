//! Claim 7: what is left behind when one of the pair ends, suddenly or not: no signer, no core file, no
//! other process.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tinyagent_harness::{Host, HostOptions, PATIENCE, children, signer_of, status_field, wait_gone};
use tinyagent_relay::{Gate, Matcher, Options, Relay, Reply};

use crate::support::{Directory, NewKey, is_root, program, with_key};

/// How soon the signer is gone once its facade is (THREAT_MODEL.md, claim 7).
const GONE_WITHIN: Duration = Duration::from_secs(1);

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
fn a_facade_whose_signer_was_killed_answers_and_leaves_with_status_70() {
    let relay = Relay::start(Options::default());
    let mut host = start(&relay, &[]);
    let signer = host.signer();
    assert_eq!(signer_of(host.pid()), Some(signer));
    send(signer, Signal::SIGKILL);
    assert!(wait_gone(signer, PATIENCE));
    assert_eq!(host.wait(PATIENCE).code, Some(70));
}
