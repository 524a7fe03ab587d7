//! Lines from the host, bounded and read without blocking.
//!
//! A pipe or socket is read on readiness, on the runtime's own thread; a file, a terminal or an old
//! kernel gets one plain reading thread. A line past the limit is reported once and never buffered
//! whole. Nothing here looks into a line.

use std::future::poll_fn;
use std::io;
use std::thread;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use crate::sys::stdio::{self, Stdin};

/// The longest line, in bytes without its end (contract 2).
pub const MAX_LINE_BYTES: usize = 48 << 20;

/// How much is read at a time where little is waiting.
const CHUNK_BYTES: usize = 64 << 10;

/// How much is read at a time within a long line.
const LARGE_CHUNK_BYTES: usize = 1 << 20;

/// A buffer above this is not kept for the next line, and a line above it has memory of its own.
pub const KEEP_BYTES: usize = 256 << 10;

/// What the host's stdin gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end.
    Text(Bytes),
    /// A line that exceeds [`MAX_LINE_BYTES`]; its bytes are gone.
    TooLong,
    /// A last line without an end: whole only if it happens to be JSON.
    Unfinished(Bytes),
    /// Stdin has ended.
    End,
}

/// Cuts a stream of bytes into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    /// How far the buffer is known to hold no line end.
    searched: usize,
    /// Inside a line that was already reported as too long.
    skipping: bool,
    /// Whether the stream's first bytes were looked at.
    begun: bool,
    ended: bool,
}

impl Lines {
    /// Room for the next read.
    fn room(&mut self) -> &mut BytesMut {
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP_BYTES {
            self.buffer = BytesMut::new();
        }
        let chunk = if self.buffer.len() >= CHUNK_BYTES { LARGE_CHUNK_BYTES } else { CHUNK_BYTES };
        // Growing at the last moment keeps a small tail of room from causing a copy a line.
        if self.buffer.capacity() - self.buffer.len() < chunk / 4 {
            self.buffer.reserve(chunk);
        }
        &mut self.buffer
    }

    /// The next whole line that is buffered.
    fn next(&mut self) -> Option<Line> {
        if !self.begun && (self.buffer.len() >= 3 || self.ended) {
            self.begun = true;
            // A byte order mark before the first message, as some hosts on other systems write it.
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                self.buffer.advance(3);
            }
        }
        loop {
            match memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                Some(at) => {
                    let mut line = self.buffer.split_to(self.searched + at + 1);
                    self.searched = 0;
                    self.begun = true;
                    if line.len() > KEEP_BYTES {
                        // A small line that came along would keep the large one's memory as long as itself.
                        self.buffer = BytesMut::from(&self.buffer[..]);
                    }
                    if std::mem::take(&mut self.skipping) {
                        continue;
                    }
                    line.truncate(line.len() - 1);
                    if line.len() > MAX_LINE_BYTES {
                        return Some(Line::TooLong);
                    }
                    if line.iter().all(u8::is_ascii_whitespace) {
                        continue;
                    }
                    return Some(Line::Text(line.freeze()));
                }
                None if self.skipping => {
                    self.buffer.clear();
                    self.searched = 0;
                }
                None if self.buffer.len() > MAX_LINE_BYTES => {
                    self.skipping = true;
                    self.buffer = BytesMut::new();
                    self.searched = 0;
                    return Some(Line::TooLong);
                }
                None => self.searched = self.buffer.len(),
            }
            if !self.ended {
                return None;
            }
            let rest = self.buffer.split().freeze();
            self.searched = 0;
            return Some(if rest.iter().all(u8::is_ascii_whitespace) {
                Line::End
            } else {
                Line::Unfinished(rest)
            });
        }
    }
}

enum Source {
    Ready(AsyncFd<Stdin>),
    Thread(mpsc::Receiver<Bytes>),
}

/// The host's lines.
pub struct Input {
    lines: Lines,
    source: Source,
}

impl Input {
    /// Takes stdin over.
    ///
    /// # Errors
    /// When no reading thread can be started.
    pub fn new() -> io::Result<Self> {
        let source = match stdio::register_stdin() {
            Some(ready) => Source::Ready(ready),
            None => Source::Thread(read_on_a_thread()?),
        };
        Ok(Self { lines: Lines::default(), source })
    }

    /// The next line. Cancel safe.
    pub async fn next(&mut self) -> Line {
        loop {
            if let Some(line) = self.lines.next() {
                return line;
            }
            self.fill().await;
        }
    }

    async fn fill(&mut self) {
        match &mut self.source {
            Source::Ready(stdin) => {
                let Ok(mut guard) = poll_fn(|cx| stdin.poll_read_ready(cx)).await else {
                    self.lines.ended = true;
                    return;
                };
                let room = self.lines.room();
                let spare = room.spare_capacity_mut().len();
                match stdio::read(room) {
                    Ok(0) => self.lines.ended = true,
                    // A short read has taken all there was, and readiness is reported anew on more.
                    Ok(got) if got < spare => guard.clear_ready(),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                        match read_on_a_thread() {
                            Ok(bytes) => {
                                drop(guard);
                                self.source = Source::Thread(bytes);
                            }
                            Err(_) => self.lines.ended = true,
                        }
                    }
                    Err(_) => self.lines.ended = true,
                }
            }
            Source::Thread(bytes) => match bytes.recv().await {
                Some(bytes) => self.lines.buffer.extend_from_slice(&bytes),
                None => self.lines.ended = true,
            },
        }
    }
}

/// Reads stdin on a thread of its own, at most a few chunks ahead.
fn read_on_a_thread() -> io::Result<mpsc::Receiver<Bytes>> {
    let (sender, receiver) = mpsc::channel(4);
    thread::Builder::new().name("stdin".into()).stack_size(64 << 10).spawn(move || {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            match stdio::read_blocking(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {
                    if sender.blocking_send(buffer.split().freeze()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(lines: &mut Lines, bytes: &[u8]) -> Vec<Line> {
        lines.room().extend_from_slice(bytes);
        std::iter::from_fn(|| lines.next()).take_while(|line| *line != Line::End).collect()
    }

    fn text(text: &'static str) -> Line {
        Line::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn cuts_lines_wherever_the_reads_fall() {
        let mut lines = Lines::default();
        assert_eq!(feed(&mut lines, b"\xef\xbb"), []);
        assert_eq!(feed(&mut lines, b"\xbf{}\r"), []);
        assert_eq!(feed(&mut lines, b"\n\n  \n[1]\nx"), [text("{}\r"), text("[1]")]);
        lines.ended = true;
        assert_eq!(lines.next(), Some(Line::Unfinished(Bytes::from_static(b"x"))));
        assert_eq!(lines.next(), Some(Line::End));
    }

    #[test]
    fn a_line_past_the_limit_is_reported_once_and_the_next_one_read() {
        let mut lines = Lines::default();
        assert_eq!(feed(&mut lines, &vec![b'a'; MAX_LINE_BYTES + 1]), [Line::TooLong]);
        assert_eq!(feed(&mut lines, &vec![b'b'; 10 << 20]), []);
        assert!(lines.buffer.capacity() < 12 << 20);
        assert_eq!(feed(&mut lines, b"c\n{}\n"), [text("{}")]);
        let mut exact = vec![b'a'; MAX_LINE_BYTES];
        exact.push(b'\n');
        assert!(matches!(&feed(&mut lines, &exact)[..], [Line::Text(line)] if line.len() == MAX_LINE_BYTES));
    }
}
