//! The way from the host's exec to a facade that never held the key: spawn the signer, erase the key,
//! exec this program again.
//!
//! A run reads: [`prepare`], [`spawn_signer`] (or a connection to a signer that runs under another user),
//! [`scrub`], the signer's description awaited, [`exec_second_stage`]; and in the new image
//! [`second_stage`]. All of it runs on one thread, before any runtime. It never copies the key: the
//! signer gets the environment entry itself, by pointer.

mod child;
mod environment;
mod error;
mod second_stage;
mod separate;
mod spawn;

pub use child::Child;
pub use environment::scrub;
pub use error::LaunchError;
pub use second_stage::{Stage, exec_second_stage, second_stage};
pub use separate::connect_signer;
pub use spawn::{SIGNER_PROGRAM, SignerLink, signer_path, spawn_signer};

use crate::sys::{descriptors, signals};

/// The descriptor number under which both the signer and the second stage find their socket.
const SOCKET_NUMBER: i32 = 3;

/// Puts this process into a known state, whatever the host left: not readable by other processes of its
/// user and without core dumps, 0 to 2 open, no other inherited descriptor, every signal unblocked and
/// none ignored but SIGPIPE. To be called first in `main`; a second call changes nothing.
///
/// # Errors
/// When `/dev/null` or the list of open descriptors (`/proc/self/fd`) cannot be opened.
pub fn prepare() -> Result<(), LaunchError> {
    // Its outcome is reported by the second stage, which has to do it again after the exec.
    let _ = tinyagent_hardening::forbid_core_dumps();
    descriptors::fill_standard().map_err(LaunchError::Descriptors)?;
    descriptors::close_inherited().map_err(LaunchError::Descriptors)?;
    signals::reset().map_err(LaunchError::Signals)
}
