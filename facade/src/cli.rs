//! The command line of `tinyagent`.
//!
//! No option takes a key. A usage error is one line and exits 1, so that it cannot be mistaken for one
//! of `diagnose`'s verdicts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValue};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use thiserror::Error;

use tinyagent_protocol::key_env::{KeyEnv, KeyEnvError};
use tinyagent_protocol::message::MAX_QUERY_ITEMS;
use tinyagent_protocol::policy::{DEFAULT_EVENTS_PER_MINUTE, Policy, PolicyError};
use tinyagent_protocol::relay_url::{RelayUrl, RelayUrlError};

use crate::config::HostKind;
use crate::diagnose::{BadNeeds, MAX_KIND, Needs};

/// The bound on a call where nothing else is said (contract 2), in seconds.
const DEFAULT_CALL_SECONDS: u64 = 120;

/// The longest time that a call may be given, in seconds: one day.
const MAX_CALL_SECONDS: u64 = 86_400;

/// What was asked for.
#[derive(Debug)]
pub enum Task {
    /// `tinyagent mcp`.
    Mcp(Options),
    /// `tinyagent diagnose`; the flag asks for a report that people read.
    Diagnose(Options, Needs, bool),
    /// `tinyagent keygen`.
    Keygen,
    /// `tinyagent config`: the entry for this host, with these arguments for the program.
    Config(HostKind, Vec<String>, Options),
    /// A help or version text for stdout.
    Print(String),
}

/// What `mcp` and `diagnose` have in common.
#[derive(Debug)]
pub struct Options {
    /// What may be asked.
    pub policy: Policy,
    /// Where the key is.
    pub key_env: KeyEnv,
    /// The socket of a signer that runs under another user.
    pub signer: Option<PathBuf>,
    /// Signed events a minute.
    pub events_per_minute: u32,
    /// Proofs a minute.
    pub proofs_per_minute: Option<u32>,
    /// Where the signer records its decisions.
    pub audit_log: Option<String>,
    /// Whether a missing measure is fatal.
    pub require_hardening: bool,
    /// The bound on a host call.
    pub call_limit: Duration,
    /// Whether to log each call.
    pub verbose: bool,
}

/// Why a command line is not carried out.
#[derive(Debug, Error)]
pub enum UsageError {
    /// Clap's own word, on one line.
    #[error("{0}")]
    Usage(String),
    /// A bad relay URL.
    #[error(transparent)]
    Relay(#[from] RelayUrlError),
    /// A bad tool list.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A bad variable name.
    #[error(transparent)]
    KeyEnv(#[from] KeyEnvError),
    /// Rooms that cannot be asked about.
    #[error("--rooms takes room ids separated by commas, at most {MAX_QUERY_ITEMS}")]
    Rooms,
    /// Kinds that cannot be asked about.
    #[error("--kinds takes numbers from 0 to {MAX_KIND} separated by commas, at most {MAX_QUERY_ITEMS}")]
    Kinds,
    /// An entry for a host that would mean another file in each directory that the host starts in.
    #[error("--{0} must be an absolute path here: a host starts programs in a directory of its own choice")]
    RelativePath(&'static str),
}

/// The definition, from which help, manual pages and completions are made.
pub fn command() -> Command {
    let mcp = Command::new("mcp")
        .about("Serve MCP on stdin and stdout; the host starts this")
        .args(common())
        .args(serving())
        .after_help(
            "Example:\n  TINY_PRIVATE_KEY=nsec1… tinyagent mcp --relay https://relay.example --allow-writes",
        );
    let diagnose = Command::new("diagnose")
        .about("Report whether the relay answers, accepts the key, and what its grant allows")
        .args(common())
        .arg(option("rooms", "IDS", "Rooms the agent needs (comma-separated)"))
        .arg(option("kinds", "NUMBERS", "Event kinds the agent needs (comma-separated)"))
        .arg(flag("human", "Print a short report to read instead of JSON"))
        .after_help(
            "Exit status: 0 ok; 2 needs-grant, not-a-member, unauthorized; 3 unreachable, error;\n\
             1 it could not start.\n\n\
             Example:\n  tinyagent diagnose --relay https://relay.example --rooms general --kinds 9,12",
        );
    let hosts = HostKind::ALL.map(|(name, _)| PossibleValue::new(name));
    let config = Command::new("config")
        .about("Print the ready entry for a host's configuration, the key by its variable's name")
        .arg(Arg::new("host").value_name("HOST").required(true).value_parser(hosts).help("The host"))
        .args(common())
        .args(serving())
        .after_help("Example:\n  tinyagent config hermes --relay https://relay.example --allow-writes");
    let keygen = Command::new("keygen")
        .about("Make a new key and print it as one JSON line; the only command that prints a secret")
        .after_help(
            "The line holds the key twice, as hex (secret) and as nsec, and its public half (pubkey, npub).\n\n\
             Example:\n  (umask 077 && tinyagent keygen > new-key.json)",
        );
    Command::new("tinyagent")
        .version(tinyagent_protocol::VERSION)
        .about("An MCP server for a Nostr relay whose signing key lives in a process of its own")
        .subcommand_required(true)
        .subcommand(mcp)
        .subcommand(diagnose)
        .subcommand(config)
        .subcommand(keygen)
        .disable_help_subcommand(true)
        .after_help(
            "Errors and log lines go to stderr; -v or RUST_LOG shows more of them.\n\n\
             Example:\n  tinyagent config hermes --relay https://relay.example --allow-writes\n  \
             tinyagent diagnose --relay https://relay.example --human",
        )
}

fn common() -> [Arg; 6] {
    [
        option("relay", "URL", "The relay, with its path prefix if it has one").required(true),
        option("key-env", "NAME", "The variable that holds the key [default: TINY_PRIVATE_KEY]"),
        option("signer", "PATH", "Use the signer of another user that listens at this socket"),
        option("timeout", "SECONDS", "How long a call may take, its wait included [default: 120]")
            .value_parser(|text: &str| whole_number(text, MAX_CALL_SECONDS)),
        flag("require-hardening", "Do not start where a required isolation measure is missing"),
        flag("verbose", "Log each call on stderr").short('v'),
    ]
}

/// What only a server has.
fn serving() -> [Arg; 6] {
    let bound = |name, about| {
        option(name, "N", about)
            .value_parser(|text: &str| whole_number(text, u32::MAX))
            .conflicts_with("signer")
    };
    [
        // An empty list has the policy's own words.
        option("tools", "NAMES", "Offer exactly these tools, in this order (comma-separated)")
            .value_parser(value_parser!(String)),
        flag("allow-writes", "Offer the tools that publish, and sign what the catalog allows"),
        flag("bind-arguments", "Sign only what says what the tool was called for").conflicts_with("signer"),
        bound("max-events-per-minute", "Sign at most this many events a minute [default: 600]"),
        bound("max-proofs-per-minute", "Sign at most this many requests a minute [default: no bound]"),
        option("audit-log", "PATH", "Record each decision of the signer in this file, no content")
            .conflicts_with("signer"),
    ]
}

fn option(name: &'static str, value: &'static str, about: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(about).value_parser(NonEmptyStringValueParser::new())
}

fn flag(name: &'static str, about: &'static str) -> Arg {
    Arg::new(name).long(name).help(about).action(ArgAction::SetTrue)
}

/// Reads a command line, program name included.
///
/// # Errors
/// [`UsageError`], whose text repeats no URL and no value that could be a key.
pub fn read(args: Vec<OsString>) -> Result<Task, UsageError> {
    if let Some(arg) = args.iter().skip(1).filter_map(|arg| arg.to_str()).find(|arg| holds_key(arg)) {
        let option = arg.split('=').next().filter(|name| name.starts_with("--") && !holds_key(name));
        let place = option.map(|name| format!(" (in {name})")).unwrap_or_default();
        return Err(UsageError::Usage(format!(
            "a command line holds no key{place}: put it into a variable, and treat this one as exposed"
        )));
    }
    let matches = match command().try_get_matches_from(&args) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Task::Print(error.render().to_string())),
        Err(error) => return Err(UsageError::Usage(usage(&error, &args))),
    };
    match matches.subcommand() {
        Some(("mcp", matches)) => Ok(Task::Mcp(serving_options(matches)?)),
        Some(("config", matches)) => {
            let word = matches.get_one::<String>("host").map_or("", String::as_str);
            let known = HostKind::ALL.into_iter().find(|(name, _)| *name == word);
            let host = known.map(|(_, host)| host).ok_or_else(|| UsageError::Usage("unknown host".into()))?;
            let options = serving_options(matches)?;
            for name in ["signer", "audit-log"] {
                let path = matches.get_one::<String>(name);
                if path.is_some_and(|path| !Path::new(path).is_absolute()) {
                    return Err(UsageError::RelativePath(name));
                }
            }
            Ok(Task::Config(host, server_args(&args, word), options))
        }
        Some(("diagnose", matches)) => {
            let options = options(matches, None, false)?;
            Ok(Task::Diagnose(options, needs(matches)?, matches.get_flag("human")))
        }
        _ => Ok(Task::Keygen),
    }
}

fn serving_options(matches: &ArgMatches) -> Result<Options, UsageError> {
    let tools = matches.get_one::<String>("tools").map(String::as_str);
    options(matches, tools, matches.get_flag("allow-writes"))
}

/// The arguments with which a host starts the server: those of `config` without the host's word.
fn server_args(args: &[OsString], host: &str) -> Vec<String> {
    let mut rest = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    let mut server = vec!["mcp".to_owned()];
    let mut leave_out = vec!["config".to_owned(), host.to_owned()];
    server.extend(rest.by_ref().filter(|arg| match leave_out.iter().position(|word| word == arg) {
        Some(at) => {
            leave_out.remove(at);
            false
        }
        None => true,
    }));
    server
}

fn options(matches: &ArgMatches, tools: Option<&str>, allow_writes: bool) -> Result<Options, UsageError> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let relay = RelayUrl::parse(text("relay").unwrap_or_default())?;
    let key_env = text("key-env").map(KeyEnv::parse).transpose()?.unwrap_or_default();
    let seconds = matches.get_one::<u64>("timeout").copied().unwrap_or(DEFAULT_CALL_SECONDS);
    // Only mcp has these; asking diagnose for them is an error of clap's that means absent.
    let number = |name: &str| matches.try_get_one::<u32>(name).ok().flatten().copied();
    let audit_log = matches.try_get_one::<String>("audit-log").ok().flatten().cloned();
    let bind_arguments = matches.try_get_one("bind-arguments").ok().flatten().copied().unwrap_or(false);
    Ok(Options {
        policy: Policy::new(relay, tools, allow_writes)?.binding_arguments(bind_arguments),
        key_env,
        signer: text("signer").map(PathBuf::from),
        events_per_minute: number("max-events-per-minute").unwrap_or(DEFAULT_EVENTS_PER_MINUTE),
        proofs_per_minute: number("max-proofs-per-minute"),
        audit_log,
        require_hardening: matches.get_flag("require-hardening"),
        call_limit: Duration::from_secs(seconds),
        verbose: matches.get_flag("verbose"),
    })
}

fn needs(matches: &ArgMatches) -> Result<Needs, UsageError> {
    let list = |name: &str| {
        let items = matches.get_one::<String>(name)?.split(',').map(str::trim);
        Some(items.filter(|item| !item.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    };
    let rooms = list("rooms");
    let kinds = list("kinds").map(|kinds| kinds.iter().map(|kind| kind.parse().ok()).collect());
    let kinds: Option<Vec<u64>> = kinds.map(|kinds: Option<_>| kinds.ok_or(UsageError::Kinds)).transpose()?;
    if rooms.as_ref().is_some_and(Vec::is_empty) {
        return Err(UsageError::Rooms);
    }
    if kinds.as_ref().is_some_and(Vec::is_empty) {
        return Err(UsageError::Kinds);
    }
    Needs { rooms, kinds }.checked().map_err(|bad| match bad {
        BadNeeds::Rooms => UsageError::Rooms,
        BadNeeds::Kinds => UsageError::Kinds,
    })
}

/// Reads a number from 1 to `most`.
fn whole_number<N>(text: &str, most: N) -> Result<N, String>
where
    N: Copy + PartialOrd + From<u8> + std::fmt::Display + std::str::FromStr,
{
    let number = text.parse().ok().filter(|number| (N::from(1)..=most).contains(number));
    number.ok_or_else(|| format!("it takes a whole number from 1 to {most}"))
}

/// Whether an argument is, or carries as its value, what looks like a secret key.
fn holds_key(arg: &str) -> bool {
    let value = arg.rsplit('=').next().unwrap_or_default();
    let is_hex = value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit());
    is_hex || value.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nsec1"))
}

/// Clap's message on one line: what is wrong, what was probably meant, and where to read more.
fn usage(error: &clap::Error, args: &[OsString]) -> String {
    let message = error.render().to_string();
    let paragraph = message.split("\n\n").next().unwrap_or_default();
    let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = meant.iter().find_map(|kind| match error.get(*kind)? {
        ContextValue::String(one) => Some(one),
        ContextValue::Strings(several) => several.first(),
        _ => None,
    });
    let meant = meant.map(|word| format!("; did you mean {word}?")).unwrap_or_default();
    let is_command = |word: &&str| command().get_subcommands().any(|known| known.get_name() == *word);
    let place = args.get(1).and_then(|arg| arg.to_str()).filter(is_command);
    let place = place.map(|word| format!(" {word}")).unwrap_or_default();
    format!("{line}{meant} (see tinyagent{place} --help)")
}
