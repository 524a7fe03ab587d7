//! A run from start to end: forbid dumps, read the command line, take the key, close in, serve.
//!
//! The process always leaves by `_exit`, so that nothing runs which the system call filter would kill.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::Instant;

use serde_json::json;
use tinyagent_protocol::report::Measure;

use crate::custody::{self, Keeping, Key, KeyError};
use crate::hardening::{self, Channel, ParentGone};
use crate::inherited::{Closed, Link};
use crate::options::{self, Entry, KeySource, Rules, Service, Task};
use crate::rate::Bucket;
use crate::session::{Narrowing, Session, Signer};
use crate::stdio;
use crate::sys::process::{exit, take_handed_over_fd, write_stderr};

/// The peer is done, or a command has printed its answer.
const SUCCESS: i32 = 0;
/// A wrong command line, or a start that failed.
const START_FAILED: i32 = 1;
/// The peer sent what is no request.
const MALFORMED_REQUEST: i32 = 65;
/// A defect of this program, or a system without randomness.
const INTERNAL: i32 = 70;

/// Why the signer does not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Usage(#[from] options::UsageError),
    #[error(transparent)]
    Key(#[from] KeyError),
    #[error(transparent)]
    Parent(#[from] ParentGone),
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
    let report = hardening::no_dumps().into();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let task = match options::read(&arguments) {
        Ok(task) => task,
        Err(error) => refuse_to_start(&error.into(), options::mentions_inherited(&arguments)),
    };
    let printed = match task {
        Task::Serve(service) => serve(service, report),
        Task::Keygen => custody::generate(&mut io::stdout()),
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

fn serve(service: Service, report: Vec<Measure>) -> ! {
    match service.entry {
        Entry::Inherited => serve_inherited(service, report),
        Entry::Stdio => serve_lines(service, report),
        Entry::Listening { .. } => refuse_to_start(&StartError::NoSocket, false),
    }
}

fn serve_lines(service: Service, mut report: Vec<Measure>) -> ! {
    report.push(hardening::only_own_descriptors(Channel::Stdio, false));
    let (mut session, mut signer) = match start(service, Channel::Stdio, report) {
        Ok(started) => started,
        Err(error) => refuse_to_start(&error, false),
    };
    match stdio::serve(&mut session, &mut signer) {
        stdio::Closed::ByPeer => exit(SUCCESS),
        closed => {
            write_stderr(format!("tinyagent-signer: {closed}\n").as_bytes());
            exit(if matches!(closed, stdio::Closed::Io(_)) { INTERNAL } else { MALFORMED_REQUEST })
        }
    }
}

fn serve_inherited(service: Service, mut report: Vec<Measure>) -> ! {
    let Some(socket) = take_handed_over_fd() else { refuse_to_start(&StartError::NoSocket, false) };
    report.push(hardening::ignore_signals());
    report.push(hardening::only_own_descriptors(Channel::Inherited, true));
    let mut link = Link::new(socket);
    let (mut session, mut signer) = match start(service, Channel::Inherited, report) {
        Ok(started) => started,
        Err(error) => {
            link.fail(&error.to_string());
            exit(START_FAILED)
        }
    };
    leave(&link.serve(&mut session, &mut signer))
}

/// Takes the key and closes the process in.
fn start(
    service: Service,
    channel: Channel,
    mut report: Vec<Measure>,
) -> Result<(Session, Signer), StartError> {
    let (key, keeping) = load_key(&service.key)?;
    report.extend(hardening::close_in(channel, service.parent, &keeping, None)?);
    if service.require_hardening {
        insist_on(&report)?;
    }
    let now = Instant::now();
    let narrowing = if channel == Channel::Listening { Narrowing::Open } else { Narrowing::NotOffered };
    let Rules { policy, max_events_per_minute, max_proofs_per_minute } = service.rules;
    let signer = Signer {
        key,
        hardening: report,
        events: Bucket::new(max_events_per_minute, now),
        proofs: max_proofs_per_minute.map(|rate| Bucket::new(rate, now)),
    };
    Ok((Session::new(policy, narrowing), signer))
}

fn load_key(source: &KeySource) -> Result<(Key, Keeping), KeyError> {
    match source {
        KeySource::Variable(name) => Key::from_environment(name),
        KeySource::File(path) => Key::from_file(path),
    }
}

fn insist_on(report: &[Measure]) -> Result<(), StartError> {
    let missing: Vec<String> = hardening::missing(report)
        .into_iter()
        .map(|m| format!("{} is not in force ({})", m.measure, m.why.as_deref().unwrap_or("no reason given")))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(StartError::Hardening(missing.join("; "))) }
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
    match take_handed_over_fd().filter(|_| over_socket) {
        Some(socket) => Link::new(socket).fail(&error.to_string()),
        None => write_stderr(format!("tinyagent-signer: {error}\n").as_bytes()),
    }
    exit(START_FAILED)
}

fn leave(closed: &Closed) -> ! {
    match closed {
        Closed::ByPeer => exit(SUCCESS),
        Closed::Frame(_) | Closed::Session(crate::session::Ended::Malformed(_)) => exit(MALFORMED_REQUEST),
        Closed::Io(_) | Closed::Session(crate::session::Ended::CannotSign(_)) => exit(INTERNAL),
    }
}
