//! File descriptors that this process inherited or passes on, by number.
//!
//! Descriptors opened by this process's own code are close-on-exec, as the standard library opens them;
//! one without that flag therefore came through exec. That is what makes taking one by number sound.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

const DESCRIPTOR_DIRECTORY: &str = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };

/// The close-on-exec flag of descriptor `number`; `None` where the number is not open.
fn flags(number: RawFd) -> Option<libc::c_int> {
    // SAFETY: F_GETFD reads a flag and changes nothing, whatever the number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    (flags >= 0).then_some(flags)
}

fn is_inherited(number: RawFd) -> bool {
    flags(number).is_some_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Opens `/dev/null` under those of the numbers 0, 1 and 2 that are closed, so that no later descriptor
/// lands there and is taken for stdin, stdout or stderr.
pub fn fill_standard() -> io::Result<()> {
    for number in 0..=2 {
        if flags(number).is_none() {
            let null = File::options().read(true).write(true).open("/dev/null")?;
            // SAFETY: dup2 onto a number that is closed (just checked, one thread) takes nothing away
            // from anyone. Where `null` itself got the number, dup2 does nothing and F_SETFD below
            // only clears its flag.
            unsafe {
                Errno::result(libc::dup2(null.as_raw_fd(), number))?;
                Errno::result(libc::fcntl(number, libc::F_SETFD, 0))?;
            }
            if null.as_raw_fd() == number {
                let _kept_open = null.into_raw_fd();
            }
        }
    }
    Ok(())
}

/// Closes every descriptor above 2 that came through exec. Those that this process opened stay.
pub fn close_inherited() -> io::Result<()> {
    let mut inherited = Vec::new();
    for entry in fs::read_dir(DESCRIPTOR_DIRECTORY)? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
        inherited.extend(number.filter(|number| *number > 2 && is_inherited(*number)));
    }
    for number in inherited {
        // SAFETY: without close-on-exec it came through exec (module comment) and has no owner in this
        // process; `take_inherited` sets the flag on what it takes.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Takes ownership of descriptor `number`, which must have come through exec, and makes it close-on-exec.
///
/// # Errors
/// `EBADF` where it is not open, was opened by this process, or was taken before.
pub fn take_inherited(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if !is_inherited(number) || TAKEN.swap(true, Ordering::Relaxed) {
        return Err(Errno::EBADF.into());
    }
    // SAFETY: the number is open; without close-on-exec it came through exec and nothing in this process
    // owns it yet, and the flag set here and TAKEN keep it from being taken again.
    let descriptor = unsafe {
        Errno::result(libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC))?;
        OwnedFd::from_raw_fd(number)
    };
    Ok(descriptor)
}

/// Runs `program` in this process with `passed` under the descriptor number `number`, beside 0, 1 and 2.
///
/// Returns only on failure. Whatever had that number before is then gone, so that the caller has nothing
/// left to do but report and exit.
pub fn exec_passing(
    passed: BorrowedFd<'_>,
    number: RawFd,
    program: &CStr,
    args: &[&CStr],
    environment: &[&CStr],
) -> io::Error {
    // SAFETY: dup2 keeps close-on-exec where both numbers are equal, F_SETFD clears it then. Taking the
    // number from another owner is harmless: no code of this image runs again unless execve fails, and
    // then only the caller's report.
    let placed = unsafe {
        Errno::result(libc::dup2(passed.as_raw_fd(), number))
            .and_then(|_| Errno::result(libc::fcntl(number, libc::F_SETFD, 0)))
    };
    let Err(errno) = placed.and_then(|_| nix::unistd::execve(program, args, environment));
    errno.into()
}
