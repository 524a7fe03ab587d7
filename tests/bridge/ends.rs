//! Contract 2 and cases 43, 57–67: every way in which a session ends, and what must not end it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tinyagent_harness::{
    Host, HostOptions, INITIALIZE, INITIALIZED, KEY, KEY_VARIABLE, PATIENCE, Stderr, call, children, ping,
    program, request, wait_gone,
};
use tinyagent_relay::{AcceptFault, Gate, Matcher, Options, Relay, Reply, Step};

use crate::network::TempFile;
use crate::support::{
    assert_answered, assert_within, bare, lines, piped, redirected, silent, timed, tool_error,
    wait_for_signer,
};

const HELLO: &str = r#"{"room":"general","content":"hi"}"#;

/// How soon a signal or a closed pipe ends the process (contract 2).
const AT_ONCE: Duration = Duration::from_secs(1);

/// How soon the end of stdin ends it, with a call that hangs: 1.5 s (contract 2), and some for the machine.
const AT_END: Duration = Duration::from_secs(2);

fn kill_signer(host: &mut Host) {
    let signer = host.signer();
    kill(Pid::from_raw(signer.cast_signed()), Signal::SIGKILL).expect("the signer is there");
    assert!(wait_gone(signer, PATIENCE));
}

/// A relay at which this request waits for the gate.
fn holding(matcher: Matcher) -> (Relay, Gate) {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    relay.script(matcher, Reply::hold(&gate));
    (relay, gate)
}

#[test]
fn case_043_the_end_of_stdin_is_a_quiet_exit_0_within_a_second() {
    let relay = Relay::start(Options::default());
    let whole = format!("{INITIALIZE}\n{INITIALIZED}\n");
    for (input, answers) in [
        ("", 0),
        ("\n", 0),
        (&whole, 1),
        (&whole[..40], 0),
        (&whole[..whole.len() - 20], 1),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi", 0),
    ] {
        assert_within(AT_ONCE, "an end of stdin", || {
            let mut host = Host::with(&relay, silent());
            host.send_bytes(input.as_bytes());
            if answers > 0 {
                host.next_answer();
            }
            let ended = host.end();
            assert_eq!((ended.code, ended.rest.len()), (Some(0), 0), "{input:?}");
            assert!(ended.stderr.lines().count() <= 1, "{}", ended.stderr);
            ended.took
        });
    }
}

#[test]
fn case_057_what_was_read_before_the_end_of_stdin_is_answered() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::tool("list_jobs"), Reply::delay(Duration::from_millis(20)));
    let calls: String = (10..30).map(|id| call(id, "list_jobs", "{}") + "\n").collect();
    let list = request(1, "tools/list", "{}");
    let input = format!("{INITIALIZE}\n{INITIALIZED}\n{list}\n{calls}{}\n", ping(2));
    let output = piped(bare(&relay.url()), input.as_bytes());
    let mut ids: Vec<i64> =
        lines(&output.stdout).iter().map(|line| line["id"].as_i64().expect("an id")).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2].into_iter().chain(10..30).collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn case_058_a_hung_call_does_not_hold_the_end_up_and_no_process_is_left() {
    for hung in ["list_rooms", "post_message", "tiny_diagnose"] {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::any(), Reply::hang());
        let mut host = Host::with_writes(&relay);
        host.begin_call(hung, HELLO);
        host.begin_call("list_jobs", "{}");
        assert!(relay.wait_for(1, PATIENCE));
        let ended = host.end();
        assert_eq!(ended.code, Some(0));
        assert!(ended.took < AT_END, "{hung}: {:?}", ended.took);
    }
}

#[test]
fn case_058_a_relay_that_accepts_and_never_reads_does_not_hold_the_end_up() {
    let relay = Relay::start(Options::default());
    (0..10).for_each(|_| relay.on_accept(AcceptFault::Stall));
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    host.send(&request(1, "tools/list", "{}"));
    host.assert_alive();
    let ended = host.end();
    assert!(ended.took < AT_END && ended.code == Some(0), "{ended:?}");
}

#[test]
fn case_060_an_idle_connection_does_not_hold_the_end_up() {
    let relay = Relay::start(Options::default());
    assert_within(AT_ONCE, "an end with a kept connection", || {
        let mut host = Host::start(&relay);
        assert_answered(&host.call("list_rooms", "{}"));
        assert!(relay.open_connections() > 0);
        host.end().took
    });
}

#[test]
fn case_061_a_closed_stdout_is_a_quiet_exit_0() {
    let relay = Relay::start(Options::default());
    assert_within(AT_ONCE, "an end by a closed stdout", || {
        let mut host = Host::with(&relay, HostOptions { late_reader: true, ..silent() });
        wait_for_signer(&mut host);
        host.close_stdout();
        host.send_bytes([ping(1), ping(2), ping(3)].map(|line| line + "\n").concat().as_bytes());
        let ended = host.wait(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stderr.lines().count() <= 1, "{}", ended.stderr);
        ended.took
    });
}

#[test]
fn case_061_a_stdout_closed_while_a_call_is_in_flight_is_a_quiet_exit_0() {
    let (relay, gate) = holding(Matcher::tool("list_rooms"));
    let mut host = Host::with(&relay, HostOptions { late_reader: true, ..silent() });
    host.send(&call(1, "list_rooms", "{}"));
    assert!(gate.wait_arrived(1, PATIENCE));
    host.signer();
    host.close_stdout();
    gate.open();
    assert_eq!(host.wait(PATIENCE).code, Some(0));
}

#[test]
fn case_061_a_stdout_that_is_full_or_was_never_open_is_a_quiet_exit_0() {
    let relay = Relay::start(Options::default());
    let input = [ping(1), ping(2), call(3, "list_rooms", "{}")].map(|line| line + "\n").concat();
    for redirection in [">/dev/full", ">&-"] {
        let mut command = redirected(&relay.url(), redirection);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let mut stdin = child.stdin.take().expect("a pipe");
        let _ = stdin.write_all(input.as_bytes());
        if redirection == ">&-" {
            // Nothing can be told on a descriptor that leads nowhere, so the end of stdin ends it.
            drop(stdin);
        }
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{redirection}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
    }
}

#[test]
fn case_063_a_signal_ends_it_within_a_second_idle_or_in_a_call_and_the_signer_with_it() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::tool("list_rooms"), Reply::hang());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        for (to_group, in_a_call) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_within(AT_ONCE, signal.as_str(), || {
                relay.clear_requests();
                let mut host = Host::start(&relay);
                host.signer();
                if in_a_call {
                    host.begin_call("list_rooms", "{}");
                    assert!(relay.wait_for_matching(1, PATIENCE, |r| r.tool() == Some("list_rooms")));
                }
                if to_group {
                    host.signal_group(signal)
                } else {
                    host.signal(signal)
                }
                let ended = host.wait(PATIENCE);
                assert_eq!((ended.code, ended.rest.len()), (Some(0), 0), "{signal}: {}", ended.stderr);
                ended.took
            });
        }
    }
}

#[test]
fn case_063_a_second_signal_and_a_signal_after_the_end_of_stdin_change_nothing() {
    let relay = Relay::start(Options::default());
    relay.script_always(Matcher::any(), Reply::hang());
    let mut host = Host::start(&relay);
    host.begin_call("list_rooms", "{}");
    assert!(relay.wait_for(1, PATIENCE));
    host.close_stdin();
    host.signal(Signal::SIGTERM);
    host.signal(Signal::SIGTERM);
    host.signal(Signal::SIGINT);
    let ended = host.wait(PATIENCE);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.took < AT_ONCE, "{:?}", ended.took);
}

#[test]
fn case_063_signals_that_the_host_left_ignored_or_blocked_are_obeyed() {
    let relay = Relay::start(Options::default());
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "trap '' TERM INT HUP; exec \"$0\" mcp --relay \"$1\""]);
    command.arg(program("tinyagent")).arg(relay.url()).env_clear().env(KEY_VARIABLE, KEY);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a shell");
    child.stdin.as_mut().expect("a pipe").write_all((ping(1) + "\n").as_bytes()).expect("it reads");
    child.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 10]).expect("it answers");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("it is there");
    assert!(wait_gone(child.id(), PATIENCE), "SIGTERM was ignored");
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn case_059_when_the_host_is_killed_both_processes_are_gone_within_two_seconds() {
    for hung in [false, true] {
        let relay = Relay::start(Options::default());
        relay.script_always(Matcher::any(), Reply::hang());
        // The shell is the host: it alone holds the writing end of the pipe that is our stdin.
        let script =
            "mkfifo \"$2\" && exec 3<>\"$2\" && { \"$0\" mcp --relay \"$1\" <\"$2\" 3>&- & } && cat >&3";
        let fifo = std::env::temp_dir().join(format!("tinyagent-{}-{hung}.fifo", std::process::id()));
        let mut host = Command::new("/bin/sh");
        host.args(["-c", script]).arg(program("tinyagent")).arg(relay.url()).arg(&fifo);
        host.env_clear().env("PATH", "/usr/bin:/bin").env(KEY_VARIABLE, KEY);
        host.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut host = host.spawn().expect("a shell");
        let mut stdin = host.stdin.take().expect("a pipe");
        stdin.write_all((ping(1) + "\n").as_bytes()).expect("cat reads");
        host.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 10]).expect("it answers");
        let named = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let all = children(host.id());
        let facade = *all.iter().find(|pid| named(pid).trim() == "tinyagent").expect("the facade");
        let cat = *all.iter().find(|pid| named(pid).trim() == "cat").expect("cat");
        let signer = children(facade)[0];
        if hung {
            stdin.write_all((call(2, "list_rooms", "{}") + "\n").as_bytes()).expect("cat reads");
            assert!(relay.wait_for(1, PATIENCE));
        }
        for pid in [host.id(), cat] {
            kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("it is there");
        }
        let gone = [facade, signer].map(|pid| wait_gone(pid, AT_END));
        assert_eq!(gone, [true, true], "left behind");
        host.wait().expect("a child");
        std::fs::remove_file(fifo).expect("it was made");
    }
}

#[test]
fn a_signer_that_dies_while_nothing_is_unanswered_ends_the_process_with_70() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    host.assert_alive();
    kill_signer(&mut host);
    let ended = host.wait(PATIENCE);
    assert_eq!((ended.code, ended.rest.len()), (Some(70), 0));
    assert!(ended.stderr.contains("the signing process has ended"), "{}", ended.stderr);
}

#[test]
fn case_064_a_signer_killed_between_template_and_signature_is_a_tool_error_then_exit_70() {
    let (relay, gate) = holding(Matcher::plain_call("post_message"));
    let mut host = Host::with_writes(&relay);
    let write = host.begin_call("post_message", HELLO);
    let queued: Vec<u64> = (0..3).map(|_| host.begin_call("list_rooms", "{}")).collect();
    assert!(gate.wait_arrived(1, PATIENCE));
    kill_signer(&mut host);
    for id in [&[write][..], &queued].concat() {
        let answer = host.answer(id);
        assert!(tool_error(&answer).starts_with("signer: the signing process has ended"), "{answer}");
    }
    assert_eq!(host.wait(PATIENCE).code, Some(70));
    gate.open();
    assert_eq!((relay.published().len(), relay.posts().len()), (0, 1));
}

/// Its proof is made ahead, so that nothing but the signer's end keeps it from the relay.
#[test]
fn a_write_that_waits_when_the_signer_ends_is_not_said_to_have_taken_effect() {
    let (relay, gate) = holding(Matcher::tool("list_rooms"));
    let log = TempFile::named("audit.jsonl");
    let mut host = Host::with(&relay, HostOptions::args(&["--allow-writes", "--audit-log", &log.path()]));
    let read = host.begin_call("list_rooms", "{}");
    let write = host.begin_call("post_message", HELLO);
    assert!(gate.wait_arrived(1, PATIENCE));
    let deadline = Instant::now() + PATIENCE;
    while !std::fs::read_to_string(log.path()).unwrap_or_default().contains("post_message") {
        assert!(Instant::now() < deadline, "no proof was made ahead");
        thread::sleep(Duration::from_millis(1));
    }
    // The answer to its question comes after the proof.
    host.assert_alive();
    kill_signer(&mut host);
    assert!(tool_error(&host.answer(read)).starts_with("signer: the signing process has ended"));
    let expected = "signer: the signing process has ended; nothing was published";
    assert_eq!(tool_error(&host.answer(write)), expected);
    assert_eq!(relay.posts().len(), 1);
    gate.open();
}

#[test]
fn case_064_a_signer_killed_after_the_signature_leaves_one_publication_at_most_and_names_its_event() {
    let (relay, gate) = holding(Matcher::resubmission("post_message"));
    let mut host = Host::with_writes(&relay);
    let write = host.begin_call("post_message", HELLO);
    assert!(gate.wait_arrived(1, PATIENCE));
    let event = relay.calls_of("post_message")[1].event().expect("the event");
    kill_signer(&mut host);
    let text =
        format!("signer: the signing process has ended; the call may have taken effect (event {})", event.id);
    assert_eq!(tool_error(&host.answer(write)), text);
    assert_eq!(host.wait(PATIENCE).code, Some(70));
    gate.open();
    assert_eq!(relay.posts().len(), 2);
}

#[test]
fn case_064_a_signer_killed_between_signature_and_post_publishes_nothing_twice() {
    let relay = Relay::start(Options::default());
    let gate = Gate::new();
    let held = gate.clone();
    relay.script(
        Matcher::plain_call("post_message"),
        Reply::from_answer(move |_, answer| {
            let last = answer.header("Connection", "close").to_bytes("Thu, 01 Jan 1970 00:00:00 GMT");
            Reply::steps([Step::Wait(held.clone()), Step::Write(last), Step::Close])
        }),
    );
    let mut host = Host::with_writes(&relay);
    let write = host.begin_call("post_message", HELLO);
    assert!(gate.wait_arrived(1, PATIENCE));
    // The connection for the event is accepted and not read: the signature is made, the POST is not taken.
    let before = relay.connections();
    (0..5).for_each(|_| relay.on_accept(AcceptFault::Stall));
    gate.open();
    let deadline = Instant::now() + PATIENCE;
    while relay.connections() == before {
        assert!(Instant::now() < deadline, "no connection for the event");
        thread::sleep(Duration::from_millis(1));
    }
    kill_signer(&mut host);
    let answer = host.answer(write);
    assert!(tool_error(&answer).starts_with("signer: the signing process has ended"), "{answer}");
    assert_eq!((relay.published().len(), relay.posts().len()), (0, 1));
    assert_eq!(host.wait(PATIENCE).code, Some(70));
}

#[test]
fn case_064_with_a_dead_signer_a_diagnosis_under_way_and_later_calls_are_answered_before_the_exit() {
    let (relay, gate) = holding(Matcher::path("/readyz"));
    let mut host = Host::start(&relay);
    let diagnosis = host.begin_call("tiny_diagnose", "{}");
    assert!(gate.wait_arrived(1, PATIENCE));
    kill_signer(&mut host);
    let call = host.begin_call("list_jobs", "{}");
    assert!(tool_error(&host.answer(call)).starts_with("signer: "));
    host.assert_alive();
    gate.open();
    let report = host.answer(diagnosis);
    assert_eq!(report["result"]["structuredContent"]["authentication"]["class"], "signer", "{report}");
    assert_eq!(host.wait(PATIENCE).code, Some(70));
}

/// Insists that calls, errors and pings go on while log lines find no reader.
fn assert_serves_without_log_reader(relay: &Relay, mut host: Host) {
    relay.script_always(Matcher::tool("list_jobs"), Reply::error(500, -32603, &"no ".repeat(90)));
    for _ in 0..400 {
        assert!(tool_error(&host.call("list_jobs", "{}")).starts_with("transport: "));
    }
    assert_within(Duration::from_millis(100), "a ping", || timed(|| host.assert_alive()));
    assert_answered(&host.call("list_rooms", "{}"));
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn case_067_a_stderr_that_is_never_read_does_not_hold_it_up() {
    let relay = Relay::start(Options::default());
    let (unread, stderr) = std::io::pipe().expect("a pipe");
    let options = HostOptions { stderr: Stderr::Other(stderr.into()), ..HostOptions::args(&["-v"]) };
    assert_serves_without_log_reader(&relay, Host::with(&relay, options));
    drop(unread);
}

#[test]
fn case_067_a_stderr_that_is_full_from_the_start_does_not_hold_it_up() {
    let relay = Relay::start(Options::default());
    let (mut unread, mut stderr) = std::io::pipe().expect("a pipe");
    // What pipe(7) says a pipe holds.
    stderr.write_all(&[b'x'; 65_536]).expect("room");
    let kept = stderr.try_clone().expect("a copy");
    let options = HostOptions { stderr: Stderr::Other(stderr.into()), ..HostOptions::args(&["-v"]) };
    let mut host = Host::with(&relay, options);
    assert_answered(&host.call("list_rooms", "{}"));
    unread.read_exact(&mut [0; 65_536]).expect("full");
    host.call("list_rooms", "{}");
    drop(kept);
    assert_eq!(host.end().code, Some(0));
    let mut rest = String::new();
    unread.read_to_string(&mut rest).expect("UTF-8");
    assert!(rest.contains("log lines dropped)"), "the lost lines are not counted: {rest}");
}

#[test]
fn case_061_a_stderr_that_is_closed_or_full_does_not_hold_it_up() {
    let relay = Relay::start(Options::default());
    let (reader, stderr) = std::io::pipe().expect("a pipe");
    drop(reader);
    let closed = HostOptions { stderr: Stderr::Other(stderr.into()), ..HostOptions::args(&["-v"]) };
    assert_serves_without_log_reader(&relay, Host::with(&relay, closed));
    relay.clear_script();
    let full = File::options().write(true).open("/dev/full").expect("it is there");
    let full = HostOptions { stderr: Stderr::Other(full.into()), ..HostOptions::args(&["-v"]) };
    assert_serves_without_log_reader(&relay, Host::with(&relay, full));
    let output = piped(redirected(&relay.url(), "2>&-"), (ping(1) + "\n").as_bytes());
    assert_eq!(lines(&output.stdout), [json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
}

#[test]
fn a_start_that_fails_says_so_by_its_status_where_stderr_is_closed() {
    let mut command = redirected("ftp://x", "2>&-");
    assert_eq!(command.stdin(Stdio::null()).status().expect("a shell").code(), Some(1));
}

#[test]
fn nothing_is_left_behind_by_a_start_that_fails() {
    let mut command = bare("http://127.0.0.1:9");
    command
        .env(KEY_VARIABLE, "0".repeat(64))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = command.spawn().expect("it starts");
    let pid = child.id();
    assert_eq!(child.wait_with_output().expect("a child").status.code(), Some(1));
    let group: Vec<u32> = std::fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|other| {
            let line = std::fs::read(format!("/proc/{other}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&format!("--parent\0{pid}\0"))
        })
        .collect();
    assert!(group.into_iter().all(|pid| wait_gone(pid, AT_ONCE)), "a signer is left behind");
}
