//! The environment block that the kernel laid on this process's stack, read and overwritten in place.
//!
//! `std::env::var` copies to the heap and `remove_var` leaves the text in the block, readable in
//! `/proc/PID/environ`; this module does neither. It never keeps a reference into the block.

use std::ffi::{CStr, c_char};

/// A text this short is not searched for in other variables: it would match by accident. Every
/// form of a key is longer (contract section 1).
const SHORTEST_SEARCHED_TEXT_BYTES: usize = 32;

/// Gives the value of the first variable called `name` to `read`, then overwrites with zeros and
/// removes every variable of that name, and every other one whose value contains the same text.
///
/// To be called before any thread exists and before anything else has kept a pointer into the
/// environment, which is how `main` uses it.
pub fn take<R>(name: &str, read: impl FnOnce(Option<&[u8]>) -> R) -> R {
    // SAFETY: `block()` is the process's own null-terminated array of null-terminated strings, laid
    // by the kernel in writable memory. The signer never starts a thread and calls this first, so
    // nothing else reads or writes the block meanwhile.
    unsafe { take_from(block(), name.as_bytes(), read) }
}

#[cfg(not(target_vendor = "apple"))]
fn block() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: a plain read of libc's pointer, in a process of one thread.
    unsafe { environ }
}

#[cfg(target_vendor = "apple")]
fn block() -> *mut *mut c_char {
    // SAFETY: the C library's accessor returns the address of its own static pointer, never null.
    unsafe { *libc::_NSGetEnviron() }
}

/// # Safety
/// `block` is null or a null-terminated array of pointers to distinct, null-terminated, writable
/// strings that nobody else uses during the call.
unsafe fn take_from<R>(block: *mut *mut c_char, name: &[u8], read: impl FnOnce(Option<&[u8]>) -> R) -> R {
    if block.is_null() {
        return read(None);
    }
    // SAFETY: for the whole body: `block` is as this function's own contract says, `index` and
    // `kept` never pass its terminating null, and no slice made of a string outlives the statement
    // that made it, except inside `read` and the search, which write nothing.
    unsafe {
        let mut index = 0;
        let mut first: *mut c_char = std::ptr::null_mut();
        while !(*block.add(index)).is_null() {
            let entry = *block.add(index);
            if value_of(CStr::from_ptr(entry).to_bytes(), name).is_some() {
                first = entry;
                break;
            }
            index += 1;
        }
        if first.is_null() {
            return read(None);
        }
        let out = read(value_of(CStr::from_ptr(first).to_bytes(), name));

        let (mut index, mut kept) = (0, 0);
        while !(*block.add(index)).is_null() {
            let entry = *block.add(index);
            index += 1;
            if entry == first {
                continue;
            }
            let sought = value_of(CStr::from_ptr(first).to_bytes(), name).unwrap_or_default();
            if repeats(CStr::from_ptr(entry).to_bytes(), name, sought) {
                overwrite(entry);
            } else {
                *block.add(kept) = entry;
                kept += 1;
            }
        }
        while kept < index {
            *block.add(kept) = std::ptr::null_mut();
            kept += 1;
        }
        overwrite(first);
        out
    }
}

/// The value of an entry `name=value`.
fn value_of<'a>(entry: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entry.strip_prefix(name)?.strip_prefix(b"=")
}

/// Whether an entry has the name, or carries the text elsewhere.
fn repeats(entry: &[u8], name: &[u8], text: &[u8]) -> bool {
    value_of(entry, name).is_some()
        || (text.len() >= SHORTEST_SEARCHED_TEXT_BYTES && entry.windows(text.len()).any(|part| part == text))
}

/// # Safety
/// `text` points to a writable null-terminated string that no live reference covers.
unsafe fn overwrite(text: *mut c_char) {
    // SAFETY: by contract; the walk stops at the terminating null, which it leaves in place.
    unsafe {
        let mut at = text;
        while *at != 0 {
            at.write_volatile(0);
            at = at.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `take_from` over a block made of `entries`; returns what was read, the entries left,
    /// and whether `secret` is anywhere in the memory of the strings.
    fn run(entries: &[&str], name: &str, secret: &str) -> (Option<String>, Vec<String>, bool) {
        let mut strings: Vec<Vec<u8>> = entries.iter().map(|e| [e.as_bytes(), b"\0"].concat()).collect();
        let mut block: Vec<*mut c_char> = strings.iter_mut().map(|s| s.as_mut_ptr().cast()).collect();
        block.push(std::ptr::null_mut());
        // SAFETY: the block was just built as the function demands, and nobody else has it.
        let read = unsafe {
            take_from(block.as_mut_ptr(), name.as_bytes(), |value| {
                value.map(|v| String::from_utf8_lossy(v).into_owned())
            })
        };
        let left = block
            .iter()
            .take_while(|entry| !entry.is_null())
            // SAFETY: pointers into `strings`, which are alive and null-terminated.
            .map(|entry| unsafe { CStr::from_ptr(*entry) }.to_string_lossy().into_owned())
            .collect();
        let found = strings.iter().any(|s| s.windows(secret.len()).any(|part| part == secret.as_bytes()));
        (read, left, found)
    }

    const SECRET: &str = "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e70001";

    #[test]
    fn every_duplicate_and_every_carrier_of_the_text_is_overwritten() {
        let key = format!("KEY={SECRET}");
        let carrier = format!("OTHER=prefix {SECRET} suffix");
        let entries = ["A=1", &key, "B=2", "KEY=second", &carrier, "KEYS=3"];
        let (read, left, found) = run(&entries, "KEY", SECRET);
        assert_eq!(read.as_deref(), Some(SECRET));
        assert_eq!(left, ["A=1", "B=2", "KEYS=3"]);
        assert!(!found);
    }

    #[test]
    fn an_unset_variable_changes_nothing() {
        let (read, left, _) = run(&["A=1", "KEYS=3"], "KEY", SECRET);
        assert_eq!(read, None);
        assert_eq!(left, ["A=1", "KEYS=3"]);
    }

    #[test]
    fn a_short_value_does_not_take_other_variables_with_it() {
        let (read, left, _) = run(&["KEY=1", "A=1", "KEY="], "KEY", SECRET);
        assert_eq!(read.as_deref(), Some("1"));
        assert_eq!(left, ["A=1"]);
    }
}
