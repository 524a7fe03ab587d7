//! Capability sets of the calling thread (capabilities(7), capget(2)).

use std::io;

use nix::errno::Errno;

/// `struct __user_cap_header_struct` of linux/capability.h.
#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

/// `struct __user_cap_data_struct`: 32 capabilities of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two [`Sets`], so 64 capabilities.
const VERSION_3: u32 = 0x2008_0522;

/// The sets have 64 bits; the kernel says EINVAL past the last capability that it knows.
const CAPABILITY_BITS: libc::c_ulong = 64;

/// Empties the ambient, effective, permitted and inheritable sets.
pub fn clear() -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    let none = [Sets::default(); 2];
    // SAFETY: PR_CAP_AMBIENT takes integers. capset reads one header and, for version 3, two sets, all of
    // which live until it returns.
    unsafe {
        match Errno::result(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)) {
            // Linux before 4.3 has no ambient set.
            Ok(_) | Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno.into()),
        }
        Errno::result(libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()))?;
    }
    Ok(())
}

/// Whether the effective, permitted or inheritable set holds anything.
pub fn any_held() -> io::Result<bool> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: capget writes at most one header and, for version 3, two sets.
    unsafe { Errno::result(libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()))? };
    Ok(sets.iter().any(|half| half.effective | half.permitted | half.inheritable != 0))
}

/// Drops every capability from the bounding set; false where some stay, as they do without CAP_SETPCAP.
pub fn clear_bounding() -> bool {
    for capability in 0..CAPABILITY_BITS {
        // SAFETY: takes integers alone.
        match Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }) {
            Ok(_) => {}
            // Past the last one.
            Err(Errno::EINVAL) => return true,
            Err(_) => return false,
        }
    }
    true
}
