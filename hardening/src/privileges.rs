//! No privileges, and no way to gain any.
//!
//! For root too: with CAP_PERFMON or CAP_SYS_ADMIN a process passes Landlock's hooks for `/proc`.

use tinyagent_protocol::report::Measure;

const NO_NEW_PRIVS: &str = "no-new-privs";
const CAPABILITIES: &str = "capabilities";

/// Promises the kernel that no execve grants anything (PR_SET_NO_NEW_PRIVS); Landlock and seccomp ask
/// for it.
#[cfg(target_os = "linux")]
pub fn no_new_privs() -> Measure {
    use nix::sys::prctl;
    match prctl::set_no_new_privs().and_then(|()| prctl::get_no_new_privs()) {
        Ok(true) => Measure::on(NO_NEW_PRIVS),
        Ok(false) => Measure::failed(NO_NEW_PRIVS, "the flag reads back as clear"),
        Err(errno) => crate::refused(NO_NEW_PRIVS, &errno.into()),
    }
}

/// Empties every capability set.
#[cfg(target_os = "linux")]
pub fn no_capabilities() -> Measure {
    use crate::sys::{clear_bounding_capabilities, clear_capabilities, holds_capabilities};

    // The bounding set first: dropping from it takes CAP_SETPCAP.
    let bounding_is_empty = clear_bounding_capabilities();
    match clear_capabilities().and_then(|()| holds_capabilities()) {
        Ok(false) if bounding_is_empty => Measure::on(CAPABILITIES),
        Ok(false) => Measure::on_as(
            CAPABILITIES,
            "none held; the bounding set stays, without effect under no-new-privs",
        ),
        Ok(true) => Measure::failed(CAPABILITIES, "some read back as held"),
        Err(error) => crate::refused(CAPABILITIES, &error),
    }
}

/// Not offered by this system.
#[cfg(not(target_os = "linux"))]
pub fn no_new_privs() -> Measure {
    Measure::unavailable(NO_NEW_PRIVS, "needs Linux")
}

/// Not offered by this system.
#[cfg(not(target_os = "linux"))]
pub fn no_capabilities() -> Measure {
    Measure::unavailable(CAPABILITIES, "needs Linux")
}
