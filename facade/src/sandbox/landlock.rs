//! Files and network: Landlock, with the newest version that the kernel has, as far as it goes.
//!
//! Granted is reading what [`super::read_paths`] lists and connecting to planned ports. Never granted are
//! writing, running a program, `/proc`, and signals or abstract sockets of processes outside.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use tinyagent_hardening::refused;
use tinyagent_protocol::report::Measure;

use super::{LANDLOCK, NETWORK_PORTS, Plan, read_paths};
use crate::sys::probes;

/// The newest version that the landlock crate knows; what the kernel lacks of it is left out.
const NEWEST: ABI = ABI::V10;

/// Restricts TCP ports from this version on, UDP ports from the other (landlock(7)).
const TCP_SINCE: i32 = 4;
const UDP_SINCE: i32 = 10;

/// The port of name servers (RFC 1035, 4.2).
const DNS_PORT: u16 = 53;

/// Enters a domain that allows what `plan` needs, and reports files and ports apart: old kernels restrict
/// files alone.
pub fn restrict(plan: &Plan) -> [Measure; 2] {
    // Asked apart from the crate, which does not say whether the call is missing or forbidden.
    if let Err(error) = probes::landlock_version() {
        return [LANDLOCK, NETWORK_PORTS].map(|measure| refused(measure, &error));
    }
    match enter(plan) {
        Ok(RestrictionStatus {
            ruleset: RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            landlock: LandlockStatus::Available { effective_abi, .. },
            ..
        }) => {
            let version = effective_abi as i32;
            [files(version), ports(version, plan)]
        }
        Ok(_) => [LANDLOCK, NETWORK_PORTS].map(|measure| Measure::failed(measure, "it was not enforced")),
        Err(error) => [LANDLOCK, NETWORK_PORTS].map(|measure| Measure::failed(measure, error.to_string())),
    }
}

fn enter(plan: &Plan) -> Result<RestrictionStatus, RulesetError> {
    let mut domain = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for path in read_paths::readable(plan) {
        // What is not there, or not ours to open, needs no rule.
        let Ok(opened) = PathFd::new(&path) else { continue };
        let access: BitFlags<AccessFs> =
            if path.is_dir() { AccessFs::ReadFile | AccessFs::ReadDir } else { AccessFs::ReadFile.into() };
        domain = domain.add_rule(PathBeneath::new(opened, access))?;
    }
    for port in &plan.ports {
        domain = domain.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    if plan.names {
        domain = domain
            .add_rule(NetPort::new(DNS_PORT, AccessNet::ConnectTcp | AccessNet::ConnectSendUdp))?
            // Port 0: the source port that the kernel chooses; and what getaddrinfo connects a UDP socket
            // to, without sending, when it sorts addresses by reachability (RFC 6724).
            .add_rule(NetPort::new(0, AccessNet::BindUdp | AccessNet::ConnectSendUdp))?;
    }
    domain.restrict_self()
}

/// Tested on what every system has and no plan grants.
fn files(version: i32) -> Measure {
    for path in ["/", "/proc/self/status"] {
        match File::open(path).map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EACCES)) => {}
            // No /proc in this container.
            Err(Some(libc::ENOENT)) => {}
            Err(errno) => return Measure::failed(LANDLOCK, format!("opening {path} said {errno:?}")),
            Ok(_) => return Measure::failed(LANDLOCK, format!("{path} could still be opened")),
        }
    }
    Measure::on_as(LANDLOCK, format!("ABI {version}"))
}

/// Tested on a port that the plan does not name; the check comes before any packet.
fn ports(version: i32, plan: &Plan) -> Measure {
    if version < TCP_SINCE {
        return Measure::unavailable(NETWORK_PORTS, format!("needs Landlock ABI {TCP_SINCE}, not {version}"));
    }
    let Some(port) = (1..=u16::MAX).find(|port| *port != DNS_PORT && !plan.ports.contains(port)) else {
        return Measure::failed(NETWORK_PORTS, "the plan names every port");
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpStream::connect_timeout(&address, Duration::from_millis(1)).map_err(io_errno) {
        Err(Some(libc::EACCES)) if version < UDP_SINCE => {
            Measure::on_as(NETWORK_PORTS, format!("TCP; UDP needs ABI {UDP_SINCE}"))
        }
        Err(Some(libc::EACCES)) => Measure::on_as(NETWORK_PORTS, "TCP and UDP"),
        Err(errno) => Measure::failed(NETWORK_PORTS, format!("connecting to port {port} said {errno:?}")),
        Ok(_) => Measure::failed(NETWORK_PORTS, format!("port {port} could be connected to")),
    }
}

fn io_errno(error: io::Error) -> Option<i32> {
    error.raw_os_error()
}
