//! What an intruder in the facade would try. Each attempt is harmless where it is permitted: it names a
//! bad descriptor, a null pointer, signal 0, or something that only this probe has.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use nix::errno::Errno;

use crate::sys::call;

/// What attempts are made on.
pub struct Surroundings {
    /// A process of the same user.
    pub victim: i64,
    /// A port that listens and is not in the plan.
    pub denied_port: u16,
    /// A file that this user may read and write.
    pub file: PathBuf,
}

/// Every attempt by name, with the errno that it was answered with or `ok`.
pub fn all(around: &Surroundings) -> Vec<(&'static str, String)> {
    let mut answers: Vec<(&str, String)> = system_calls(around)
        .into_iter()
        .map(|(name, number, args)| (name, text(call(number, &args))))
        .collect();
    let victim = around.victim;
    answers.extend([
        ("open the victim's memory", io_text(File::open(format!("/proc/{victim}/mem")))),
        ("read the victim's environment", io_text(fs::read(format!("/proc/{victim}/environ")))),
        ("list the victim's descriptors", io_text(fs::read_dir(format!("/proc/{victim}/fd")))),
        ("read a file of the user", io_text(File::open(&around.file))),
        ("write a file of the user", io_text(File::options().append(true).open(&around.file))),
        ("list the root directory", io_text(fs::read_dir("/"))),
        ("create a file", io_text(File::create(around.file.with_extension("new")))),
        ("write below /etc", io_text(File::options().append(true).open("/etc/hosts"))),
        ("read own status", io_text(File::open("/proc/self/status"))),
        ("connect to another port", io_text(TcpStream::connect((Ipv4Addr::LOCALHOST, around.denied_port)))),
        ("bind a port", io_text(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))),
        ("run a program", io_text(Command::new("true").status())),
    ]);
    #[cfg(target_arch = "x86_64")]
    answers.push(("fork", text(crate::sys::fork())));
    answers
}

/// Attempts that are one system call with integers and null pointers.
fn system_calls(around: &Surroundings) -> Vec<(&'static str, i64, Vec<i64>)> {
    let victim = around.victim;
    let own = i64::from(std::process::id());
    let internet = i64::from(libc::AF_INET);
    let stream = i64::from(libc::SOCK_STREAM);
    let fast_open = i64::from(libc::MSG_FASTOPEN);
    vec![
        ("ptrace", libc::SYS_ptrace, vec![i64::from(libc::PTRACE_SEIZE), victim]),
        ("process_vm_readv", libc::SYS_process_vm_readv, vec![victim, 0, 1, 0, 1]),
        ("process_vm_writev", libc::SYS_process_vm_writev, vec![victim, 0, 1, 0, 1]),
        ("process_madvise", libc::SYS_process_madvise, vec![-1]),
        ("process_mrelease", libc::SYS_process_mrelease, vec![-1]),
        ("kcmp", libc::SYS_kcmp, vec![own, victim, 1]),
        ("pidfd_open", libc::SYS_pidfd_open, vec![victim]),
        ("pidfd_getfd", libc::SYS_pidfd_getfd, vec![-1]),
        ("pidfd_send_signal", libc::SYS_pidfd_send_signal, vec![-1]),
        ("move_pages", libc::SYS_move_pages, vec![victim]),
        ("migrate_pages", libc::SYS_migrate_pages, vec![victim]),
        ("setpriority", libc::SYS_setpriority, vec![0, victim, 19]),
        ("ioprio_set", libc::SYS_ioprio_set, vec![1, victim, 3 << 13]),
        ("sched_setparam", libc::SYS_sched_setparam, vec![victim]),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, vec![victim, 0]),
        ("sched_setattr", libc::SYS_sched_setattr, vec![victim]),
        ("sched_setaffinity", libc::SYS_sched_setaffinity, vec![victim]),
        ("prlimit", libc::SYS_prlimit64, vec![victim, 4]),
        ("kill", libc::SYS_kill, vec![victim, 0]),
        ("kill the group", libc::SYS_kill, vec![0, 0]),
        ("kill everyone", libc::SYS_kill, vec![-1, 0]),
        ("tgkill", libc::SYS_tgkill, vec![victim, victim, 0]),
        ("tkill", libc::SYS_tkill, vec![victim, 0]),
        ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo, vec![victim, 0]),
        ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo, vec![victim, victim, 0]),
        ("fcntl F_SETOWN", libc::SYS_fcntl, vec![-1, 8, victim]),
        ("fcntl F_SETSIG", libc::SYS_fcntl, vec![-1, 10, 9]),
        ("fcntl F_SETOWN_EX", libc::SYS_fcntl, vec![-1, 15]),
        ("ioctl FIOSETOWN", libc::SYS_ioctl, vec![-1, 0x8901]),
        ("ioctl SIOCSPGRP", libc::SYS_ioctl, vec![-1, 0x8902]),
        ("ioctl TIOCSTI", libc::SYS_ioctl, vec![-1, 0x5412]),
        ("ioctl TIOCLINUX", libc::SYS_ioctl, vec![-1, 0x541c]),
        ("execve", libc::SYS_execve, vec![0]),
        ("execveat", libc::SYS_execveat, vec![-1]),
        // Not a thread; a combination that no kernel accepts.
        ("clone", libc::SYS_clone, vec![i64::from(libc::CLONE_FS | libc::CLONE_NEWNS)]),
        ("clone3", libc::SYS_clone3, vec![0, 0]),
        ("io_uring_setup", libc::SYS_io_uring_setup, vec![0]),
        ("io_uring_enter", libc::SYS_io_uring_enter, vec![-1]),
        ("io_uring_register", libc::SYS_io_uring_register, vec![-1]),
        ("unshare", libc::SYS_unshare, vec![0]),
        ("setns", libc::SYS_setns, vec![-1]),
        ("mount", libc::SYS_mount, vec![]),
        ("umount2", libc::SYS_umount2, vec![]),
        ("pivot_root", libc::SYS_pivot_root, vec![]),
        ("chroot", libc::SYS_chroot, vec![]),
        ("open_tree", libc::SYS_open_tree, vec![-1]),
        ("move_mount", libc::SYS_move_mount, vec![-1, 0, -1]),
        ("mount_setattr", libc::SYS_mount_setattr, vec![-1]),
        ("fsopen", libc::SYS_fsopen, vec![]),
        ("fsconfig", libc::SYS_fsconfig, vec![-1]),
        ("fsmount", libc::SYS_fsmount, vec![-1]),
        ("fspick", libc::SYS_fspick, vec![-1]),
        ("open_by_handle_at", libc::SYS_open_by_handle_at, vec![-1]),
        ("add_key", libc::SYS_add_key, vec![]),
        ("request_key", libc::SYS_request_key, vec![]),
        ("keyctl", libc::SYS_keyctl, vec![-1]),
        ("bpf", libc::SYS_bpf, vec![-1]),
        ("perf_event_open", libc::SYS_perf_event_open, vec![]),
        ("userfaultfd", libc::SYS_userfaultfd, vec![-1]),
        ("listen", libc::SYS_listen, vec![-1]),
        ("accept", libc::SYS_accept, vec![-1]),
        ("accept4", libc::SYS_accept4, vec![-1]),
        ("socket AF_UNIX", libc::SYS_socket, vec![i64::from(libc::AF_UNIX), stream]),
        ("socket AF_PACKET", libc::SYS_socket, vec![i64::from(libc::AF_PACKET), stream]),
        ("socket AF_ALG", libc::SYS_socket, vec![i64::from(libc::AF_ALG), 5]),
        ("socket AF_VSOCK", libc::SYS_socket, vec![i64::from(libc::AF_VSOCK), stream]),
        ("socket MPTCP", libc::SYS_socket, vec![internet, stream, 262]),
        ("socket SCTP", libc::SYS_socket, vec![internet, stream, 132]),
        ("socket raw", libc::SYS_socket, vec![internet, 3, 6]),
        ("socket seqpacket", libc::SYS_socket, vec![internet, 5, 0]),
        ("socket audit", libc::SYS_socket, vec![i64::from(libc::AF_NETLINK), 3, 9]),
        ("socketpair of datagrams", libc::SYS_socketpair, vec![1, 2, 0, 0]),
        ("sendto MSG_FASTOPEN", libc::SYS_sendto, vec![-1, 0, 0, fast_open]),
        ("sendmsg MSG_FASTOPEN", libc::SYS_sendmsg, vec![-1, 0, fast_open]),
        ("sendmmsg MSG_FASTOPEN", libc::SYS_sendmmsg, vec![-1, 0, 0, fast_open]),
        // getpid of the x32 interface; of no meaning on another architecture.
        ("x32", 0x4000_0000 | 39, vec![]),
    ]
}

fn text<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |_| "ok".into())
}

fn io_text<T>(result: io::Result<T>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => match error.raw_os_error() {
            Some(errno) => format!("{:?}", Errno::from_raw(errno)),
            None => error.to_string(),
        },
    }
}
