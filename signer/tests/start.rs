//! How it starts: where the key may come from, what is said when it cannot start, what it leaves of
//! the key's environment.

use std::process::{Command, Output, Stdio};

use tinyagent_harness::environ;
use tinyagent_relay::Key;

use crate::program::{Directory, RELAY, Signer, Start, ask, is_root, signer_path};

/// The failure that the first request is answered with.
fn failure(start: Start) -> String {
    let mut signer = start.inherited();
    let answer = ask(&mut signer.socket, br#"{"describe":{}}"#).expect("an answer");
    assert_eq!(signer.wait().code(), Some(1));
    answer["failed"]["message"].as_str().unwrap_or_else(|| panic!("it started: {answer}")).to_owned()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(signer_path()).args(arguments).env_clear().stdin(Stdio::null()).output().expect("it starts")
}

#[test]
fn a_key_that_is_none_is_named_over_the_socket_and_never_echoed() {
    let good = Key::random().secret_hex();
    for (key, said) in [
        ("", "TINY_PRIVATE_KEY is not set"),
        ("${TINY_PRIVATE_KEY}", "~/.hermes/.env"),
        (&good[1..], "63 hexadecimal characters"),
        (&"0".repeat(64), "zero"),
        (&"f".repeat(64), "order of the curve"),
        ("nsec1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "checksum"),
        ("npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg", "public key (npub)"),
        (&format!("{good} "), "white space"),
    ] {
        let message = failure(Start::new(key, &[]));
        assert!(message.starts_with("TINY_PRIVATE_KEY ") && message.contains(said), "{message}");
        assert!(key.len() < 20 || !message.contains(key.trim()), "{message}");
    }
    let mut unset = Start::new("", &["--key-env", "OTHER"]);
    unset.environment.clear();
    assert_eq!(failure(unset), "OTHER is not set");
}

#[test]
fn hex_of_either_case_and_nsec_are_the_same_key() {
    let line = String::from_utf8(run(&["keygen"]).stdout).expect("text");
    let new: serde_json::Value = serde_json::from_str(&line).expect("one JSON line");
    let text = |name: &str| new[name].as_str().expect("a text").to_owned();
    for key in [text("secret"), text("secret").to_uppercase(), text("nsec"), text("nsec").to_uppercase()] {
        let mut signer = Start::new(&key, &[]).inherited();
        assert_eq!(signer.describe()["pubkey"], new["pubkey"]);
    }
}

#[test]
fn neither_the_key_nor_a_copy_in_another_variable_is_left_in_the_environment() {
    if !is_root("reading the environment of a process that is not dumpable") {
        return;
    }
    let key = Key::random().secret_hex();
    let mut start = Start::new(&key, &[]);
    start.environment.push(("COPY".into(), format!("before {key} after")));
    start.environment.push(("KEPT".into(), "unrelated".into()));
    let mut signer = start.inherited();
    signer.describe();
    let left = String::from_utf8_lossy(&environ(signer.pid())).into_owned();
    assert!(left.contains("KEPT=unrelated"), "the block can be read: {left:?}");
    assert!(!left.contains(&key) && !left.contains("TINY_PRIVATE_KEY") && !left.contains("COPY"), "{left:?}");
}

#[test]
fn a_key_file_must_be_its_owner_s_alone_except_as_a_systemd_credential() {
    let (directory, key) = (Directory::new(), Key::random());
    let started = |file: &str, environment: &[(&str, &str)]| {
        let mut start = Start::new("", &["--key-file", file]);
        start.environment = environment.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        start
    };
    let own = directory.file("own", key.secret_hex() + "\n", 0o600);
    assert_eq!(started(&own, &[]).inherited().describe()["pubkey"], key.public_hex());

    let group = directory.file("group", key.secret_hex(), 0o440);
    let message = failure(started(&group, &[]));
    assert!(message.contains("mode 0440") && message.contains("chmod 600"), "{message}");
    let credentials = directory.text("");
    let mut credential = started(&group, &[("CREDENTIALS_DIRECTORY", &credentials)]).inherited();
    assert_eq!(credential.describe()["pubkey"], key.public_hex());

    if is_root("a key file of somebody else") {
        let theirs = directory.file("theirs", key.secret_hex(), 0o600);
        std::os::unix::fs::chown(&theirs, Some(65534), None).expect("chown");
        assert!(failure(started(&theirs, &[])).contains("belongs to uid 65534"));
    }
}

#[test]
fn a_wrong_command_line_is_one_line_and_status_1_on_stderr_or_over_the_socket() {
    let tools = ["--stdio", "--relay", RELAY, "--tools", "post_message"];
    let said = "tinyagent-signer: tool post_message publishes events; add --allow-writes to expose it\n";
    let output = run(&tools);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(1), said));
    assert!(output.stdout.is_empty());

    let key = Key::random().secret_hex();
    let mut signer = Start::new(&key, &["--tools", "post_message"]).inherited();
    let answer = ask(&mut signer.socket, br#"{"describe":{}}"#).expect("an answer");
    assert_eq!(answer["failed"]["message"], said["tinyagent-signer: ".len()..].trim_end());

    for arguments in
        [&["--stdio", "--relay", RELAY, &key][..], &["--stdio", "--relay", RELAY, "--key-env", &key]]
    {
        let output = run(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("looks like a key") && !text.contains(&key), "{text}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert_eq!(run(&["--help"]).status.code(), Some(0));
    assert_eq!(run(&["--version"]).status.code(), Some(0));
}

#[test]
fn inherited_mode_without_a_socket_says_how_to_start_it() {
    let output = run(&["--inherited", "--relay", RELAY]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("tinyagent mcp"));
}

#[test]
fn the_policy_is_printed_without_a_key() {
    let output = run(&[
        "policy",
        "--relay",
        "WSS://Relay.Example:443/",
        "--tools",
        "comment,read_room",
        "--allow-writes",
    ]);
    assert_eq!(output.status.code(), Some(0));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(shown["policy"]["relay"], "https://relay.example");
    assert_eq!(shown["policy"]["tools"][0], serde_json::json!({"name": "comment", "kinds": [1111]}));
    assert_eq!(shown["max_events_per_minute"], 600);
}

#[test]
fn a_description_can_be_asked_for_again_and_changes_nothing() {
    let mut signer = Signer::start(&Key::random(), &[]);
    assert_eq!(signer.describe(), signer.describe());
}
