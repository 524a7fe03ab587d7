//! The commands that THREAT_MODEL.md tells an auditor to type, typed, with the output that it shows.
//!
//! A block marked `sh` is run; a block marked `text` after it is what it prints, where `…` stands for
//! anything within the line.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Directory, program};

/// A block of commands and what they print, if the page says it.
struct Example {
    commands: String,
    printed: Option<String>,
}

/// The blocks of a page below a heading, in their order.
fn examples(page: &str, heading: &str) -> Vec<Example> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("the section");
    let mut examples: Vec<Example> = Vec::new();
    // Every second piece lies between two fences.
    for block in section.split("```").skip(1).step_by(2) {
        match block.split_once('\n').expect("a block has lines") {
            ("sh", commands) => examples.push(Example { commands: commands.into(), printed: None }),
            ("text", printed) => examples.last_mut().expect("commands before").printed = Some(printed.into()),
            (other, _) => panic!("a block of {other}"),
        }
    }
    examples
}

/// Whether a line is what the page shows, piece by piece between the marks.
fn matches(line: &str, shown: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn run(commands: &str) -> String {
    let directory = program("tinyagent-signer").parent().expect("a directory").to_owned();
    let (path, scratch) = (std::env::var("PATH").unwrap_or_default(), Directory::new());
    let mut command = Command::new("/bin/sh");
    command.args(["-e", "-c", commands]).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", directory.display())).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("TMPDIR", scratch.path(""));
    let output = command.output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.is_empty(), "{commands}\n{stderr}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_the_threat_model_tells_an_auditor_to_type_prints_what_it_says() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("THREAT_MODEL.md")).expect("the page");
    let examples = examples(&page, "Run the signer alone");
    let (setting, examples) = examples.split_first().expect("the setting");
    assert!(setting.printed.is_none() && examples.len() >= 8);
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    let mut refused = Vec::new();
    for Example { commands, printed } in examples {
        if commands.contains("python3") && !has_python {
            println!("skipped: there is no python3 for {commands}");
            continue;
        }
        let seen = run(&format!("{}{commands}", setting.commands));
        let shown = printed.as_ref().unwrap_or_else(|| panic!("nothing is shown for {commands}"));
        let (seen, shown): (Vec<&str>, Vec<&str>) = (seen.lines().collect(), shown.lines().collect());
        // A line of the mark alone stands for any number of lines.
        let fits = match shown.iter().position(|line| *line == "…") {
            Some(at) => {
                seen.len() >= shown.len()
                    && seen[..at].iter().zip(&shown).all(|(seen, shown)| matches(seen, shown))
            }
            None => {
                seen.len() == shown.len() && seen.iter().zip(&shown).all(|(seen, shown)| matches(seen, shown))
            }
        };
        assert!(fits, "{commands}\nprinted\n{}\nand not\n{}", seen.join("\n"), shown.join("\n"));
        refused.extend(
            seen.iter()
                .filter_map(|line| line.strip_prefix("{\"refused\":{\"rule\":\""))
                .map(|line| line.split('"').next().unwrap_or_default().to_owned()),
        );
    }
    if has_python {
        for rule in tinyagent_protocol::policy::Rule::ALL {
            assert!(refused.iter().any(|tag| tag == rule.tag()), "no example of {}", rule.tag());
        }
    }
}

#[test]
fn a_line_is_compared_piece_by_piece() {
    for (line, shown, fits) in [
        ("a", "a", true),
        ("ab", "a", false),
        ("a1b2c", "a…b…c", true),
        ("a1b2", "a…b…c", false),
        ("xa", "a…", false),
        ("ab", "a…", true),
    ] {
        assert_eq!(matches(line, shown), fits, "{line} {shown}");
    }
}
