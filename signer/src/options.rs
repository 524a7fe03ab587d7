//! The command line, which is the whole policy: what is not said here is never allowed later.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::error::{ContextKind, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tinyagent_protocol::VERSION;
use tinyagent_protocol::key_env::{KeyEnv, KeyEnvError, looks_like_key};
use tinyagent_protocol::policy::{DEFAULT_EVENTS_PER_MINUTE, Policy, PolicyError};
use tinyagent_protocol::relay_url::{RelayUrl, RelayUrlError};

/// What `--help` says below the options; with it the help still fits a screen.
const AFTER_HELP: &str = "\
tinyagent starts this program by itself; start it yourself to audit it, or to run
it under a user of its own. Its options are the whole policy: no request widens it.

Examples:
  TINY_PRIVATE_KEY=nsec1… tinyagent-signer --stdio --relay https://relay.example
  tinyagent-signer --socket /run/tinyagent/signer.sock --allow-uid 1000 \\
    --key-file /etc/tinyagent/key --relay https://relay.example --allow-writes";

/// What the program is asked to do.
pub enum Task {
    /// Print a new key.
    Keygen,
    /// Verify an audit log.
    VerifyLog(PathBuf),
    /// Print the policy and the limits.
    ShowPolicy(Rules),
    /// Sign.
    Serve(Service),
    /// Print this text (`--help`, `--version`).
    Print(String),
}

/// What may be signed, and how much of it.
pub struct Rules {
    /// What may be signed.
    pub policy: Policy,
    /// Signed events a minute.
    pub max_events_per_minute: u32,
    /// Proofs a minute, if bounded.
    pub max_proofs_per_minute: Option<u32>,
}

/// How to sign.
pub struct Service {
    /// How requests arrive.
    pub entry: Entry,
    /// Where the key is.
    pub key: KeySource,
    /// What may be signed.
    pub rules: Rules,
    /// Where decisions are recorded.
    pub audit_log: Option<PathBuf>,
    /// The process whose end ends the signer.
    pub parent: Option<i32>,
    /// Whether a gap in the hardening is fatal.
    pub require_hardening: bool,
}

/// How requests arrive.
pub enum Entry {
    /// On descriptor 3.
    Inherited,
    /// As JSON lines.
    Stdio,
    /// Over connections to a socket.
    Listening {
        /// Where it is bound, unless the service manager has handed it over.
        path: PathBuf,
        /// Who may connect.
        allowed_uids: Vec<u32>,
    },
}

/// Where the key is.
pub enum KeySource {
    /// In an environment variable.
    Variable(KeyEnv),
    /// In a file.
    File(PathBuf),
}

/// A command line that cannot be obeyed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The shape is wrong.
    #[error("{0}; see tinyagent-signer --help")]
    Shape(String),
    /// An argument holds what looks like a key; it is not repeated.
    #[error(
        "an argument looks like a key; keys are read from the environment or a file, never from arguments"
    )]
    KeyInArguments,
    /// `--relay`.
    #[error(transparent)]
    Relay(#[from] RelayUrlError),
    /// `--tools`.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// `--key-env`.
    #[error(transparent)]
    KeyEnv(#[from] KeyEnvError),
}

/// Whether the arguments ask for the inherited socket, for a command line that cannot be read.
pub fn mentions_inherited(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "--inherited")
}

/// Reads the command line, program name included.
pub fn read(arguments: &[OsString]) -> Result<Task, UsageError> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            return Ok(Task::Print(error.to_string()));
        }
        Err(_) if arguments.iter().any(|argument| holds_key(&argument.to_string_lossy())) => {
            return Err(UsageError::KeyInArguments);
        }
        Err(error) => return Err(UsageError::Shape(one_line(&error))),
    };
    match matches.subcommand() {
        Some(("keygen", _)) => Ok(Task::Keygen),
        Some(("verify-log", matches)) => {
            Ok(Task::VerifyLog(matches.get_one::<PathBuf>("path").cloned().unwrap_or_default()))
        }
        Some((_, matches)) => rules(matches).map(Task::ShowPolicy),
        None => service(&matches).map(Task::Serve),
    }
}

/// Whether an argument, or the value in `--option=value`, looks like a key.
fn holds_key(argument: &str) -> bool {
    argument.split('=').any(looks_like_key)
}

fn service(matches: &ArgMatches) -> Result<Service, UsageError> {
    let entry = if let Some(path) = matches.get_one::<PathBuf>("socket") {
        let allowed_uids = matches.get_many("allow-uid").unwrap_or_default().copied().collect();
        Entry::Listening { path: path.clone(), allowed_uids }
    } else if matches.get_flag("stdio") {
        Entry::Stdio
    } else {
        Entry::Inherited
    };
    let key = match matches.get_one::<PathBuf>("key-file") {
        Some(path) => KeySource::File(path.clone()),
        None => {
            let name = text(matches, "key-env").map(KeyEnv::parse).transpose()?;
            KeySource::Variable(name.unwrap_or_default())
        }
    };
    Ok(Service {
        entry,
        key,
        rules: rules(matches)?,
        audit_log: matches.get_one::<PathBuf>("audit-log").cloned(),
        parent: matches.get_one("parent").copied(),
        require_hardening: matches.get_flag("require-hardening"),
    })
}

fn rules(matches: &ArgMatches) -> Result<Rules, UsageError> {
    let relay = RelayUrl::parse(text(matches, "relay").unwrap_or_default())?;
    let policy = Policy::new(relay, text(matches, "tools"), matches.get_flag("allow-writes"))?
        .binding_arguments(matches.get_flag("bind-arguments"));
    Ok(Rules {
        policy,
        max_events_per_minute: matches
            .get_one("max-events-per-minute")
            .copied()
            .unwrap_or(DEFAULT_EVENTS_PER_MINUTE),
        max_proofs_per_minute: matches.get_one("max-proofs-per-minute").copied(),
    })
}

fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

/// The definition, from which help, manual pages and completions are made.
pub fn command() -> Command {
    let policy = Command::new("policy")
        .about("Print the effective policy as JSON and exit; no key is read")
        .args(policy_arguments())
        .after_help("Example:\n  tinyagent-signer policy --relay https://relay.example --allow-writes");
    let keygen = Command::new("keygen")
        .about("Print a new key as one JSON line; the only command that shows a secret");
    let verify_log = Command::new("verify-log")
        .about("Check an audit log with its rotated files and name the first broken line")
        .arg(
            Arg::new("path")
                .value_name("PATH")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The log that --audit-log names"),
        )
        .after_help("Example:\n  tinyagent-signer verify-log /var/log/tinyagent/audit.jsonl");
    Command::new("tinyagent-signer")
        .version(VERSION)
        .about("Holds the agent's key and signs only what its policy approves")
        .after_help(AFTER_HELP)
        .subcommands([policy, verify_log, keygen])
        .disable_help_subcommand(true)
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
        .group(clap::ArgGroup::new("entry").args(["inherited", "stdio", "socket"]).required(true))
        .arg(flag("inherited", "Serve the socket at descriptor 3 (started by tinyagent)"))
        .arg(flag("stdio", "Serve JSON lines on standard input and output, for audits"))
        .arg(
            option("socket", "PATH", "Serve connections to a Unix socket, or the one systemd hands over")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("allow-uid", "UID", "With --socket: another user who may connect; repeatable")
                .value_parser(value_parser!(u32))
                .action(ArgAction::Append)
                .requires("socket"),
        )
        .arg(option("key-env", "NAME", "The variable that holds the key [default: TINY_PRIVATE_KEY]"))
        .arg(
            option("key-file", "PATH", "The file that holds the key: mode 0600, or a systemd credential")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with("key-env"),
        )
        .args(policy_arguments())
        .arg(
            option("audit-log", "PATH", "Record each decision here before it takes effect, no content")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("parent", "PID", "With --inherited: end when this process ends")
                .value_parser(value_parser!(i32).range(1..))
                .requires("inherited"),
        )
        .arg(flag("require-hardening", "Refuse to start where a required measure is not in force"))
}

fn policy_arguments() -> [Arg; 6] {
    let number = |name, about| option(name, "N", about).value_parser(value_parser!(u32));
    [
        option("relay", "URL", "The relay that every proof is bound to").required(true),
        option("tools", "A,B", "The tools that may be called, instead of the default list"),
        flag("allow-writes", "Allow tools that publish events"),
        flag("bind-arguments", "Sign only templates that say what the tool was called for"),
        number("max-events-per-minute", "Signed events a minute [default: 600]"),
        number("max-proofs-per-minute", "Proofs a minute [default: no bound]"),
    ]
}

fn flag(name: &'static str, about: &'static str) -> Arg {
    Arg::new(name).long(name).help(about).action(ArgAction::SetTrue)
}

fn option(name: &'static str, value: &'static str, about: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(about).value_parser(NonEmptyStringValueParser::new())
}

/// clap's first line, without its prefix, and what a list below it names.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let listed: Vec<&str> =
        text.lines().skip(1).take_while(|line| line.starts_with("  ")).map(str::trim).collect();
    match error.get(ContextKind::InvalidArg) {
        Some(_) if !listed.is_empty() => format!("{line} {}", listed.join(" ")),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_words(words: &str) -> Result<Task, String> {
        let arguments: Vec<OsString> =
            std::iter::once("tinyagent-signer").chain(words.split_whitespace()).map(Into::into).collect();
        read(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_line_that_says_what_to_change() {
        let key = "ab".repeat(32);
        for (words, said) in [
            ("", "--inherited|--stdio|--socket"),
            ("--stdio", "--relay"),
            ("--stdio --relay", "--relay"),
            ("--stdio --relay ftp://h", "--relay needs a URL"),
            ("--stdio --relay http://u:secret@h", "user name"),
            ("--stdio --inherited --relay http://h", "cannot be used with"),
            ("--stdio --relay http://h --tools post_message", "--allow-writes"),
            ("--stdio --relay http://h --tools nothing", "unknown tool \"nothing\" in --tools"),
            ("--stdio --relay http://h --tools ,", "--tools names no tool"),
            ("--stdio --relay http://h --allow-writes false", "false"),
            ("--stdio --relay http://h --key-env LD_PRELOAD", "cannot begin with LD_"),
            ("--stdio --relay http://h --key-env a-b", "letters, digits"),
            ("--stdio --relay http://h --parent 0", "0"),
            ("--stdio --relay http://h --max-events-per-minute -1", "-1"),
            (&format!("--stdio --relay http://h {key}"), "looks like a key"),
            (&format!("--stdio --relay http://h --key-env {key}"), "looks like a key"),
            (&format!("--stdio --relay http://h --secret={key}"), "looks like a key"),
        ] {
            let Err(message) = read_words(words) else { panic!("{words} was accepted") };
            assert!(message.contains(said), "{words}: {message}");
            assert!(!message.contains('\n') && !message.contains(&key) && !message.contains("secret@"));
        }
    }

    #[test]
    fn commands_and_modes_are_told_apart() {
        assert!(matches!(read_words("keygen"), Ok(Task::Keygen)));
        assert!(matches!(read_words("--help"), Ok(Task::Print(_))));
        assert!(matches!(read_words("policy --relay http://h"), Ok(Task::ShowPolicy(_))));
        let Ok(Task::Serve(service)) =
            read_words("--inherited --relay http://h --parent 7 --key-env K --max-events-per-minute 3")
        else {
            panic!("not a service")
        };
        assert!(matches!(service.entry, Entry::Inherited));
        assert!(matches!(service.key, KeySource::Variable(name) if name.as_str() == "K"));
        assert_eq!((service.parent, service.rules.max_events_per_minute), (Some(7), 3));
    }
}
