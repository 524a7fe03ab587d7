//! No core dump of this process, and no look into it by another process of the same user.
//!
//! The dumpable flag is what `/proc/PID/mem`, `environ` and ptrace are checked against; execve sets it
//! again, so each stage has to clear it for itself.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tinyagent_protocol::report::Measure;

use crate::refused;

const CORE_LIMIT: &str = "core-limit";
const NOT_DUMPABLE: &str = "not-dumpable";

/// Largest core dump in bytes. Not 0: for a `core_pattern` that pipes to a program the kernel ignores the
/// limit, except that it treats 1 as "no dump" (fs/coredump.c).
const CORE_LIMIT_BYTES: u64 = 1;

/// Sets RLIMIT_CORE to 1 for good and clears the dumpable flag. To be called first, and after each execve.
pub fn forbid_core_dumps() -> [Measure; 2] {
    [core_limit(), not_dumpable()]
}

fn core_limit() -> Measure {
    // A hard limit of 0 that the parent left cannot be raised to 1 without privilege, and may stay: a
    // process that is not dumpable leaves no core either way.
    let set = setrlimit(Resource::RLIMIT_CORE, CORE_LIMIT_BYTES, CORE_LIMIT_BYTES)
        .or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0));
    match set.and_then(|()| getrlimit(Resource::RLIMIT_CORE)) {
        Ok((CORE_LIMIT_BYTES, CORE_LIMIT_BYTES)) => Measure::on(CORE_LIMIT),
        Ok((0, 0)) => Measure::on_as(CORE_LIMIT, "0, left by the parent; does not bind a piped core_pattern"),
        Ok((soft, hard)) => Measure::failed(CORE_LIMIT, format!("the limit reads back as {soft}:{hard}")),
        Err(errno) => refused(CORE_LIMIT, &errno.into()),
    }
}

#[cfg(target_os = "linux")]
fn not_dumpable() -> Measure {
    use nix::sys::prctl;
    match prctl::set_dumpable(false).and_then(|()| prctl::get_dumpable()) {
        Ok(false) => Measure::on(NOT_DUMPABLE),
        Ok(true) => Measure::failed(NOT_DUMPABLE, "the flag reads back as set"),
        Err(errno) => refused(NOT_DUMPABLE, &errno.into()),
    }
}

#[cfg(target_vendor = "apple")]
fn not_dumpable() -> Measure {
    match crate::sys::deny_attach() {
        Ok(()) => Measure::on_as(NOT_DUMPABLE, "PT_DENY_ATTACH"),
        Err(error) => refused(NOT_DUMPABLE, &error),
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn not_dumpable() -> Measure {
    Measure::unavailable(NOT_DUMPABLE, "needs Linux")
}
