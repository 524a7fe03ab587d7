//! `verify-log`: walks the chain through the rotated files and names the first line that breaks it.
//!
//! It reads the log as somebody else's input: line by line, bounded, and trusting no field.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tinyagent_protocol::hex;

use super::record::{CHAIN_START, START, chain_hash};
use super::{KEPT_FILES, numbered};

/// The longest line that is read, in bytes; records are far shorter.
const LINE_LIMIT_BYTES: u64 = 4 << 20;

/// Why a log does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It cannot be read.
    #[error("{path} cannot be read: {error}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A line breaks the chain; everything before it is as it was written.
    #[error("{path} line {line}: {fault}")]
    Broken {
        /// Which file.
        path: PathBuf,
        /// Which line, counted from 1.
        line: u64,
        /// What is wrong with it.
        fault: Fault,
    },
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// No record at all, or a part of one.
    #[error("not a whole record")]
    NotARecord,
    /// The line before it was changed or removed, or this one was put in.
    #[error("does not follow the line before it: one of the two was changed, or lines are missing")]
    Chain,
    /// The first line is not a start, and no older file was rotated away that could have held it.
    #[error("the log begins in the middle of a chain: its beginning was removed")]
    Beginning,
    /// The numbers jump.
    #[error("its number does not follow the one before it")]
    Sequence,
}

/// What was verified.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verified {
    records: u64,
    starts: u64,
    files: u64,
    /// Whether the oldest record continues a chain whose beginning has been rotated away.
    begins_within: bool,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let Self { records, starts, files, begins_within } = self;
        write!(f, "{records} record{} of {starts} start{} ", plural(*records), plural(*starts))?;
        write!(f, "in {files} file{}: the chain is whole", plural(*files))?;
        if *begins_within {
            f.write_str(" from its oldest kept record on")?;
        }
        Ok(())
    }
}

/// What the chain needs of a record.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    request: String,
    previous: String,
}

/// Verifies a log with its rotated files, the oldest first.
pub fn verify(path: &Path) -> Result<Verified, VerifyError> {
    let mut verified = Verified::default();
    let mut end: Option<(u64, [u8; 32])> = None;
    let may_begin_within = numbered(path, KEPT_FILES).exists();
    let rotated = (1..=KEPT_FILES).rev().map(|number| numbered(path, number)).filter(|path| path.exists());
    for path in rotated.chain([path.to_owned()]) {
        let unreadable = |error| VerifyError::Unreadable { path: path.clone(), error };
        let mut file = BufReader::new(File::open(&path).map_err(unreadable)?);
        verified.files += 1;
        for number in 1.. {
            let mut line = Vec::new();
            let read = file.by_ref().take(LINE_LIMIT_BYTES).read_until(b'\n', &mut line);
            if read.map_err(unreadable)? == 0 {
                break;
            }
            let next = follow(&line, end, may_begin_within, &mut verified);
            end = Some(next.map_err(|fault| VerifyError::Broken {
                path: path.clone(),
                line: number,
                fault,
            })?);
        }
    }
    Ok(verified)
}

/// Checks that a line follows the end of the chain, and gives the new end. The first line of all is a
/// start, unless it may be one of which the beginning was rotated away.
fn follow(
    line: &[u8],
    end: Option<(u64, [u8; 32])>,
    may_begin_within: bool,
    verified: &mut Verified,
) -> Result<(u64, [u8; 32]), Fault> {
    let line = line.strip_suffix(b"\n").ok_or(Fault::NotARecord)?;
    let link: Link = serde_json::from_slice(line).map_err(|_| Fault::NotARecord)?;
    let previous: [u8; 32] = hex::decode(&link.previous).ok_or(Fault::NotARecord)?;
    match end {
        _ if link.request == START && link.seq == 0 && previous == CHAIN_START => verified.starts += 1,
        Some((_, hash)) if hash != previous => return Err(Fault::Chain),
        Some((sequence, _)) if link.seq != sequence + 1 => return Err(Fault::Sequence),
        Some(_) => {}
        None if may_begin_within => verified.begins_within = true,
        None => return Err(Fault::Beginning),
    }
    verified.records += 1;
    Ok((link.seq, chain_hash(line)))
}
