//! A stand-in for both programs, for the launcher's tests: it goes the launcher's way with the real
//! functions and writes what each process sees of itself, as JSON, into the file named by its first
//! argument. Called `tinyagent-signer` it plays the signer, which reports over its socket.

use std::error::Error;
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::{close, getpgrp, getpid, getppid};
use serde_json::{Value, json};
use tinyagent_facade::launch::{
    SIGNER_PROGRAM, Stage, exec_second_stage, prepare, scrub, second_stage, signer_path, spawn_signer,
};
use tinyagent_protocol::key_env::KeyEnv;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.first().is_some_and(|name| name.as_bytes().ends_with(SIGNER_PROGRAM.as_bytes())) {
        return signer();
    }
    match Stage::take_from(&mut args)? {
        Stage::First => first(&args),
        Stage::Second { signer } => {
            // Before it makes this process unreadable, for its own user too.
            let environ = environ();
            let mut link = second_stage(signer, &KeyEnv::default())?;
            let mut report = seen()?;
            report["environ"] = json!(environ);
            report["args"] = json!(args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>());
            let flags = OFlag::from_bits_retain(fcntl(&link.socket, FcntlArg::F_GETFL)?);
            report["nonblocking"] = json!(flags.contains(OFlag::O_NONBLOCK));
            report["reaped"] = match &mut link.child {
                Some(child) => {
                    report["signer_pid"] = json!(child.pid().as_raw());
                    link.socket.shutdown(Shutdown::Both)?;
                    json!(format!("{:?}", child.wait_for(Duration::from_secs(10))))
                }
                None => Value::Null,
            };
            let file = args.get(1).ok_or("no file named")?;
            let mut stages: Value = serde_json::from_slice(&fs::read(file)?)?;
            stages["second"] = report;
            Ok(fs::write(file, stages.to_string())?)
        }
    }
}

fn first(args: &[OsString]) -> Result<(), Box<dyn Error>> {
    if args.iter().any(|arg| arg == "--close-standard") {
        // Closed at exec they would not stay so: the standard library fills them before main.
        for number in 0..=2 {
            close(number)?;
        }
    }
    prepare()?;
    let key_env = KeyEnv::parse("TINY_PRIVATE_KEY")?;
    let mut link =
        spawn_signer(&signer_path()?, &[CString::new(SIGNER_PROGRAM)?, c"--policy".into()], &key_env)?;
    scrub(&key_env)?;
    let mut length = [0; 4];
    link.socket.read_exact(&mut length)?;
    let mut signer = vec![0; u32::from_be_bytes(length) as usize];
    link.socket.read_exact(&mut signer)?;
    let signer: Value = serde_json::from_slice(&signer)?;
    let stages = json!({ "first": seen()?, "signer": signer });
    fs::write(args.get(1).ok_or("no file named")?, stages.to_string())?;
    match exec_second_stage(args, &link)? {}
}

fn signer() -> Result<(), Box<dyn Error>> {
    let report = seen()?;
    // To take descriptor 3 the way the second stage does; the name is one that is never set.
    let mut link = second_stage(None, &KeyEnv::parse("NEVER_SET")?)?;
    link.socket.set_nonblocking(false)?;
    let report = report.to_string();
    link.socket.write_all(&u32::try_from(report.len())?.to_be_bytes())?;
    link.socket.write_all(report.as_bytes())?;
    // Until the facade's end is gone.
    link.socket.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The environment block as it lies in memory; empty where this process may not read it.
fn environ() -> String {
    String::from_utf8_lossy(&fs::read("/proc/self/environ").unwrap_or_default()).into_owned()
}

/// What this process can say of itself.
fn seen() -> Result<Value, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
    };
    let mut descriptors = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name();
        // The directory being read is in its own listing; by now it leads nowhere or elsewhere.
        if let Ok(target) = fs::read_link(std::path::Path::new("/proc/self/fd").join(&number)) {
            descriptors.push(format!("{} {}", number.to_string_lossy(), target.display()));
        }
    }
    descriptors.retain(|descriptor| !descriptor.contains("/proc/"));
    descriptors.sort();
    Ok(json!({
        "environ": environ(),
        "descriptors": descriptors,
        "ignored": line("SigIgn:"),
        "blocked": line("SigBlk:"),
        "name": line("Name:"),
        "pid": getpid().as_raw(),
        "parent": getppid().as_raw(),
        "group": getpgrp().as_raw(),
    }))
}
