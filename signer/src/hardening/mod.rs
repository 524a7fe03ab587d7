//! What the signer gives up before it reads its first request.
//!
//! Each measure is a small function that tests its own effect and reports it; none of them decides
//! whether a gap is fatal, which `--require-hardening` does. Order matters and is kept here.

mod descriptors;
mod files;
mod lifetime;
mod memory;
mod syscalls;

use std::path::Path;

use tinyagent_hardening::{no_capabilities, no_new_privs};
use tinyagent_protocol::report::{Measure, State};

use crate::custody::Keeping;

pub use descriptors::only_own_descriptors;
pub use lifetime::{ParentGone, ignore_signals};
pub use syscalls::seccomp;

/// Which way requests reach the signer; each needs other system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// A socket left by the launcher at descriptor 3.
    Inherited,
    /// JSON lines on standard input and output.
    Stdio,
    /// A listening socket, and connections made to it.
    Listening,
}

/// Everything that needs neither the key nor an open file any more: parent, privileges, files,
/// system calls. Called last, with the key loaded and every file that is needed open.
pub fn close_in(
    channel: Channel,
    parent: Option<i32>,
    keeping: &Keeping,
    log_directory: Option<&Path>,
) -> Result<Vec<Measure>, ParentGone> {
    let mut report = memory::key_page(keeping);
    report.push(no_new_privs());
    report.push(no_capabilities());
    if channel == Channel::Inherited {
        // After the capabilities: a change of credentials may clear the death signal (prctl(2)).
        report.push(lifetime::die_with(parent)?);
    }
    report.push(files::landlock(log_directory));
    report.push(seccomp(channel, log_directory.is_some()));
    Ok(report)
}

/// The measures that `--require-hardening` insists on and that are not in force. `memfd-secret` may
/// be missing where the page is locked instead; Landlock may be missing where the uid is not 0,
/// since seccomp lets no file be opened and an ordinary uid owns none of root's. Whether it is 0 is
/// for the caller to know, since asking is no longer among the system calls that are left.
pub fn missing(report: &[Measure], root: bool) -> Vec<&Measure> {
    let optional = |name: &str| name == memory::MEMFD_SECRET || (name == files::LANDLOCK && !root);
    report.iter().filter(|m| m.state != State::On && !optional(&m.measure)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_measures_may_be_missing() {
        let report = [
            Measure::on("no-new-privs"),
            Measure::unavailable("memfd-secret", "ENOSYS"),
            Measure::failed("seccomp", "EPERM"),
            Measure::unavailable("memory-lock", "ENOMEM"),
        ];
        let names: Vec<_> = missing(&report, false).into_iter().map(|m| m.measure.as_str()).collect();
        assert_eq!(names, ["seccomp", "memory-lock"]);
    }

    #[test]
    fn landlock_is_required_of_root_alone() {
        let report = [Measure::unavailable("landlock", "ENOSYS")];
        assert!(missing(&report, false).is_empty());
        assert_eq!(missing(&report, true).len(), 1);
    }
}
