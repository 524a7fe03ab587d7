//! What is said, in one line and exit 1, of a signer under another user that cannot be used: each time what is
//! wrong with which socket, and what to do about it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use tinyagent_harness::{Service, run};

use crate::commands::failure;

const RELAY: &str = "https://relay.example";

/// The user who owns nothing, by the number that Linux systems give him.
const NOBODY: u32 = 65_534;

fn failure_at(socket: &str, args: &[&str]) -> String {
    failure(&run(&[&["mcp", "--signer", socket], args].concat(), &[]))
}

#[test]
fn a_signer_that_serves_other_users_only_is_named_with_the_option_that_would_let_this_one_in() {
    let own = nix::unistd::getuid().as_raw();
    if own != 0 {
        return eprintln!("left out: only root can start the signer under another user");
    }
    let service = Service::under(NOBODY, RELAY, &["--allow-uid", &NOBODY.to_string()]);
    assert_eq!(
        failure_at(&service.socket(), &["--relay", RELAY]),
        format!("the signer closed the connection; its log says why, mostly that it lacks --allow-uid {own}")
    );
}

#[test]
fn a_signer_of_another_relay_or_without_the_tools_asked_for_is_named_with_what_it_has() {
    let service = Service::start(RELAY, &["--tools", "list_rooms"]);
    let line = failure_at(&service.socket(), &["--relay", "https://other.example"]);
    assert_eq!(line, format!("the signer serves the relay {RELAY}; give --relay the same URL"));
    let line = failure_at(&service.socket(), &["--relay", RELAY, "--tools", "read_room"]);
    assert!(line.starts_with("the signer's policy exposes none of the tools asked for"), "{line}");
}

#[test]
fn a_socket_that_is_missing_or_not_to_be_trusted_is_named_with_the_reason() {
    let service = Service::start(RELAY, &[]);
    let at = |path: &str| failure_at(path, &["--relay", RELAY]);
    let missing = service.directory().join("other.sock").to_str().expect("a plain path").to_owned();
    let line = at(&missing);
    assert!(line.starts_with(&format!("cannot connect to the signer at {missing}: ")), "{line}");
    assert!(
        line.ends_with("is tinyagent-signer running with --socket, and may this user connect?"),
        "{line}"
    );
    let line = at("/dev/null");
    assert_eq!(line, "the signer's socket /dev/null is not trusted: it is not a socket");
    fs::set_permissions(service.directory(), fs::Permissions::from_mode(0o777)).expect("our directory");
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
    let line = failure_at(path, &["--relay", RELAY]);
    assert_eq!(line, "the signing process did not answer within 10 s");
    fs::remove_dir_all(directory).expect("it was made");
}
