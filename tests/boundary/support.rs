//! What several modules need beside the harness: where the programs are, a place for copies of them, keys,
//! and the report. It holds no expectation of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tinyagent_harness::{Host, HostOptions, KEY_VARIABLE, copy_program, write_script};

/// One of the programs: in the directory that `TINYAGENT_PROGRAM_DIR` names, so that a release build can
/// be tested by the same tests, else beside the tests.
pub fn program(name: &str) -> PathBuf {
    match std::env::var_os("TINYAGENT_PROGRAM_DIR") {
        Some(directory) => fs::canonicalize(directory).expect("TINYAGENT_PROGRAM_DIR").join(name),
        None => tinyagent_harness::program(name),
    }
}

/// The user that the tests run programs as, beside root.
pub const NOBODY: u32 = 65534;

/// Whether the tests run as root; where they do not, says what is left out.
pub fn is_root(otherwise: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: {otherwise} needs root");
    }
    root
}

/// A throw-away key in the forms that `tinyagent keygen` prints.
pub struct NewKey {
    /// 64 hexadecimal characters.
    pub hex: String,
    /// The same as nsec (NIP-19).
    pub nsec: String,
    /// The public key.
    pub public: String,
}

impl NewKey {
    /// A fresh one.
    pub fn make() -> Self {
        let output = Command::new(program("tinyagent")).arg("keygen").output().expect("tinyagent keygen");
        let key: Value = serde_json::from_slice(&output.stdout).expect("one JSON line");
        let text = |name: &str| key[name].as_str().expect("a text").to_owned();
        Self { hex: text("secret"), nsec: text("nsec"), public: text("pubkey") }
    }
}

/// Options of a host that runs the programs under test with this key.
pub fn with_key(key: &str, args: &[&str]) -> HostOptions {
    let options =
        HostOptions { without_key: true, program: Some(program("tinyagent")), ..HostOptions::args(args) };
    options.env(KEY_VARIABLE, key)
}

/// The hardening of one process (`signer`, `facade`) as tiny_diagnose shows it: measure, state, reason.
pub fn hardening(host: &mut Host, process: &str) -> Vec<(String, String, String)> {
    let answer = host.call("tiny_diagnose", "{}");
    let report = &answer["result"]["structuredContent"][process]["hardening"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let measures = report.as_array().unwrap_or_else(|| panic!("no report of the {process}: {answer}"));
    measures.iter().map(|m| (text(&m["measure"]), text(&m["state"]), text(&m["why"]))).collect()
}

/// A directory of one test's own, removed with it, in which every user may look.
pub struct Directory(PathBuf);

impl Directory {
    /// An empty one.
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tinyagent-boundary-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
        Self(path)
    }

    /// With both programs in it, as an installer would put them there, with this mode.
    pub fn installed(mode: u32) -> Self {
        let directory = Self::new();
        for name in ["tinyagent", "tinyagent-signer"] {
            copy_program(&program(name), &directory.path(name), mode);
        }
        directory
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A shell script in it that every user may run.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        write_script(&self.path(name), text);
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
