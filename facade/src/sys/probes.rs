//! System calls made only to see how they are answered; each one changes nothing where it is permitted.

use std::io;
use std::ptr;

use nix::errno::Errno;

/// The Landlock version of the kernel.
///
/// # Errors
/// `ENOSYS` or `EOPNOTSUPP` where it has none, whatever a container profile says where it is forbidden.
pub fn landlock_version() -> io::Result<i64> {
    /// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h: with a null attribute, asks for the version.
    const VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel takes a null pointer and size 0 and creates nothing.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<libc::c_void>(), 0_usize, VERSION)
    };
    Ok(Errno::result(version)?)
}

/// Makes the system call `number`, which no kernel has, and returns the errno it is answered with.
pub fn unknown_system_call(number: libc::c_long) -> Errno {
    // SAFETY: a number without a system call behind it touches nothing; the filter answers it, or ENOSYS.
    unsafe { libc::syscall(number) };
    Errno::last()
}

/// unshare(2) of nothing, which succeeds and does nothing where it is permitted.
pub fn unshare_nothing() -> io::Result<()> {
    // SAFETY: takes an integer; with no flags it changes nothing.
    Errno::result(unsafe { libc::unshare(0) })?;
    Ok(())
}
