//! Claims 1 and 2: the key is nowhere in the facade, and in the signer in one page that even root cannot
//! read; and the scan that says so finds a key where there is one.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use nix::errno::Errno;
use tinyagent_harness::{Host, HostOptions, KEY_VARIABLE, PATIENCE};
use tinyagent_relay::{Options, Relay, unhex};

use crate::peer::{Peer, RELAY, publish};
use crate::scan::{Forms, Scan, read_directly, scan};
use crate::support::{Directory, NewKey, hardening, is_root, with_key};

/// How many events are signed before the second look, so that every buffer has been used again.
const SIGNATURES: usize = 50;

fn assert_nothing_found(scan: &Scan, process: &str) {
    assert_eq!(scan.found, Vec::<String>::new(), "in the {process}");
    // Far less than any process has would mean that the scan did not look.
    assert!(scan.memory_bytes > 1 << 20, "only {} bytes of the {process} were read", scan.memory_bytes);
    for file in ["environ", "cmdline", "auxv", "maps", "status", "comm"] {
        assert!(scan.files.iter().any(|name| name == file), "{file} of the {process} was not read");
    }
}

/// The signer's memory: nothing readable, and one secret page that root cannot read either.
fn assert_secret_page(host: &mut Host, forms: &Forms) {
    let (pid, seen) = (host.signer(), scan(host.signer(), forms));
    let memfd = hardening(host, "signer").into_iter().find(|(measure, ..)| measure == "memfd-secret");
    let (_, state, why) = memfd.expect("the measure");
    if state != "on" {
        println!("skipped: this kernel has no memfd_secret ({why}), so root finds the key in the signer");
        return;
    }
    assert_nothing_found(&seen, "signer");
    assert_eq!(seen.unreadable.len(), 1, "{:?}", seen.unreadable);
    assert!(seen.unreadable[0].contains("secretmem"), "{:?}", seen.unreadable);
    assert_eq!(read_directly(pid, &seen.unreadable[0]), Err(Errno::EFAULT));
}

fn assert_key_is_out_of_reach(written: &str, key: &NewKey) {
    let relay = Relay::start(Options::default());
    let forms = Forms::of(key);
    // A second copy, as hosts that pass their whole environment on leave one.
    let options = with_key(written, &["--allow-writes"]).env("COPY_OF_IT", format!("key={written};"));
    let mut host = Host::with(&relay, options);
    assert_nothing_found(&scan(host.pid(), &forms), "facade after its start");
    assert_secret_page(&mut host, &forms);
    for number in 0..SIGNATURES {
        let text = host.call("post_message", &format!(r#"{{"room":"general","content":"{number}"}}"#));
        assert_eq!(text["result"]["isError"], false, "{text}");
    }
    assert_eq!(relay.published().len(), SIGNATURES);
    assert!(relay.published().iter().all(|event| event.pubkey == key.public), "signed with this key");
    assert_nothing_found(&scan(host.pid(), &forms), "facade after its signatures");
    assert_secret_page(&mut host, &forms);
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn after_start_and_fifty_signatures_a_hex_key_is_nowhere_but_in_the_secret_page() {
    if is_root("reading the memory of processes that are not dumpable") {
        let key = NewKey::make();
        assert_key_is_out_of_reach(&key.hex.clone(), &key);
    }
}

#[test]
fn after_start_and_fifty_signatures_an_nsec_key_is_nowhere_but_in_the_secret_page() {
    if is_root("reading the memory of processes that are not dumpable") {
        let key = NewKey::make();
        assert_key_is_out_of_reach(&key.nsec.clone(), &key);
    }
}

/// A signer is held in the moment after a signature, with its answer unsent since nobody reads: before
/// anything that it does later can have written over what the signature left on the stack.
#[test]
fn right_after_a_signature_the_key_is_on_no_stack_either() {
    if !is_root("reading the memory of a process that is not dumpable") {
        return;
    }
    let key = NewKey::make();
    let arguments = ["--allow-writes", "--max-events-per-minute", "4000000000"];
    let mut peer = Peer::holding(&key.hex, key.public.clone(), RELAY, &arguments);
    let description = peer.ask(r#"{"describe":{}}"#).to_string();
    if !description.contains(r#"{"measure":"memfd-secret","state":"on"}"#) {
        println!("skipped: this kernel has no memfd_secret, so root finds the key in its page");
        return;
    }
    let request = publish("post_message", "{}", 9, r#"[["h","general"]]"#);
    let frame = [&u32::try_from(request.len()).expect("small").to_be_bytes(), request.as_bytes()].concat();
    peer.socket.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    // Once nothing more can be written, nothing is read there: the signer waits for us to read.
    while peer.socket.write_all(&frame).is_ok() {}
    let waits_in =
        std::fs::read_to_string(format!("/proc/{}/syscall", peer.pid())).expect("readable for root");
    assert!(waits_in.starts_with(&format!("{} ", libc::SYS_sendto)), "it waits in another call: {waits_in}");
    assert_nothing_found(&scan(peer.pid(), &Forms::of(&key)), "signer in the middle of its answer");
}

/// A child that is killed with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program itself, held in the moment before it wipes the key: its signer never answers.
#[test]
fn the_scan_finds_the_key_in_the_same_program_before_it_is_wiped() {
    if !is_root("reading the memory of processes that are not dumpable") {
        return;
    }
    let (directory, key) = (Directory::installed(0o755), NewKey::make());
    let said = directory.path("started");
    directory.script("tinyagent-signer", &format!("touch '{}'; exec sleep 60", said.display()));
    let mut command = Command::new(directory.path("tinyagent"));
    command.args(["mcp", "--relay", "http://127.0.0.1:9"]).env_clear().env("PATH", "/usr/bin:/bin");
    command.env(KEY_VARIABLE, &key.hex).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let launcher = Guard(command.spawn().expect("tinyagent starts"));
    let deadline = Instant::now() + PATIENCE;
    while !said.exists() {
        assert!(Instant::now() < deadline, "the launcher did not start a signer");
        std::thread::sleep(Duration::from_millis(5));
    }
    let forms = Forms::of(&key);
    let before = scan(launcher.0.id(), &forms);
    assert!(before.found_in("hex, first half", "/environ"), "{:?}", before.found);
    assert!(before.found_in("hex, second half", "[stack]"), "{:?}", before.found);
    for signer in tinyagent_harness::children(launcher.0.id()) {
        assert!(scan(signer, &forms).found_in("hex", "/environ"), "in the stand-in for the signer");
    }
}

#[test]
#[ignore = "no test: the one below starts it as a process that holds the key in every form"]
fn process_that_keeps_the_key() {
    let hex = std::env::var(KEY_VARIABLE).expect("started by a test");
    let raw: [u8; 32] = unhex(&hex).expect("32 bytes");
    let kept = [
        raw.to_vec(),
        raw.iter().rev().copied().collect(),
        hex.to_uppercase().into_bytes(),
        STANDARD.encode(raw).into_bytes(),
        URL_SAFE.encode(raw).into_bytes(),
        std::env::var("NSEC").expect("set").into_bytes(),
        std::env::var("NSEC").expect("set").to_uppercase().into_bytes(),
    ];
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("until the test has looked");
    assert_eq!(std::hint::black_box(&kept).len(), 7);
}

#[test]
fn the_scan_finds_every_form_of_a_key_that_a_process_keeps() {
    if !is_root("reading the memory of another process") {
        return;
    }
    let key = NewKey::make();
    let own = std::env::current_exe().expect("the test's own path");
    let mut command = Command::new(own);
    command.args(["--ignored", "--nocapture", "--exact", "memory::process_that_keeps_the_key"]);
    command.env_clear().env(KEY_VARIABLE, &key.hex).env("NSEC", &key.nsec);
    let mut keeper = Guard(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let stdout = BufReader::new(keeper.0.stdout.take().expect("a pipe"));
    assert!(stdout.lines().any(|line| line.is_ok_and(|line| line.contains("ready"))), "it is ready");
    let forms = Forms::of(&key);
    let seen = scan(keeper.0.id(), &forms);
    for form in forms.names() {
        assert!(seen.found_in(form, ""), "{form} was not found: {:?}", seen.found);
    }
}

#[test]
fn no_file_that_an_ordinary_user_may_read_shows_the_key_either() {
    let (relay, key) = (Relay::start(Options::default()), NewKey::make());
    let mut host = Host::with(&relay, HostOptions { ..with_key(&key.hex, &[]) });
    host.text("read_room", r#"{"id":"general"}"#);
    for pid in [host.pid(), host.signer()] {
        let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).expect("for everybody to read");
        let command_line = String::from_utf8_lossy(&command_line).to_lowercase();
        assert!(command_line.contains("--relay"), "{command_line}");
        assert!(!command_line.contains(&key.hex[..16]) && !command_line.contains("nsec"), "{command_line}");
    }
    assert_eq!(host.end().code, Some(0));
}
