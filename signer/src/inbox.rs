//! Bytes of one peer on their way to being whole requests.
//!
//! The buffer grows with what has arrived, never with what a header announces, so that a peer cannot
//! make the signer reserve memory by a number alone.

use std::ops::Range;

use tinyagent_protocol::frame::{FrameError, HEADER_BYTES, MAX_REQUEST_BYTES, length};

/// What a peer that sends small requests ever occupies, in bytes.
pub const SMALL_BYTES: usize = 64 << 10;

/// The receive buffer of one peer.
pub struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// An empty one.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(SMALL_BYTES) }
    }

    /// What has arrived and is not consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffer with room for more in its spare capacity: at most as much again as is there.
    pub fn room(&mut self) -> &mut Vec<u8> {
        if self.bytes.len() == self.bytes.capacity() {
            self.bytes.reserve_exact(self.bytes.len().max(SMALL_BYTES));
        }
        &mut self.bytes
    }

    /// Where the first frame's content lies, if it is whole.
    pub fn frame(&self) -> Result<Option<Range<usize>>, FrameError> {
        let content = self.announced()?.map(|length| HEADER_BYTES..HEADER_BYTES + length);
        Ok(content.filter(|content| content.end <= self.bytes.len()))
    }

    /// The length that the first frame's header announces, once there is one.
    pub fn announced(&self) -> Result<Option<usize>, FrameError> {
        self.bytes.first_chunk().map(|header| length(*header, MAX_REQUEST_BYTES)).transpose()
    }

    /// Forgets everything before `end`, and gives memory back that only a large request needed.
    pub fn consume(&mut self, end: usize) {
        self.bytes.drain(..end.min(self.bytes.len()));
        if self.bytes.capacity() > SMALL_BYTES {
            self.bytes.shrink_to(SMALL_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(inbox: &mut Inbox, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = inbox.room();
            let part = bytes.len().min(room.capacity() - room.len());
            room.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
        }
    }

    #[test]
    fn frames_come_out_whole_and_in_order_however_they_arrive() {
        let mut inbox = Inbox::new();
        for byte in *b"\0\0\0\x02ab\0\0\0\x01" {
            receive(&mut inbox, &[byte]);
        }
        let first = inbox.frame().unwrap().unwrap();
        assert_eq!(&inbox.bytes()[first.clone()], b"ab");
        inbox.consume(first.end);
        assert_eq!(inbox.frame(), Ok(None));
        receive(&mut inbox, b"c");
        let second = inbox.frame().unwrap().unwrap();
        assert_eq!(&inbox.bytes()[second], b"c");
    }

    #[test]
    fn an_announced_length_reserves_nothing_and_a_large_frame_leaves_nothing() {
        let mut inbox = Inbox::new();
        receive(&mut inbox, &(MAX_REQUEST_BYTES as u32).to_be_bytes());
        assert_eq!(inbox.frame(), Ok(None));
        assert_eq!(inbox.room().capacity(), SMALL_BYTES);
        receive(&mut inbox, &vec![b'x'; MAX_REQUEST_BYTES]);
        let frame = inbox.frame().unwrap().unwrap();
        assert_eq!(frame.len(), MAX_REQUEST_BYTES);
        inbox.consume(frame.end);
        assert!(inbox.room().capacity() <= SMALL_BYTES);
    }

    #[test]
    fn empty_and_oversized_frames_are_errors_from_the_header_on() {
        for length in [0, MAX_REQUEST_BYTES as u32 + 1, u32::MAX] {
            let mut inbox = Inbox::new();
            receive(&mut inbox, &length.to_be_bytes());
            assert!(inbox.frame().is_err());
        }
    }
}
