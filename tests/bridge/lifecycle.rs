//! Contract 2, cases 45, 48 and 57: starting, in whatever surroundings, and which processes there are.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tinyagent_harness::{
    Host, HostOptions, INITIALIZE, INITIALIZED, Input, KEY, PATIENCE, PUBKEY, children, is_alive, ping,
    request, wait_gone,
};
use tinyagent_relay::{AcceptFault, Options, Relay};

use crate::network::TempFile;
use crate::support::{assert_answered, assert_within, bare, lines, piped, redirected, silent};

/// What hosts send first, and a tools/list.
fn opening() -> String {
    format!("{INITIALIZE}\n{INITIALIZED}\n{}\n", request(1, "tools/list", "{}"))
}

#[test]
fn a_piped_session_prints_exactly_two_lines_and_exits_0() {
    let relay = Relay::start(Options::default());
    let output = piped(bare(&relay.url()), opening().as_bytes());
    let answers = lines(&output.stdout);
    assert_eq!((output.status.code(), answers.len()), (Some(0), 2));
    assert_eq!(answers[0]["result"]["serverInfo"]["name"], "tinyagent");
    assert_eq!(answers[1]["result"]["tools"].as_array().expect("tools").len(), 18);
}

#[test]
fn after_the_start_neither_process_has_the_key_in_its_environment_or_arguments() {
    if !nix::unistd::geteuid().is_root() {
        return println!("skipped: only root may read the environment of processes that are not dumpable");
    }
    let relay = Relay::start(Options::default());
    let options = HostOptions::default().env("COPY_OF_IT", KEY).env("WITHIN", format!("a{KEY}b"));
    let mut host = Host::with(&relay, options.env("HARMLESS", "stays"));
    for pid in [host.pid(), host.signer()] {
        for file in ["environ", "cmdline"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).expect("readable by root");
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(KEY), "the key is in /proc/{pid}/{file}");
            assert_eq!(text.contains("HARMLESS=stays"), file == "environ" && pid == host.pid(), "{text}");
        }
    }
}

#[test]
fn the_signer_is_the_only_child_and_has_none_itself() {
    let relay = Relay::start(Options::default());
    let mut host = Host::with_writes(&relay);
    host.call("post_message", r#"{"room":"general","content":"hi"}"#);
    host.ask("tools/list", "{}");
    host.call("tiny_diagnose", "{}");
    let signer = host.signer();
    assert_eq!(children(host.pid()), [signer]);
    assert_eq!(children(signer), [] as [u32; 0]);
    let path = std::fs::read_to_string(format!("/proc/{signer}/comm")).expect("a live process");
    assert_eq!(path.trim(), "tinyagent-signe", "the kernel cuts names at 15 bytes");
}

#[test]
fn the_signer_is_gone_within_a_second_after_the_facade_was_killed() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    let (facade, signer) = (host.pid(), host.signer());
    kill(Pid::from_raw(facade.cast_signed()), Signal::SIGKILL).expect("it is there");
    assert!(wait_gone(signer, Duration::from_secs(1)), "the signer outlived the facade");
    let ended = host.wait(PATIENCE);
    assert_eq!(ended.signal, Some(9));
}

#[test]
fn case_048_it_works_from_the_root_directory_with_next_to_no_environment() {
    let relay = Relay::start(Options::default());
    for variables in
        [&[("HOME", "/nonexistent")][..], &[], &[("LANG", "xx_YY.NONE"), ("TMPDIR", "/none"), ("TZ", "?")]]
    {
        let mut command = bare(&relay.url());
        command.env_remove("PATH").envs(variables.iter().copied()).current_dir("/");
        let output = piped(command, opening().as_bytes());
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(lines(&output.stdout)[1]["result"]["tools"].as_array().expect("tools").len(), 18);
    }
}

#[test]
fn case_045_initialize_is_answered_within_100_ms_before_the_relay_answers_anything() {
    let relay = Relay::start(Options::default());
    (0..1000).for_each(|_| relay.on_accept(AcceptFault::Stall));
    assert_within(Duration::from_millis(100), "the initialize answer", || {
        let began = Instant::now();
        let _host = Host::start(&relay);
        began.elapsed()
    });
    let mut host = Host::start(&relay);
    let began = Instant::now();
    let answer = host.ask("tools/list", "{}");
    // Eight seconds are the contract's; the rest is the noise of a busy machine.
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let tools = answer["result"]["tools"].as_array().expect("tools");
    assert_eq!((tools.len(), &tools[0]["name"]), (1, &json!("tiny_diagnose")));
    host.wait_for_stderr("the relay's tools cannot be listed: transport: ");
}

#[test]
fn the_start_is_told_in_one_line_on_stderr() {
    let relay = Relay::start(Options::default());
    let mut host = Host::start(&relay);
    host.assert_alive();
    let ended = host.end();
    let line = format!("serving {} as {PUBKEY};", relay.url());
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches('\n').count(), 1, "{}", ended.stderr);
}

#[test]
fn stdin_may_be_dev_null_or_an_empty_file_or_closed() {
    let relay = Relay::start(Options::default());
    let null = || Stdio::from(File::open("/dev/null").expect("it is there"));
    let empty = || {
        Stdio::from(
            File::open("/proc/self/attr/current").or_else(|_| File::open("/dev/null")).expect("a file"),
        )
    };
    for input in [null(), empty()] {
        let ended = Host::with(&relay, HostOptions { input: Input::Other(input), ..silent() }).wait(PATIENCE);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let output = redirected(&relay.url(), "<&-").output().expect("a shell");
    assert_eq!((output.status.code(), output.stdout), (Some(0), vec![]));
    assert_eq!(relay.connections(), 0);
}

#[test]
fn stdin_may_be_a_file_and_stdout_too() {
    let relay = Relay::start(Options::default());
    let input = TempFile::new("in", &opening());
    let output = TempFile::new("out", "");
    let mut command = bare(&relay.url());
    command.stdin(File::open(input.path()).expect("readable"));
    command.stdout(File::create(output.path()).expect("writable")).stderr(Stdio::null());
    assert_eq!(command.status().expect("it starts").code(), Some(0));
    let answers = lines(&std::fs::read(output.path()).expect("readable"));
    assert_eq!((answers.len(), &answers[0]["id"], &answers[1]["id"]), (2, &json!(0), &json!(1)));
}

#[test]
fn stdin_and_stdout_may_be_sockets_as_node_makes_them() {
    let relay = Relay::start(Options::default());
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let (their_in, their_out) = (theirs.try_clone().expect("a copy"), theirs);
    let mut command = bare(&relay.url());
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(their_in)));
    command.stdout(Stdio::from(std::os::fd::OwnedFd::from(their_out))).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    drop(command);
    (&ours).write_all(opening().as_bytes()).expect("it reads");
    let mut reader = BufReader::new(&ours);
    for id in [0, 1] {
        let mut line = String::new();
        reader.read_line(&mut line).expect("it writes");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], id);
    }
    ours.shutdown(std::net::Shutdown::Write).expect("a socket");
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

#[test]
fn stdin_and_stdout_may_be_a_terminal_that_another_process_made_non_blocking() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
    let relay = Relay::start(Options::default());
    for flags in [OFlag::O_RDWR, OFlag::O_RDWR | OFlag::O_NONBLOCK] {
        let pty = nix::pty::openpty(None, None).expect("a terminal");
        let mut raw = tcgetattr(&pty.slave).expect("attributes");
        cfmakeraw(&mut raw);
        tcsetattr(&pty.slave, SetArg::TCSANOW, &raw).expect("a terminal");
        fcntl(&pty.slave, FcntlArg::F_SETFL(flags)).expect("flags");
        let mut command = bare(&relay.url());
        command.stdin(pty.slave.try_clone().expect("a copy")).stdout(pty.slave).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        drop(command);
        let mut terminal = BufReader::new(File::from(pty.master));
        for id in 0..5 {
            let long = "x".repeat(3000);
            terminal.get_mut().write_all((ping(format!("{id}{long}")) + "\n").as_bytes()).expect("it reads");
            let mut line = String::new();
            terminal.read_line(&mut line).expect("it writes");
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            assert_eq!(answer["id"], format!("{id}{long}"));
        }
        drop(terminal);
        assert_eq!(child.wait().expect("a child").code(), Some(0));
    }
}

#[test]
fn an_inherited_pipe_keeps_its_flags() {
    let relay = Relay::start(Options::default());
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = |pipe: &std::io::PipeReader| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pipe.as_raw_fd())).expect("open");
        info.lines().find(|line| line.starts_with("flags:")).expect("flags").to_owned()
    };
    let before = flags(&reader);
    let input = Input::Other(Stdio::from(reader.try_clone().expect("a copy")));
    let mut host = Host::with(&relay, HostOptions { input, ..silent() });
    writer.write_all((ping(1) + "\n").as_bytes()).expect("a reader");
    assert_eq!(host.next_answer()["id"], 1);
    assert_eq!(flags(&reader), before, "O_NONBLOCK would be the host's too");
    drop(writer);
    assert_eq!(host.wait(PATIENCE).code, Some(0));
}

#[test]
fn many_servers_may_run_at_once_with_one_key() {
    let relay = Relay::start(Options::default());
    let mut hosts: Vec<Host> = (0..4).map(|_| Host::with_writes(&relay)).collect();
    let ids: Vec<u64> = hosts
        .iter_mut()
        .map(|host| host.begin_call("post_message", r#"{"room":"general","content":"same"}"#))
        .collect();
    for (host, id) in hosts.iter_mut().zip(ids) {
        assert_answered(&host.answer(id));
    }
    let pids: Vec<u32> = hosts.iter_mut().flat_map(|host| [host.pid(), host.signer()]).collect();
    assert!(hosts.into_iter().all(|host| host.end().code == Some(0)));
    assert!(!pids.into_iter().any(is_alive));
}
