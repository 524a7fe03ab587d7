//! The launcher's promises, each seen from inside the processes that it leads to.
//!
//! A probe program (examples/launch_probe.rs) goes the launcher's way and reports what it sees as root or
//! as whoever runs the tests; nothing here looks at a real key.

#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::wait::{WaitStatus, waitpid};
use serde_json::Value;
use tinyagent_harness::copy_program;

const KEY: &str = "5f0e2d4c6b8a79881726354453627180f0e1d2c3b4a5968778695a4b3c2d1e0f";

/// SIGPIPE, which the Rust runtime ignores, in the bit mask of /proc/PID/status.
const SIGPIPE: u64 = 1 << 12;

/// Signals 32 and 33, which glibc keeps for itself and ignores in what it spawns.
const KEPT_BY_LIBC: u64 = 0b11 << 31;

/// A directory with the probe in it under both programs' names.
struct Installed {
    directory: PathBuf,
}

impl Installed {
    fn new(test: &str) -> Self {
        let own = std::env::current_exe().expect("a test has a program");
        let probe =
            own.parent().and_then(Path::parent).expect("target/PROFILE/deps").join("examples/launch_probe");
        let directory = std::env::temp_dir().join(format!("tinyagent-launch-{test}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("the temporary directory is writable");
        assert!(probe.exists(), "run `cargo build --examples`, or all tests of the package");
        for name in ["tinyagent", "tinyagent-signer"] {
            copy_program(&probe, &directory.join(name), 0o755);
        }
        Self { directory }
    }

    fn program(&self) -> PathBuf {
        self.directory.join("tinyagent")
    }

    fn report_path(&self) -> PathBuf {
        self.directory.join("report")
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&fs::read(self.report_path()).expect("both stages ran")).expect("JSON")
    }

    /// Runs the probe through `sh`, which can give it any descriptors; `$0` is the probe and `$1` the
    /// report's path.
    fn run_by(&self, shell: &str) -> Output {
        Command::new("sh")
            .args([
                OsStr::new("-c"),
                OsStr::new(shell),
                self.program().as_os_str(),
                self.report_path().as_os_str(),
            ])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TINY_PRIVATE_KEY", KEY)
            .output()
            .expect("there is a shell")
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Runs the probe with exactly these entries, duplicates included.
fn run_with_entries(installed: &Installed, entries: &[String]) -> WaitStatus {
    let text = |bytes: &[u8]| CString::new(bytes).expect("no NUL");
    let program = text(installed.program().as_os_str().as_bytes());
    let args = [program.clone(), text(installed.report_path().as_os_str().as_bytes())];
    let entries: Vec<CString> = entries.iter().map(|entry| text(entry.as_bytes())).collect();
    let actions = PosixSpawnFileActions::init().expect("memory");
    let attributes = PosixSpawnAttr::init().expect("memory");
    let pid =
        posix_spawn(program.as_c_str(), &actions, &attributes, &args, &entries).expect("the probe runs");
    waitpid(pid, None).expect("it is our child")
}

#[test]
fn no_entry_with_the_key_survives_and_the_signer_gets_one_alone() {
    let installed = Installed::new("entries");
    let status = run_with_entries(
        &installed,
        &[
            "PATH=/usr/bin:/bin".into(),
            format!("BACKUP=hex:{}", KEY.to_uppercase()),
            format!("TINY_PRIVATE_KEY={KEY}"),
            "LD_PRELOAD=".into(),
            "TINY_PRIVATE_KEY=second".into(),
            format!("TINY_PRIVATE_KEY={KEY}"),
            "TINY_PRIVATE_KEYS=kept".into(),
        ],
    );
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
    let report = installed.report();
    assert_eq!(report["signer"]["environ"], format!("TINY_PRIVATE_KEY={KEY}\0"));
    assert_eq!(report["second"]["environ"], "PATH=/usr/bin:/bin\0LD_PRELOAD=\0TINY_PRIVATE_KEYS=kept\0");
    // The first stage is not dumpable, so that only root may read its block again.
    if nix::unistd::geteuid().is_root() {
        let block = report["first"]["environ"].as_str().expect("text");
        assert!(block.contains("PATH=/usr/bin:/bin\0") && block.contains("TINY_PRIVATE_KEYS=kept\0"));
        assert!(!block.to_lowercase().contains(&KEY[..16]) && !block.contains("second"), "{block:?}");
    } else {
        println!("not root: the first stage's erased block cannot be read, only the second's");
    }
}

#[test]
fn the_processes_are_one_family_and_the_signer_is_reaped() {
    let installed = Installed::new("family");
    let output = installed.run_by(r#"exec "$0" "$1" --relay http://127.0.0.1:1"#);
    assert!(output.status.success(), "{output:?}");
    let Value::Object(report) = installed.report() else { panic!("an object") };
    let (first, second, signer) = (&report["first"], &report["second"], &report["signer"]);
    assert_eq!(first["pid"], second["pid"], "execve keeps the process");
    assert_eq!(signer["parent"], first["pid"]);
    assert_eq!(signer["group"], signer["pid"], "an interrupt of our group does not reach the signer");
    assert_eq!(second["signer_pid"], signer["pid"]);
    assert_eq!(second["nonblocking"], true);
    assert_eq!(second["reaped"], format!("Some(Exited(Pid({}), 0))", signer["pid"]));
    assert_eq!(second["name"], "tinyagent");
    let args = second["args"].as_array().expect("a list");
    assert_eq!(args[0], installed.program().to_str().expect("UTF-8"), "argv[0] is kept");
    assert_eq!(args[2..], ["--relay", "http://127.0.0.1:1"].map(Value::from));
}

#[test]
fn each_process_has_its_own_descriptors_and_no_others() {
    let installed = Installed::new("descriptors");
    let output = installed.run_by(r#"exec 3</etc/passwd 7</etc/passwd 9>&1; exec "$0" "$1" </dev/null"#);
    assert!(output.status.success(), "{output:?}");
    let report = installed.report();
    let list = |process: &str| -> Vec<String> {
        let list = report[process]["descriptors"].as_array().expect("a list");
        list.iter().map(|item| item.as_str().expect("text").to_owned()).collect()
    };
    let signer = list("signer");
    assert_eq!(signer[..3], ["0 /dev/null", "1 /dev/null", "2 /dev/null"]);
    assert!(signer.len() == 4 && signer[3].starts_with("3 socket:"), "{signer:?}");
    let second = list("second");
    assert!(second[0] == "0 /dev/null" && second[1].starts_with("1 pipe:"), "{second:?}");
    assert!(second[3].starts_with("3 socket:"), "{second:?}");
    // Beside these, the descriptor that tells of the signer's end.
    assert!(second.len() == 4 || (second.len() == 5 && second[4].contains("pidfd")), "{second:?}");
}

#[test]
fn closed_standard_descriptors_are_filled_and_nothing_lands_there() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let installed = Installed::new("closed");
        installed.run_by(&format!(r#"exec "$0" "$1" {closed}"#));
        let report = installed.report();
        let second = report["second"]["descriptors"].as_array().expect("a list");
        for (number, redirection) in [(0, "<&-"), (1, ">&-"), (2, "2>&-")] {
            if closed.split(' ').any(|part| part == redirection) {
                assert_eq!(second[number], format!("{number} /dev/null"), "{closed}");
            }
        }
        assert!(second[3].as_str().is_some_and(|item| item.starts_with("3 socket:")), "{closed}: {second:?}");
    }
}

#[test]
fn standard_descriptors_are_filled_by_the_launcher_itself() {
    let installed = Installed::new("filled");
    installed.run_by(r#"exec "$0" "$1" --close-standard"#);
    for stage in ["first", "second"] {
        let report = installed.report();
        let descriptors = report[stage]["descriptors"].as_array().expect("a list");
        assert_eq!(
            descriptors[..3],
            ["0 /dev/null", "1 /dev/null", "2 /dev/null"].map(Value::from),
            "{stage}"
        );
    }
}

#[test]
fn ignored_and_blocked_signals_are_put_back_in_every_process() {
    let installed = Installed::new("signals");
    let options = "--ignore-signal=TERM,CHLD,INT,HUP,RTMIN+3 --block-signal=TERM,USR1,INT";
    let output = installed.run_by(&format!(r#"exec env {options} "$0" "$1""#));
    assert!(output.status.success(), "{output:?}");
    // The control: without the launcher these masks reach a program.
    let output = installed.run_by(&format!("exec env {options} grep Sig[BI] /proc/self/status"));
    let control = String::from_utf8_lossy(&output.stdout).into_owned();
    let mask = |name: &str| control.lines().find_map(|line| line.strip_prefix(name)).map_or(0, bits);
    assert_eq!(mask("SigBlk:"), 1 << 14 | 1 << 9 | 1 << 1, "{control}");
    // A shell that runs the tests in the background has more of them ignored.
    let asked = 1 << 36 | 1 << 16 | 1 << 14 | 1 << 1 | 1;
    assert_eq!(mask("SigIgn:") & asked, asked, "{control}");
    let report = installed.report();
    for process in ["first", "second", "signer"] {
        assert_eq!(report[process]["blocked"].as_str().map(bits), Some(0), "{process}");
        let ignored = report[process]["ignored"].as_str().map_or(0, bits);
        assert_eq!(ignored & !KEPT_BY_LIBC, SIGPIPE, "{process}");
    }
}

/// A signal mask as /proc/PID/status writes it.
fn bits(text: &str) -> u64 {
    u64::from_str_radix(text.trim(), 16).expect("sixteen hexadecimal digits")
}

#[test]
fn a_missing_signer_is_named_by_its_path() {
    let installed = Installed::new("missing");
    let signer = installed.directory.join("tinyagent-signer");
    fs::remove_file(&signer).expect("it was copied there");
    let output = installed.run_by(r#"exec "$0" "$1""#);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains(&format!("{:?}", signer)), "{stderr}");
}

#[test]
fn the_second_stage_refuses_what_the_first_did_not_start() {
    let installed = Installed::new("by-hand");
    for shell in [
        r#"exec env -u TINY_PRIVATE_KEY "$0" --second-stage - "$1" 3>&-"#,
        r#"exec env -u TINY_PRIVATE_KEY "$0" --second-stage - "$1" 3</dev/null"#,
        r#"exec env -u TINY_PRIVATE_KEY "$0" --second-stage 1 "$1" 3</dev/null"#,
    ] {
        let output = installed.run_by(shell);
        assert!(!output.status.success(), "{shell}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("NotSecondStage"), "{shell}: {stderr}");
    }
    let output = installed.run_by(r#"exec "$0" --second-stage - "$1""#);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("KeyStillSet(\"TINY_PRIVATE_KEY\")") && !stderr.contains(KEY), "{stderr}");
}
