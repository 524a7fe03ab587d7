//! No privileges, and none to gain.
//!
//! For root too: with CAP_PERFMON or CAP_SYS_ADMIN a process passes Landlock's hook for `/proc`.

use tinyagent_protocol::report::Measure;

const NO_NEW_PRIVS: &str = "no-new-privs";
const CAPABILITIES: &str = "capabilities";

/// Makes sure that no program started later could gain privileges.
#[cfg(target_os = "linux")]
pub fn no_new_privs() -> Measure {
    use nix::sys::prctl;
    match prctl::set_no_new_privs().and_then(|()| prctl::get_no_new_privs()) {
        Ok(true) => Measure::on(NO_NEW_PRIVS),
        Ok(false) => Measure::failed(NO_NEW_PRIVS, "the flag reads back as clear"),
        Err(errno) => super::refused(NO_NEW_PRIVS, &errno.into()),
    }
}

/// Drops every capability from every set.
#[cfg(target_os = "linux")]
pub fn no_capabilities() -> Measure {
    use crate::sys::process::{
        clear_ambient_capabilities, clear_bounding_capabilities, clear_capabilities, has_capabilities,
    };

    // The bounding set first, which takes a capability to empty.
    let bounding_empty = clear_bounding_capabilities();
    let cleared = clear_ambient_capabilities().and_then(|()| clear_capabilities());
    match cleared.and_then(|()| has_capabilities()) {
        Ok(false) if bounding_empty => Measure::on(CAPABILITIES),
        Ok(false) => {
            Measure::on_as(CAPABILITIES, "none held; the bounding set stays, inert under no-new-privs")
        }
        Ok(true) => Measure::failed(CAPABILITIES, "some read back as held"),
        Err(error) => super::refused(CAPABILITIES, &error),
    }
}

/// As on Linux, for systems without the flag.
#[cfg(not(target_os = "linux"))]
pub fn no_new_privs() -> Measure {
    Measure::unavailable(NO_NEW_PRIVS, "needs Linux")
}

/// As on Linux, for systems without capabilities.
#[cfg(not(target_os = "linux"))]
pub fn no_capabilities() -> Measure {
    Measure::unavailable(CAPABILITIES, "needs Linux")
}
