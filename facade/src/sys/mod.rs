//! The facade's only raw system calls and pointers, each wrapped in a function that is safe to call.
//!
//! Everything here is small enough to be judged by its SAFETY arguments alone. It decides nothing:
//! what is spawned, erased or denied is said by `launch` and `sandbox`.

#![allow(unsafe_code)]

pub mod descriptors;
pub mod environment;
#[cfg(target_os = "linux")]
pub mod probes;
pub mod process;
pub mod signals;
pub mod stdio;

use std::fs;
use std::io;
use std::marker::PhantomData;

/// Proof that this process had one thread when it was asked, and so, while this value lives on that
/// thread and starts no other, that nothing reads or writes the environment block beside its holder.
pub struct SoleThread {
    not_send: PhantomData<*const ()>,
}

impl SoleThread {
    /// Counts this process's threads.
    ///
    /// # Errors
    /// When there is more than one thread, or `/proc` does not say.
    pub fn claim() -> io::Result<Self> {
        if cfg!(target_os = "linux") {
            let threads = fs::read_dir("/proc/self/task")?.count();
            if threads != 1 {
                return Err(io::Error::other(format!("{threads} threads are running, not one")));
            }
        }
        Ok(Self { not_send: PhantomData })
    }
}
