//! HTTP/1.1 on one connection: a request in, an answer out, nothing else. It keeps the bytes as they came and
//! bounds the head and the body; it never decides what an answer says.

use crate::request::Unread;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The largest head that is read, in bytes.
const HEAD_LIMIT_BYTES: usize = 64 * 1024;
/// The most headers that are read.
const HEADERS_MAX: usize = 128;
/// How much of a refused body is still read, so that the client sees the answer and not a reset.
const DRAIN_LIMIT_BYTES: u64 = 256 * 1024 * 1024;
/// How long a refused body is still read.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection's bytes, in the clear or through TLS.
pub(crate) trait Duplex: Read + Write + Send {
    fn tcp(&self) -> &TcpStream;
    /// Says goodbye in the protocol's own way, before the TCP connection is closed.
    fn farewell(&mut self) {}
}

impl Duplex for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A request's head, and how its body is framed.
pub(crate) struct Head {
    pub bytes: Vec<u8>,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub framing: BodyFraming,
    /// Whether the client expects the connection to be kept.
    pub keep_alive: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    Length(u64),
    Chunked,
}

pub(crate) enum ReadHead {
    /// A whole head.
    Head(Head),
    /// The client is gone, or was silent for longer than the connection's timeout.
    Gone,
    /// Not HTTP, or too large: the status to answer before closing.
    Refused(u16),
}

pub(crate) struct Connection {
    pub wire: Box<dyn Duplex>,
    /// Bytes read and not yet consumed.
    buffer: Vec<u8>,
}

impl Connection {
    pub fn new(wire: Box<dyn Duplex>) -> Connection {
        Connection { wire, buffer: Vec::new() }
    }

    /// Reads some more bytes; 0 at the end.
    fn fill(&mut self) -> io::Result<usize> {
        let start = self.buffer.len();
        self.buffer.resize(start + 16 * 1024, 0);
        let result = retry(|| self.wire.read(&mut self.buffer[start..]));
        self.buffer.truncate(start + *result.as_ref().unwrap_or(&0));
        result
    }

    /// Waits for the first byte of another request: `Ok(false)` if the client closed, an error if time ran out.
    pub fn wait_for_request(&mut self) -> io::Result<bool> {
        Ok(!self.buffer.is_empty() || self.fill()? > 0)
    }

    pub fn read_head(&mut self) -> ReadHead {
        let mut searched = 0;
        let end = loop {
            if let Some(at) = find(&self.buffer[searched..], b"\r\n\r\n") {
                break searched + at + 4;
            }
            searched = self.buffer.len().saturating_sub(3);
            if self.buffer.len() > HEAD_LIMIT_BYTES {
                return ReadHead::Refused(431);
            }
            match self.fill() {
                Ok(0) | Err(_) => return ReadHead::Gone,
                Ok(_) => {}
            }
        };
        let rest = self.buffer.split_off(end);
        let bytes = std::mem::replace(&mut self.buffer, rest);
        parse_head(bytes).map_or(ReadHead::Refused(400), ReadHead::Head)
    }

    /// Reads the body of a request, or says that it is larger than the limit.
    pub fn read_body(&mut self, head: &Head, limit: u64) -> io::Result<Result<Vec<u8>, Unread>> {
        let expects = head.headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("expect") && value.eq_ignore_ascii_case("100-continue")
        });
        match head.framing {
            BodyFraming::Length(length) if length > limit => Ok(Err(Unread::TooLarge)),
            BodyFraming::Length(length) => {
                if expects && self.buffer.is_empty() && length > 0 {
                    self.wire.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
                self.take(length as usize).map(Ok)
            }
            BodyFraming::Chunked => self.read_chunks(limit),
        }
    }

    fn read_chunks(&mut self, limit: u64) -> io::Result<Result<Vec<u8>, Unread>> {
        let bad = || io::Error::new(ErrorKind::InvalidData, "malformed chunk");
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let digits = line.split(|c| *c == b';').next().unwrap_or_default();
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?.trim();
            let size = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
            if size == 0 {
                while !self.read_line()?.is_empty() {}
                return Ok(Ok(body));
            }
            if body.len() as u64 + size > limit {
                return Ok(Err(Unread::TooLarge));
            }
            body.append(&mut self.take(size as usize)?);
            if !self.read_line()?.is_empty() {
                return Err(bad());
            }
        }
    }

    /// One line without its CRLF.
    fn read_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.buffer, b"\r\n") {
                let rest = self.buffer.split_off(at + 2);
                let mut line = std::mem::replace(&mut self.buffer, rest);
                line.truncate(at);
                return Ok(line);
            }
            if self.buffer.len() > HEAD_LIMIT_BYTES {
                return Err(io::Error::new(ErrorKind::InvalidData, "line too long"));
            }
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Exactly this many bytes.
    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if self.buffer.len() >= length {
            let rest = self.buffer.split_off(length);
            return Ok(std::mem::replace(&mut self.buffer, rest));
        }
        let mut body = std::mem::take(&mut self.buffer);
        let start = body.len();
        body.resize(length, 0);
        self.wire.read_exact(&mut body[start..])?;
        Ok(body)
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        // A zero duration is an error to the socket; the shortest timeout stands for it.
        let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
        let _ = self.wire.tcp().set_read_timeout(timeout);
    }

    /// Ends the connection in order; the client reads an end of file.
    pub fn close(&mut self) {
        self.wire.farewell();
        let _ = self.wire.flush();
        let _ = self.wire.tcp().shutdown(std::net::Shutdown::Write);
    }

    /// Ends the connection without a goodbye of the layer above TCP.
    pub fn abandon(&mut self) {
        let _ = self.wire.tcp().shutdown(std::net::Shutdown::Write);
    }

    /// Ends the sending side and reads what the client still sends, so that it gets to read the answer.
    pub fn close_after_draining(&mut self) {
        self.close();
        self.set_read_timeout(Some(DRAIN_TIMEOUT));
        let started = std::time::Instant::now();
        let mut sink = vec![0; 64 * 1024];
        let mut total = 0;
        while total < DRAIN_LIMIT_BYTES && started.elapsed() < DRAIN_TIMEOUT {
            match retry(|| self.wire.read(&mut sink)) {
                Ok(0) | Err(_) => return,
                Ok(n) => total += n as u64,
            }
        }
    }

    /// Makes closing send a reset instead of an end of file.
    pub fn reset(&mut self) {
        let _ = socket2::SockRef::from(self.wire.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Discards what the client sends until it closes.
    pub fn until_client_leaves(&mut self) {
        self.set_read_timeout(None);
        let mut sink = [0; 4096];
        while matches!(retry(|| self.wire.read(&mut sink)), Ok(n) if n > 0) {}
    }
}

fn retry(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn parse_head(bytes: Vec<u8>) -> Option<Head> {
    let mut storage = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut storage);
    if !parsed.parse(&bytes).ok()?.is_complete() {
        return None;
    }
    let (method, target) = (parsed.method?.to_owned(), parsed.path?.to_owned());
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|header| Some((header.name.to_owned(), std::str::from_utf8(header.value).ok()?.to_owned())))
        .collect::<Option<_>>()?;
    let mut framing = BodyFraming::Length(0);
    let mut keep_alive = parsed.version == Some(1);
    for (name, value) in &headers {
        if name.eq_ignore_ascii_case("content-length") {
            framing = BodyFraming::Length(value.parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            framing = value.eq_ignore_ascii_case("chunked").then_some(BodyFraming::Chunked)?;
        } else if name.eq_ignore_ascii_case("connection") && value.eq_ignore_ascii_case("close") {
            keep_alive = false;
        }
    }
    Some(Head { method, target, headers, framing, keep_alive, bytes })
}
