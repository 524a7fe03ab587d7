//! Starting the signer: found beside this program, given the key's environment entry and one socket,
//! nothing else of ours or of the host's.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use tinyagent_protocol::key_env::KeyEnv;

use super::environment::is_of;
use super::{Child, LaunchError, SOCKET_NUMBER};
use crate::sys::{SoleThread, environment};

/// The file name of the signer's program, in the directory of this one.
pub const SIGNER_PROGRAM: &str = "tinyagent-signer";

/// The connection to the signer.
#[derive(Debug)]
pub struct SignerLink {
    /// Our end; blocking in the first stage, non-blocking in the second, close-on-exec in both.
    pub socket: UnixStream,
    /// The signer's process, where it is a child of ours; `None` for one that runs under another user.
    pub child: Option<Child>,
}

/// The signer's path: beside this program's own file, links resolved, never searched for on `PATH`.
///
/// # Errors
/// When this program's path is unknown, or its file was replaced while it started.
pub fn signer_path() -> Result<PathBuf, LaunchError> {
    let own = std::env::current_exe().map_err(LaunchError::OwnPath)?;
    beside(own)
}

/// Linux appends this to the path of a program whose file is no longer there.
const DELETED_SUFFIX: &[u8] = b" (deleted)";

fn beside(own: PathBuf) -> Result<PathBuf, LaunchError> {
    if !own.exists() {
        let path = own.into_os_string().into_vec();
        let path = path.strip_suffix(DELETED_SUFFIX).unwrap_or(&path);
        return Err(LaunchError::Replaced(PathBuf::from(OsStr::from_bytes(path))));
    }
    Ok(own.with_file_name(SIGNER_PROGRAM))
}

/// Starts the signer's program at `program` (see [`signer_path`]) with `args`, whose first member is its
/// name.
///
/// The child gets one end of a socketpair as descriptor 3, `/dev/null` as 0 to 2, and as its whole
/// environment the first entry of the key variable, passed by pointer; an unset variable leaves it empty,
/// and the signer says so. It starts with no signal blocked or ignored and in a process group of its own,
/// so that an interrupt meant for this process does not reach it first. [`super::prepare`] must have run.
///
/// # Errors
/// When the program is missing or cannot be run, or the socket cannot be made.
pub fn spawn_signer(program: &Path, args: &[CString], key_env: &KeyEnv) -> Result<SignerLink, LaunchError> {
    let alone = SoleThread::claim().map_err(LaunchError::NotAlone)?;
    let (ours, theirs) = UnixStream::pair().map_err(LaunchError::Socket)?;
    // The lower number is 3 in a prepared process, where the second stage wants ours; and dup2 of a
    // number onto itself would leave theirs close-on-exec on some systems.
    let (ours, theirs) = if ours.as_raw_fd() < theirs.as_raw_fd() { (ours, theirs) } else { (theirs, ours) };
    let null = File::options().read(true).write(true).open("/dev/null").map_err(LaunchError::Descriptors)?;
    let pid = environment::with_entries(&alone, |entries| {
        let key_entry = entries.iter().find(|entry| is_of(entry, key_env.as_str()));
        spawn(program, args, key_entry.as_slice(), &theirs, &null)
    });
    let pid = pid.map_err(|errno| match errno {
        Errno::ENOENT => LaunchError::NoSigner(program.into()),
        errno => LaunchError::Spawn { path: program.into(), errno },
    })?;
    Ok(SignerLink { socket: ours, child: Some(Child::new(pid)) })
}

fn spawn(
    program: &Path,
    args: &[CString],
    environment: &[&&CStr],
    socket: &UnixStream,
    null: &File,
) -> nix::Result<Pid> {
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_dup2(socket.as_raw_fd(), SOCKET_NUMBER)?;
    for number in 0..=2 {
        actions.add_dup2(null.as_raw_fd(), number)?;
    }
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_flags(
        PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
            | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
            | PosixSpawnFlags::POSIX_SPAWN_SETPGROUP,
    )?;
    attributes.set_sigdefault(&SigSet::all())?;
    attributes.set_sigmask(&SigSet::empty())?;
    attributes.set_pgroup(Pid::from_raw(0))?;
    posix_spawn(program, &actions, &attributes, args, environment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signer_is_looked_for_beside_a_program_that_exists() {
        let own = std::env::current_exe().expect("a test has a program");
        let path = beside(own.clone()).expect("its file is there");
        assert_eq!(path.parent(), own.parent());
        assert_eq!(path.file_name(), Some(OsStr::new(SIGNER_PROGRAM)));
    }

    #[test]
    fn a_program_replaced_by_an_upgrade_is_named_without_the_kernels_suffix() {
        let error = beside("/opt/tinyagent/tinyagent (deleted)".into()).expect_err("not there");
        let text = error.to_string();
        assert!(text.contains("/opt/tinyagent/tinyagent was replaced or removed"), "{text}");
    }
}
