//! A run of `tinyagent`, from its command line to its exit status.
//!
//! First stage: read the command line, start the signer, hear that it stands, erase the key, exec. Second
//! stage: close this process in, then serve. Nothing from host or relay is read before the exec.

use std::borrow::Cow;
use std::ffi::{CString, OsString};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;
use tracing::{info, warn};

use tinyagent_protocol::VERSION;
use tinyagent_protocol::catalog::{Access, Tool};
use tinyagent_protocol::event::PublicKey;
use tinyagent_protocol::frame::{self, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES};
use tinyagent_protocol::message::{Answer, Description, Message, Narrow, Request};
use tinyagent_protocol::policy::Policy;
use tinyagent_protocol::relay_url::RelayUrl;
use tinyagent_protocol::report::{Measure, State};

use crate::bridge::Bridge;
use crate::cli::{self, Options, Task, UsageError};
use crate::config::{Entry, HostKind};
use crate::diagnose::{Diagnosis, Needs};
use crate::launch::{self, Child, LaunchError, SignerLink, Stage};
use crate::log;
use crate::relay::client::RelayClient;
use crate::relay::proxy::{ProxyError, RelayProxy};
use crate::relay::tls::Roots;
use crate::sandbox::{self, Plan};
use crate::server::Server;
use crate::server::run::serve;
use crate::signer::Signer;

/// How long the signer may take to start.
const SIGNER_START_LIMIT: Duration = Duration::from_secs(10);

/// How long the signer may take to end, once its socket is closed.
const SIGNER_END_LIMIT: Duration = Duration::from_millis(500);

/// The bound on a diagnosis' signed call, where the bound on calls is not shorter.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(30);

/// Why a run ends before it began.
#[derive(Debug, Error)]
enum StartError {
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("{0}")]
    Signer(String),
    #[error("the signer's answer was not understood ({0}); install both programs from one build")]
    NotUnderstood(String),
    #[error("the signer is version {0} and this program is {VERSION}; install both programs from one build")]
    Version(String),
    #[error("the signer's policy is not the one it was given; install both programs from one build")]
    OtherPolicy,
    #[error("the signer closed the connection; its log says why, mostly that it lacks --allow-uid {0}")]
    Closed(u32),
    #[error("the signer serves the relay {0}; give --relay the same URL")]
    OtherRelay(String),
    #[error("the signer's policy exposes none of the tools asked for; see `tinyagent-signer policy`")]
    NothingOffered,
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("--require-hardening: not on in the facade: {0}")]
    Hardening(String),
    #[error("{0} cannot be started: {1}")]
    Keygen(String, io::Error),
    #[error("the runtime cannot be started: {0}")]
    Runtime(io::Error),
}

/// The program's `main`.
pub fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(status) => status,
        Err(error) => {
            log::tell(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: Vec<OsString>) -> Result<ExitCode, StartError> {
    let stage = Stage::take_from(&mut args)?;
    if stage == Stage::First {
        launch::prepare()?;
    }
    if matches!(stage, Stage::Second { .. }) {
        // The exec has made this process readable for others of its user; the outcome is reported below.
        let _ = tinyagent_hardening::forbid_core_dumps();
    }
    let (options, needs) = match cli::read(args.clone())? {
        Task::Print(text) => {
            // Nothing sensible is left to do where stdout is closed.
            let _ = io::stdout().write_all(text.as_bytes());
            return Ok(ExitCode::SUCCESS);
        }
        Task::Keygen => return keygen(),
        Task::Config(host, server_args, options) => return config(host, &server_args, &options),
        Task::Mcp(options) => (options, None),
        Task::Diagnose(options, needs, human) => (options, Some((needs, human))),
    };
    match stage {
        Stage::First => first_stage(&args, &options),
        Stage::Second { signer } => {
            let link = launch::second_stage(signer, &options.key_env)?;
            second_stage(options, needs, link)
        }
    }
}

/// Makes a key in the other program: this one links no key code.
fn keygen() -> Result<ExitCode, StartError> {
    use std::os::unix::process::CommandExt;
    let program = launch::signer_path()?;
    let error = std::process::Command::new(&program).arg("keygen").exec();
    Err(StartError::Keygen(program.display().to_string(), error))
}

/// Prints a host's entry on stdout, and where it goes on stderr.
fn config(host: HostKind, server_args: &[String], options: &Options) -> Result<ExitCode, StartError> {
    let program = launch::signer_path()?.with_file_name("tinyagent");
    let key_env = options.signer.is_none().then_some(options.key_env.as_str());
    let entry = Entry { program: &program, args: server_args, key_env };
    // Nothing sensible is left to do where stdout is closed.
    let _ = io::stdout().write_all(entry.text(host).as_bytes());
    log::tell(&format_args!("{}", host.advice(key_env)));
    Ok(ExitCode::SUCCESS)
}

/// Starts the signer, hears that it stands, erases the key and becomes the second stage.
fn first_stage(args: &[OsString], options: &Options) -> Result<ExitCode, StartError> {
    let link = match &options.signer {
        None => {
            let link =
                launch::spawn_signer(&launch::signer_path()?, &signer_args(options), &options.key_env)?;
            check_description(&ask(&link, Request::Describe)?, &options.policy)?;
            link
        }
        Some(path) => {
            let link = launch::connect_signer(path)?;
            let offered = ask(&link, Request::Describe)?;
            let common = common_policy(options, &offered)?;
            check_description(&ask(&link, Request::Narrow(narrowing(&common)))?, &common)?;
            link
        }
    };
    launch::scrub(&options.key_env)?;
    match launch::exec_second_stage(args, &link)? {}
}

fn signer_args(options: &Options) -> Vec<CString> {
    let tools: Vec<&str> = options.policy.exposed().iter().map(|tool| tool.name).collect();
    let mut args = vec!["tinyagent-signer".to_owned(), "--inherited".into()];
    let mut option = |name: &str, value: String| args.extend([format!("--{name}"), value]);
    option("relay", options.policy.relay().to_string());
    option("key-env", options.key_env.to_string());
    option("parent", std::process::id().to_string());
    option("tools", tools.join(","));
    option("max-events-per-minute", options.events_per_minute.to_string());
    if let Some(proofs) = options.proofs_per_minute {
        option("max-proofs-per-minute", proofs.to_string());
    }
    if let Some(path) = &options.audit_log {
        option("audit-log", path.clone());
    }
    if options.policy.allow_writes() {
        args.push("--allow-writes".into());
    }
    if options.policy.binds_arguments() {
        args.push("--bind-arguments".into());
    }
    if options.require_hardening {
        args.push("--require-hardening".into());
    }
    // Names, numbers and a checked URL hold no NUL.
    args.into_iter().filter_map(|arg| CString::new(arg).ok()).collect()
}

/// What both this process and a signer of its own policy allow: exposed here, and exposed there.
fn common_policy(options: &Options, offered: &Description) -> Result<Policy, StartError> {
    let ours = &options.policy;
    if offered.policy.relay != ours.relay().as_str() {
        return Err(StartError::OtherRelay(tinyagent_protocol::policy::shown(&offered.policy.relay)));
    }
    let allow_writes = ours.allow_writes() && offered.policy.allow_writes;
    let is_offered = |tool: &&'static Tool| {
        let writable = allow_writes || tool.access == Access::Read;
        writable && offered.policy.tools.iter().any(|other| other.name == tool.name)
    };
    let names: Vec<Cow<'_, str>> =
        ours.exposed().iter().copied().filter(is_offered).map(|tool| tool.name.into()).collect();
    if names.is_empty() {
        return Err(StartError::NothingOffered);
    }
    let common = ours.narrowed(&names, allow_writes);
    let common = common.map_err(|refusal| StartError::NotUnderstood(refusal.message))?;
    // Its own command line said so; judging by the same rules here saves a round trip.
    Ok(common.binding_arguments(offered.policy.bind_arguments))
}

fn narrowing(policy: &Policy) -> Narrow<'static> {
    let tools = policy.exposed().iter().map(|tool| Cow::Borrowed(tool.name)).collect();
    Narrow { tools, allow_writes: policy.allow_writes() }
}

/// Asks the signer for a description, blocking.
fn ask(link: &SignerLink, request: Request<'_>) -> Result<Description, StartError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            match link.child {
                Some(_) => StartError::Signer("the signing process ended while it started".into()),
                None => StartError::Closed(nix::unistd::getuid().as_raw()),
            }
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => StartError::Signer(format!(
            "the signing process did not answer within {} s",
            SIGNER_START_LIMIT.as_secs()
        )),
        _ => StartError::Signer(format!("the signing process does not answer: {error}")),
    };
    let (request, _, tail) = Message { request, client: None }.pieces();
    let request = request + &tail;
    let not_understood = |error: &dyn std::fmt::Display| StartError::NotUnderstood(error.to_string());
    let header = frame::header(request.len(), MAX_REQUEST_BYTES).map_err(|error| not_understood(&error))?;
    let mut socket = &link.socket;
    socket.set_read_timeout(Some(SIGNER_START_LIMIT)).map_err(failed)?;
    socket.write_all(&[&header[..], request.as_bytes()].concat()).map_err(failed)?;
    let mut header = [0; frame::HEADER_BYTES];
    socket.read_exact(&mut header).map_err(failed)?;
    let length = frame::length(header, MAX_ANSWER_BYTES).map_err(|error| not_understood(&error))?;
    let mut answer = vec![0; length];
    socket.read_exact(&mut answer).map_err(failed)?;
    match Answer::parse(&answer).map_err(|error| not_understood(&error))? {
        Answer::Description(description) => Ok(*description),
        Answer::Failed { message } => Err(StartError::Signer(message)),
        Answer::Refused(refusal) => Err(StartError::Signer(refusal.message)),
        _ => Err(StartError::NotUnderstood("another answer".into())),
    }
}

fn check_description(description: &Description, policy: &Policy) -> Result<PublicKey, StartError> {
    if description.version != VERSION {
        return Err(StartError::Version(tinyagent_protocol::policy::shown(&description.version)));
    }
    if description.policy != policy.describe() {
        return Err(StartError::OtherPolicy);
    }
    PublicKey::parse(&description.pubkey).ok_or_else(|| StartError::NotUnderstood("no public key".into()))
}

/// Closes this process in and does what was asked.
fn second_stage(
    options: Options,
    needs: Option<(Needs, bool)>,
    link: SignerLink,
) -> Result<ExitCode, StartError> {
    log::start(options.verbose);
    let proxy = RelayProxy::from_environment(options.policy.relay())?;
    let roots = Roots::prepare(options.policy.relay());
    let facade = sandbox::apply(&plan(options.policy.relay(), proxy.as_ref(), &roots, link.child.as_ref()));
    if options.require_hardening {
        insist(&facade)?;
    }
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).map_err(StartError::Runtime)?;
    let SignerLink { socket, mut child } = link;
    // A task of its own, because waking what `block_on` itself waits for costs a system call each time.
    let status =
        runtime.block_on(async { spawn_local(work(options, needs, (proxy, roots), facade, socket)).await });
    // Dropping the tasks closes the socket, which ends the signer; a thread that still resolves a name
    // must not hold the exit up.
    runtime.shutdown_background();
    if let Some(child) = &mut child {
        child.wait_for(SIGNER_END_LIMIT);
    }
    let status = status.map_err(|error| StartError::Runtime(io::Error::other(error)))?;
    std::process::exit(status?)
}

/// What this process still needs once it is closed in.
fn plan(relay: &RelayUrl, proxy: Option<&RelayProxy>, roots: &Roots, child: Option<&Child>) -> Plan {
    let (host, port) = proxy.map_or((relay.host(), relay.port()), |proxy| (proxy.host(), proxy.port()));
    let is_numeric = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    Plan {
        ports: vec![port],
        names: !is_numeric,
        tls_roots: roots.are_unread(),
        read: Vec::new(),
        signer: child.map(Child::pid),
    }
}

/// `--require-hardening` for this process; the signer has judged itself.
fn insist(facade: &[Measure]) -> Result<(), StartError> {
    let missing = sandbox::missing(facade);
    if missing.is_empty() {
        return Ok(());
    }
    let shown =
        missing.iter().map(|m| format!("{} ({})", m.measure, m.why.as_deref().unwrap_or("no reason known")));
    Err(StartError::Hardening(shown.collect::<Vec<_>>().join(", ")))
}

/// What the second stage was started for; gives the exit status.
async fn work(
    options: Options,
    needs: Option<(Needs, bool)>,
    (proxy, roots): (Option<RelayProxy>, Roots),
    facade: Vec<Measure>,
    socket: std::os::unix::net::UnixStream,
) -> Result<i32, StartError> {
    let signer = Signer::start(socket).map_err(StartError::Runtime)?;
    let description = describe_again(&signer).await?;
    let policy = match options.signer {
        None => options.policy,
        Some(_) => common_policy(&options, &description)?,
    };
    let pubkey = check_description(&description, &policy)?;
    if needs.is_none() {
        announce(policy.relay(), pubkey, &description, &facade);
    }
    let diagnosis = Diagnosis {
        relay: policy.relay().clone(),
        signer: description.hardening,
        facade,
        limit: options.call_limit.min(DIAGNOSIS_LIMIT),
    };
    let relay = RelayClient::new(policy.relay(), proxy, roots);
    let bridge = Rc::new(Bridge::new(policy, pubkey, signer, relay));
    match needs {
        None => {
            let server = Rc::new(Server::new(bridge, diagnosis, options.call_limit));
            serve(server).await.map_err(StartError::Runtime)
        }
        Some((needs, human)) => Ok(i32::from(Box::pin(diagnose(&bridge, &diagnosis, needs, human)).await)),
    }
}

async fn describe_again(signer: &Signer) -> Result<Description, StartError> {
    let message = Message { request: Request::Describe, client: None };
    match signer.ask(&message, &bytes::Bytes::new()).await {
        Ok(Answer::Description(description)) => Ok(*description),
        Ok(_) => Err(StartError::NotUnderstood("another answer".into())),
        Err(error) => Err(StartError::Signer(error.to_string())),
    }
}

/// The one line of a normal start.
fn announce(relay: &RelayUrl, pubkey: PublicKey, description: &Description, facade: &[Measure]) {
    let measures: Vec<&Measure> = description.hardening.iter().chain(facade).collect();
    let off: Vec<&str> =
        measures.iter().filter(|m| m.state != State::On).map(|m| m.measure.as_str()).collect();
    let missing = if off.is_empty() { String::new() } else { format!(", not on: {}", off.join(", ")) };
    info!(
        "serving {} as {pubkey}; {} of {} isolation measures on{missing}",
        relay,
        measures.len() - off.len(),
        measures.len()
    );
    if !relay.tls() && !relay.is_loopback() {
        warn!("the relay is reached over plain http: others on the way can read calls and answers");
    }
}

async fn diagnose(bridge: &Bridge, diagnosis: &Diagnosis, needs: Needs, human: bool) -> u8 {
    let report = diagnosis.report(bridge, needs).await;
    let text = if human { report.to_text() } else { report.to_pretty_json() + "\n" };
    // A closed stdout leaves the exit status as the answer.
    let _ = io::stdout().write_all(text.as_bytes());
    let status = report.verdict.exit_status();
    // A report for people ends with that line itself.
    if status != 0 && !human {
        log::tell(&report.summary());
    }
    status
}
