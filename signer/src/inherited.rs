//! The one socket of a signer that a launcher started: read a frame, answer it, read the next.
//!
//! The end of the socket is the end of the signer.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, getsockopt, send, sockopt};
use tinyagent_protocol::frame::{FrameError, HEADER_BYTES, MAX_ANSWER_BYTES, header};
use tinyagent_protocol::message::Answer;

use crate::inbox::Inbox;
use crate::session::{Ended, Session, Signer};
use crate::sys::process::take_handed_over_fd;
use crate::sys::socket::receive;

/// Why the signer ends.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The peer closed the socket.
    #[error("the peer closed the socket")]
    ByPeer,
    /// The socket broke.
    #[error("the socket failed: {0}")]
    Io(#[from] io::Error),
    /// A length that no request has.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// No request, or no signature.
    #[error(transparent)]
    Session(#[from] Ended),
}

/// The socket and what has arrived on it. It stays open until the process ends, since closing it is
/// not among the system calls that are left.
pub struct Link {
    socket: OwnedFd,
    inbox: Inbox,
}

impl Link {
    /// Over the socket that the launcher left, if there is one.
    pub fn take() -> Option<Self> {
        let socket = take_handed_over_fd()?;
        let is_stream = getsockopt(&socket, sockopt::SockType) == Ok(SockType::Stream);
        is_stream.then(|| Self { socket, inbox: Inbox::new() })
    }

    /// Answers requests until the socket ends or something that is no request arrives.
    pub fn serve(&mut self, session: &mut Session, signer: &mut Signer) -> Closed {
        loop {
            if let Err(closed) = self.serve_one(|frame| session.answer(signer, frame)) {
                return closed;
            }
            if let Err(error) = signer.key.blind_after_answer() {
                return Closed::Io(error);
            }
        }
    }

    /// Gives the first request, whatever it is, the answer that the signer could not start.
    pub fn fail(&mut self, message: &str) {
        let failed = |_: &[u8]| Ok(Answer::Failed { message: message.into() });
        // With nobody left to tell, there is nothing to do but end as well.
        let _ = self.serve_one(failed);
    }

    fn serve_one(&mut self, answer: impl FnOnce(&[u8]) -> Result<Answer, Ended>) -> Result<(), Closed> {
        let frame = loop {
            match self.inbox.frame()? {
                Some(frame) => break frame,
                None => self.receive()?,
            }
        };
        let end = frame.end;
        let answer = answer(&self.inbox.bytes()[frame])?;
        self.send(&framed(&answer)?)?;
        self.inbox.consume(end);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Closed> {
        match receive(&self.socket, self.inbox.room(), MsgFlags::empty()) {
            Ok(0) => Err(Closed::ByPeer),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// SIGPIPE is ignored, by the runtime and again by the hardening.
    fn send(&self, mut bytes: &[u8]) -> Result<(), Closed> {
        while !bytes.is_empty() {
            match send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(Closed::ByPeer),
                Err(errno) => return Err(Closed::Io(errno.into())),
            }
        }
        Ok(())
    }
}

/// An answer as it travels.
pub fn framed(answer: &Answer) -> Result<Vec<u8>, FrameError> {
    let json = answer.to_json();
    let mut bytes = Vec::with_capacity(HEADER_BYTES + json.len());
    bytes.extend_from_slice(&header(json.len(), MAX_ANSWER_BYTES)?);
    bytes.extend_from_slice(json.as_bytes());
    Ok(bytes)
}
