//! A run from start to end: forbid dumps, read the command line, take the key, close in, serve.
//!
//! The process always leaves by `_exit`, so that nothing runs which the system call filter would kill.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::json;
use tinyagent_protocol::policy::Policy;
use tinyagent_protocol::report::Measure;

use crate::audit::{self, Log, LogError, VerifyError};
use crate::custody::{self, Keeping, Key, KeyError};
use crate::hardening::{self, Channel, ParentGone};
use crate::inherited::{Closed, Link};
use crate::listening::{self, ListenError};
use crate::options::{self, Entry, KeySource, Rules, Service, Task, UsageError};
use crate::rate::Bucket;
use crate::session::{Ended, Narrowing, Session, Signer, now};
use crate::stdio;
use crate::sys::memory::return_large_blocks;
use crate::sys::process::{exit, write_stderr};

/// The peer is done, or a command has printed its answer.
const SUCCESS: i32 = 0;
/// A wrong command line, or a start that failed.
const START_FAILED: i32 = 1;
/// `verify-log` found a line that breaks the chain.
const BROKEN_LOG: i32 = 2;
/// The peer sent what is no request.
const MALFORMED_REQUEST: i32 = 65;
/// A defect of this program, or a system that fails it.
const INTERNAL: i32 = 70;

/// Why the signer does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Parent(#[from] ParentGone),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("--require-hardening: {0}")]
    Hardening(String),
    #[error("--inherited needs a socket at descriptor 3; start the signer through `tinyagent mcp`")]
    NoSocket,
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// The program.
pub fn main() -> ! {
    end_on_panic();
    return_large_blocks();
    let report = tinyagent_hardening::forbid_core_dumps().into();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let task = match options::read(&arguments) {
        Ok(task) => task,
        Err(error) => refuse_to_start(&error.into(), options::mentions_inherited(&arguments)),
    };
    let printed = match task {
        Task::Serve(service) => match service.entry {
            Entry::Inherited => serve_inherited(service, report),
            Entry::Stdio => serve_lines(service, report),
            Entry::Listening { .. } => serve_connections(service, report),
        },
        Task::Keygen => custody::generate(&mut io::stdout()),
        Task::VerifyLog(path) => verify_log(&path),
        Task::ShowPolicy(rules) => show_policy(&rules),
        Task::Print(text) => writeln!(io::stdout(), "{}", text.trim_end()),
    };
    match printed {
        Ok(()) => exit(SUCCESS),
        Err(error) => refuse_to_start(&error.into(), false),
    }
}

/// A panic ends the process with a text that holds nothing of what it was working on.
fn end_on_panic() {
    std::panic::set_hook(Box::new(|_| {
        write_stderr(b"tinyagent-signer: internal error; nothing was signed\n");
        exit(INTERNAL)
    }));
}

fn serve_inherited(service: Service, mut report: Vec<Measure>) -> ! {
    let Some(mut link) = Link::take() else { refuse_to_start(&StartError::NoSocket, false) };
    report.push(hardening::ignore_signals());
    report.push(hardening::only_own_descriptors(Channel::Inherited, true));
    let started = load_key(&service.key)
        .map_err(StartError::from)
        .and_then(|key| close_in(Channel::Inherited, key, &service, report));
    let mut signer = match started {
        Ok(signer) => signer,
        Err(error) => {
            link.fail(&error.to_string());
            exit(START_FAILED)
        }
    };
    let mut session = Session::new(service.rules.policy, Narrowing::NotOffered);
    exit(match link.serve(&mut session, &mut signer) {
        Closed::ByPeer => SUCCESS,
        Closed::Frame(_) | Closed::Session(Ended::Malformed(_)) => MALFORMED_REQUEST,
        Closed::Io(_) | Closed::Session(Ended::CannotSign(_)) => INTERNAL,
    })
}

fn serve_lines(service: Service, mut report: Vec<Measure>) -> ! {
    report.push(hardening::only_own_descriptors(Channel::Stdio, false));
    let started = load_key(&service.key)
        .map_err(StartError::from)
        .and_then(|key| close_in(Channel::Stdio, key, &service, report));
    let mut signer = match started {
        Ok(signer) => signer,
        Err(error) => refuse_to_start(&error, false),
    };
    let mut session = Session::new(service.rules.policy, Narrowing::NotOffered);
    let closed = stdio::serve(&mut session, &mut signer);
    if !matches!(closed, stdio::Closed::ByPeer) {
        write_stderr(format!("tinyagent-signer: {closed}\n").as_bytes());
    }
    exit(match closed {
        stdio::Closed::ByPeer => SUCCESS,
        stdio::Closed::TooLong | stdio::Closed::Session(Ended::Malformed(_)) => MALFORMED_REQUEST,
        stdio::Closed::Io(_) | stdio::Closed::Session(Ended::CannotSign(_)) => INTERNAL,
    })
}

fn serve_connections(service: Service, report: Vec<Measure>) -> ! {
    let Entry::Listening { path, allowed_uids } = &service.entry else { exit(INTERNAL) };
    let (mut listening, mut signer) = match listen(path, allowed_uids, &service, report) {
        Ok(started) => started,
        Err(error) => refuse_to_start(&error, false),
    };
    let error = listening.serve(&mut signer);
    write_stderr(format!("tinyagent-signer: {error}\n").as_bytes());
    exit(INTERNAL)
}

fn listen(
    path: &Path,
    allowed_uids: &[u32],
    service: &Service,
    mut report: Vec<Measure>,
) -> Result<(listening::Service, Signer), StartError> {
    let handed_over = listening::handed_over()?;
    report.push(hardening::only_own_descriptors(Channel::Listening, handed_over.is_some()));
    let key = load_key(&service.key)?;
    let listener = match handed_over {
        Some(listener) => listener,
        None => listening::bind(path)?,
    };
    let policy: Policy = service.rules.policy.clone();
    let listening = listening::Service::new(listener, allowed_uids.to_vec(), policy);
    Ok((listening, close_in(Channel::Listening, key, service, report)?))
}

fn load_key(source: &KeySource) -> Result<(Key, Keeping), KeyError> {
    match source {
        KeySource::Variable(name) => Key::from_environment(name.as_str()),
        KeySource::File(path) => Key::from_file(path),
    }
}

/// Gives up what is left to give up; from here on the process can serve and end, nothing else.
fn close_in(
    channel: Channel,
    (key, keeping): (Key, Keeping),
    service: &Service,
    mut report: Vec<Measure>,
) -> Result<Signer, StartError> {
    let root = nix::unistd::geteuid().is_root();
    let log = service.audit_log.as_deref().map(|path| Log::open(path, key.public(), now())).transpose()?;
    let log_directory = log.as_ref().map(Log::directory);
    report.extend(hardening::close_in(channel, service.parent, &keeping, log_directory)?);
    if service.require_hardening {
        insist_on(&report, root)?;
    }
    let now = Instant::now();
    Ok(Signer {
        key,
        hardening: report,
        events: Bucket::new(service.rules.max_events_per_minute, now),
        proofs: service.rules.max_proofs_per_minute.map(|rate| Bucket::new(rate, now)),
        log,
    })
}

fn insist_on(report: &[Measure], root: bool) -> Result<(), StartError> {
    let missing: Vec<String> = hardening::missing(report, root)
        .into_iter()
        .map(|m| format!("{} is not in force ({})", m.measure, m.why.as_deref().unwrap_or("no reason given")))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(StartError::Hardening(missing.join("; "))) }
}

fn verify_log(path: &Path) -> io::Result<()> {
    match audit::verify(path) {
        Ok(verified) => writeln!(io::stdout(), "{verified}"),
        Err(error) => {
            write_stderr(format!("tinyagent-signer: {error}\n").as_bytes());
            exit(if matches!(error, VerifyError::Broken { .. }) { BROKEN_LOG } else { START_FAILED })
        }
    }
}

fn show_policy(rules: &Rules) -> io::Result<()> {
    let shown = json!({
        "policy": rules.policy.describe(),
        "max_events_per_minute": rules.max_events_per_minute,
        "max_proofs_per_minute": rules.max_proofs_per_minute,
    });
    let mut out = io::stdout();
    writeln!(out, "{shown:#}")?;
    out.flush()
}

/// Says why, where the one who started this process can hear it, and ends.
fn refuse_to_start(error: &StartError, over_socket: bool) -> ! {
    let link = if over_socket { Link::take() } else { None };
    match link {
        Some(mut link) => link.fail(&error.to_string()),
        None => write_stderr(format!("tinyagent-signer: {error}\n").as_bytes()),
    }
    exit(START_FAILED)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use tinyagent_protocol::report::State;

    use super::*;

    #[test]
    #[ignore = "no test: the one below starts it as a process of its own"]
    fn process_that_panics() {
        end_on_panic();
        let closed_in = hardening::seccomp(Channel::Inherited, false);
        assert_eq!(closed_in.state, State::On, "said in vain");
        panic!("a text that must not be seen");
    }

    #[test]
    fn a_panic_ends_the_closed_in_process_with_status_70_and_a_fixed_text() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let arguments = ["--ignored", "--nocapture", "--exact", "run::tests::process_that_panics"];
        let output = command.args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(INTERNAL), "{text}");
        assert_eq!(text, "tinyagent-signer: internal error; nothing was signed\n");
    }
}
