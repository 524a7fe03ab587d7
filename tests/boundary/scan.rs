//! Looks for a key in everything that another process can be made to show, as root: each readable mapping
//! and each readable file below `/proc/PID`.
//!
//! It knows the key's forms and where they were found; what that means is for the tests to say.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::support::NewKey;

/// How much of a mapping is looked at in one go.
const CHUNK_BYTES: usize = 1 << 20;

/// No form is longer; so far do two pieces that are looked at one after the other overlap.
const OVERLAP_BYTES: usize = 64;

/// How much is read of a file below /proc; more than any of those that are read has.
const FILE_BYTES: u64 = 16 << 20;

/// Entries of `/proc/PID` that are not read as files: the memory itself, tables of page numbers, links
/// that lead out of the process, and what blocks its reader.
const NOT_READ: [&str; 12] =
    ["mem", "pagemap", "root", "cwd", "exe", "fd", "map_files", "ns", "net", "attr", "clear_refs", "latency"];

/// The forms in which a key may lie somewhere, each with its name.
pub struct Forms(Vec<(String, Vec<u8>)>);

impl Forms {
    /// Of this key: each half in each form, so that a part of it is found too.
    pub fn of(key: &NewKey) -> Self {
        let raw: [u8; 32] = tinyagent_relay::unhex(&key.hex).expect("32 bytes");
        let reversed: Vec<u8> = raw.iter().rev().copied().collect();
        let halves = |name: &str, bytes: &[u8]| {
            let (first, second) = bytes.split_at(bytes.len() / 2);
            [
                (format!("{name}, first half"), first.to_vec()),
                (format!("{name}, second half"), second.to_vec()),
            ]
        };
        let mut forms: Vec<_> = [
            halves("raw", &raw),
            halves("reversed", &reversed),
            halves("hex", key.hex.as_bytes()),
            halves("upper-case hex", key.hex.to_uppercase().as_bytes()),
            // The last character also holds what would follow the key.
            halves("base64", &STANDARD_NO_PAD.encode(raw).as_bytes()[..42]),
            halves("base64url", &URL_SAFE_NO_PAD.encode(raw).as_bytes()[..42]),
            halves("nsec", &key.nsec.as_bytes()["nsec1".len()..]),
            halves("upper-case nsec", &key.nsec.to_uppercase().as_bytes()["nsec1".len()..]),
        ]
        .into_iter()
        .flatten()
        .collect();
        // The words in which a curve library computes, either way round.
        for (name, bytes) in [("raw", &raw[..]), ("reversed", &reversed)] {
            let words = bytes.chunks(8).enumerate();
            forms.extend(words.map(|(at, word)| (format!("{name}, word {at}"), word.to_vec())));
        }
        Self(forms)
    }

    /// The names of all forms.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    fn find_in(&self, bytes: &[u8], place: &str, found: &mut Vec<String>) {
        let here = self.0.iter().filter(|(_, form)| memmem::find(bytes, form).is_some());
        found.extend(here.map(|(name, _)| format!("{name} in {place}")));
    }
}

/// What a scan came to.
#[derive(Debug, Default)]
pub struct Scan {
    /// Each form and place in which the key was found.
    pub found: Vec<String>,
    /// The lines of /proc/PID/maps whose memory the process may read and root could not.
    pub unreadable: Vec<String>,
    /// Bytes of memory that were looked at.
    pub memory_bytes: u64,
    /// The files that were looked at.
    pub files: Vec<String>,
}

impl Scan {
    /// Whether some form was found in a place whose name holds this text.
    pub fn found_in(&self, form: &str, place: &str) -> bool {
        self.found.iter().any(|hit| hit.starts_with(form) && hit.contains(place))
    }
}

/// Scans a process. Needs root: the processes under test are not dumpable.
pub fn scan(pid: u32, forms: &Forms) -> Scan {
    let mut scan = Scan::default();
    scan_memory(pid, forms, &mut scan);
    scan_files(Path::new(&format!("/proc/{pid}")), forms, &mut scan);
    scan
}

/// A mapping: its first address, its last, and its line in /proc/PID/maps.
fn mappings(pid: u32) -> Vec<(u64, u64, String)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its mappings, as root");
    let address = |text: &str| u64::from_str_radix(text, 16).expect("an address");
    maps.lines()
        .map(|line| {
            let range = line.split(' ').next().expect("a range");
            let (start, end) = range.split_once('-').expect("two addresses");
            (address(start), address(end), line.to_owned())
        })
        .collect()
}

fn scan_memory(pid: u32, forms: &Forms, scan: &mut Scan) {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory, as root");
    let mut buffer = vec![0; CHUNK_BYTES + OVERLAP_BYTES];
    for (start, end, line) in mappings(pid) {
        // The kernel's own pages for the clock; they are the same in every process.
        if line.contains("[vvar") || line.contains("[vsyscall") {
            continue;
        }
        let mut at = start;
        let mut refused = false;
        while at < end {
            let length = buffer.len().min((end - at) as usize);
            match memory.read_at(&mut buffer[..length], at) {
                Ok(0) | Err(_) => {
                    refused = true;
                    // The next page may be readable again.
                    at = (at & !0xfff) + 0x1000;
                }
                Ok(read) => {
                    forms.find_in(&buffer[..read], &line, &mut scan.found);
                    scan.memory_bytes += read as u64;
                    // Overlap, unless this was the rest.
                    let rest = at + read as u64 >= end;
                    at += if rest { read as u64 } else { (read.saturating_sub(OVERLAP_BYTES)).max(1) as u64 };
                }
            }
        }
        let may_read = line.split(' ').nth(1).is_some_and(|permissions| permissions.starts_with('r'));
        if refused && may_read {
            scan.unreadable.push(line);
        }
    }
}

fn scan_files(directory: &Path, forms: &Forms, scan: &mut Scan) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if NOT_READ.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            scan_files(&path, forms, scan);
            continue;
        }
        let mut bytes = Vec::new();
        let Ok(file) = File::open(&path) else { continue };
        let _ = file.take(FILE_BYTES).read_to_end(&mut bytes);
        forms.find_in(&bytes, &path.display().to_string(), &mut scan.found);
        scan.files.push(name);
    }
}

/// What process_vm_readv says to reading the first bytes of the mapping with this line.
pub fn read_directly(pid: u32, line: &str) -> Result<usize, Errno> {
    let (start, _, _) =
        mappings(pid).into_iter().find(|(_, _, other)| other == line).expect("still mapped there");
    let mut bytes = [0; 32];
    let remote = [RemoteIoVec { base: start as usize, len: bytes.len() }];
    process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut [IoSliceMut::new(&mut bytes)], &remote)
}
