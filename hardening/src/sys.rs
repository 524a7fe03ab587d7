//! The raw system calls of this crate, each behind a function that is safe to call.
//!
//! This is the crate's only module that may use what the compiler cannot check. It decides nothing and
//! reports nothing: the measures do.

#![allow(unsafe_code)]

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
use std::io;

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
use nix::errno::Errno;

/// `struct __user_cap_header_struct` of linux/capability.h.
#[cfg(target_os = "linux")]
#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilitySets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two [`CapabilitySets`], so 64 capabilities.
#[cfg(target_os = "linux")]
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// The sets have 64 bits; the kernel says EINVAL past the last capability that it knows.
#[cfg(target_os = "linux")]
const CAPABILITY_BITS: libc::c_ulong = 64;

/// An argument of prctl(2) that is not used. The C library reads each as a long, whatever was passed.
#[cfg(target_os = "linux")]
const UNUSED: libc::c_ulong = 0;

/// Empties the ambient, effective, permitted and inheritable sets of the calling thread (capabilities(7),
/// capset(2)).
///
/// # Errors
/// What the kernel, or a filter of system calls, says.
#[cfg(target_os = "linux")]
pub fn clear_capabilities() -> io::Result<()> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let none = [CapabilitySets::default(); 2];
    let clear_all = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: PR_CAP_AMBIENT takes integers. capset reads one header and, for version 3, two sets, all of
    // which live until it returns.
    unsafe {
        match Errno::result(libc::prctl(libc::PR_CAP_AMBIENT, clear_all, UNUSED, UNUSED, UNUSED)) {
            // Linux before 4.3 has no ambient set.
            Ok(_) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        Errno::result(libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()))?;
    }
    Ok(())
}

/// Whether the effective, permitted or inheritable set of the calling thread holds anything.
///
/// # Errors
/// What the kernel, or a filter of system calls, says.
#[cfg(target_os = "linux")]
pub fn holds_capabilities() -> io::Result<bool> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut sets = [CapabilitySets::default(); 2];
    // SAFETY: capget writes at most one header and, for version 3, two sets.
    unsafe { Errno::result(libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()))? };
    Ok(sets.iter().any(|half| half.effective | half.permitted | half.inheritable != 0))
}

/// Drops every capability from the bounding set, and says whether that is empty afterwards, which it is
/// not for a process that began with some and lacks CAP_SETPCAP.
#[cfg(target_os = "linux")]
pub fn clear_bounding_capabilities() -> bool {
    let mut empty = true;
    for capability in 0..CAPABILITY_BITS {
        // SAFETY: two prctls that take integers alone.
        unsafe {
            match libc::prctl(libc::PR_CAPBSET_READ, capability, UNUSED, UNUSED, UNUSED) {
                0 => {}
                1 => {
                    empty &= libc::prctl(libc::PR_CAPBSET_DROP, capability, UNUSED, UNUSED, UNUSED) == 0;
                }
                // Past the last one.
                _ if Errno::last() == Errno::EINVAL => break,
                _ => return false,
            }
        }
    }
    empty
}

/// Refuses debuggers, as far as macOS can.
///
/// # Errors
/// What the kernel says.
#[cfg(target_vendor = "apple")]
pub fn deny_attach() -> io::Result<()> {
    // SAFETY: PT_DENY_ATTACH takes no address.
    Errno::result(unsafe { libc::ptrace(libc::PT_DENY_ATTACH, 0, std::ptr::null_mut(), 0) })?;
    Ok(())
}
