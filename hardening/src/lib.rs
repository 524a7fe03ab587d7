//! What both processes give up alike: core dumps, being looked into by others of their user, privileges.
//!
//! Each measure tests its own effect and reports it. None decides whether a gap is fatal, and what only
//! one process gives up (files, network, system calls) is that process's own.

mod core_dumps;
mod privileges;
mod sys;

use std::io;

use nix::errno::Errno;
use tinyagent_protocol::report::Measure;

pub use core_dumps::forbid_core_dumps;
pub use privileges::{no_capabilities, no_new_privs};

/// A measure that a system call refused: `unavailable` where the kernel or platform does not have it,
/// `failed` where it has it and said no.
pub fn refused(measure: &str, error: &io::Error) -> Measure {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(errno @ (Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL)) => {
            Measure::unavailable(measure, format!("this kernel does not offer it ({errno:?})"))
        }
        Some(errno) => Measure::failed(measure, format!("the kernel or a container refused it ({errno:?})")),
        None if error.kind() == io::ErrorKind::Unsupported => {
            Measure::unavailable(measure, error.to_string())
        }
        None => Measure::failed(measure, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use tinyagent_protocol::report::State;

    use super::*;

    #[test]
    fn what_is_not_offered_and_what_is_refused_are_told_apart() {
        let state = |error| refused("x", &error).state;
        assert_eq!(state(io::Error::from_raw_os_error(libc::ENOSYS)), State::Unavailable);
        assert_eq!(state(io::ErrorKind::Unsupported.into()), State::Unavailable);
        assert_eq!(state(io::Error::from_raw_os_error(libc::EPERM)), State::Failed);
        assert_eq!(state(io::Error::other("no reason")), State::Failed);
    }
}
