//! What is said, in one line and exit 1, of a signer under another user that cannot be used: each time what is
//! wrong with which socket, and what to do about it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tinyagent_harness::{KEY, KEY_VARIABLE, PATIENCE, program, run};

use crate::commands::failure;

const RELAY: &str = "https://relay.example";

/// The user who owns nothing, by the number that Linux systems give him.
const NOBODY: u32 = 65_534;

/// A signer that listens in a directory of its own.
struct Service {
    child: Child,
    directory: PathBuf,
}

impl Service {
    fn start(name: &str, args: &[&str]) -> Self {
        Self::under(nix::unistd::getuid().as_raw(), name, args)
    }

    fn under(uid: u32, name: &str, args: &[&str]) -> Self {
        let directory = std::env::temp_dir().join(format!("tinyagent-{}-{name}", std::process::id()));
        fs::create_dir(&directory).expect("a temporary directory");
        // The program's own directory may be closed to that user. A copy made by this process could be busy:
        // another test's child holds what was open when it was forked.
        let signer = directory.join("tinyagent-signer");
        let copied = Command::new("cp").arg(program("tinyagent-signer")).arg(&signer).status();
        assert!(copied.expect("cp starts").success(), "no copy of the program");
        chown(&directory, Some(uid), None).expect("our directory");
        let mut command = Command::new(signer);
        command.uid(uid);
        command.args(["--relay", RELAY, "--socket"]).arg(directory.join("signer.sock")).args(args);
        command.env_clear().env(KEY_VARIABLE, KEY).stdin(Stdio::null()).stderr(Stdio::null());
        let service = Service { child: command.spawn().expect("it starts"), directory };
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(service.socket()).is_err() {
            assert!(Instant::now() < deadline, "the signer never listened");
            thread::sleep(Duration::from_millis(2));
        }
        service
    }

    fn socket(&self) -> String {
        self.directory.join("signer.sock").to_str().expect("a plain path").to_owned()
    }

    fn failure(&self, args: &[&str]) -> String {
        failure(&run(&[&["mcp", "--signer", &self.socket()], args].concat(), &[]))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn a_signer_that_serves_other_users_only_is_named_with_the_option_that_would_let_this_one_in() {
    let own = nix::unistd::getuid().as_raw();
    if own != 0 {
        return eprintln!("left out: only root can start the signer under another user");
    }
    let service = Service::under(NOBODY, "others", &["--allow-uid", &NOBODY.to_string()]);
    assert_eq!(
        service.failure(&["--relay", RELAY]),
        format!("the signer closed the connection; its log says why, mostly that it lacks --allow-uid {own}")
    );
}

#[test]
fn a_signer_of_another_relay_or_without_the_tools_asked_for_is_named_with_what_it_has() {
    let service = Service::start("policy", &["--tools", "list_rooms"]);
    let line = service.failure(&["--relay", "https://other.example"]);
    assert_eq!(line, format!("the signer serves the relay {RELAY}; give --relay the same URL"));
    let line = service.failure(&["--relay", RELAY, "--tools", "read_room"]);
    assert!(line.starts_with("the signer's policy exposes none of the tools asked for"), "{line}");
}

#[test]
fn a_socket_that_is_missing_or_not_to_be_trusted_is_named_with_the_reason() {
    let service = Service::start("trust", &[]);
    let at = |path: &str| failure(&run(&["mcp", "--relay", RELAY, "--signer", path], &[]));
    let missing = service.directory.join("other.sock").to_str().expect("a plain path").to_owned();
    let line = at(&missing);
    assert!(line.starts_with(&format!("cannot connect to the signer at {missing}: ")), "{line}");
    assert!(
        line.ends_with("is tinyagent-signer running with --socket, and may this user connect?"),
        "{line}"
    );
    let line = at("/dev/null");
    assert_eq!(line, "the signer's socket /dev/null is not trusted: it is not a socket");
    fs::set_permissions(&service.directory, fs::Permissions::from_mode(0o777)).expect("our directory");
    let line = at(&service.socket());
    assert!(line.ends_with("is not trusted: others than its owner can write to its directory"), "{line}");
}

#[test]
fn a_socket_behind_which_nobody_answers_is_given_up_after_ten_seconds() {
    let directory = std::env::temp_dir().join(format!("tinyagent-{}-silent", std::process::id()));
    fs::create_dir(&directory).expect("a temporary directory");
    let path = directory.join("signer.sock");
    let _silent = UnixListener::bind(&path).expect("a free path");
    let path = path.to_str().expect("a plain path");
    let line = failure(&run(&["mcp", "--relay", RELAY, "--signer", path], &[]));
    assert_eq!(line, "the signing process did not answer within 10 s");
    fs::remove_dir_all(directory).expect("it was made");
}
