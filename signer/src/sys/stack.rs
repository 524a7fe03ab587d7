//! Overwriting the stack below a computation that handled the key.
//!
//! libsecp256k1 clears most of its own temporaries, yet copies of the scalar were found on the
//! stack after it returned; whoever reads this process's memory later must not find them.

use std::hint::black_box;

/// How much of the stack below the caller is overwritten. A test holds loading and signing to half of it;
/// more than is needed would push everything else out of the processor's first cache with every signature.
pub const WIPED_STACK_BYTES: usize = 8 * 1024;

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

/// How much of the stack below the caller `work` writes to, in bytes.
#[cfg(test)]
pub fn depth_of(work: impl FnOnce()) -> usize {
    const AREA_BYTES: usize = 256 * 1024;
    const MARK: u64 = 0x5a5a_5a5a_5a5a_5a5a;

    #[inline(never)]
    fn in_the_area_below<R>(look: impl FnOnce(&mut [std::mem::MaybeUninit<u64>]) -> R) -> R {
        let mut area = [const { std::mem::MaybeUninit::<u64>::uninit() }; AREA_BYTES / 8];
        let result = look(&mut area);
        black_box(&area);
        result
    }

    in_the_area_below(|area| {
        for word in area {
            // SAFETY: as in `overwrite_below`.
            unsafe { word.as_mut_ptr().write_volatile(MARK) };
        }
    });
    below(work);
    in_the_area_below(|area| {
        let is_written = |word: &std::mem::MaybeUninit<u64>| {
            // SAFETY: the frame lies where the one that was marked lay, so what was not written to since
            // holds the mark; and any bytes are a u64. A volatile load keeps the compiler from assuming more.
            let word = unsafe { word.as_ptr().read_volatile() };
            // A function with a large frame begins by putting a zero into each of its pages.
            word != MARK && word != 0
        };
        AREA_BYTES - 8 * area.iter().position(is_written).unwrap_or(area.len())
    })
}
