//! The self-test of what matters most: this process cannot read the signer's memory.
//!
//! It tries, and reports what happened. It never reads anything: a success is the failure.

use nix::unistd::Pid;
use tinyagent_protocol::report::Measure;

const SIGNER_MEMORY: &str = "signer-memory";

/// Tries to open the memory of `signer` and to read from it. `Err` says how it was in reach.
#[cfg(target_os = "linux")]
pub fn out_of_reach(signer: Pid) -> Result<(), &'static str> {
    use std::fs::File;
    use std::io::IoSliceMut;

    use nix::errno::Errno;
    use nix::sys::uio::{RemoteIoVec, process_vm_readv};

    match File::open(format!("/proc/{signer}/mem")).map_err(|error| error.raw_os_error()) {
        // Not found: no /proc here, or one that hides others; the second attempt needs none.
        Err(Some(libc::EACCES | libc::EPERM | libc::ENOENT)) => {}
        Err(_) => return Err("opening its memory failed for another reason than permission"),
        Ok(_) => return Err("its memory can be opened"),
    }
    // No program maps its first page, so that an attempt which is permitted ends with EFAULT.
    let mut byte = [0];
    let first_page = [RemoteIoVec { base: 0, len: byte.len() }];
    match process_vm_readv(signer, &mut [IoSliceMut::new(&mut byte)], &first_page) {
        Err(Errno::EPERM | Errno::ENOSYS) => Ok(()),
        Err(Errno::ESRCH) => Err("it is no longer running"),
        Ok(_) | Err(_) => Err("process_vm_readv is permitted"),
    }
}

/// Not tested on this system.
#[cfg(not(target_os = "linux"))]
pub fn out_of_reach(_signer: Pid) -> Result<(), &'static str> {
    Err("needs Linux")
}

/// The measure from the attempts made without Landlock and seccomp, and with them.
pub fn measure(before: Result<(), &str>, after: Result<(), &str>) -> Measure {
    match (before, after) {
        (Ok(()), Ok(())) => Measure::on(SIGNER_MEMORY),
        (_, Err(why)) => Measure::failed(SIGNER_MEMORY, why),
        (Err(why), Ok(())) => Measure::failed(SIGNER_MEMORY, format!("before Landlock and seccomp, {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tinyagent_protocol::report::State;

    #[test]
    fn only_two_denials_count() {
        assert_eq!(measure(Ok(()), Ok(())).state, State::On);
        for (before, after) in [(Err("x"), Ok(())), (Ok(()), Err("x")), (Err("x"), Err("x"))] {
            assert_eq!(measure(before, after).state, State::Failed);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn an_ordinary_child_is_seen_to_be_in_reach() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("there is a cat");
        let reached = out_of_reach(Pid::from_raw(child.id().cast_signed()));
        drop(child.stdin.take());
        child.wait().expect("it ends with its input");
        assert_eq!(reached, Err("its memory can be opened"));
    }
}
