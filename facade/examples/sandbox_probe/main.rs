//! A program that enters the facade's sandbox, or as a control does not, attempts what the sandbox denies
//! and does what it has to leave possible, and prints as JSON how each was answered.
//!
//! `sandbox_probe VICTIM_PID ALLOWED_PORT DENIED_PORT FILE [bare] [refuse=NAME:ERRNO,…]`: `bare` stays out
//! of the sandbox; `refuse` makes the system calls of a measure fail first, as an old kernel or a
//! container would.

mod attempts;
mod needs;
mod sys;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
use serde_json::json;
use tinyagent_facade::sandbox::{self, Plan};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, victim, allowed, denied, file, options @ ..] = args.as_slice() else {
        return Err("usage: sandbox_probe VICTIM_PID ALLOWED_PORT DENIED_PORT FILE [bare] [refuse=…]".into());
    };
    let surroundings = attempts::Surroundings {
        victim: victim.parse()?,
        denied_port: denied.parse()?,
        file: PathBuf::from(file),
    };
    let allowed: u16 = allowed.parse()?;
    for refusals in options.iter().filter_map(|option| option.strip_prefix("refuse=")) {
        for refusal in refusals.split(',') {
            refuse(refusal)?;
        }
    }
    let before = needs::root_certificates();
    let start = Instant::now();
    let report = if options.iter().any(|option| option == "bare") {
        Vec::new()
    } else {
        sandbox::apply(&Plan {
            ports: vec![allowed],
            names: true,
            tls_roots: true,
            read: Vec::new(),
            signer: Some(Pid::from_raw(i32::try_from(surroundings.victim)?)),
        })
    };
    let took = start.elapsed();
    let answers: BTreeMap<_, _> = attempts::all(&surroundings).into_iter().collect();
    let mut needs: BTreeMap<_, _> = needs::all(allowed).into_iter().collect();
    let after = needs::root_certificates();
    needs.insert(
        "root certificates",
        if before == after { Ok(()) } else { Err(format!("{before}, {after}")) },
    );
    println!(
        "{}",
        json!({
            "answers": answers,
            "needs": needs.into_iter().map(|(name, outcome)| (name, outcome.err())).collect::<BTreeMap<_, _>>(),
            "report": report,
            "missing": sandbox::missing(&report),
            "microseconds": took.as_micros(),
        })
    );
    Ok(())
}

/// Makes the system calls of a measure fail with an errno: `landlock:38`.
fn refuse(refusal: &str) -> Result<(), Box<dyn Error>> {
    let (measure, errno) = refusal.split_once(':').ok_or("NAME:ERRNO")?;
    let numbers: &[i64] = match measure {
        "landlock" => &[
            libc::SYS_landlock_create_ruleset,
            libc::SYS_landlock_add_rule,
            libc::SYS_landlock_restrict_self,
        ],
        "capset" => &[libc::SYS_capset],
        // Last, where several are refused: no filter can be added after it.
        "seccomp" => &[libc::SYS_seccomp],
        other => return Err(format!("nothing known as {other}").into()),
    };
    let rules = numbers.iter().map(|number| (*number, Vec::new())).collect();
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let answer = SeccompAction::Errno(errno.parse()?);
    let program: BpfProgram = SeccompFilter::new(rules, SeccompAction::Allow, answer, arch)?.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
