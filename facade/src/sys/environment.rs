//! The environment block as the kernel laid it out, read and erased in place.
//!
//! `std::env` copies every value it hands out to the heap; nothing here copies a value anywhere.

use std::ffi::{CStr, c_char};
use std::ptr;

use super::SoleThread;

#[cfg(not(target_vendor = "apple"))]
fn array() -> *mut *mut c_char {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: `environ` is libc's pointer to the environment array; reading the pointer itself races
    // with nothing while the caller's SoleThread lives.
    unsafe { environ }
}

#[cfg(target_vendor = "apple")]
fn array() -> *mut *mut c_char {
    // SAFETY: returns the address of libc's pointer to the environment array, never null.
    unsafe { *libc::_NSGetEnviron() }
}

/// Calls `look` with every `NAME=value` entry of the environment, in order, borrowed from the block.
pub fn with_entries<R>(_alone: &SoleThread, look: impl FnOnce(&[&CStr]) -> R) -> R {
    let mut entries = Vec::new();
    let mut slot = array();
    // SAFETY: the array ends with a null pointer (or is itself null after clearenv), its other members
    // are C strings that live as long as the process, and no other thread exists that could change them
    // while `look` runs.
    unsafe {
        while !slot.is_null() && !(*slot).is_null() {
            entries.push(CStr::from_ptr(*slot));
            slot = slot.add(1);
        }
    }
    look(&entries)
}

/// Overwrites with zeros, and removes, each entry whose place in `doomed` is true (places as
/// [`with_entries`] gave them; entries past the end of `doomed` stay).
pub fn erase(_alone: &mut SoleThread, doomed: &[bool]) {
    let array = array();
    if array.is_null() {
        return;
    }
    let mut kept = array;
    let mut slot = array;
    let mut verdicts = doomed.iter();
    // SAFETY: as in `with_entries`; the exclusive borrow of SoleThread says that no entry is borrowed.
    // The strings are writable (the kernel puts them on the stack, setenv on the heap). `kept` never
    // passes `slot`, so every write to the array lands on a member already read.
    unsafe {
        while !(*slot).is_null() {
            let entry = *slot;
            if verdicts.next().copied().unwrap_or(false) {
                let mut byte = entry;
                while ptr::read(byte) != 0 {
                    // Volatile, so that the write is made although nothing reads it again.
                    ptr::write_volatile(byte, 0);
                    byte = byte.add(1);
                }
            } else {
                *kept = entry;
                kept = kept.add(1);
            }
            slot = slot.add(1);
        }
        // The freed tail too: a pointer left there would still lead to an erased entry.
        while kept != slot {
            *kept = ptr::null_mut();
            kept = kept.add(1);
        }
    }
}
