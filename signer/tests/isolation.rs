//! What others can learn of it: the hardening report, its open files, and its memory as root reads it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::Value;
use tinyagent_harness::status_field;
use tinyagent_relay::{Key, hex, unhex};

use crate::degradation::{Denied, denying};
use crate::program::{Directory, Signer, Start, as_nobody, is_root, publish, signer_path};

#[test]
fn every_measure_is_on_or_says_why_it_is_not() {
    let mut signer = Signer::start(&Key::random(), &[]);
    let description = signer.describe();
    let measures = description["hardening"].as_array().expect("a list");
    let names: Vec<&str> = measures.iter().filter_map(|m| m["measure"].as_str()).collect();
    let expected = [
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
    assert_eq!(names, expected);
    for measure in measures {
        assert!(measure["state"] == "on" || measure["why"].is_string(), "{measure}");
    }
    // What the kernel says of the process, beside what the process says.
    let kernel = |field: &str| status_field(signer.pid(), field).unwrap_or_default();
    let on = |name: &str| measures.iter().any(|m| m["measure"] == name && m["state"] == "on");
    assert_eq!(on("no-new-privs"), kernel("NoNewPrivs") == "1");
    assert!(!on("seccomp") || kernel("Seccomp") == "2");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(!on("capabilities") || kernel(set) == "0000000000000000", "{set}");
    }
    assert_eq!(kernel("Threads"), "1");
}

#[test]
fn an_ordinary_user_gets_the_same_measures_and_may_require_them() {
    if !is_root("starting the signer as another user") {
        return;
    }
    let directory = Directory::new();
    let mut as_root = Signer::start(&Key::random(), &[]);
    let mut start = Start::new(&Key::random().secret_hex(), &[]);
    start.command = as_nobody(&directory, &signer_path());
    start.environment.push(("PATH".into(), "/usr/bin:/bin".into()));
    let mut as_user = start.inherited();
    let states = |description: Value| -> Vec<(String, String)> {
        let text = |m: &Value, key: &str| m[key].as_str().unwrap_or_default().to_owned();
        let measures = description["hardening"].as_array().expect("a list").clone();
        measures.iter().map(|m| (text(m, "measure"), text(m, "state"))).collect()
    };
    assert_eq!(states(as_user.describe()), states(as_root.describe()));
    assert_eq!(status_field(as_user.pid(), "Uid").as_deref(), Some("65534\t65534\t65534\t65534"));
}

#[test]
fn it_holds_no_descriptor_but_its_own() {
    if !is_root("listing the descriptors of a process that is not dumpable") {
        return;
    }
    let directory = Directory::new();
    let inherited = File::open(directory.file("config", "the host's", 0o600)).expect("a file");
    // Rust opens files close-on-exec; a host may not.
    nix::fcntl::fcntl(&inherited, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).expect("kept");
    let mut signer = Signer::start(&Key::random(), &[]);
    signer.describe();
    let mut open: Vec<String> = fs::read_dir(format!("/proc/{}/fd", signer.pid()))
        .expect("its descriptors")
        .map(|entry| fs::read_link(entry.expect("one").path()).expect("a link").display().to_string())
        .collect();
    open.sort();
    assert_eq!(open[..3], ["/dev/null", "/dev/null", "/dev/null"]);
    assert!(open.len() == 4 && open[3].starts_with("socket:"), "{open:?}");
}

/// The forms in which a key could lie in memory, each with its name.
fn forms(key: &Key) -> Vec<(&'static str, Vec<u8>)> {
    let text = key.secret_hex();
    let raw: [u8; 32] = unhex(&text).expect("32 bytes");
    let reversed: Vec<u8> = raw.iter().rev().copied().collect();
    vec![
        ("raw, first half", raw[..16].into()),
        ("raw, second half", raw[16..].into()),
        ("reversed, first half", reversed[..16].into()),
        ("reversed, second half", reversed[16..].into()),
        ("hex, first half", text[..32].into()),
        ("hex, second half", text[32..].into()),
        ("upper-case hex", text.to_uppercase()[..32].into()),
        ("base64", STANDARD_NO_PAD.encode(raw)[..40].into()),
        ("one 64-bit word", raw[8..16].into()),
        ("one 64-bit word, reversed", reversed[8..16].into()),
    ]
}

/// The mappings of a process in which a form of the key is found, and those that cannot be read.
fn scan(pid: u32, key: &Key) -> (Vec<String>, Vec<String>) {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory, as root");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings");
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for line in maps.lines().filter(|line| !line.contains("[v")) {
        let (range, _) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two addresses");
        let address = |text| u64::from_str_radix(text, 16).expect("an address");
        let mut bytes = vec![0; usize::try_from(address(end) - address(start)).expect("a length")];
        match memory.read_exact_at(&mut bytes, address(start)) {
            Ok(()) => found.extend(
                forms(key)
                    .iter()
                    .filter(|(_, form)| bytes.windows(form.len()).any(|part| part == form))
                    .map(|(name, _)| format!("{name} in {line}")),
            ),
            Err(_) if !line.contains(" ---") => unreadable.push(line.to_owned()),
            Err(_) => {}
        }
    }
    (found, unreadable)
}

/// Fifty signatures of each sort, so that every buffer has been used.
fn work(signer: &mut Signer) {
    for _ in 0..50 {
        let answer = signer.ask(&publish("post_message", "{}", 9, "h"));
        assert!(answer.get("published").is_some(), "{answer}");
    }
}

#[test]
fn after_fifty_signatures_the_key_is_in_no_page_that_root_can_read() {
    if !is_root("reading another process's memory") {
        return;
    }
    let key = Key::random();
    let mut signer = Signer::start(&key, &["--allow-writes"]);
    if signer.measure("memfd-secret").0 != "on" {
        println!("skipped: this kernel has no memfd_secret; {}", signer.measure("memfd-secret").1);
        return;
    }
    work(&mut signer);
    let (found, unreadable) = scan(signer.pid(), &key);
    assert!(found.is_empty(), "{found:#?}");
    assert!(unreadable.len() == 1 && unreadable[0].contains("secretmem"), "{unreadable:#?}");
}

#[test]
fn the_same_scan_finds_the_key_where_the_page_can_be_read_and_only_there() {
    if !is_root("reading another process's memory") {
        return;
    }
    let key = Key::random();
    let denied = Denied { calls: &["memfd_secret"], errno: libc::ENOSYS };
    let mut signer = denying(&key, &denied, &["--allow-writes"]).inherited();
    work(&mut signer);
    let (found, _) = scan(signer.pid(), &key);
    let mappings: std::collections::BTreeSet<&str> =
        found.iter().filter_map(|hit| hit.split_once(" in ")).map(|(_, mapping)| mapping).collect();
    assert_eq!(mappings.len(), 1, "{found:#?}");
    assert!(found.iter().any(|hit| hit.starts_with("raw")), "{found:#?}");
}

#[test]
fn the_same_scan_finds_a_key_that_a_process_did_not_wipe() {
    if !is_root("reading another process's memory") {
        return;
    }
    let key = Key::random();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .env("TINY_PRIVATE_KEY", hex(&unhex::<32>(&key.secret_hex()).expect("32 bytes")))
        .spawn()
        .expect("sleep starts");
    let (found, _) = scan(sleeper.id(), &key);
    sleeper.kill().expect("killed");
    sleeper.wait().expect("reaped");
    assert!(found.iter().any(|hit| hit.starts_with("hex")), "{found:?}");
}
