//! Looks at processes from outside, through /proc.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

/// The path of one of the built programs, beside the test's own.
pub fn program(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("the test's own path");
    path.pop();
    if path.ends_with("deps") || path.ends_with("examples") {
        path.pop();
    }
    let program = path.join(name);
    assert!(program.exists(), "{} is not built; run the tests with cargo test", program.display());
    program
}

/// Runs a command of `tinyagent` to its end, with nothing in its environment but `env`.
pub fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program("tinyagent"));
    command.args(args).env_clear().envs(env.iter().copied()).stdin(std::process::Stdio::null());
    command.output().expect("tinyagent starts")
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with(['Z', 'X']))
}

/// Waits until a process is gone; false where it is still there after the limit.
pub fn wait_gone(pid: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while is_alive(pid) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The live children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> =
        lists.flat_map(|list| list.split(' ').filter_map(|p| p.parse().ok()).collect::<Vec<_>>()).collect();
    pids.into_iter().filter(|pid| is_alive(*pid)).collect()
}

/// The signer of a running `tinyagent`, its only child.
pub fn signer_of(facade: u32) -> Option<u32> {
    match children(facade)[..] {
        [signer] => Some(signer),
        _ => None,
    }
}

/// A process's environment block as it is now; empty where it cannot be read.
pub fn environ(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// A field of /proc/PID/status, such as `VmHWM`, without its name.
pub fn status_field(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}
