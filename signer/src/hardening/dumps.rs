//! No core dump, and no look into this process by another one of the same user.
//!
//! The first act of the process, before the key is anywhere but in its environment block.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tinyagent_protocol::report::Measure;

use super::refused;

const CORE_LIMIT: &str = "core-limit";
const NOT_DUMPABLE: &str = "not-dumpable";

/// The largest core dump, in bytes. A limit of 0 does not stop a `core_pattern` that pipes to a
/// program; 1 does (core(5), fs/coredump.c).
const CORE_LIMIT_BYTES: u64 = 1;

/// Forbids core dumps, and clears the flag that ptrace and `/proc/PID` go by.
pub fn no_dumps() -> [Measure; 2] {
    [core_limit(), not_dumpable()]
}

fn core_limit() -> Measure {
    // A hard limit of 0 that the parent left cannot be raised; the dumpable flag covers that case.
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
    match crate::sys::process::deny_attach() {
        Ok(()) => Measure::on_as(NOT_DUMPABLE, "PT_DENY_ATTACH"),
        Err(error) => refused(NOT_DUMPABLE, &error),
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn not_dumpable() -> Measure {
    Measure::unavailable(NOT_DUMPABLE, "needs Linux")
}
