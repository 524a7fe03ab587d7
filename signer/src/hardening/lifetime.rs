//! The signer ends with its facade, and not before.
//!
//! The end of the socket is the main signal; this module adds the kernel's own, and keeps a Ctrl-C
//! that goes to the whole group from ending the signer under a call in flight.

use tinyagent_protocol::report::Measure;

use crate::sys::process::{ignore_signal, is_ignored};

const SIGNALS: &str = "signals";

/// The parent ended before its death could be watched; there is nobody to sign for.
#[derive(Debug, thiserror::Error)]
#[error("the process that started the signer has ended")]
pub struct ParentGone;

/// Ignores the signals that a terminal or a host sends to a whole group, and SIGPIPE.
pub fn ignore_signals() -> Measure {
    for (signal, name) in [
        (libc::SIGINT, "SIGINT"),
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGPIPE, "SIGPIPE"),
    ] {
        if ignore_signal(signal).is_err() || !is_ignored(signal) {
            return Measure::failed(SIGNALS, format!("{name} is not ignored"));
        }
    }
    Measure::on(SIGNALS)
}

/// Asks the kernel to kill the signer when its parent ends, then makes sure that the parent is
/// still the expected one: it may have ended before the request.
pub fn die_with(parent: Option<i32>) -> Result<Measure, ParentGone> {
    let measure = death_signal(parent.is_some());
    let now = nix::unistd::getppid().as_raw();
    match parent {
        Some(expected) if expected != now => Err(ParentGone),
        _ => Ok(measure),
    }
}

const PARENT_DEATH: &str = "parent-death";

#[cfg(target_os = "linux")]
fn death_signal(compared: bool) -> Measure {
    use nix::sys::prctl;
    use nix::sys::signal::Signal;

    match prctl::set_pdeathsig(Signal::SIGKILL).and_then(|()| prctl::get_pdeathsig()) {
        Ok(Some(Signal::SIGKILL)) if compared => Measure::on(PARENT_DEATH),
        Ok(Some(Signal::SIGKILL)) => Measure::on_as(PARENT_DEATH, "without --parent to compare with"),
        Ok(_) => Measure::failed(PARENT_DEATH, "the signal reads back as another one"),
        Err(errno) => tinyagent_hardening::refused(PARENT_DEATH, &errno.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn death_signal(_: bool) -> Measure {
    Measure::unavailable(PARENT_DEATH, "needs Linux; the end of the socket still ends the signer")
}
