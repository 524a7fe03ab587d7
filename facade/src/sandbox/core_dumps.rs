//! No core dump of this process, and no look into it by another process of the same user.
//!
//! The dumpable flag is what `/proc/PID/mem`, `environ` and ptrace are checked against; execve sets it
//! again, so each stage has to clear it for itself.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tinyagent_protocol::report::Measure;

const LIMIT: &str = "core-limit";
const DUMPABLE: &str = "not-dumpable";

/// Largest core dump in bytes. Not 0: for a `core_pattern` that pipes to a program the kernel ignores the
/// limit, except that it treats 1 as "no dump" (fs/coredump.c).
const CORE_LIMIT_BYTES: u64 = 1;

/// Sets RLIMIT_CORE to 1 for good and clears the dumpable flag.
pub fn forbid_core_dumps() -> [Measure; 2] {
    [limit(), dumpable()]
}

fn limit() -> Measure {
    // A hard limit of 0 set by the host cannot be raised to 1 without privilege, and may stay.
    let set = setrlimit(Resource::RLIMIT_CORE, CORE_LIMIT_BYTES, CORE_LIMIT_BYTES)
        .or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0));
    match set.and_then(|()| getrlimit(Resource::RLIMIT_CORE)) {
        Ok((CORE_LIMIT_BYTES, CORE_LIMIT_BYTES)) => Measure::on(LIMIT),
        Ok((0, 0)) => Measure::on_as(LIMIT, "0, set by the host; a piped core_pattern still runs"),
        Ok((soft, hard)) => Measure::failed(LIMIT, format!("limits read back as {soft} and {hard}")),
        Err(errno) => Measure::failed(LIMIT, errno.desc()),
    }
}

#[cfg(target_os = "linux")]
fn dumpable() -> Measure {
    use nix::sys::prctl;
    match prctl::set_dumpable(false).and_then(|()| prctl::get_dumpable()) {
        Ok(false) => Measure::on(DUMPABLE),
        Ok(true) => Measure::failed(DUMPABLE, "the flag reads back as set"),
        Err(errno) => Measure::failed(DUMPABLE, errno.desc()),
    }
}

#[cfg(not(target_os = "linux"))]
fn dumpable() -> Measure {
    Measure::unavailable(DUMPABLE, "only Linux has the dumpable flag")
}
