//! Bodies: a request's in pieces that are sent from where they lie, an answer's whole, decoded and bounded.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, Write};
use std::mem::take;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::write::MultiGzDecoder;
use http_body::{Body as _, Frame, SizeHint};
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::time::timeout;

use tinyagent_protocol::body::Body;

use super::connection::cause;
use super::sse::Events;
use crate::failure::one_line;

/// The largest body of a refusal that is read for its message, in bytes.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// How long the body of a refusal is waited for.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// Bodies up to this size are sent as one piece.
const COPY_BYTES: usize = 16 << 10;

/// A request body in pieces that are sent from where they lie.
#[derive(Debug)]
pub struct RequestBody {
    pieces: VecDeque<Bytes>,
    begun: Begun,
}

/// Whether the HTTP library has taken a piece of a body, before which the relay can have executed nothing.
#[derive(Clone, Debug, Default)]
pub struct Begun(Arc<AtomicBool>);

impl Begun {
    /// Whether it has.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl RequestBody {
    /// No body.
    pub fn empty() -> Self {
        Self { pieces: VecDeque::new(), begun: Begun::default() }
    }

    /// The body's bytes; `line` is the host's line in which its arguments lie.
    pub fn new(body: &Body<'_>, line: &Bytes) -> Self {
        let [head, arguments, tail] = body.pieces();
        let length = head.len() + arguments.len() + tail.len();
        let pieces = if length <= COPY_BYTES || arguments.len() <= COPY_BYTES {
            [Bytes::from([head, arguments, tail].concat())].into()
        } else {
            let copied = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            [copied(head), line.slice_ref(arguments.as_bytes()), copied(tail)].into()
        };
        Self { pieces, begun: Begun::default() }
    }

    /// Tells whether the body is on its way, also after it was handed over.
    pub fn begun(&self) -> Begun {
        self.begun.clone()
    }

    fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.begun.0.store(true, Ordering::Relaxed);
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length())
    }
}

/// Reads a body that is an answer: whole, decoded, at most `limit` bytes; of an event stream, the response.
///
/// # Errors
/// Why it cannot be read, as one line.
pub async fn read(response: &mut Response<Incoming>, limit: usize) -> Result<Bytes, String> {
    let status = response.status();
    let broke_off = |error: &dyn std::error::Error| {
        format!("the answer (HTTP {}) broke off: {}", status.as_u16(), cause(error))
    };
    let mut collected = Collected::new(response.headers(), limit)
        .map_err(|encoding| format!("HTTP {status} with the unsupported content-encoding {encoding}"))?;
    let body = response.body_mut();
    let expected = usize::try_from(body.size_hint().exact().unwrap_or(0)).unwrap_or(0);
    // Asked first: a body that is known to be whole needs no further look at the connection.
    while !body.is_end_stream()
        && let Some(frame) = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    {
        let Ok(chunk) = frame.map_err(|error| broke_off(&error))?.into_data() else { continue };
        match collected.push(chunk, expected) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(format!("the answer exceeds {} MiB", limit >> 20));
            }
            Err(error) => return Err(broke_off(&error)),
        }
    }
    let found = collected.finish().map_err(|error| broke_off(&error))?;
    found.ok_or_else(|| "the event stream ended without the answer".into())
}

/// Reads a body that only explains a status; the status holds whatever the body is like.
pub async fn read_if_possible(response: &mut Response<Incoming>) -> Bytes {
    let read = timeout(REFUSAL_LIMIT, read(response, MAX_REFUSAL_BYTES)).await;
    read.ok().and_then(Result::ok).unwrap_or_default()
}

/// What has come of a body so far.
struct Collected {
    gzip: Option<MultiGzDecoder<Bounded>>,
    events: Option<Events>,
    /// The first chunk, for a body that is only one.
    only: Bytes,
    body: BytesMut,
    limit: usize,
}

impl Collected {
    /// # Errors
    /// The content-coding, where it is none that was asked for.
    fn new(headers: &HeaderMap, limit: usize) -> Result<Self, String> {
        let mut gzip = None;
        for coding in headers.get_all(CONTENT_ENCODING) {
            let is = |name: &[u8]| coding.as_bytes().eq_ignore_ascii_case(name);
            if gzip.is_none() && (is(b"gzip") || is(b"x-gzip")) {
                gzip = Some(MultiGzDecoder::new(Bounded { bytes: Vec::new(), limit }));
            } else if !is(b"identity") {
                return Err(one_line(&String::from_utf8_lossy(coding.as_bytes())));
            }
        }
        let events = is_event_stream(headers).then(Events::default);
        Ok(Self { gzip, events, only: Bytes::new(), body: BytesMut::new(), limit })
    }

    /// Takes a chunk; of an event stream, gives the response once it is there.
    fn push(&mut self, chunk: Bytes, expected: usize) -> io::Result<Option<Bytes>> {
        let Some(gzip) = &mut self.gzip else { return self.push_decoded(chunk, expected) };
        gzip.write_all(&chunk)?;
        if self.events.is_none() {
            return Ok(None);
        }
        gzip.flush()?;
        let decoded = take(&mut gzip.get_mut().bytes);
        self.push_decoded(decoded.into(), 0)
    }

    fn push_decoded(&mut self, chunk: Bytes, expected: usize) -> io::Result<Option<Bytes>> {
        let held = self.only.len() + self.body.len() + self.events.as_ref().map_or(0, Events::held);
        if held + chunk.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Some(events) = &mut self.events {
            return Ok(events.push(&chunk).map(Bytes::from));
        }
        if held == 0 {
            self.only = chunk;
            return Ok(None);
        }
        if self.body.is_empty() {
            self.body.reserve((self.only.len() + chunk.len()).max(expected.min(self.limit)));
            self.body.extend_from_slice(&take(&mut self.only));
        }
        self.body.extend_from_slice(&chunk);
        Ok(None)
    }

    /// The whole body; none where an event stream held no response.
    fn finish(mut self) -> io::Result<Option<Bytes>> {
        let decoded = match &mut self.gzip {
            Some(gzip) => {
                gzip.try_finish()?;
                take(&mut gzip.get_mut().bytes)
            }
            None => Vec::new(),
        };
        if let Some(events) = &mut self.events {
            return Ok(events.push(&decoded).map(Bytes::from));
        }
        Ok(Some(if self.gzip.is_some() {
            decoded.into()
        } else if self.body.is_empty() {
            self.only
        } else {
            self.body.freeze()
        }))
    }
}

/// Takes decoded bytes up to a limit, so that a small chunk cannot unfold into all memory.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + more.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}
