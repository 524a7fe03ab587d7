//! The system calls that a signer may make from here on; any other one kills it.
//!
//! Killing, not an error: a Rust program that panics under errors hangs instead of ending.

use tinyagent_protocol::report::Measure;

use super::Channel;

const SECCOMP: &str = "seccomp";

/// Installs the allow-list and makes one call that only this filter answers as it does.
#[cfg(target_os = "linux")]
pub fn seccomp(channel: Channel, log: bool) -> Measure {
    let program = match filter::program(channel, log) {
        Ok(program) => program,
        Err(error) => return Measure::unavailable(SECCOMP, error.to_string()),
    };
    match seccompiler::apply_filter(&program) {
        Ok(()) => match crate::sys::process::probe_system_call(filter::PROBE) {
            filter::PROBE_ANSWER => Measure::on(SECCOMP),
            other => Measure::failed(SECCOMP, format!("the probe was answered with errno {other}")),
        },
        Err(seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error)) => {
            tinyagent_hardening::refused(SECCOMP, &error)
        }
        Err(error) => Measure::failed(SECCOMP, error.to_string()),
    }
}

/// As on Linux, for systems without seccomp.
#[cfg(not(target_os = "linux"))]
pub fn seccomp(_: Channel, _: bool) -> Measure {
    Measure::unavailable(SECCOMP, "needs Linux")
}

#[cfg(target_os = "linux")]
mod filter {
    use std::collections::BTreeMap;

    use seccompiler::{
        BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule, TargetArch, sock_filter,
    };

    use super::Channel;
    use crate::sys::process::HANDED_OVER_FD;

    /// A call that the filter answers with an errno that nothing else gives for it; it takes one
    /// integer and changes nothing.
    pub const PROBE: i64 = libc::SYS_getpgid;
    /// That errno.
    pub const PROBE_ANSWER: i32 = libc::ENOANO;

    /// What the C library's `rename` calls.
    #[cfg(target_arch = "x86_64")]
    const RENAME: i64 = libc::SYS_rename;
    /// `renameat` of asm-generic/unistd.h, which the libc crate does not name for every C library.
    #[cfg(target_arch = "aarch64")]
    const RENAME: i64 = 38;
    /// Newer architectures have `renameat2` alone.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    const RENAME: i64 = libc::SYS_renameat2;

    /// Allowed system calls, each with the conditions of which one must hold; none means always.
    type Allowed = BTreeMap<i64, Vec<SeccompRule>>;

    /// The filter as the kernel takes it.
    pub fn program(channel: Channel, log: bool) -> Result<BpfProgram, BackendError> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let mut allowed = Allowed::new();
        everywhere(&mut allowed)?;
        match channel {
            Channel::Inherited => inherited(&mut allowed)?,
            Channel::Stdio => stdio(&mut allowed)?,
            Channel::Listening => listening(&mut allowed)?,
        }
        if log {
            log_file(&mut allowed)?;
        }
        let filter = SeccompFilter::new(allowed, SeccompAction::KillProcess, SeccompAction::Allow, arch)?;
        let rest: BpfProgram = filter.try_into()?;
        Ok(answer_to_probe().into_iter().chain(rest).collect())
    }

    /// Three instructions before the list: the probe's number gives the probe's errno. (A call of
    /// another architecture with that number gets the errno too, which grants nothing.)
    fn answer_to_probe() -> [sock_filter; 3] {
        let step = |code: u32, jf, k| sock_filter { code: code as u16, jt: 0, jf, k };
        [
            // The number is the first word of struct seccomp_data (linux/seccomp.h).
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, PROBE as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | PROBE_ANSWER as u32),
        ]
    }

    /// Memory that is not executable, randomness, time, letting others run, and the end.
    fn everywhere(allowed: &mut Allowed) -> Result<(), BackendError> {
        for number in [
            libc::SYS_getrandom,
            libc::SYS_clock_gettime,
            libc::SYS_sched_yield,
            libc::SYS_exit_group,
            libc::SYS_rt_sigreturn,
            libc::SYS_brk,
            libc::SYS_munmap,
            libc::SYS_mremap,
            // Only interrupted calls that the kernel restarts by itself.
            libc::SYS_restart_syscall,
        ] {
            allowed.insert(number, vec![]);
        }
        let no_exec = SeccompCondition::new(2, Dword, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0)?;
        let anonymous = libc::MAP_ANONYMOUS as u64;
        let anonymous = SeccompCondition::new(3, Dword, SeccompCmpOp::MaskedEq(anonymous), anonymous)?;
        // Wiping the key page on a failed start, and the allocators' guard pages.
        allowed.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![no_exec.clone()])?]);
        allowed.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![no_exec, anonymous])?]);
        let advice = [libc::MADV_DONTNEED, libc::MADV_FREE];
        let advice: Result<_, _> = advice.into_iter().map(|advice| argument(2, advice)).collect();
        allowed.insert(libc::SYS_madvise, advice?);
        // The panic hook's line.
        allowed.insert(libc::SYS_write, vec![argument(0, libc::STDERR_FILENO)?]);
        Ok(())
    }

    /// The one socket.
    fn inherited(allowed: &mut Allowed) -> Result<(), BackendError> {
        allowed.insert(libc::SYS_recvfrom, vec![argument(0, HANDED_OVER_FD)?]);
        allowed.insert(libc::SYS_sendto, vec![argument(0, HANDED_OVER_FD)?]);
        Ok(())
    }

    /// Standard input and output.
    fn stdio(allowed: &mut Allowed) -> Result<(), BackendError> {
        allowed.insert(libc::SYS_read, vec![argument(0, libc::STDIN_FILENO)?]);
        allowed.entry(libc::SYS_write).or_default().push(argument(0, libc::STDOUT_FILENO)?);
        Ok(())
    }

    /// Connections come and go, so their descriptors are not known beforehand.
    fn listening(allowed: &mut Allowed) -> Result<(), BackendError> {
        for number in [
            libc::SYS_accept4,
            libc::SYS_ppoll,
            libc::SYS_recvfrom,
            libc::SYS_sendto,
            libc::SYS_getsockopt,
            libc::SYS_close,
        ] {
            allowed.insert(number, vec![]);
        }
        // Newer architectures have ppoll alone.
        #[cfg(target_arch = "x86_64")]
        allowed.insert(libc::SYS_poll, vec![]);
        looked_at_when_closed(allowed)
    }

    /// What appending to the audit log and rotating it needs; Landlock says where.
    fn log_file(allowed: &mut Allowed) -> Result<(), BackendError> {
        for number in [
            libc::SYS_openat,
            libc::SYS_close,
            libc::SYS_write,
            libc::SYS_fdatasync,
            libc::SYS_fstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_ftruncate,
            libc::SYS_flock,
            RENAME,
            libc::SYS_unlinkat,
        ] {
            allowed.insert(number, vec![]);
        }
        // The C library of x86_64 calls the old one.
        #[cfg(target_arch = "x86_64")]
        allowed.insert(libc::SYS_unlink, vec![]);
        looked_at_when_closed(allowed)
    }

    /// Debug builds of the standard library look at a descriptor before they close it.
    fn looked_at_when_closed(allowed: &mut Allowed) -> Result<(), BackendError> {
        allowed.insert(libc::SYS_fcntl, vec![argument(1, libc::F_GETFD)?]);
        Ok(())
    }

    /// The rule that an integer argument has a value.
    fn argument(index: u8, value: i32) -> Result<SeccompRule, BackendError> {
        SeccompRule::new(vec![SeccompCondition::new(index, Dword, SeccompCmpOp::Eq, value as u64)?])
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use tinyagent_protocol::report::State;

    use super::*;
    use crate::sys::process::exit;

    /// What a signer's code might be made to do, each by its name.
    fn attempt(what: &str) {
        match what {
            "nothing" => {}
            "open" => drop(File::open("/etc/passwd")),
            "connect" => drop(std::net::TcpStream::connect(("127.0.0.1", 9))),
            "socket" => drop(std::os::unix::net::UnixStream::pair()),
            "exec" => drop(Command::new("/bin/true").status()),
            "signal" => drop(nix::sys::signal::kill(nix::unistd::getpid(), None)),
            "thread" => drop(std::thread::spawn(|| ()).join()),
            "ptrace" => drop(nix::sys::ptrace::attach(nix::unistd::Pid::from_raw(1))),
            "receive elsewhere" => {
                let _ = nix::sys::socket::recv(0, &mut [0], nix::sys::socket::MsgFlags::empty());
            }
            "read" => drop(nix::unistd::read(std::io::stdin(), &mut [0])),
            other => panic!("{other} is not in the table"),
        }
    }

    #[test]
    #[ignore = "no test: the one below starts it as a process of its own"]
    fn process_that_attempts() {
        let what = std::env::var("ATTEMPT").expect("started by a test");
        let measure = seccomp(Channel::Inherited, false);
        if measure.state != State::On {
            exit(99);
        }
        attempt(&what);
        exit(0)
    }

    #[test]
    fn a_system_call_outside_the_list_kills_the_process_at_once() {
        let own = std::env::current_exe().unwrap();
        let name = "hardening::syscalls::tests::process_that_attempts";
        let end = |what: &str| {
            let mut command = Command::new(&own);
            let command = command.args(["--ignored", "--exact", name]).env("ATTEMPT", what);
            command.output().unwrap().status
        };
        match end("nothing").code() {
            Some(0) => {}
            Some(99) => return println!("skipped: seccomp cannot be installed here"),
            other => panic!("the filter kills a process that does nothing: {other:?}"),
        }
        for what in
            ["open", "connect", "socket", "exec", "signal", "thread", "ptrace", "receive elsewhere", "read"]
        {
            assert_eq!(end(what).signal(), Some(libc::SIGSYS), "{what}");
        }
    }

    #[test]
    fn the_filter_exists_for_each_channel_and_is_short_enough_for_the_kernel() {
        for channel in [Channel::Inherited, Channel::Stdio, Channel::Listening] {
            for log in [false, true] {
                let length = filter::program(channel, log).unwrap().len();
                assert!(length > 30 && length < 4096, "{channel:?} {length}");
            }
        }
    }
}
