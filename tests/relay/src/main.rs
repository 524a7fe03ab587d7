//! The development relay as a program: prints its URL as one JSON line and serves until it is killed.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use tinyagent_relay::{Membership, Options, Relay};

fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let value = |name: &'static str, form: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(form).help(help)
    };
    Command::new("tinyagent-relay")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A strict in-memory relay for trying out and testing tinyagent")
        .arg(
            value("listen", "ADDRESS", "Address to listen on; may be given more than once")
                .action(ArgAction::Append)
                .default_value("127.0.0.1:0"),
        )
        .arg(value("prefix", "PATH", "Tenant path prefix, such as /r/acme").default_value(""))
        .arg(
            value("body-limit", "BYTES", "Largest request body")
                .value_parser(value_parser!(u64))
                .default_value("1048576"),
        )
        .arg(value("owner", "PUBKEY", "Public key of the owner, in hex"))
        .arg(flag("members-only", "Serve members only"))
        .arg(flag("enforce-grants", "Require a grant for publishing"))
        .arg(flag("hostile", "Alter templates before returning them"))
        .arg(
            value("hostile-seed", "N", "Seed of the alterations")
                .value_parser(value_parser!(u64))
                .default_value("0"),
        )
        .arg(flag("log", "Print one line a request on stderr"))
}

fn options(matches: &ArgMatches) -> Options {
    let number = |name| matches.get_one::<u64>(name).copied().unwrap_or_default();
    Options {
        listen: matches.get_many::<String>("listen").into_iter().flatten().cloned().collect(),
        prefix: matches.get_one::<String>("prefix").cloned().unwrap_or_default(),
        body_limit: number("body-limit"),
        owner: matches.get_one::<String>("owner").cloned(),
        membership: if matches.get_flag("members-only") { Membership::MembersOnly } else { Membership::Open },
        grants_enforced: matches.get_flag("enforce-grants"),
        hostile: matches.get_flag("hostile"),
        hostile_seed: number("hostile-seed"),
        record: false,
        log: matches.get_flag("log"),
        ..Options::default()
    }
}

fn main() {
    match Relay::try_start(options(&command().get_matches())) {
        Ok(relay) => {
            println!("{}", serde_json::json!({"url": relay.url()}));
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("tinyagent-relay: cannot listen: {error}");
            std::process::exit(1);
        }
    }
}
