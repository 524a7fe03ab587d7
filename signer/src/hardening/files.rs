//! No file, no network, no signal to others: Landlock with nothing allowed.
//!
//! Where an audit log is named its directory alone may be written, so that it can be rotated.

use std::path::Path;

use tinyagent_protocol::report::Measure;

/// The name of the measure; required of uid 0 alone.
pub const LANDLOCK: &str = "landlock";

/// Enters a Landlock domain of the newest version that the kernel has.
#[cfg(target_os = "linux")]
pub fn landlock(log_directory: Option<&Path>) -> Measure {
    use landlock::{LandlockStatus, RulesetStatus};

    let status = match restrict(log_directory) {
        Ok(status) => status,
        Err(error) => return Measure::failed(LANDLOCK, format!("the kernel refused it ({error})")),
    };
    match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => {
            Measure::unavailable(LANDLOCK, "this kernel has it switched off")
        }
        (RulesetStatus::NotEnforced, _) => Measure::unavailable(LANDLOCK, "this kernel does not offer it"),
        (_, LandlockStatus::Available { effective_abi, .. }) => match std::fs::File::open("/") {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                Measure::on_as(LANDLOCK, format!("ABI {}", effective_abi as i32))
            }
            Err(error) => Measure::failed(LANDLOCK, format!("opening / said {error}")),
            Ok(_) => Measure::failed(LANDLOCK, "/ could still be opened"),
        },
        (_, _) => Measure::failed(LANDLOCK, "enforced by a kernel that says it has none"),
    }
}

#[cfg(target_os = "linux")]
fn restrict(log_directory: Option<&Path>) -> Result<landlock::RestrictionStatus, Box<dyn std::error::Error>> {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
        Scope,
    };

    // The newest ABI that the crate knows; what the kernel lacks of it is left out.
    let abi = ABI::V10;
    let mut domain = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    if let Some(directory) = log_directory {
        let rotation = AccessFs::ReadFile
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::RemoveFile;
        domain = domain.add_rule(PathBeneath::new(PathFd::new(directory)?, rotation))?;
    }
    Ok(domain.restrict_self()?)
}

/// As on Linux, for systems without Landlock.
#[cfg(not(target_os = "linux"))]
pub fn landlock(_: Option<&Path>) -> Measure {
    Measure::unavailable(LANDLOCK, "needs Linux")
}
