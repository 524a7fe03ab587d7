//! Overwriting the stack below a computation that handled the key.
//!
//! libsecp256k1 clears most of its own temporaries, yet copies of the scalar were found on the
//! stack after it returned; whoever reads this process's memory later must not find them.

use std::hint::black_box;

/// How much of the stack below the caller is overwritten; measured to be more than loading and
/// signing use in debug and release builds.
pub const WIPED_STACK_BYTES: usize = 64 * 1024;

/// Runs `work` and overwrites the stack that it used before returning its result, which must
/// not be secret itself.
pub fn with_wiped_stack<R>(work: impl FnOnce() -> R) -> R {
    let result = below(work);
    overwrite_below();
    result
}

/// A frame of its own, so that everything `work` spills lies below the caller's frame.
#[inline(never)]
fn below<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[inline(never)]
fn overwrite_below() {
    let mut area = [const { std::mem::MaybeUninit::<u64>::uninit() }; WIPED_STACK_BYTES / 8];
    for word in &mut area {
        // SAFETY: a store to a local of this frame; volatile, because nothing reads it again and
        // the compiler would drop it.
        unsafe { word.as_mut_ptr().write_volatile(0) };
    }
    black_box(&area);
}
