//! The licence texts and notices of the crates that are linked into the programs; most of their licences
//! ask that whoever passes a program on passes these on with it. It reads what cargo has fetched, and
//! never a network.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// How the names of files with licences and notices begin.
const BEGINNINGS: [&str; 6] = ["license", "licence", "copying", "notice", "copyright", "unlicense"];

/// Writes the notices into one file.
///
/// # Errors
/// Where cargo cannot say what is linked, or a file cannot be read or written.
pub fn write(path: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    writeln!(
        out,
        "tinyagent and tinyagent-signer are linked with the Rust standard library (MIT or Apache-2.0, copyright\n\
         the Rust project contributors) and with the crates below."
    )?;
    for (name, package) in linked()? {
        let licence = package["license"].as_str().unwrap_or("see below");
        writeln!(out, "\n{:=<100}\n{name}: {licence}", "")?;
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(Path::new(""));
        for file in notices(folder)? {
            let title = file.strip_prefix(folder).unwrap_or(&file);
            let text = fs::read(&file)?;
            writeln!(out, "\n--- {}\n\n{}", title.display(), String::from_utf8_lossy(&text).trim_end())?;
        }
    }
    out.flush()
}

/// The fetched crates in the programs, by name and version. Cargo joins the features of the whole
/// workspace here, so that it is rather more than what is linked.
fn linked() -> io::Result<BTreeMap<String, Value>> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let metadata = output(Command::new(cargo).args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"),
        "--filter-platform",
        host,
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let mut left: Vec<String> = packages
        .iter()
        .filter(|(_, package)| package["name"] == "tinyagent")
        .map(|(id, _)| id.clone())
        .collect();
    let mut seen = BTreeMap::new();
    while let Some(id) = left.pop() {
        let Some(package) = packages.get(&id) else { continue };
        let is_macro = list(&package["targets"]).iter().any(|target| target["kind"][0] == "proc-macro");
        if is_macro || seen.contains_key(&id) {
            continue;
        }
        let runs =
            |dependency: &&Value| list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
        left.extend(list(&nodes[&id]["deps"]).iter().filter(runs).map(|dependency| text(&dependency["pkg"])));
        seen.insert(id, package);
    }
    let fetched = seen.into_values().filter(|package| !package["source"].is_null());
    Ok(fetched
        .map(|package| (format!("{} {}", text(&package["name"]), text(&package["version"])), package.clone()))
        .collect())
}

/// What a command prints.
fn output(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}

/// The files with licences and notices below a folder, also those of C code that a crate brings along.
fn notices(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            found.extend(notices(&entry.path())?);
        } else if kind.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
