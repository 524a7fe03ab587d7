//! What the command line says of itself: help, usage errors, and the entries that `config` prints. What an
//! entry means to each host is asked of the hosts' parsers and programs, in tests/clients.

use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, program, run};

use crate::commands::failure;

#[test]
fn a_usage_error_says_what_was_meant_and_what_is_taken() {
    let relay = ["mcp", "--relay", "http://127.0.0.1:9"];
    let with = |rest: &[&'static str]| [&relay[..], rest].concat();
    let number = |option: &str, value: &str, most: &str| {
        format!("invalid value '{value}' for '{option}': it takes a whole number from 1 to {most}")
    };
    for (args, said) in [
        (with(&["--allow-write"]), "did you mean --allow-writes? (see tinyagent mcp --help)".to_owned()),
        (vec!["diagnos"], "did you mean diagnose? (see tinyagent --help)".into()),
        (
            vec!["config", "zedd", "--relay", "http://127.0.0.1:9"],
            "did you mean zed? (see tinyagent config".into(),
        ),
        (with(&["--timeout", "soon"]), number("--timeout <SECONDS>", "soon", "86400")),
        (with(&["--timeout", "86401"]), number("--timeout <SECONDS>", "86401", "86400")),
        (with(&["--max-events-per-minute", "0"]), number("--max-events-per-minute <N>", "0", "4294967295")),
        (
            vec!["diagnose", "--relay", "http://127.0.0.1:9", "--kinds", "9;12"],
            "--kinds takes numbers from 0 to 65535 separated by commas, at most 1024".into(),
        ),
        (
            vec!["diagnose", "--relay", "http://127.0.0.1:9", "--rooms", " ,"],
            "--rooms takes room ids separated by commas, at most 1024".into(),
        ),
    ] {
        let line = failure(&run(&args, &[(KEY_VARIABLE, KEY)]));
        assert!(line.contains(&said), "{line}");
    }
}

#[test]
fn help_and_version_go_to_stdout_and_exit_0() {
    let version = format!("tinyagent {}\n", env!("CARGO_PKG_VERSION"));
    for (args, said) in [
        (&["--version"][..], &*version),
        (&["-V"], &version),
        (&["-h"], "keygen"),
        (&["mcp", "--help"], "--allow-writes"),
        (&["diagnose", "--help"], "--rooms"),
        (&["keygen", "--help"], "secret"),
    ] {
        let output = run(args, &[]);
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]), "{args:?}");
        assert!(text.contains(said), "{text}");
        assert!(!said.starts_with("tinyagent ") || text == version);
    }
}

#[test]
fn every_help_fits_a_screen_and_shows_an_example_that_the_program_understands() {
    for command in [None, Some("mcp"), Some("diagnose"), Some("config"), Some("keygen")] {
        let args: Vec<&str> = command.into_iter().chain(["--help"]).collect();
        let text = String::from_utf8(run(&args, &[]).stdout).expect("UTF-8");
        assert!(text.lines().count() <= 40, "more than a screen: {text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "wider than a screen: {line}");
        }
        let (_, examples) = text.split_once("Example:\n").expect("an example");
        for example in examples.lines() {
            let words = example.trim().trim_matches(['(', ')']).split(' ');
            let words: Vec<&str> = words.skip_while(|word| *word != "tinyagent").skip(1).collect();
            let words = words.split(|word| *word == ">").next().expect("a command");
            // Without a key each but `config` and `keygen` stops where it looks for one: the line was read.
            let output = run(words, &[]);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_read = output.status.success() || stderr == "tinyagent: TINY_PRIVATE_KEY is not set\n";
            assert!(is_read && !words.is_empty(), "{example}: {stderr}");
        }
    }
}

/// Every host that `config` knows.
const HOSTS: [&str; 7] = ["hermes", "claude", "cursor", "vscode", "zed", "codex", "goose"];

#[test]
fn an_entry_goes_to_stdout_and_what_to_do_with_it_to_stderr_without_the_key() {
    for host in HOSTS {
        let output = run(&["config", host, "--relay", "https://relay.example"], &[(KEY_VARIABLE, KEY)]);
        assert_eq!(output.status.code(), Some(0), "{host}");
        let (entry, advice) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(entry.contains(program("tinyagent").to_str().expect("a plain path")), "{entry}");
        assert!(advice.starts_with("tinyagent: goes into ") && advice.lines().count() == 1, "{advice}");
        assert!(host == "vscode" || advice.contains(KEY_VARIABLE), "{advice}");
        assert!(!entry.contains(KEY) && !advice.contains(KEY), "the key was printed");
    }
}

#[test]
fn with_a_signer_of_another_user_no_entry_and_no_advice_speaks_of_a_key() {
    for host in HOSTS {
        let args =
            ["config", host, "--relay", "https://relay.example", "--signer", "/run/tinyagent/signer.sock"];
        let output = run(&args, &[]);
        let (entry, advice) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(entry.contains("/run/tinyagent/signer.sock"), "{entry}");
        assert!(!entry.contains(KEY_VARIABLE) && !entry.contains("${"), "{entry}");
        assert!(!advice.contains(KEY_VARIABLE) && advice.contains("needs no key"), "{advice}");
    }
}

#[test]
fn an_entry_holds_no_relative_path() {
    for (option, path) in [("--audit-log", "audit.jsonl"), ("--signer", "./signer.sock")] {
        let args = ["config", "hermes", "--relay", "https://relay.example", option, path];
        let line = failure(&run(&args, &[]));
        assert_eq!(
            line,
            format!(
                "{option} must be an absolute path here: a host starts programs in a directory of its own choice"
            )
        );
    }
}

#[test]
fn a_start_says_one_line_and_a_rust_log_that_is_not_understood_one_more() {
    for (setting, lines) in [("", 1), ("info", 1), ("tinyagent=@@", 2), ("error", 0)] {
        let ended = Host::at("http://127.0.0.1:9", HostOptions::default().env("RUST_LOG", setting)).end();
        assert_eq!(ended.stderr.lines().count(), lines, "{setting:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains('\u{1b}'), "colour off a terminal");
        assert_eq!(
            ended.stderr.contains("RUST_LOG is left aside"),
            setting.contains('@'),
            "{}",
            ended.stderr
        );
    }
}
