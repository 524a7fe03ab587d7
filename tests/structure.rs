//! What the source tree and the built programs are made of: who links what, where code may step outside
//! the language's safety, and whether THREAT_MODEL.md speaks of what exists.
//!
//! It reads files, `cargo metadata` and the two programs; it starts none of them.

#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use memchr::memmem;
use serde_json::Value;
use tinyagent_protocol::policy::Rule;

/// The platform whose dependencies are looked at and THREAT_MODEL.md lists, whatever the tests run on.
const LISTED_PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Crates that can sign or hold keys, by the beginning of their names; none belongs into the facade.
const SIGNING: [&str; 9] =
    ["tinyagent-signer", "secp256k1", "k256", "ecdsa", "schnorr", "bech32", "nostr", "bitcoin", "ed25519"];

/// Crates of HTTP, TLS and async runtimes, by the beginning of their names; none belongs into the signer.
const NETWORK: [&str; 20] = [
    "tinyagent-facade",
    "tokio",
    "mio",
    "futures",
    "async",
    "smol",
    "polling",
    "hyper",
    "reqwest",
    "http",
    "h2",
    "h3",
    "quinn",
    "ureq",
    "url",
    "rustls",
    "ring",
    "aws-lc",
    "openssl",
    "native-tls",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn threat_model() -> String {
    fs::read_to_string(root().join("THREAT_MODEL.md")).expect("THREAT_MODEL.md")
}

/// What cargo says, without the network where what it needs has been fetched already.
fn cargo(arguments: &[&str]) -> String {
    let run = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(root()).args(arguments).arg("--locked").args(more);
        command.output().expect("cargo starts")
    };
    let mut output = run(&["--offline"]);
    if !output.status.success() {
        output = run(&[]);
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The names of everything that a package of the workspace depends on to run. Cargo joins the features of
/// the whole workspace here, so that it is rather more than what is linked.
fn dependencies(package: &str) -> BTreeSet<String> {
    let metadata: Value = serde_json::from_str(&cargo(&[
        "metadata",
        "--format-version=1",
        &format!("--filter-platform={LISTED_PLATFORM}"),
    ]))
    .expect("JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let names: BTreeMap<String, String> =
        list(&metadata["packages"]).iter().map(|p| (text(&p["id"]), text(&p["name"]))).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let members: Vec<String> = list(&metadata["workspace_members"]).iter().map(text).collect();
    let start = members.iter().find(|id| names[*id] == package).expect("a member of the workspace");
    let mut seen = BTreeSet::new();
    let mut left = vec![start.clone()];
    while let Some(id) = left.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let is_normal =
            |dependency: &Value| list(&dependency["dep_kinds"]).iter().any(|k| k["kind"].is_null());
        left.extend(list(&nodes[&id]["deps"]).iter().filter(|d| is_normal(d)).map(|d| text(&d["pkg"])));
    }
    seen.iter().map(|id| names[id].clone()).collect()
}

fn named_by<'a>(beginnings: &[&str], names: &'a BTreeSet<String>) -> Vec<&'a String> {
    names.iter().filter(|name| beginnings.iter().any(|beginning| name.starts_with(beginning))).collect()
}

#[test]
fn the_facade_depends_on_no_signing_code_and_the_signer_on_no_network_code() {
    let (facade, signer) = (dependencies("tinyagent-facade"), dependencies("tinyagent-signer"));
    assert_eq!(named_by(&SIGNING, &facade), Vec::<&String>::new(), "in the facade's tree");
    assert_eq!(named_by(&NETWORK, &signer), Vec::<&String>::new(), "in the signer's tree");
    // The same search finds them where they belong.
    assert!(named_by(&SIGNING, &signer).len() >= 3, "{signer:?}");
    assert!(named_by(&NETWORK, &facade).len() >= 10, "{facade:?}");
}

/// The built program, whose path cargo knows and which it has built for this test.
fn program(name: &str) -> Vec<u8> {
    let built = match name {
        "tinyagent" => env!("CARGO_BIN_EXE_tinyagent"),
        _ => env!("CARGO_BIN_EXE_tinyagent-signer"),
    };
    let path =
        std::env::var_os("TINYAGENT_PROGRAM_DIR").map_or(built.into(), |d| PathBuf::from(d).join(name));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Whether a name stands anywhere in a program: in its symbols, or in the source paths of its panics.
fn holds(program: &[u8], name: &str) -> bool {
    memmem::find(program, name.as_bytes()).is_some()
}

/// Whether a program has its table of symbols; a stripped one keeps only source paths of what it links.
fn has_symbols(program: &[u8]) -> bool {
    holds(program, ".symtab")
}

#[test]
fn the_built_programs_hold_none_of_each_other_s_code() {
    let (facade, signer) = (program("tinyagent"), program("tinyagent-signer"));
    for name in ["secp256k1", "schnorr", "bech32", "tinyagent_signer"] {
        assert!(!holds(&facade, name), "{name} is in the facade");
        assert!(holds(&signer, name) || !has_symbols(&signer), "control: {name} is not in the signer");
    }
    assert!(holds(&signer, "secp256k1"), "control: the signer signs");
    for name in ["tokio", "hyper", "hyper_util", "rustls", "ring_core", "tinyagent_facade"] {
        assert!(!holds(&signer, name), "{name} is in the signer");
        assert!(holds(&facade, name) || !has_symbols(&facade), "control: {name} is not in the facade");
    }
    assert!(holds(&facade, "tokio") && holds(&facade, "rustls"), "control: the facade speaks HTTPS");
}

/// Every Rust source file below a directory of the repository, builds left out.
fn sources(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(sources(&entry));
        } else if name.ends_with(".rs") {
            found.push(entry);
        }
    }
    found
}

/// Whether a file belongs to a `sys` module.
fn is_sys(path: &Path) -> bool {
    path.iter().any(|part| part == "sys" || part == "sys.rs")
}

#[test]
fn the_word_stands_in_no_source_file_outside_a_sys_module() {
    // Put together, so that this file does not hold it either.
    let word = ["un", "safe"].concat();
    let all = sources(root());
    assert!(all.len() > 100, "{} files", all.len());
    let (sys, others): (Vec<&PathBuf>, Vec<&PathBuf>) = all.iter().partition(|path| is_sys(path));
    let with_it = |paths: Vec<&PathBuf>| -> Vec<String> {
        let holds = |path: &&PathBuf| fs::read_to_string(path).expect("text").contains(&word);
        paths.into_iter().filter(holds).map(|path| path.display().to_string()).collect()
    };
    assert_eq!(with_it(others), Vec::<String>::new());
    let crates: BTreeSet<&str> = ["facade", "hardening", "signer"].into();
    for name in crates {
        assert!(
            with_it(sys.clone()).iter().any(|path| path.contains(&format!("{name}/src/sys"))),
            "control: {name}'s sys module"
        );
    }
}

#[test]
fn every_block_of_a_sys_module_says_why_it_is_sound() {
    let word = ["un", "safe"].concat();
    let block = format!("{word} {{");
    let (mut blocks, mut bare) = (0, Vec::new());
    for path in sources(root()).iter().filter(|path| is_sys(path)) {
        let text = fs::read_to_string(path).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        for (number, _) in lines.iter().enumerate().filter(|(_, line)| line.contains(&block)) {
            blocks += 1;
            let reason =
                lines[number.saturating_sub(6)..number].iter().any(|line| line.contains("// SAFETY:"));
            if !reason {
                bare.push(format!("{}:{}", path.display(), number + 1));
            }
        }
    }
    assert!(blocks > 20, "{blocks} blocks");
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn every_rule_tag_is_explained_in_the_threat_model() {
    let document = threat_model();
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `")).collect();
    for rule in Rule::ALL {
        let row = format!("| `{}` |", rule.tag());
        assert_eq!(rows.iter().filter(|line| line.starts_with(&row)).count(), 1, "a row for {}", rule.tag());
    }
}

/// The tests that a section names, each as `path/file.rs::name`.
fn tests_named_in(section: &str) -> Vec<(&str, &str)> {
    section.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect()
}

/// Whether a file has a test of this name that is not ignored.
fn is_test(path: &str, name: &str) -> bool {
    let Ok(text) = fs::read_to_string(root().join(format!("{path}.rs"))) else { return false };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|line| line.starts_with(&format!("fn {name}("))) else {
        return false;
    };
    let attributes: Vec<&&str> = lines[..at].iter().rev().take_while(|line| line.starts_with('#')).collect();
    attributes.contains(&&"#[test]") && !attributes.iter().any(|line| line.starts_with("#[ignore"))
}

#[test]
fn every_claim_of_the_threat_model_names_tests_that_exist() {
    let document = threat_model();
    let sections: Vec<&str> =
        document.split("\n### ").map(|section| section.split("\n## ").next().unwrap_or_default()).collect();
    for number in 1..=8 {
        let heading = format!("Claim {number}:");
        let section = sections.iter().find(|section| section.starts_with(&heading));
        let section = section.unwrap_or_else(|| panic!("no section {heading}"));
        assert!(!tests_named_in(section).is_empty(), "claim {number} names no test");
    }
    for (path, name) in tests_named_in(&document) {
        assert!(is_test(path, name), "{path}.rs::{name} is no test");
    }
    assert!(!is_test("tests/structure", "no_such_test") && !is_test("tests/structure", "is_test"), "control");
}

#[test]
fn the_signer_s_dependencies_are_listed_each_with_its_reason() {
    // Not from the metadata, which joins the features of the whole workspace.
    let tree = cargo(&[
        "tree",
        "--package=tinyagent-signer",
        "--edges=normal,no-proc-macro",
        &format!("--target={LISTED_PLATFORM}"),
        "--prefix=none",
        "--format={p}",
    ]);
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let linked: BTreeSet<String> =
        tree.lines().map(name).filter(|name| !name.is_empty() && name != "tinyagent-signer").collect();
    let document = threat_model();
    let section = document.split("\n## ").find(|section| section.starts_with("What the signer links"));
    let rows = section.expect("the section").lines().filter_map(|line| line.strip_prefix("| "));
    let mut listed = BTreeSet::new();
    for (crates, reason) in rows.filter_map(|row| row.split_once(" | ")).filter(|(c, _)| c.starts_with('`')) {
        assert!(reason.trim_end_matches([' ', '|']).len() > 10, "a reason for {crates}");
        listed.extend(crates.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    assert_eq!(listed, linked, "left: THREAT_MODEL.md, right: cargo tree");
}

#[test]
fn every_measure_of_both_processes_is_explained_in_the_threat_model() {
    let document = threat_model();
    let measures = sources(&root().join("signer/src/hardening"))
        .into_iter()
        .chain(sources(&root().join("facade/src/sandbox")))
        .chain(sources(&root().join("hardening/src")))
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("text");
            let constants =
                text.lines().filter(|line| line.contains("const ") && line.contains(": &str = \""));
            constants.map(|line| line.split('"').nth(1).expect("a text").to_owned()).collect::<Vec<_>>()
        })
        .collect::<BTreeSet<String>>();
    assert!(measures.len() >= 12, "{measures:?}");
    for measure in measures {
        assert!(document.contains(&format!("| `{measure}` |")), "{measure} has no row");
    }
}
