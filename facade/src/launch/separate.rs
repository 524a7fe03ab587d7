//! The connection to a signer that runs under another user.
//!
//! Whoever could put a socket of his own at the path would only get requests, never the key; but the agent
//! would then act on a stranger's word. So the path is believed only where its owner alone could make it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

#[cfg(target_os = "linux")]
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::{LaunchError, SignerLink};

/// Bits with which others than owner and group may write.
const OTHERS_WRITE: u32 = 0o002;
const GROUP_WRITE: u32 = 0o020;

/// Connects to the signer's socket.
///
/// # Errors
/// When nobody listens there, or someone else than the socket's owner could be the one who does.
pub fn connect_signer(path: &Path) -> Result<SignerLink, LaunchError> {
    let unreachable = |source| LaunchError::NoSocket { path: path.into(), source };
    let distrusted = |why: &str| LaunchError::DistrustedSocket { path: path.into(), why: why.into() };
    let socket = fs::symlink_metadata(path).map_err(unreachable)?;
    if !socket.file_type().is_socket() {
        return Err(distrusted("it is not a socket"));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = fs::metadata(directory).map_err(unreachable)?;
    if ![0, socket.uid()].contains(&directory.uid()) || directory.mode() & (OTHERS_WRITE | GROUP_WRITE) != 0 {
        return Err(distrusted("others than its owner can write to its directory"));
    }
    let stream = UnixStream::connect(path).map_err(unreachable)?;
    match peer_uid(&stream).map_err(unreachable)? {
        // A socket that systemd opened shows root, who listened, and the unit's user as its owner.
        uid if uid == socket.uid() || uid == 0 => Ok(SignerLink { socket: stream, child: None }),
        uid => Err(distrusted(&format!("uid {uid} listens there and uid {} owns it", socket.uid()))),
    }
}

#[cfg(target_os = "linux")]
fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(getsockopt(stream, PeerCredentials)?.uid())
}

#[cfg(not(target_os = "linux"))]
fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let (uid, _) = nix::unistd::getpeereid(stream)?;
    Ok(uid.as_raw())
}
