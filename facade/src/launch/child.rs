//! The signer's process as its parent sees it: to be reaped, never signalled.
//!
//! The signer ends by itself when the socket closes, and the kernel ends it with us (its own parent-death
//! signal); the sandbox would refuse a signal anyway.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::sys::process;

/// How often the end of the child is looked for where the kernel has no pidfd (Linux before 5.3).
const FALLBACK_INTERVAL: Duration = Duration::from_millis(5);

/// A child process that can be waited for within a bound.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// Becomes readable when the child has ended.
    ended: Option<OwnedFd>,
}

impl Child {
    /// Takes charge of the child `pid`, which must not have been waited for.
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, ended: process::pidfd_open(pid).ok() }
    }

    /// The same, for a number from the command line; `None` where no such child of this process exists.
    pub(super) fn adopt(pid: Pid) -> Option<Self> {
        is_child(pid).then(|| Self::new(pid))
    }

    /// Its process id; the kernel keeps it from being reused until the child is waited for.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for the child's end and reaps it, at most for `limit`. `None` where it still runs then.
    ///
    /// To be called once its socket is closed, which is what ends it. Blocks this thread.
    pub fn wait_for(&mut self, limit: Duration) -> Option<WaitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {}
                Ok(status) => return Some(status),
                // Reaped before, by an earlier call.
                Err(_) => return None,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            match &self.ended {
                Some(ended) => {
                    let mut ended = [PollFd::new(std::os::fd::AsFd::as_fd(ended), PollFlags::POLLIN)];
                    // Rounded up: a timeout of 0 ms would spin through the last millisecond.
                    let millis = i32::try_from(left.as_millis().saturating_add(1)).unwrap_or(i32::MAX);
                    let _ = poll(&mut ended, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX));
                }
                None => thread::sleep(FALLBACK_INTERVAL.min(left)),
            }
        }
    }
}

/// Whether `pid` is a child of this process that has not been waited for; does not wait for it.
#[cfg(target_os = "linux")]
fn is_child(pid: Pid) -> bool {
    use nix::sys::wait::{Id, waitid};
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), look).is_ok()
}

/// The same where nix has no waitid; a child that has ended is reaped by the question.
#[cfg(not(target_os = "linux"))]
fn is_child(pid: Pid) -> bool {
    waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn spawn(program: &str) -> (std::process::Child, Child) {
        let spawned =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect(program);
        let child = Child::adopt(Pid::from_raw(spawned.id().cast_signed())).expect("it is a child of ours");
        (spawned, child)
    }

    #[test]
    fn a_child_that_ends_is_reaped_and_one_that_does_not_is_left_after_the_limit() {
        let (mut spawned, mut child) = spawn("cat");
        assert_eq!(child.wait_for(Duration::from_millis(20)), None);
        drop(spawned.stdin.take());
        assert_eq!(child.wait_for(Duration::from_secs(20)), Some(WaitStatus::Exited(child.pid(), 0)));
        assert_eq!(child.wait_for(Duration::from_secs(20)), None, "it is reaped once");
    }

    #[test]
    fn the_wait_works_without_a_pidfd_too() {
        let (mut spawned, mut child) = spawn("cat");
        child.ended = None;
        assert_eq!(child.wait_for(Duration::from_millis(20)), None);
        drop(spawned.stdin.take());
        assert_eq!(child.wait_for(Duration::from_secs(20)), Some(WaitStatus::Exited(child.pid(), 0)));
    }

    #[test]
    fn a_process_that_is_no_child_of_ours_is_not_adopted() {
        assert!(Child::adopt(nix::unistd::getppid()).is_none());
    }
}
