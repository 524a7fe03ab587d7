//! System calls that a facade has no use for and an intruder has: a seccomp deny-list.
//!
//! A deny-list, unlike the signer's allow-list, since an async runtime, a resolver and a TLS library call
//! what they like. A denied call fails with EPERM. It closes what Landlock leaves open: other processes
//! (signals, tracing, limits), new processes, namespaces, io_uring, Unix sockets, and ways to connect
//! that pass Landlock's hooks by.

mod denied;

use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompFilter, TargetArch, sock_filter};
use tinyagent_hardening::refused;
use tinyagent_protocol::report::Measure;

use super::SECCOMP;
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
///
/// At installation the kernel runs the filter for every number that it has, so that the steps which an
/// ordinary call takes through it are most of what the sandbox costs at start.
fn program() -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let some = denied::for_some_arguments(std::process::id())?;
    let denial = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    // This list begins by looking at the architecture and loading the number, and so do we.
    let some: BpfProgram = SeccompFilter::new(some, SeccompAction::Allow, denial, arch)?.try_into()?;
    let mut program: BpfProgram = some.iter().take(STEPS_BEFORE_NUMBERS).cloned().collect();
    program.extend(answers_of_their_own());
    program.extend(denied_always());
    program.extend(some);
    Ok(program)
}

/// How a list of seccompiler begins: load the architecture, compare it, else kill; load the number.
const STEPS_BEFORE_NUMBERS: usize = 4;

/// Calls that get another answer than the list's one errno, or are none of its numbers.
fn answers_of_their_own() -> Vec<sock_filter> {
    let unless = |comparison, k| step(libc::BPF_JMP | comparison | libc::BPF_K, 0, 1, k);
    vec![
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

/// The numbers in parts: a table leads to the one part in which a number may be, which denies it or goes on
/// past the end.
fn denied_always() -> Vec<sock_filter> {
    let mut numbers: Vec<u32> = denied::ALWAYS.iter().map(|number| *number as u32).collect();
    numbers.sort_unstable();
    let parts: Vec<&[u32]> = numbers.chunks(NUMBERS_IN_A_PART).collect();
    let table_length = parts.len() - 1;
    let start = |part: usize| table_length + part * (NUMBERS_IN_A_PART + 1);
    let denial = table_length + numbers.len() + parts.len();
    let mut program = Vec::with_capacity(denial + 1);
    for (part, numbers) in parts.iter().enumerate().skip(1).rev() {
        let distance = start(part) - program.len() - 1;
        program.push(step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, distance as u8, 0, numbers[0]));
    }
    for numbers in parts {
        for number in numbers {
            let distance = denial - program.len() - 1;
            program.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, distance as u8, 0, *number));
        }
        let past_the_denial = denial - program.len();
        program.push(step(libc::BPF_JMP | libc::BPF_JA, 0, 0, past_the_denial as u32));
    }
    program.push(answer(libc::EPERM));
    program
}

/// How many numbers one part holds: about the square root of all, for the fewest steps.
const NUMBERS_IN_A_PART: usize = 7;

/// A jump's distance is one byte, and a number takes little more than one instruction.
const _: () = assert!(denied::ALWAYS.len() < 200);

/// One instruction of classic BPF (linux/filter.h).
fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// Ends the filter: the call fails with `errno`.
fn answer(errno: i32) -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter for a system call number with every argument 0, as the kernel does, and returns the
    /// action and how many instructions it took.
    fn run(program: &[sock_filter], number: u32) -> (u32, usize) {
        let arch = match TargetArch::try_from(std::env::consts::ARCH).expect("supported") {
            TargetArch::x86_64 => 0xc000_003e,
            TargetArch::aarch64 => 0xc000_00b7,
            TargetArch::riscv64 => 0xc000_00f3,
        };
        let (mut at, mut loaded, mut steps) = (0, 0_u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            let code = u32::from(code);
            (at, steps) = (at + 1, steps + 1);
            let mut jump = |condition: bool| at += usize::from(if condition { jt } else { jf });
            match code & 0x07 {
                libc::BPF_LD => loaded = [number, arch].get(k as usize / 4).copied().unwrap_or(0),
                libc::BPF_ALU => loaded &= k,
                libc::BPF_RET => return (k, steps),
                libc::BPF_JMP => match code & 0xf0 {
                    libc::BPF_JA => at += k as usize,
                    libc::BPF_JEQ => jump(loaded == k),
                    libc::BPF_JGE => jump(loaded >= k),
                    libc::BPF_JGT => jump(loaded > k),
                    other => panic!("comparison {other:#x}"),
                },
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_answer_in_few_steps() {
        let program = program().expect("it compiles");
        let denial = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        for number in 0..600 {
            let (action, steps) = run(&program, number);
            let always = denied::ALWAYS.contains(&i64::from(number));
            let at_zero = [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_clone, libc::SYS_socket];
            let expected = match i64::from(number) {
                libc::SYS_clone3 => libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(),
                number if always || at_zero.contains(&number) => denial,
                _ => libc::SECCOMP_RET_ALLOW,
            };
            assert_eq!(action, expected, "system call {number}");
            assert!(steps < 80, "system call {number} takes {steps} of {}", program.len());
        }
        assert_eq!(run(&program, PROBE).0, libc::SECCOMP_RET_ERRNO | PROBE_ANSWER.unsigned_abs());
    }
}
