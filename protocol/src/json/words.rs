//! Eight bytes at a time: most strings of a message are shorter than what a vectorised search pays for.
//!
//! Each function marks bytes by their high bit. A mark above the lowest one may be false, since a
//! subtraction borrows upwards; the lowest is exact, and only that one is used.

/// How many words of a string are searched before a vectorised search takes over.
pub(super) const SHORT_WORDS: usize = 4;

const ONES: u64 = u64::MAX / 0xff;
const HIGHS: u64 = ONES << 7;

/// Looks for a marked byte from `at` on, in at most so many words and no further than whole words go: where it
/// stands, or as an error where the search has ended without one.
pub(crate) fn find(
    bytes: &[u8],
    mut at: usize,
    words: usize,
    mark: impl Fn(u64) -> u64,
) -> Result<usize, usize> {
    for _ in 0..words {
        let Some(word) = word_at(bytes, at) else { break };
        let marked = mark(word);
        at += first_marked(marked);
        if marked != 0 {
            return Ok(at);
        }
    }
    Err(at)
}

/// The eight bytes from `at` on, the first of them lowest; none where fewer are left.
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

/// How many bytes come before the first marked one.
fn first_marked(marked: u64) -> usize {
    (marked.trailing_zeros() / 8) as usize
}

/// Marks what a scan of a string has to look at: quotes, backslashes, controls and all that is not ASCII.
pub(super) fn special(word: u64) -> u64 {
    (word & HIGHS) | escaped(word)
}

/// Marks what stands in no JSON string as it is: quotes, backslashes and controls.
pub(crate) fn escaped(word: u64) -> u64 {
    (word.wrapping_sub(ONES * 0x20) & !word & HIGHS) | quote_or_backslash(word)
}

/// Marks quotes and backslashes.
pub(super) fn quote_or_backslash(word: u64) -> u64 {
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    zero(word ^ (ONES * 0x22)) | zero(word ^ (ONES * 0x5c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mark_is_exact_for_every_byte_at_every_place_and_beside_every_other() {
        let is_quote = |b: u8| matches!(b, b'"' | b'\\');
        let is_escaped = |b: u8| is_quote(b) || b < 0x20;
        let is_special = |b: u8| is_escaped(b) || b >= 0x80;
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                for other in 0..=u8::MAX {
                    let mut bytes = [b'a'; 8];
                    bytes[place] = byte;
                    bytes[(place + 1) % 8] = other;
                    let word = word_at(&bytes, 0).expect("eight bytes");
                    let first = |is: &dyn Fn(u8) -> bool| bytes.iter().position(|b| is(*b)).unwrap_or(8);
                    assert_eq!(first_marked(special(word)), first(&is_special), "{bytes:?}");
                    assert_eq!(first_marked(escaped(word)), first(&is_escaped), "{bytes:?}");
                    assert_eq!(first_marked(quote_or_backslash(word)), first(&is_quote), "{bytes:?}");
                }
            }
        }
        assert_eq!(word_at(b"1234567", 0), None);
        assert_eq!(word_at(b"12345678", 9), None);
    }
}
