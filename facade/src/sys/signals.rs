//! Signal dispositions and mask, put back to what a fresh process has.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use nix::sys::signal::SigSet;

/// The highest signal number of Linux (signal(7)); other systems have fewer.
const LAST_SIGNAL: libc::c_int = 64;

/// Unblocks every signal and gives the default disposition to each that the host left ignored.
///
/// SIGPIPE stays as it is: the Rust runtime ignores it before `main`, and writes to a closed stdout are
/// answered by an error instead. So do the two that libc keeps for itself.
pub fn reset() -> io::Result<()> {
    for signal in (1..=LAST_SIGNAL).filter(|signal| *signal != libc::SIGPIPE) {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: a null new action only asks for the present one, which on success fills `action`; it is
        // read after that success alone. Setting SIG_DFL runs no code of ours.
        unsafe {
            if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) != 0 {
                continue;
            }
            let mut action = action.assume_init();
            if action.sa_sigaction == libc::SIG_IGN {
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
    }
    SigSet::empty().thread_set_mask()?;
    Ok(())
}
