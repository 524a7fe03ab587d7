//! The raw system calls that the sandbox's probe attempts.

#![allow(unsafe_code)]

use nix::errno::Errno;

/// Makes a system call with integer arguments; a missing one is 0, which for a pointer is null.
pub fn call(number: i64, args: &[i64]) -> Result<i64, Errno> {
    let arg = |index: usize| args.get(index).copied().unwrap_or(0);
    // SAFETY: the attempts (attempts.rs) pass integers and null pointers, which the kernel checks itself.
    let result = unsafe { libc::syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) };
    Errno::result(result)
}

/// fork(2), whose child ends at once.
#[cfg(target_arch = "x86_64")]
pub fn fork() -> Result<i64, Errno> {
    // SAFETY: the child does nothing but end, without running destructors or handlers.
    let result = unsafe { libc::syscall(libc::SYS_fork) };
    if result == 0 {
        // SAFETY: ends the child alone.
        unsafe { libc::_exit(0) };
    }
    Errno::result(result)
}
