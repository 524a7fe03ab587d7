//! A key file: whose it must be, and reading it without a copy.
//!
//! Everything is checked on the opened descriptor, so that the file checked is the file read.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::fault::KeyFault;
use crate::sys::memory::KEY_TEXT_BYTES;

/// Opens a key file after checking its kind, owner and mode. Inside the directory that systemd
/// names in `CREDENTIALS_DIRECTORY` the mode is the service manager's affair: it grants the
/// service's user access by an ACL, which shows as group bits.
pub fn open(path: &Path) -> Result<File, KeyFault> {
    // Non-blocking, so that a FIFO in its place does not hang the start.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(KeyFault::Unreadable)?;
    let facts = file.metadata().map_err(KeyFault::Unreadable)?;
    if !facts.is_file() || facts.len() > KEY_TEXT_BYTES as u64 {
        return Err(KeyFault::NotAFile { limit: KEY_TEXT_BYTES });
    }
    if facts.uid() != 0 && facts.uid() != nix::unistd::geteuid().as_raw() {
        return Err(KeyFault::Owner(facts.uid()));
    }
    if facts.mode() & 0o077 != 0 && !is_credential(path) {
        return Err(KeyFault::Mode(facts.mode() & 0o7777));
    }
    Ok(file)
}

fn is_credential(path: &Path) -> bool {
    let Some(directory) = std::env::var_os("CREDENTIALS_DIRECTORY").filter(|dir| !dir.is_empty()) else {
        return false;
    };
    match (Path::new(&directory).canonicalize(), path.canonicalize()) {
        (Ok(directory), Ok(path)) => path.starts_with(directory),
        _ => false,
    }
}

/// Reads the file into `place` and returns the length of the key's text: without the white space
/// that editors leave at its end.
pub fn read(mut file: &File, place: &mut [u8]) -> Result<usize, KeyFault> {
    let mut length = 0;
    while length < place.len() {
        match file.read(&mut place[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(failed) if failed.kind() == ErrorKind::Interrupted => {}
            Err(failed) => return Err(KeyFault::Unreadable(failed)),
        }
    }
    match place[..length].trim_ascii_end().len() {
        0 => Err(KeyFault::EmptyFile),
        length => Ok(length),
    }
}
