//! The second image of this program: how the first hands over, and what the second insists on.
//!
//! That it is the second stage is said by an argv marker alone, never inferred from the environment or
//! from an open descriptor; what the marker claims is then checked.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getpeername, getsockopt, sockopt,
};
use nix::unistd::Pid;
use tinyagent_protocol::key_env::KeyEnv;

use super::environment::key_is_set;
use super::{Child, LaunchError, SOCKET_NUMBER, SignerLink, prepare};
use crate::sys::{SoleThread, descriptors, environment};

/// The hidden first argument of the second stage.
const MARKER: &str = "--second-stage";

/// The marker's value where the signer is not a child of ours.
const NO_CHILD: &str = "-";

/// What the process is called in `ps`; after an execve of `/proc/self/exe` it would be `exe`.
#[cfg(target_os = "linux")]
const PROCESS_NAME: &CStr = c"tinyagent";

/// Which image of the program this is.
#[derive(Debug, PartialEq, Eq)]
pub enum Stage {
    /// Started by the host.
    First,
    /// Started by the first stage.
    Second {
        /// The signer's process id, where it is a child of ours.
        signer: Option<Pid>,
    },
}

impl Stage {
    /// Reads and removes the marker from a command line, program name included.
    ///
    /// # Errors
    /// When the marker is there without what the first stage puts after it.
    pub fn take_from(args: &mut Vec<OsString>) -> Result<Self, LaunchError> {
        if args.get(1).is_none_or(|arg| arg != MARKER) {
            return Ok(Self::First);
        }
        let signer = match args.get(2).and_then(|arg| arg.to_str()) {
            Some(NO_CHILD) => None,
            Some(number) => match number.parse() {
                Ok(number) if number > 0 => Some(Pid::from_raw(number)),
                _ => return Err(LaunchError::NotSecondStage),
            },
            None => return Err(LaunchError::NotSecondStage),
        };
        args.drain(1..3);
        Ok(Self::Second { signer })
    }
}

/// Replaces this process by the second stage: the same program file, the same command line with the
/// marker in it, the environment as [`super::scrub`] left it, and beside 0 to 2 only the signer's socket.
///
/// # Errors
/// Returns only when the exec fails; the caller must then report and exit, as its descriptors are no
/// longer in order.
pub fn exec_second_stage(args: &[OsString], link: &SignerLink) -> Result<Infallible, LaunchError> {
    let mut command_line = vec![args.first().map_or(OsStr::new("tinyagent"), OsString::as_os_str).to_owned()];
    let signer = link.child.as_ref().map_or(NO_CHILD.into(), |child| child.pid().to_string());
    command_line.extend([MARKER.into(), signer.into()]);
    command_line.extend(args.iter().skip(1).cloned());
    let command_line = command_line
        .into_iter()
        .map(|arg| CString::new(arg.into_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|nul| LaunchError::Exec(nul.into()))?;
    let command_line: Vec<&CStr> = command_line.iter().map(CString::as_c_str).collect();
    let program = own_program().map_err(LaunchError::Exec)?;
    let alone = SoleThread::claim().map_err(LaunchError::NotAlone)?;
    let error = environment::with_entries(&alone, |entries| {
        descriptors::exec_passing(link.socket.as_fd(), SOCKET_NUMBER, &program, &command_line, entries)
    });
    Err(LaunchError::Exec(error))
}

/// What to exec: on Linux the very file that runs now, even where its path leads to another by now.
fn own_program() -> io::Result<CString> {
    if cfg!(target_os = "linux") {
        return Ok(c"/proc/self/exe".to_owned());
    }
    Ok(CString::new(std::env::current_exe()?.as_os_str().as_bytes())?)
}

/// Takes over what the first stage passed on; to be called first in `main` where [`Stage::take_from`]
/// says that this is the second stage. The socket that it returns is non-blocking.
///
/// # Errors
/// When the key variable is still set, or this process was not started by the first stage: descriptor 3
/// is no connected Unix socket, or `signer` is no child of this process.
pub fn second_stage(signer: Option<Pid>, key_env: &KeyEnv) -> Result<SignerLink, LaunchError> {
    let alone = SoleThread::claim().map_err(LaunchError::NotAlone)?;
    if key_is_set(&alone, key_env) {
        return Err(LaunchError::KeyStillSet(key_env.to_string()));
    }
    let descriptor = descriptors::take_inherited(SOCKET_NUMBER).map_err(|_| LaunchError::NotSecondStage)?;
    if !is_connected_unix_stream(&descriptor) {
        return Err(LaunchError::NotSecondStage);
    }
    let child = match signer {
        Some(pid) => Some(Child::adopt(pid).ok_or(LaunchError::NotSecondStage)?),
        None => None,
    };
    prepare()?;
    let socket = UnixStream::from(descriptor);
    // A blocking socket makes tokio panic in debug builds and stall silently in release ones.
    socket.set_nonblocking(true).map_err(LaunchError::Socket)?;
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_name(PROCESS_NAME);
    Ok(SignerLink { socket, child })
}

fn is_connected_unix_stream(descriptor: &OwnedFd) -> bool {
    let peer = getpeername::<SockaddrStorage>(descriptor.as_raw_fd());
    let is_unix = peer.is_ok_and(|peer| peer.family() == Some(AddressFamily::Unix));
    is_unix && getsockopt(descriptor, sockopt::SockType) == Ok::<_, Errno>(SockType::Stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(args: &[&str]) -> (Result<Stage, String>, Vec<OsString>) {
        let mut args = args.iter().map(OsString::from).collect();
        (Stage::take_from(&mut args).map_err(|error| error.to_string()), args)
    }

    #[test]
    fn the_marker_counts_as_first_argument_only() {
        for args in [&["tinyagent"][..], &["tinyagent", "mcp", MARKER, "7"], &[], &[MARKER]] {
            let (stage, rest) = take(args);
            assert_eq!(stage, Ok(Stage::First));
            assert_eq!(rest, args);
        }
    }

    #[test]
    fn the_marker_and_its_value_are_removed() {
        let (stage, rest) = take(&["tinyagent", MARKER, "77", "mcp"]);
        assert_eq!(stage, Ok(Stage::Second { signer: Some(Pid::from_raw(77)) }));
        assert_eq!(rest, ["tinyagent", "mcp"]);
        let (stage, rest) = take(&["tinyagent", MARKER, NO_CHILD]);
        assert_eq!(stage, Ok(Stage::Second { signer: None }));
        assert_eq!(rest, ["tinyagent"]);
    }

    #[test]
    fn a_marker_written_by_hand_is_an_error_that_says_how_to_start() {
        for args in [&["t", MARKER][..], &["t", MARKER, "mcp"], &["t", MARKER, "0"], &["t", MARKER, "-1"]] {
            let error = take(args).0.expect_err("no process id");
            assert!(error.contains("start it as `tinyagent mcp --relay URL`"), "{error}");
        }
    }
}
