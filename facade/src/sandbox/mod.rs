//! What the facade gives up before it reads a byte from the host or the relay.
//!
//! Each measure stands in a file of its own, tests its effect, and reports honestly where the kernel or a
//! container profile does not offer it; those that the signer takes alike stand in [`tinyagent_hardening`].
//! Nothing here ever stops the program: whether a missing measure is fatal is for the caller to say
//! (`--require-hardening`, see [`missing`]).

#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod read_paths;
mod signer_memory;
#[cfg(target_os = "linux")]
mod syscalls;

use std::path::PathBuf;

use nix::unistd::Pid;
use tinyagent_hardening::{forbid_core_dumps, no_capabilities, no_new_privs};
use tinyagent_protocol::report::{Measure, State};

const LANDLOCK: &str = "landlock";
const NETWORK_PORTS: &str = "network-ports";
const SECCOMP: &str = "seccomp";

/// What this facade still needs once it is sandboxed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// TCP ports to connect to: the relay's, and those of proxies from the environment.
    pub ports: Vec<u16>,
    /// Whether host names are resolved, `localhost` included; false where every address is numeric.
    pub names: bool,
    /// Whether the system's TLS root certificates are still to be loaded.
    pub tls_roots: bool,
    /// Further directories to read, such as the one that `SSL_CERT_DIR` names. A certificate file's own
    /// directory does not belong here: read the file before, as the directory may be the host's and hold
    /// its configuration with the key.
    pub read: Vec<PathBuf>,
    /// The signer's process, for the self-test that it cannot be read.
    pub signer: Option<Pid>,
}

/// Applies every measure to the calling thread and those it starts later, in the order that each needs,
/// and says of each whether it holds. To be called while this thread is the only one, with the signer
/// running and before any runtime; costs well under a millisecond.
///
/// What stays possible: connections to the planned TCP ports and to name servers (TCP and UDP 53), reading
/// the directories that resolving names and loading root certificates need, threads, signals to itself.
pub fn apply(plan: &Plan) -> Vec<Measure> {
    let mut report = Vec::from(forbid_core_dumps());
    report.push(no_new_privs());
    // Before Landlock: with CAP_PERFMON or CAP_SYS_ADMIN a process passes its hooks for /proc.
    report.push(no_capabilities());
    // Landlock hides /proc, and with it whether the signer could be read without Landlock.
    let before = plan.signer.map(signer_memory::out_of_reach);
    report.extend(confine(plan));
    let after = plan.signer.map(signer_memory::out_of_reach);
    report.extend(before.zip(after).map(|(before, after)| signer_memory::measure(before, after)));
    report
}

#[cfg(target_os = "linux")]
fn confine(plan: &Plan) -> Vec<Measure> {
    let mut report = Vec::from(landlock::restrict(plan));
    report.push(syscalls::restrict());
    report
}

#[cfg(not(target_os = "linux"))]
fn confine(_plan: &Plan) -> Vec<Measure> {
    [LANDLOCK, NETWORK_PORTS, SECCOMP].map(|name| Measure::unavailable(name, "needs Linux")).into()
}

/// The measures that `--require-hardening` insists on and that do not hold: all but those of Landlock,
/// which are required at uid 0 alone. There a process without capabilities still writes root's files;
/// for any other uid the rest already keeps the signer out of reach.
pub fn missing(report: &[Measure]) -> Vec<&Measure> {
    let root = nix::unistd::geteuid().is_root();
    let required = |measure: &Measure| match measure.measure.as_str() {
        LANDLOCK => root,
        // Needs a kernel of ABI 4 (Linux 6.7); guards the network, not the key.
        NETWORK_PORTS => false,
        _ => true,
    };
    report.iter().filter(|measure| measure.state != State::On && required(measure)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<'m>(missing: &[&'m Measure]) -> Vec<&'m str> {
        missing.iter().map(|measure| measure.measure.as_str()).collect()
    }

    #[test]
    fn what_holds_is_never_missing() {
        assert!(missing(&[Measure::on(SECCOMP), Measure::on_as(LANDLOCK, "ABI 7")]).is_empty());
    }

    #[test]
    fn landlock_is_required_of_root_alone_and_ports_of_nobody() {
        let report = [
            Measure::failed(SECCOMP, "EPERM"),
            Measure::unavailable(LANDLOCK, "ENOSYS"),
            Measure::unavailable(NETWORK_PORTS, "ENOSYS"),
        ];
        let expected: &[&str] =
            if nix::unistd::geteuid().is_root() { &[SECCOMP, LANDLOCK] } else { &[SECCOMP] };
        assert_eq!(names(&missing(&report)), expected);
    }
}
