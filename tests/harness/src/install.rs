//! Puts programs and scripts in place, each by another process.
//!
//! What this process has open for writing is open, for a moment, in every child that another test starts
//! meanwhile, and a file that anybody has open for writing cannot be run ("Text file busy").

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Copies a program, with this mode.
pub fn copy_program(from: &Path, to: &Path, mode: u32) {
    shell("cp \"$1\" \"$0\" && chmod \"$2\" \"$0\"", to, &[from.as_os_str(), format!("{mode:o}").as_ref()]);
}

/// Writes a shell script, which every user may run.
pub fn write_script(to: &Path, text: &str) {
    shell("printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"", to, &[text.as_ref()]);
}

/// Runs a line of shell with a path as `$0` and these as `$1` and so on.
fn shell(line: &str, path: &Path, arguments: &[&OsStr]) {
    let status = Command::new("/bin/sh").args(["-c", line]).arg(path).args(arguments).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{}: {status:?}", path.display());
}
