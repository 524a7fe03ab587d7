//! System calls that a facade has no use for and an intruder has: a seccomp deny-list.
//!
//! A deny-list, unlike the signer's allow-list, since an async runtime, a resolver and a TLS library call
//! what they like. A denied call fails with EPERM. It closes what Landlock leaves open: other processes
//! (signals, tracing, limits), new processes, namespaces, io_uring, Unix sockets, and ways to connect
//! that pass Landlock's hooks by.

mod denied;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch, sock_filter};
use tinyagent_protocol::report::Measure;

use super::{SECCOMP, refused};
use crate::sys::probes;

/// A number without a system call, answered by our filter with an errno that no kernel and no container
/// profile gives for it: how the filter's presence is seen.
const PROBE: u32 = 0x3fff_ffff;
const PROBE_ANSWER: i32 = libc::ENOANO;

/// System calls of the x32 interface of x86_64 carry this bit and the same architecture value, so that a
/// list of plain numbers does not see them (arch/x86/include/uapi/asm/unistd.h).
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// Installs the filter for this thread and those it starts later, and tests it.
pub fn restrict() -> Measure {
    let program = match program() {
        Ok(program) => program,
        Err(error) => return Measure::unavailable(SECCOMP, error.to_string()),
    };
    match seccompiler::apply_filter(&program) {
        Ok(()) => test(),
        Err(seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error)) => {
            refused(SECCOMP, &error)
        }
        Err(error) => Measure::failed(SECCOMP, error.to_string()),
    }
}

fn test() -> Measure {
    let answer = probes::unknown_system_call(libc::c_long::from(PROBE));
    if answer as i32 != PROBE_ANSWER {
        return Measure::failed(SECCOMP, format!("the probe was answered with {answer:?}"));
    }
    match probes::unshare_nothing().map_err(|error| error.raw_os_error()) {
        Err(Some(libc::EPERM)) => Measure::on(SECCOMP),
        other => Measure::failed(SECCOMP, format!("unshare was answered with {other:?}")),
    }
}

/// The filter as the kernel takes it. A call of another architecture (32-bit code) ends the process.
fn program() -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = denied::system_calls(std::process::id())?;
    let denial = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let list: BpfProgram = SeccompFilter::new(denied, SeccompAction::Allow, denial, arch)?.try_into()?;
    Ok(answers_of_their_own().into_iter().chain(list).collect())
}

/// What stands before the list: calls that get another answer than the list's one errno. They look at the
/// number alone; a call of another architecture that happens to have it is denied as well.
fn answers_of_their_own() -> Vec<sock_filter> {
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let answer =
        |errno: i32| step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs());
    let unless = |comparison: u32, k| step(libc::BPF_JMP | comparison | libc::BPF_K, 0, 1, k);
    vec![
        // The number is the first word of struct seccomp_data (linux/seccomp.h).
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        // Its flags lie in memory, out of a filter's sight; libc falls back to clone on this errno.
        unless(libc::BPF_JEQ, libc::SYS_clone3 as u32),
        answer(libc::ENOSYS),
        unless(libc::BPF_JEQ, PROBE),
        answer(PROBE_ANSWER),
        #[cfg(target_arch = "x86_64")]
        unless(libc::BPF_JGE, X32_BIT),
        #[cfg(target_arch = "x86_64")]
        answer(libc::EPERM),
    ]
}
