//! The systemd units: accepted by systemd, and their command line by the program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tinyagent_relay::Key;

use crate::program::{Directory, SOON, ask, signer_path, wait};

fn unit(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("signer/systemd").join(name);
    fs::read_to_string(path).expect("a unit")
}

#[test]
fn systemd_accepts_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: systemd-analyze is not installed");
        return;
    }
    let directory = Directory::new();
    let program = signer_path();
    let service = unit("tinyagent-signer.service")
        .replace("/usr/local/bin/tinyagent-signer", program.to_str().expect("text"))
        // The users of the units do not exist on a build machine.
        .replace("=tinyagent-signer\n", "=root\n");
    let socket = unit("tinyagent-signer.socket")
        .replace("=tinyagent-signer\n", "=root\n")
        .replace("=tinyagent\n", "=root\n");
    let files = [
        directory.file("tinyagent-signer.service", service, 0o644),
        directory.file("tinyagent-signer.socket", socket, 0o644),
    ];
    // The manual pages that they name are not installed on a build machine either.
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(&files)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains("tinyagent-signer")).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

/// The unit's command line, without the key word.
fn command_line() -> String {
    let unit = unit("tinyagent-signer.service");
    unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command line").to_owned()
}

#[test]
fn the_guide_overrides_the_unit_s_command_line_with_one_like_it() {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/separate-user.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let lines: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
    assert_eq!(lines, ["", &command_line()]);
}

#[test]
fn the_command_line_of_the_unit_serves_with_a_credential_and_an_audit_log() {
    let (directory, key) = (Directory::new(), Key::random());
    directory.file("key", key.secret_hex(), 0o440);
    let line = command_line()
        .replace("%d", &directory.text(""))
        .replace("/run/tinyagent", &directory.text(""))
        .replace("/var/log/tinyagent", &directory.text(""));
    let arguments = line.split(' ').skip(1).filter(|argument| *argument != "--require-hardening");
    let mut child = Command::new(signer_path())
        .args(arguments)
        .env_clear()
        .env("CREDENTIALS_DIRECTORY", directory.text(""))
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let socket = directory.path("signer.sock");
    let description = describe(&socket);
    child.kill().expect("killed");
    wait(&mut child);
    assert_eq!(description["description"]["pubkey"], key.public_hex());
    assert!(directory.path("audit.jsonl").exists());
}

fn describe(socket: &Path) -> serde_json::Value {
    let deadline = std::time::Instant::now() + SOON;
    let mut stream = loop {
        match std::os::unix::net::UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    ask(&mut stream, br#"{"describe":{}}"#).expect("an answer")
}
