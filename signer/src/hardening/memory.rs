//! What the report says of the page that holds the key; custody has already mapped it.

use std::fs;

use tinyagent_hardening::refused;
use tinyagent_protocol::report::Measure;

use crate::custody::{Backing, Keeping};

/// The name of the measure that may be missing where the page is locked.
pub const MEMFD_SECRET: &str = "memfd-secret";
const MEMORY_LOCK: &str = "memory-lock";

/// Two measures: whether the kernel itself cannot read the page, and whether it stays out of swap.
pub fn key_page(keeping: &Keeping) -> Vec<Measure> {
    let why = |measure| match &keeping.shortfall {
        Some(error) => refused(measure, error),
        None => Measure::failed(measure, "the kernel gave no reason"),
    };
    match keeping.backing {
        Backing::MemfdSecret => vec![
            Measure::on(MEMFD_SECRET),
            Measure::on_as(MEMORY_LOCK, format!("memfd_secret; {}", swap_in_use())),
        ],
        Backing::Locked => {
            let lock = match &keeping.unadvised {
                None => Measure::on_as(MEMORY_LOCK, format!("mlock; {}", swap_in_use())),
                Some(error) => Measure::failed(
                    MEMORY_LOCK,
                    format!("mlock, but dumps and children are not excluded: {error}"),
                ),
            };
            vec![why(MEMFD_SECRET), lock]
        }
        Backing::Unlocked => {
            let mut lock = Measure::failed(MEMORY_LOCK, format!("mlock was refused; {}", swap_in_use()));
            if let Some(error) = &keeping.shortfall {
                lock.why = Some(format!("mlock: {error}; {}", swap_in_use()));
            }
            vec![Measure::unavailable(MEMFD_SECRET, "not offered by this kernel"), lock]
        }
    }
}

/// Whether the system swaps at all, from `/proc/swaps`: a heading and one line an area.
fn swap_in_use() -> &'static str {
    match fs::read_to_string("/proc/swaps") {
        Ok(table) if table.lines().count() > 1 => "the system swaps",
        Ok(_) => "the system does not swap",
        Err(_) => "whether the system swaps is not known",
    }
}
