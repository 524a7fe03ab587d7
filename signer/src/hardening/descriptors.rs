//! Only the signer's own descriptors stay open.
//!
//! A descriptor left by the host could be its log, its config file with the key in it, or a socket.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::RawFd;

use tinyagent_hardening::refused;
use tinyagent_protocol::report::Measure;

use super::Channel;
use crate::sys::process::{HANDED_OVER_FD, close_from, first_open_from};

const DESCRIPTORS: &str = "descriptors";

/// Closes every descriptor but the standard three and the one handed over, if any. A child of the
/// launcher also gets `/dev/null` for the standard three, whatever its parent left there.
pub fn only_own_descriptors(channel: Channel, handed_over: bool) -> Measure {
    let first: RawFd = if handed_over { HANDED_OVER_FD + 1 } else { HANDED_OVER_FD };
    let silenced = if channel == Channel::Inherited { silence_standard_streams() } else { Ok(()) };
    if let Err(error) = silenced.and_then(|()| close_from(first)) {
        return refused(DESCRIPTORS, &error);
    }
    match first_open_from(first) {
        None => Measure::on(DESCRIPTORS),
        Some(fd) => Measure::failed(DESCRIPTORS, format!("descriptor {fd} is still open")),
    }
}

fn silence_standard_streams() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}
