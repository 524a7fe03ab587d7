//! One facade's connection: its receive buffer, the answer on its way, and its deadlines.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{MsgFlags, send};

use crate::inbox::{Inbox, SMALL_BYTES};
use crate::inherited::framed;
use crate::session::{Session, Signer};
use crate::sys::socket::receive;

/// How long a peer may take over sending one request, or over taking one answer.
const TRANSFER_LIMIT: Duration = Duration::from_secs(30);

/// A connection; dropping it closes it.
pub struct Connection {
    stream: UnixStream,
    session: Session,
    inbox: Inbox,
    /// What is left to send of the answer.
    outbox: Vec<u8>,
    /// When the first byte of the current request arrived, or its answer was ready.
    began_at: Option<Instant>,
    /// Whether a large request has to wait for others.
    waits: bool,
    /// Set by the poll loop: the socket can be used.
    pub ready: bool,
}

impl Connection {
    /// A new one, over an accepted stream.
    pub fn new(stream: UnixStream, session: Session) -> Self {
        Self {
            stream,
            session,
            inbox: Inbox::new(),
            outbox: Vec::new(),
            began_at: None,
            waits: false,
            ready: false,
        }
    }

    /// What to wait for. While an answer is not taken, nothing more is read.
    pub fn interest(&self) -> PollFlags {
        match (self.outbox.is_empty(), self.waits) {
            (false, _) => PollFlags::POLLOUT,
            (true, false) => PollFlags::POLLIN,
            (true, true) => PollFlags::empty(),
        }
    }

    /// How long the loop may wait on this connection's account: until its transfer must be over, or
    /// not at all if a request is whole already.
    pub fn deadline(&self, now: Instant) -> Option<Duration> {
        if self.outbox.is_empty() && self.inbox.frame().is_ok_and(|frame| frame.is_some()) {
            return Some(Duration::ZERO);
        }
        let began_at = self.began_at.filter(|_| !self.waits)?;
        Some((began_at + TRANSFER_LIMIT).saturating_duration_since(now))
    }

    /// When the current transfer began.
    pub fn began_at(&self) -> Option<Instant> {
        self.began_at
    }

    /// Whether its request is larger than the buffer that every connection has.
    pub fn receives_large_request(&self) -> bool {
        let large = |length: Option<usize>| length.is_some_and(|length| length >= SMALL_BYTES);
        self.outbox.is_empty() && self.inbox.announced().is_ok_and(large)
    }

    /// Lets a large request be received, or wait. Its time starts when it no longer has to wait.
    pub fn grant(&mut self, granted: bool, now: Instant) {
        if granted && self.waits {
            self.began_at = Some(now);
        }
        self.waits = !granted;
    }

    /// Does what can be done without waiting: at most one receive, one answer, one send. False when
    /// the connection is to be closed.
    pub fn proceed(&mut self, now: Instant, signer: &mut Signer) -> bool {
        let late = self.began_at.is_some_and(|began| !self.waits && now >= began + TRANSFER_LIMIT);
        !late && self.transfer(now, signer).is_ok()
    }

    fn transfer(&mut self, now: Instant, signer: &mut Signer) -> Result<(), Close> {
        if self.ready && self.outbox.is_empty() {
            self.receive(now)?;
        }
        if self.outbox.is_empty()
            && let Some(frame) = self.inbox.frame()?
        {
            let end = frame.end;
            self.outbox = framed(&self.session.answer(signer, &self.inbox.bytes()[frame])?)?;
            self.inbox.consume(end);
            self.waits = false;
            self.began_at = Some(now);
        }
        self.send(now)
    }

    fn receive(&mut self, now: Instant) -> Result<(), Close> {
        // The buffer must not grow before a large request is granted, nor while a peer sends requests
        // faster than they are answered.
        if self.waits || self.inbox.frame()?.is_some() {
            return Ok(());
        }
        match receive(&self.stream, self.inbox.room(), MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(Close),
            Ok(_) => {
                self.began_at = self.began_at.or(Some(now));
                Ok(())
            }
            Err(error) if is_temporary(&error) => Ok(()),
            Err(_) => Err(Close),
        }
    }

    fn send(&mut self, now: Instant) -> Result<(), Close> {
        if self.outbox.is_empty() {
            return Ok(());
        }
        match send(self.stream.as_raw_fd(), &self.outbox, MsgFlags::MSG_DONTWAIT) {
            Ok(sent) => {
                self.outbox.drain(..sent);
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => return Err(Close),
        }
        if self.outbox.is_empty() {
            // The next request may have begun behind the one just answered.
            self.began_at = (!self.inbox.bytes().is_empty()).then_some(now);
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The connection is to be closed; the peer learns no more than that.
struct Close;

impl<E: std::error::Error> From<E> for Close {
    fn from(_: E) -> Self {
        Self
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
