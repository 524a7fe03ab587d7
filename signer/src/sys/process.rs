//! What the process says to the kernel about itself: descriptors, signals, its end.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The descriptor on which the launcher or the service manager hands over the socket.
pub const HANDED_OVER_FD: RawFd = 3;

/// Ends the process at once: no destructors, no buffers flushed, nothing that seccomp would kill.
pub fn exit(status: i32) -> ! {
    // SAFETY: ends the process; no memory of ours is touched.
    unsafe { libc::_exit(status) }
}

/// Writes a text to standard error, ignoring every failure.
pub fn write_stderr(text: &[u8]) {
    // SAFETY: the pointer and length are those of one live slice.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// Takes ownership of the descriptor that was handed over. None when it is not open, or was
/// taken before.
pub fn take_handed_over_fd() -> Option<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // SAFETY: a query without pointers.
    let open = unsafe { libc::fcntl(HANDED_OVER_FD, libc::F_GETFD) } >= 0;
    if !open || TAKEN.swap(true, Ordering::SeqCst) {
        return None;
    }
    // SAFETY: the descriptor is open, the parent left it for this process alone, and the flag
    // above makes this its only owner. The signer opens nothing before it asks for it.
    Some(unsafe { OwnedFd::from_raw_fd(HANDED_OVER_FD) })
}

/// Sets a signal to be ignored.
pub fn ignore_signal(signal: i32) -> io::Result<()> {
    // SAFETY: SIG_IGN installs no handler, so no code of ours runs in signal context.
    match unsafe { libc::signal(signal, libc::SIG_IGN) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Whether a signal is ignored.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero `sigaction` is a valid value, and the call only fills it.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Closes every descriptor from `first` up. The caller owns none of them.
pub fn close_from(first: RawFd) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: by the caller's word no value of this program owns a descriptor of the range.
        if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
            return Ok(());
        }
    }
    close_one_by_one(first)
}

/// For kernels before 5.9 and other systems: as `close_from`, over the table that /proc or /dev
/// shows.
fn close_one_by_one(first: RawFd) -> io::Result<()> {
    for fd in open_descriptors()?.into_iter().filter(|fd| *fd >= first) {
        // SAFETY: as in `close_from`; the list is complete before the first close, and the
        // descriptor that listed it, which is closed already, only makes this call fail.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

fn open_descriptors() -> io::Result<Vec<RawFd>> {
    let table = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let entries = std::fs::read_dir(table)?.filter_map(Result::ok);
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// A descriptor from `first` up that is open. Where the system has no list of them the first 1024
/// are tried.
pub fn first_open_from(first: RawFd) -> Option<RawFd> {
    let listed = open_descriptors().unwrap_or_else(|_| (first..1024).collect());
    // SAFETY: a query without pointers. It leaves out the descriptor of the list itself, closed by now.
    listed.into_iter().find(|fd| *fd >= first && unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0)
}

/// Makes one system call that the filter answers with `errno`, and reports what came back.
#[cfg(target_os = "linux")]
pub fn probe_system_call(number: i64) -> i32 {
    // SAFETY: only called with a number that takes integers and changes nothing (see the caller).
    unsafe { libc::syscall(number as libc::c_long, 0, 0, 0, 0, 0, 0) };
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
