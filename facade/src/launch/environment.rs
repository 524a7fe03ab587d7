//! Which entries of the environment go before anything else runs: the key, and every copy of it.

use std::ffi::CStr;

use tinyagent_protocol::key_env::KeyEnv;

use super::LaunchError;
use crate::sys::{SoleThread, environment};

/// A value shorter than this is no key in either form (64 hex characters, 63 of nsec), and erasing every
/// variable that contains it could erase them all.
const KEY_TEXT_FROM_BYTES: usize = 32;

/// Overwrites and removes every entry of the key variable and every other variable whose value contains
/// the key's text, in any letter case. The strings are overwritten where the kernel put them, so that
/// `/proc/self/environ` shows zeros there.
///
/// # Errors
/// When this process has more than one thread.
pub fn scrub(key_env: &KeyEnv) -> Result<(), LaunchError> {
    let mut alone = SoleThread::claim().map_err(LaunchError::NotAlone)?;
    let doomed = environment::with_entries(&alone, |entries| doomed(entries, key_env.as_str()));
    environment::erase(&mut alone, &doomed);
    Ok(())
}

/// Whether the key variable is in the environment, set or empty.
pub(super) fn key_is_set(alone: &SoleThread, key_env: &KeyEnv) -> bool {
    environment::with_entries(alone, |entries| entries.iter().any(|entry| is_of(entry, key_env.as_str())))
}

/// The value, where `entry` is an entry of the variable `name`.
fn value_of<'e>(entry: &'e CStr, name: &str) -> Option<&'e [u8]> {
    entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

/// Whether `entry` belongs to the variable `name`.
pub(super) fn is_of(entry: &CStr, name: &str) -> bool {
    value_of(entry, name).is_some()
}

/// For each entry, in order, whether it goes.
fn doomed(entries: &[&CStr], name: &str) -> Vec<bool> {
    let texts: Vec<&[u8]> = entries
        .iter()
        .filter_map(|entry| value_of(entry, name))
        .map(<[u8]>::trim_ascii)
        .filter(|text| text.len() >= KEY_TEXT_FROM_BYTES)
        .collect();
    let holds_key = |entry: &CStr| texts.iter().any(|text| contains(entry.to_bytes(), text));
    entries.iter().map(|entry| is_of(entry, name) || holds_key(entry)).collect()
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn verdicts(entries: &[&str]) -> Vec<bool> {
        let owned: Vec<_> =
            entries.iter().map(|entry| std::ffi::CString::new(*entry).expect("no NUL")).collect();
        doomed(&owned.iter().map(|entry| entry.as_c_str()).collect::<Vec<_>>(), "K")
    }

    #[test]
    fn every_duplicate_and_every_copy_goes_and_the_rest_stays() {
        let key = format!("K={KEY}");
        let copy = format!("OTHER=x{}y", KEY.to_uppercase());
        let half = format!("HALF={}", &KEY[..63]);
        assert_eq!(
            verdicts(&["PATH=/bin", &key, "KK=1", &copy, "K=", &key, &half, "K", "A=K=2"]),
            [false, true, false, true, true, true, false, false, false]
        );
    }

    #[test]
    fn copies_of_every_duplicate_go_and_surrounding_space_does_not_hide_them() {
        let first = format!("K= {KEY}\n");
        let second = format!("K=nsec1{}", "q".repeat(58));
        let copies = [format!("A={KEY}"), format!("B=nsec1{}", "q".repeat(58))];
        assert_eq!(verdicts(&[&copies[0], &first, &second, &copies[1]]), [true; 4]);
    }

    #[test]
    fn a_short_value_takes_no_other_variable_along() {
        assert_eq!(verdicts(&["PATH=/bin", "K=/", "K="]), [false, true, true]);
    }
}
