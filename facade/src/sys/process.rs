//! System calls about processes that neither std nor nix wraps.

use std::io;
use std::os::fd::OwnedFd;

use nix::unistd::Pid;

/// A close-on-exec descriptor that becomes readable when the child `pid` ends (pidfd_open(2), Linux 5.3).
///
/// # Errors
/// `ENOSYS` where the kernel has none, `ESRCH` where the process does not exist.
#[cfg(target_os = "linux")]
pub fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: pidfd_open takes two integers; on success it returns a new descriptor, which nothing else
    // owns.
    unsafe {
        let number = nix::errno::Errno::result(libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0))?;
        Ok(OwnedFd::from_raw_fd(number as i32))
    }
}

/// Not offered by this system.
#[cfg(not(target_os = "linux"))]
pub fn pidfd_open(_pid: Pid) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}
