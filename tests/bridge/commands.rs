//! Contract 1: the command line, the forms of a key, and what a start that fails says.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, PUBKEY, copy_program, program, run};
use tinyagent_relay::{Key, Options, Relay, unhex};

use crate::bech32::{BECH32, BECH32M, encode};
use crate::support::{assert_answered, assert_within, timed};

/// The secret of NIP-19's example.
const NSEC: &str = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
const NSEC_HEX: &str = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
const CURVE_ORDER: &str = "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
const NPUB: &str = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";

/// The only line on stderr of a start that failed: exit 1, nothing on stdout.
pub fn failure(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(output.stdout, b"", "{stderr}");
    assert_eq!(stderr.matches('\n').count(), 1, "not one line: {stderr}");
    stderr.strip_prefix("tinyagent: ").expect("the program's name in front").trim_end().to_owned()
}

/// Every form of a key that cannot be used, and what is said of it.
fn bad_keys() -> Vec<(String, &'static str)> {
    let mixed = NSEC.replace("vl", "vL");
    let misspelled = format!("{}q", &NSEC[..NSEC.len() - 1]);
    let placeholder = "TINY_PRIVATE_KEY holds an unsubstituted placeholder instead of a key; Hermes looks for its value in ~/.hermes/.env, and the entry's `env` must pass it on";
    let unknown = "TINY_PRIVATE_KEY is neither 64 hexadecimal characters nor an nsec";
    let checksum =
        "TINY_PRIVATE_KEY is not a valid nsec: its checksum does not match (a character is missing or wrong)";
    let padded = "TINY_PRIVATE_KEY has white space or quotes around the key; remove them";
    let order = "TINY_PRIVATE_KEY is not below the order of the curve secp256k1, so it is not a secret key";
    let length = "TINY_PRIVATE_KEY is not a valid nsec: it does not carry exactly 32 bytes";
    vec![
        ("${TINY_PRIVATE_KEY}".into(), placeholder),
        ("${env:TINY_PRIVATE_KEY}".into(), placeholder),
        ("${SOMETHING_ELSE".into(), placeholder),
        (KEY[1..].into(), "TINY_PRIVATE_KEY has 63 hexadecimal characters; a key has 64"),
        (format!("{KEY}0"), "TINY_PRIVATE_KEY has 65 hexadecimal characters; a key has 64"),
        (KEY.repeat(2), "TINY_PRIVATE_KEY has 128 hexadecimal characters; a key has 64"),
        (format!("0x{KEY}"), unknown),
        (format!("g{}", &KEY[1..]), unknown),
        ("correct horse battery staple".into(), unknown),
        ("ключ".into(), unknown),
        ("0".repeat(64), "TINY_PRIVATE_KEY is zero, which is not a secret key"),
        (CURVE_ORDER.into(), order),
        ("f".repeat(64), order),
        ("F".repeat(64), order),
        (misspelled, checksum),
        (NSEC[..NSEC.len() - 1].into(), checksum),
        (encode("nsec", &[7; 32], BECH32M), checksum),
        (
            mixed,
            "TINY_PRIVATE_KEY begins like an nsec but is not bech32 (a character is wrong, or upper and lower case are mixed)",
        ),
        (encode("nsec", &[7; 31], BECH32), length),
        (encode("nsec", &[7; 33], BECH32), length),
        (encode("nsec1x", &[7; 32], BECH32), unknown),
        (NPUB.into(), "TINY_PRIVATE_KEY holds a public key (npub); the secret key begins with nsec1"),
        (format!(" {KEY}"), padded),
        (format!("{KEY}\n"), padded),
        (format!("\"{KEY}\""), padded),
    ]
}

#[test]
fn case_044_a_key_that_cannot_be_used_is_named_in_one_line_and_never_echoed() {
    let relay = Relay::start(Options::default());
    for (key, said) in bad_keys() {
        for command in ["mcp", "diagnose"] {
            let output = run(&[command, "--relay", &relay.url()], &[(KEY_VARIABLE, &key)]);
            let line = failure(&output);
            assert_eq!(line, said, "{key:?}");
            assert!(!line.contains(&key), "the value was echoed");
        }
    }
    assert_eq!(relay.connections(), 0, "the relay was contacted");
}

#[test]
fn case_044_a_key_that_is_not_set_or_empty_is_named_by_its_variable() {
    let relay = Relay::start(Options::default());
    let start = |args: &[&str], env: &[(&str, &str)]| {
        failure(&run(&[&["mcp", "--relay", &relay.url()], args].concat(), env))
    };
    for env in [&[][..], &[(KEY_VARIABLE, "")], &[("tiny_private_key", KEY)], &[("AGENT_KEY", KEY)]] {
        assert_eq!(start(&[], env), "TINY_PRIVATE_KEY is not set");
    }
    for env in [&[][..], &[("AGENT_KEY", "")], &[(KEY_VARIABLE, KEY)]] {
        assert_eq!(start(&["--key-env", "AGENT_KEY"], env), "AGENT_KEY is not set");
    }
    assert_eq!(relay.connections(), 0);
}

#[test]
fn case_044_a_bad_key_ends_the_start_within_100_ms() {
    let relay = Relay::start(Options::default());
    for key in [None, Some(&KEY[1..]), Some("${TINY_PRIVATE_KEY}")] {
        let env: Vec<(&str, &str)> = key.map(|key| (KEY_VARIABLE, key)).into_iter().collect();
        assert_within(Duration::from_millis(100), "a start without a key", || {
            timed(|| assert!(!failure(&run(&["mcp", "--relay", &relay.url()], &env)).is_empty()))
        });
    }
}

#[test]
fn a_key_in_hex_of_either_case_or_as_nsec_is_accepted_from_the_named_variable() {
    let public = |hex: &str| Key::from_bytes(unhex(hex).expect("hex")).expect("a key").public_hex();
    let last = format!("{}40", &CURVE_ORDER[..62]);
    for (written, hex) in [
        (NSEC_HEX.to_owned(), NSEC_HEX),
        (NSEC_HEX.to_uppercase(), NSEC_HEX),
        (NSEC.to_owned(), NSEC_HEX),
        (NSEC.to_uppercase(), NSEC_HEX),
        (last.clone(), &last),
    ] {
        for variable in [KEY_VARIABLE, "AGENT_KEY"] {
            let relay = Relay::start(Options::default());
            let options = HostOptions { without_key: true, ..HostOptions::args(&["--key-env", variable]) };
            let mut host = Host::with(&relay, options.env(variable, written.clone()));
            assert_answered(&host.call("list_rooms", "{}"));
            let proof = relay.posts()[0].proof.clone().expect("a proof");
            assert_eq!(proof.pubkey, public(hex), "{written}");
            assert!(!host.end().stderr.contains(&written), "the key on stderr");
        }
    }
}

#[test]
fn key_env_takes_only_a_name_that_nothing_else_obeys_and_never_echoes_a_key() {
    let relay = Relay::start(Options::default());
    let half = &KEY[..32];
    let upper = NSEC.to_uppercase();
    for (name, said) in [
        ("LD_PRELOAD", "--key-env cannot begin with LD_"),
        ("ld_library_path", "--key-env cannot begin with LD_"),
        ("GLIBC_TUNABLES", "--key-env cannot begin with GLIBC_"),
        ("MALLOC_PERTURB_", "--key-env cannot begin with MALLOC_"),
        ("RUST_LOG", "--key-env cannot begin with RUST_"),
        ("PATH", "--key-env cannot be PATH"),
        ("HOME", "--key-env cannot be HOME"),
        ("TZ", "--key-env cannot be TZ"),
        ("A-B", "--key-env takes the name of a variable: "),
        ("A B", "--key-env takes the name of a variable: "),
        ("9A", "--key-env takes the name of a variable: "),
        ("A=B", "--key-env takes the name of a variable: "),
        ("SCHLÜSSEL", "--key-env takes the name of a variable: "),
        ("${KEY}", "--key-env takes the name of a variable: "),
        (KEY, "a command line holds no key"),
        (NSEC, "a command line holds no key"),
        (&upper, "a command line holds no key"),
        (half, "--key-env takes the name of a variable, and this looks like a key itself"),
    ] {
        let args = ["mcp", "--relay", &relay.url(), "--key-env", name];
        let line = failure(&run(&args, &[(KEY_VARIABLE, KEY)]));
        assert!(line.starts_with(said), "{name}: {line}");
        assert!(name.len() < 32 || !line.contains(name), "the key was echoed: {line}");
    }
    assert_eq!(relay.connections(), 0);
}

#[test]
fn no_argument_takes_a_key_as_its_value_and_none_is_echoed() {
    for args in [
        &["mcp", "--relay", "http://localhost:1", KEY][..],
        &["mcp", "--relay", "http://localhost:1", "--key", KEY],
        &["mcp", "--relay", "http://localhost:1", &format!("--key={NSEC}")],
        &["mcp", "--relay", "http://localhost:1", &format!("--key-env={KEY}")],
        &["mcp", "--relay", "http://localhost:1", "--tools", NSEC],
        &["mcp", "--relay", KEY],
        &["diagnose", "--relay", "http://localhost:1", "--rooms", KEY],
        &[KEY],
        &["keygen", NSEC],
    ] {
        let line = failure(&run(args, &[]));
        assert!(line.starts_with("a command line holds no key"), "{line}");
        assert!(!line.contains(KEY) && !line.contains(NSEC), "the key was echoed: {line}");
    }
}

#[test]
fn case_117_every_accepted_form_of_the_relay_url_reaches_the_relay_and_is_signed_as_sent() {
    for (prefix, tail) in
        [("", ""), ("", "/"), ("/r/acme", "/r/acme"), ("/r/acme", "/r/acme/"), ("/r/%C3%A9", "/r/%C3%A9")]
    {
        let relay = Relay::start(Options { prefix: prefix.into(), ..Options::default() });
        for start in
            ["http://127.0.0.1", "HTTP://127.0.0.1", "ws://127.0.0.1", "Ws://127.0.0.1", "http://LocalHost"]
        {
            relay.clear_requests();
            let url = format!("{start}:{}{tail}", relay.port());
            let mut host = Host::at(&url, HostOptions::default());
            assert_answered(&host.call("list_rooms", "{}"));
            let request = &relay.posts()[0];
            let name = if start.contains("Local") { "localhost" } else { "127.0.0.1" };
            let sent = format!("http://{name}:{}{prefix}/mcp", relay.port());
            assert_eq!(request.proof.as_ref().expect("a proof").tag("u"), Some(&*sent), "{url}");
            assert_eq!(request.target, format!("{prefix}/mcp"));
            assert_eq!(request.header("host"), Some(&*format!("{name}:{}", relay.port())));
        }
    }
}

#[test]
fn default_ports_and_one_trailing_slash_are_dropped_and_the_host_lower_cased() {
    for (url, shown) in [
        ("http://LOCALHOST:80/", "http://localhost"),
        ("ws://localhost:80", "http://localhost"),
        ("https://Relay.Invalid:443/r/Acme/", "https://relay.invalid/r/Acme"),
        ("wss://relay.invalid", "https://relay.invalid"),
        ("https://relay.invalid:80", "https://relay.invalid:80"),
        ("http://[0:0::1]:443/", "http://[::1]:443"),
    ] {
        let host = Host::at(url, HostOptions::default());
        host.wait_for_stderr(&format!("serving {shown} as {PUBKEY};"));
    }
}

#[test]
fn case_117_a_relay_url_that_cannot_be_used_is_refused_without_being_echoed() {
    let scheme = "--relay needs a URL that begins with https://, http://, wss:// or ws://";
    let userinfo = "--relay must not hold a user name or a password; the agent's key is the identity";
    let query = "--relay must not hold a query (`?…`)";
    let fragment = "--relay must not hold a fragment (`#…`)";
    let path =
        "--relay's path must not hold spaces, backslashes, control characters, or `.` and `..` segments";
    let host = "--relay's host is not a valid name or address; write international names in their xn-- form and IPv6 in brackets";
    let port = "--relay's port is not a number from 1 to 65535";
    for (url, said) in [
        ("hunter2", scheme),
        ("localhost:1", scheme),
        ("ftp://hunter2", scheme),
        ("file:///hunter2", scheme),
        ("nostr+ws://hunter2", scheme),
        ("//hunter2", scheme),
        ("http:/hunter2", scheme),
        ("http://", "--relay names no host"),
        ("https:///hunter2", "--relay names no host"),
        ("http://:80", "--relay names no host"),
        ("https://u:hunter2@relay.example", userinfo),
        ("https://hunter2@relay.example", userinfo),
        ("https://:hunter2@relay.example", userinfo),
        ("wss://u:hunter2@relay.example:99999?x#y", userinfo),
        ("https://relay.example/?hunter2", query),
        ("https://relay.example?hunter2", query),
        ("https://relay.example/r?", query),
        ("https://relay.example/#hunter2", fragment),
        ("https://relay.example#", fragment),
        ("https://relay.example/../hunter2", path),
        ("https://relay.example/%2e%2E/hunter2", path),
        ("https://relay.example/hunter2 x", path),
        ("https://relay.example\\hunter2", host),
        ("https://relay..hunter2", host),
        ("https://[::1", host),
        ("https://127.1", host),
        ("https://relay.example:0", port),
        ("https://relay.example:65536", port),
        ("https://relay.example:hunter2", port),
    ] {
        for command in ["mcp", "diagnose"] {
            let line = failure(&run(&[command, "--relay", url], &[(KEY_VARIABLE, KEY)]));
            assert_eq!(line, said, "{url}");
        }
    }
}

#[test]
fn plain_http_to_another_machine_is_served_with_one_warning() {
    let warning = "the relay is reached over plain http: others on the way can read calls and answers";
    for (url, warnings) in [
        ("http://192.0.2.1:9", 1),
        ("ws://relay.invalid", 1),
        ("https://relay.invalid", 0),
        ("http://127.0.0.1:9", 0),
        ("http://[::1]:9", 0),
        ("http://localhost:9", 0),
    ] {
        let mut host = Host::at(url, HostOptions::default());
        host.assert_alive();
        let ended = host.end();
        assert_eq!(ended.stderr.matches(warning).count(), warnings, "{url}: {}", ended.stderr);
    }
}

#[test]
fn tools_that_cannot_be_offered_are_refused_in_the_contracts_words() {
    for (tools, said) in [
        ("no_such", "unknown tool \"no_such\" in --tools"),
        ("list_rooms,publish_event", "unknown tool \"publish_event\" in --tools"),
        ("List_Rooms", "unknown tool \"List_Rooms\" in --tools"),
        ("list_rooms read_room", "unknown tool \"list_rooms read_room\" in --tools"),
        ("set_policy", "unknown tool \"set_policy\" in --tools"),
        ("post_message", "tool post_message publishes events; add --allow-writes to expose it"),
        ("list_rooms, react", "tool react publishes events; add --allow-writes to expose it"),
        ("upload_attachment", "tool upload_attachment publishes events; add --allow-writes to expose it"),
        (",", "--tools names no tool"),
        (" , ,, ", "--tools names no tool"),
        ("", "--tools names no tool"),
    ] {
        let args = ["mcp", "--relay", "http://127.0.0.1:9", "--tools", tools];
        assert_eq!(failure(&run(&args, &[(KEY_VARIABLE, KEY)])), said, "{tools:?}");
    }
    let args = ["mcp", "--relay", "http://127.0.0.1:9", "--allow-writes", "--tools", "publish_event"];
    let line = failure(&run(&args, &[(KEY_VARIABLE, KEY)]));
    assert_eq!(line, "unknown tool \"publish_event\" in --tools");
}

#[test]
fn what_is_no_command_line_is_one_line_and_exit_1() {
    let relay = ["mcp", "--relay", "http://127.0.0.1:9"];
    let with = |rest: &[&'static str]| [&relay[..], rest].concat();
    for args in [
        vec![],
        vec!["mcp"],
        vec!["diagnose"],
        vec!["no-such"],
        vec!["--relay", "http://127.0.0.1:9"],
        vec!["mcp", "--relay"],
        vec!["mcp", "--relay", ""],
        vec!["mcp", "http://127.0.0.1:9"],
        with(&["--allow-writes", "false"]),
        with(&["--allow-writes=false"]),
        with(&["stray"]),
        with(&["--no-such"]),
        with(&["--relay", "http://127.0.0.1:9"]),
        with(&["--key-env"]),
        with(&["--key-env", ""]),
        with(&["--timeout", "0"]),
        with(&["--timeout", "-1"]),
        with(&["--timeout", "soon"]),
        with(&["--timeout", "99999999999999999999"]),
        with(&["--max-events-per-minute", "0"]),
        with(&["--max-events-per-minute", "4294967296"]),
        vec!["diagnose", "--relay", "http://127.0.0.1:9", "--allow-writes"],
        vec!["diagnose", "--relay", "http://127.0.0.1:9", "--kinds", "x"],
        vec!["diagnose", "--relay", "http://127.0.0.1:9", "--kinds", "65536"],
        vec!["diagnose", "--relay", "http://127.0.0.1:9", "--kinds", "-1"],
        vec!["keygen", "stray"],
        vec!["--second-stage"],
        vec!["--second-stage", "1", "mcp", "--relay", "http://127.0.0.1:9"],
    ] {
        let line = failure(&run(&args, &[]));
        assert!(!line.contains("error:"), "{line}");
    }
}

#[test]
fn a_program_without_the_signer_beside_it_says_what_is_missing() {
    let folder = std::env::temp_dir().join(format!("tinyagent-{}-alone", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a writable directory");
    let alone = folder.join("tinyagent");
    copy_program(&program("tinyagent"), &alone, 0o755);
    for args in [&["mcp", "--relay", "http://127.0.0.1:9"][..], &["keygen"]] {
        let mut command = Command::new(&alone);
        command.args(args).env_clear().env(KEY_VARIABLE, KEY).stdin(Stdio::null());
        let line = failure(&command.output().expect("it starts"));
        assert!(line.contains("tinyagent-signer"), "{line}");
    }
    std::fs::remove_dir_all(folder).expect("it was made");
}

#[test]
fn keygen_prints_one_json_line_whose_four_forms_are_of_one_fresh_key() {
    let mut secrets = Vec::new();
    for _ in 0..3 {
        let output = run(&["keygen"], &[]);
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!(text.matches('\n').count(), 1, "not one line");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        let field = |name: &str| line[name].as_str().expect(name).to_owned();
        let bytes = |name: &str| unhex::<32>(&field(name)).expect("lower-case hex");
        let key = Key::from_bytes(bytes("secret")).expect("a valid key");
        assert_eq!(line.as_object().expect("an object").len(), 4);
        assert_eq!(field("pubkey"), key.public_hex());
        assert_eq!(field("nsec"), encode("nsec", &bytes("secret"), BECH32));
        assert_eq!(field("npub"), encode("npub", &bytes("pubkey"), BECH32));
        assert!(!secrets.contains(&field("secret")), "the same key twice");
        secrets.push(field("secret"));
    }
}

#[test]
fn a_made_key_serves_as_hex_and_as_nsec() {
    let made: Value = serde_json::from_slice(&run(&["keygen"], &[]).stdout).expect("JSON");
    let relay = Relay::start(Options::default());
    for form in ["secret", "nsec"] {
        let options = HostOptions { without_key: true, ..HostOptions::default() };
        let mut host = Host::with(&relay, options.env(KEY_VARIABLE, made[form].as_str().expect("text")));
        host.call("list_rooms", "{}");
        let proof = relay.posts().pop().expect("a POST").proof.clone().expect("a proof");
        assert_eq!(json!(proof.pubkey), made["pubkey"]);
    }
}
