//! The listening socket: handed over by systemd, or bound by the signer itself.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt,
};
use nix::sys::stat::{Mode, umask};

use crate::sys::process::take_handed_over_fd;

/// Why there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// systemd started the signer with something else than one listening stream socket.
    #[error(
        "the service manager handed over no listening Unix stream socket; the socket unit needs exactly one ListenStream="
    )]
    HandedOver,
    /// A file that is no socket is in the way.
    #[error("{0} exists and is not a socket; remove it or name another path")]
    NotASocket(PathBuf),
    /// Another process answers there.
    #[error("another signer is listening on {0}")]
    InUse(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {path}: {error}")]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Whether systemd has handed over descriptors to this very process (sd_listen_fds(3)).
pub fn is_handed_over() -> bool {
    let pid = std::env::var("LISTEN_PID").ok().and_then(|pid| pid.parse::<u32>().ok());
    pid == Some(std::process::id()) && std::env::var("LISTEN_FDS").is_ok_and(|count| count == "1")
}

/// The socket that systemd has handed over, if it has.
pub fn handed_over() -> Result<Option<UnixListener>, ListenError> {
    if !is_handed_over() {
        return Ok(None);
    }
    let socket = take_handed_over_fd().ok_or(ListenError::HandedOver)?;
    let address = getsockname::<SockaddrStorage>(std::os::fd::AsRawFd::as_raw_fd(&socket));
    let is_unix = address.is_ok_and(|address| address.family() == Some(AddressFamily::Unix));
    let is_stream = getsockopt(&socket, sockopt::SockType) == Ok(SockType::Stream);
    let listens = getsockopt(&socket, sockopt::AcceptConn) == Ok(true);
    if !(is_unix && is_stream && listens) {
        return Err(ListenError::HandedOver);
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).map_err(|_| ListenError::HandedOver)?;
    Ok(Some(listener))
}

/// Binds a socket for its owner and group (0660). One that an ended signer left behind is replaced.
pub fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    remove_left_over(path)?;
    let failed = |error| ListenError::Bind { path: path.into(), error };
    // The mask makes the socket appear with its mode, rather than with a wider one for a moment.
    let before = umask(Mode::from_bits_truncate(0o117));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn remove_left_over(path: &Path) -> Result<(), ListenError> {
    let failed = |error| ListenError::Bind { path: path.into(), error };
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(facts) if !facts.file_type().is_socket() => Err(ListenError::NotASocket(path.into())),
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(failed)
            }
            Err(error) => Err(failed(error)),
            Ok(_) => Err(ListenError::InUse(path.into())),
        },
    }
}
