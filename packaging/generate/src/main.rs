//! Writes what a package of tinyagent holds beside the programs: manual pages, shell completions, and the
//! notices of the crates that are linked into them.
//!
//! It is a program of its own, so that what it needs is in neither of theirs; it is never installed.

mod manual;
mod notices;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: tinyagent-generate FOLDER");
        return ExitCode::FAILURE;
    };
    let folder = Path::new(&folder);
    let written = manual::write(folder).and_then(|()| notices::write(&folder.join("third-party.txt")));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tinyagent-generate: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
