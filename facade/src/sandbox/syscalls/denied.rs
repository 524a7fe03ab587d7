//! The table: which system calls are denied, always or for certain arguments, and what each would give.
//!
//! Numbers come from libc for the architecture that is compiled for, so the table is right on each.

use std::collections::BTreeMap;

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BackendError, SeccompCmpOp, SeccompCondition, SeccompRule};

/// System calls, each with the conditions of which one must hold.
pub type Denied = BTreeMap<i64, Vec<SeccompRule>>;

/// Denied whatever the arguments.
pub const ALWAYS: &[i64] = &[
    // Reading, tracing and steering other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setaffinity,
    // Signals that kill and tgkill do not cover; tkill names a thread of any process.
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // Other programs. A child would keep the signer's socket open.
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    // Calls made past this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Another view of the system.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    // Files by handle, past the checks on their path.
    libc::SYS_open_by_handle_at,
    // Keyrings that the host's user may have filled.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Large kernel interfaces that exploits like.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    // A client does not serve; Landlock lets a socket listen on a port that the kernel chooses.
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// `F_SETOWN`, `F_SETSIG` and `F_SETOWN_EX` (asm-generic/fcntl.h): have the kernel signal a process of the
/// caller's choice when a descriptor becomes ready.
const SIGNAL_BY_FCNTL: [u64; 3] = [8, 10, 15];

/// The same by ioctl: `FIOSETOWN` and `SIOCSPGRP` (asm-generic/sockios.h).
const SIGNAL_BY_IOCTL: [u64; 2] = [0x8901, 0x8902];

/// Denied for certain arguments. `own_process` is this process's id, which may get signals and limits.
pub fn for_some_arguments(own_process: u32) -> Result<Denied, BackendError> {
    let own = u64::from(own_process);
    let mut denied = Denied::new();
    // Signals to any but this process; groups and everyone (0, -1, -pgid) too.
    denied.insert(libc::SYS_kill, vec![rule(&[(0, Ne, own)])?]);
    denied.insert(libc::SYS_tgkill, vec![rule(&[(0, Ne, own)])?]);
    // Limits of any but this process, which 0 stands for as well.
    denied.insert(libc::SYS_prlimit64, vec![rule(&[(0, Ne, 0), (0, Ne, own)])?]);
    // A new process instead of a thread.
    let thread = MaskedEq(libc::CLONE_THREAD as u64);
    denied.insert(libc::SYS_clone, vec![rule(&[(0, thread, 0)])?]);
    denied.insert(libc::SYS_socket, sockets()?);
    denied.insert(libc::SYS_socketpair, other_than_stream_pairs()?);
    // Connects while it sends; Landlock's hook for connect does not see it.
    let fast_open = MaskedEq(libc::MSG_FASTOPEN as u64);
    for (number, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        denied.insert(number, vec![rule(&[(flags, fast_open.clone(), libc::MSG_FASTOPEN as u64)])?]);
    }
    // Keystrokes put into a terminal, and signals sent on our behalf.
    let keystrokes = [libc::TIOCSTI, libc::TIOCLINUX].map(|request| u64::from(request as u32));
    denied.insert(libc::SYS_ioctl, any_of(1, keystrokes.into_iter().chain(SIGNAL_BY_IOCTL))?);
    denied.insert(libc::SYS_fcntl, any_of(1, SIGNAL_BY_FCNTL)?);
    Ok(denied)
}

/// Sockets other than TCP, UDP and the routing table that getaddrinfo asks: Unix sockets of other
/// programs, raw packets, and protocols whose connections Landlock does not check, as MPTCP and SCTP.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let internet_or_netlink =
        [(0, Ne, libc::AF_INET as u64), (0, Ne, libc::AF_INET6 as u64), (0, Ne, libc::AF_NETLINK as u64)];
    let netlink = libc::AF_NETLINK as u64;
    let other_protocol = [
        (0, Ne, netlink),
        (2, Ne, libc::IPPROTO_IP as u64),
        (2, Ne, libc::IPPROTO_TCP as u64),
        (2, Ne, libc::IPPROTO_UDP as u64),
    ];
    let mut rules = vec![
        rule(&internet_or_netlink)?,
        rule(&[(0, Eq, netlink), (2, Ne, libc::NETLINK_ROUTE as u64)])?,
        rule(&other_protocol)?,
    ];
    for kind in [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, libc::SOCK_DCCP] {
        rules.push(rule(&[(0, Ne, netlink), (1, MaskedEq(SOCKET_TYPE_MASK), kind as u64)])?);
    }
    Ok(rules)
}

/// The type is the low four bits; the others are flags (SOCK_TYPE_MASK, linux/net.h).
const SOCKET_TYPE_MASK: u64 = 0xf;

/// A pair of datagram sockets can be connected anew, to any Unix socket; a pair of streams cannot.
fn other_than_stream_pairs() -> Result<Vec<SeccompRule>, BackendError> {
    [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET]
        .into_iter()
        .map(|kind| rule(&[(1, MaskedEq(SOCKET_TYPE_MASK), kind as u64)]))
        .collect()
}

/// Matches where argument `index` is one of `values`.
fn any_of(index: u8, values: impl IntoIterator<Item = u64>) -> Result<Vec<SeccompRule>, BackendError> {
    values.into_iter().map(|value| rule(&[(index, Eq, value)])).collect()
}

/// Matches where every condition (argument index, comparison, value) holds. All are C ints, of which the
/// kernel looks at the low 32 bits.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions
        .iter()
        .map(|(index, comparison, value)| SeccompCondition::new(*index, Dword, comparison.clone(), *value))
        .collect::<Result<_, _>>()?;
    SeccompRule::new(conditions)
}
