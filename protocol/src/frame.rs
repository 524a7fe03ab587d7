//! How messages are framed on the socket: a big-endian u32 length, then that many bytes of one JSON
//! object.

use thiserror::Error;

/// Bytes of a frame's header, which is its length.
pub const HEADER_BYTES: usize = size_of::<u32>();

/// The largest request: what a host line of 48 MiB can carry, a template, and the keys around them.
pub const MAX_REQUEST_BYTES: usize = (48 << 20) + (1 << 20) + (64 << 10);

/// The largest answer: a published event is as large as its template, which is at most 1 MiB.
pub const MAX_ANSWER_BYTES: usize = 2 << 20;

/// A length that no message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a frame of {0} bytes is outside 1 to {1}")]
pub struct FrameError(usize, usize);

/// The length in a frame's header, if it is at least 1 and at most `limit`.
///
/// # Errors
/// [`FrameError`]; the stream cannot be read on after it.
pub fn length(header: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    if (1..=limit).contains(&length) { Ok(length) } else { Err(FrameError(length, limit)) }
}

/// The header for a message of this many bytes.
///
/// # Errors
/// [`FrameError`] where it exceeds `limit`.
pub fn header(bytes: usize, limit: usize) -> Result<[u8; 4], FrameError> {
    let fits = u32::try_from(bytes).ok().filter(|_| (1..=limit).contains(&bytes));
    fits.map(u32::to_be_bytes).ok_or(FrameError(bytes, limit))
}
