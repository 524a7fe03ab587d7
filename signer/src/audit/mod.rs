//! The audit log: one JSON line a decision, on disk before the answer leaves, never any content.
//!
//! Each record carries the hash of the one before, so that an edit or a gap shows. The chain has no
//! key: whoever owns the file can write another that is whole.

mod record;
mod verify;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use tinyagent_protocol::event::PublicKey;

use record::{CHAIN_START, chain_hash};
pub use record::{Decision, Entry};
pub use verify::{VerifyError, verify};

/// The size past which a new file is begun, in bytes (design 7).
const FILE_LIMIT_BYTES: u64 = 5 << 20;

/// How many full files are kept, as `PATH.1`, the newest, to `PATH.5`.
const KEPT_FILES: u32 = 5;

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The path names no file.
    #[error("--audit-log {0} names no file in an existing directory")]
    Path(PathBuf),
    /// Another signer writes it.
    #[error("the audit log {0} is in use by another signer; give each its own file")]
    InUse(PathBuf),
    /// It is a directory, a device, or somebody else's.
    #[error("the audit log {0} is not a regular file of this user")]
    NotOurs(PathBuf),
    /// Somebody has put another file in its place, cut it, or written to it.
    #[error(
        "the audit log {0} was replaced, cut or written to by something else; restart the signer with a new file"
    )]
    Tampered(PathBuf),
    /// The system refuses.
    #[error("the audit log {path} cannot be written: {error}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// An open log, with the end of its chain.
pub struct Log {
    path: PathBuf,
    file: Flock<File>,
    /// What the file's length must be.
    length: u64,
    /// Whether the end of a record that failed may still be in the file.
    unclean: bool,
    sequence: u64,
    previous: [u8; 32],
}

impl Log {
    /// Opens the log, makes it this user's alone, and begins a chain with a record of the start.
    pub fn open(path: &Path, public: PublicKey, now: u64) -> Result<Self, LogError> {
        let path = absolute(path)?;
        let file = open_for_appending(&path, OpenOptions::new().create(true))?;
        let io_error = |error| LogError::Io { path: path.clone(), error };
        let facts = file.metadata().map_err(io_error)?;
        if !facts.is_file() || facts.uid() != nix::unistd::geteuid().as_raw() {
            return Err(LogError::NotOurs(path));
        }
        file.set_permissions(Permissions::from_mode(0o600)).map_err(io_error)?;
        let mut log =
            Self { path, file, length: facts.len(), unclean: false, sequence: 0, previous: CHAIN_START };
        log.end_broken_line()?;
        log.append(&Entry::start(public), Decision::Started, now)?;
        Ok(log)
    }

    /// The directory in which files come and go.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Writes the record of a decision and waits until it is on disk. After an error the decision
    /// must not take effect; the next one may succeed.
    pub fn append(&mut self, entry: &Entry<'_>, decision: Decision, now: u64) -> Result<(), LogError> {
        self.remove_failed_record()?;
        self.make_sure_it_is_ours()?;
        let line = entry.line(self.sequence, decision, now, &self.previous);
        if self.length > 0 && self.length + line.len() as u64 > FILE_LIMIT_BYTES {
            self.rotate()?;
        }
        self.unclean = true;
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Tried again before the next record, where it must succeed.
            let _ = self.remove_failed_record();
            return Err(self.io_error(error));
        }
        self.unclean = false;
        self.length += line.len() as u64;
        self.sequence += 1;
        self.previous = chain_hash(line.trim_end().as_bytes());
        Ok(())
    }

    fn remove_failed_record(&mut self) -> Result<(), LogError> {
        if self.unclean {
            self.file.set_len(self.length).map_err(|error| self.io_error(error))?;
            self.unclean = false;
        }
        Ok(())
    }

    fn make_sure_it_is_ours(&self) -> Result<(), LogError> {
        let open = self.file.metadata().map_err(|error| self.io_error(error))?;
        let named = match fs::symlink_metadata(&self.path) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(LogError::Tampered(self.path.clone()));
            }
            Err(error) => return Err(self.io_error(error)),
        };
        let same = (open.dev(), open.ino()) == (named.dev(), named.ino());
        if same && open.len() == self.length { Ok(()) } else { Err(LogError::Tampered(self.path.clone())) }
    }

    /// Begins a new file. The new one is made first, so that a failure leaves the old one in use.
    fn rotate(&mut self) -> Result<(), LogError> {
        let fresh_path = self.numbered("new");
        let _ = fs::remove_file(&fresh_path);
        let fresh = open_for_appending(&fresh_path, OpenOptions::new().create_new(true))?;
        let renamed = (1..KEPT_FILES)
            .rev()
            .map(|number| (self.numbered(number), self.numbered(number + 1)))
            .filter(|(from, _)| from.exists())
            .chain([(self.path.clone(), self.numbered(1)), (fresh_path, self.path.clone())])
            .try_for_each(|(from, to)| fs::rename(from, to));
        renamed.map_err(|error| self.io_error(error))?;
        self.file = fresh;
        self.length = 0;
        Ok(())
    }

    fn numbered(&self, number: impl std::fmt::Display) -> PathBuf {
        numbered(&self.path, number)
    }

    /// Ends a line that a power cut left without its end, so that it stands alone as the broken one.
    fn end_broken_line(&mut self) -> Result<(), LogError> {
        let mut last = [b'\n'];
        let read = if self.length == 0 {
            Ok(())
        } else {
            self.file.seek(SeekFrom::End(-1)).and_then(|_| self.file.read_exact(&mut last))
        };
        read.and_then(|()| if last == *b"\n" { Ok(0) } else { self.file.write(b"\n") })
            .map(|written| self.length += written as u64)
            .map_err(|error| self.io_error(error))
    }

    fn io_error(&self, error: io::Error) -> LogError {
        LogError::Io { path: self.path.clone(), error }
    }
}

/// `PATH.number`.
fn numbered(path: &Path, number: impl std::fmt::Display) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// The path with its directory resolved, which Landlock will later be told to leave open.
fn absolute(path: &Path) -> Result<PathBuf, LogError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => Ok(parent.join(name)),
        _ => Err(LogError::Path(path.into())),
    }
}

fn open_for_appending(path: &Path, options: &mut OpenOptions) -> Result<Flock<File>, LogError> {
    let file = options
        .read(true)
        .append(true)
        .mode(0o600)
        // Non-blocking, so that a FIFO in its place does not hang the start.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|error| LogError::Io { path: path.into(), error })?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| LogError::InUse(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLIC: PublicKey = PublicKey([7; 32]);

    /// An empty directory of this test's own.
    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tinyagent-audit-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    fn call() -> Entry<'static> {
        Entry { request: "call_tool", tool: Some("read_room".into()), ..Entry::default() }
    }

    #[test]
    fn a_chain_of_records_verifies_and_an_edited_removed_or_cut_line_is_named() {
        let path = directory("chain").join("log");
        let mut log = Log::open(&path, PUBLIC, 1).unwrap();
        for second in 2..6 {
            log.append(&call(), Decision::Signed, second).unwrap();
        }
        assert_eq!(verify(&path).unwrap().to_string(), "5 records of 1 start in 1 file: the chain is whole");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let broken = [
            (whole.replacen("\"time\":3", "\"time\":9", 1), "line 4"),
            (whole.replacen(&format!("{}\n", lines[2]), "", 1), "line 3"),
            (whole[..whole.len() - 3].to_owned(), "line 5"),
            (format!("{}\n{}\n", lines[1], lines[0]), "line 1"),
            (format!("{whole}x\n"), "line 6"),
        ];
        for (text, place) in broken {
            fs::write(&path, text).unwrap();
            let error = verify(&path).unwrap_err().to_string();
            assert!(error.contains(place), "{place}: {error}");
        }
    }

    #[test]
    fn the_chain_runs_on_through_rotated_files_and_the_oldest_are_dropped() {
        let path = directory("rotation").join("log");
        let mut log = Log::open(&path, PUBLIC, 1).unwrap();
        let long = Entry { tool: Some("x".repeat(1 << 20).into()), ..call() };
        for second in 2..50 {
            log.append(&long, Decision::Signed, second).unwrap();
        }
        let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["log", "log.1", "log.2", "log.3", "log.4", "log.5"]);
        assert!(verify(&path).unwrap().to_string().ends_with("whole from its oldest kept record on"));
        fs::remove_file(numbered(&path, 3)).unwrap();
        assert!(verify(&path).unwrap_err().to_string().contains("log.2 line 1"));
    }

    #[test]
    fn a_log_has_one_writer_and_a_second_start_goes_on_in_the_same_file() {
        let path = directory("writer").join("log");
        let log = Log::open(&path, PUBLIC, 1).unwrap();
        assert!(matches!(Log::open(&path, PUBLIC, 2), Err(LogError::InUse(_))));
        drop(log);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"cut").unwrap();
        let mut log = Log::open(&path, PUBLIC, 3).unwrap();
        log.append(&call(), Decision::Signed, 4).unwrap();
        assert!(verify(&path).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn what_somebody_else_did_to_the_file_is_noticed_before_the_next_record() {
        let directory = directory("tampered");
        let path = directory.join("log");
        let cut = |path: &Path| OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap();
        let write = |path: &Path| fs::write(path, "longer than before ".repeat(99)).unwrap();
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let replace = |path: &Path| fs::rename(path, path.with_extension("old")).unwrap();
        for tamper in [&cut as &dyn Fn(&Path), &write, &remove, &replace] {
            let mut log = Log::open(&path, PUBLIC, 1).unwrap();
            tamper(&path);
            let failed = log.append(&call(), Decision::Signed, 2).unwrap_err();
            assert!(matches!(failed, LogError::Tampered(_)), "{failed}");
            drop(log);
            let _ = fs::remove_file(&path);
        }
    }

    #[test]
    fn a_path_that_cannot_be_a_log_is_refused() {
        let directory = directory("paths");
        assert!(matches!(Log::open(&directory.join("none/log"), PUBLIC, 1), Err(LogError::Path(_))));
        assert!(matches!(Log::open(&directory, PUBLIC, 1), Err(LogError::Io { .. })));
        std::os::unix::fs::symlink("elsewhere", directory.join("link")).unwrap();
        assert!(matches!(Log::open(&directory.join("link"), PUBLIC, 1), Err(LogError::Io { .. })));
    }
}
