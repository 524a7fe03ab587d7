//! A signer under a user of its own: several facades connect to one socket.
//!
//! One thread and one poll loop; a connection is answered one request a round, so that none can keep
//! the others waiting. What is no request ends its connection and nothing else.

mod bind;
mod connection;

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tinyagent_protocol::policy::Policy;

use crate::session::{Narrowing, Session, Signer};
use crate::sys::process::write_stderr;

pub use bind::{ListenError, bind, handed_over};
use connection::Connection;

/// Connections at one time; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 128;

/// Requests over [`crate::inbox::SMALL_BYTES`] that are received at one time, which bounds the memory of
/// all connections together to about two of the largest requests and 64 KiB for each of the others.
const MAX_LARGE_REQUESTS: usize = 2;

/// How many refused connections are logged; a flood of them must not fill the journal.
const MAX_LOGGED_REFUSALS: u32 = 16;

/// The socket, who may connect to it, and who has.
pub struct Service {
    listener: UnixListener,
    allowed_uids: Vec<u32>,
    policy: Policy,
    connections: Vec<Connection>,
    /// False while no more connections can be taken.
    accepting: bool,
    refusals: u32,
}

impl Service {
    /// Over a listening socket in non-blocking mode. This process's own user may always connect.
    pub fn new(listener: UnixListener, mut allowed_uids: Vec<u32>, policy: Policy) -> Self {
        allowed_uids.push(nix::unistd::geteuid().as_raw());
        Self { listener, allowed_uids, policy, connections: Vec::new(), accepting: true, refusals: 0 }
    }

    /// Serves until the process is ended by a signal; returns only when the system fails.
    pub fn serve(&mut self, signer: &mut Signer) -> io::Error {
        loop {
            if let Err(error) = self.round(signer) {
                return error;
            }
        }
    }

    /// Waits for something to do and does it once for every connection.
    fn round(&mut self, signer: &mut Signer) -> io::Result<()> {
        let new = self.wait()?;
        let now = Instant::now();
        let before = self.connections.len();
        let mut failed = Ok(());
        self.connections.retain_mut(|connection| {
            let kept = connection.proceed(now, signer);
            if let Err(error) = signer.key.blind_after_answer() {
                failed = Err(error);
            }
            kept
        });
        self.accepting |= self.connections.len() < before;
        if new {
            self.accept();
        }
        failed
    }

    /// Waits, and marks the connections that may proceed. Says whether somebody wants to connect.
    fn wait(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        self.grant_large_requests(now);
        let timeout = self.connections.iter().filter_map(|c| c.deadline(now)).min();
        let mut watched: Vec<PollFd> =
            self.connections.iter().map(|c| PollFd::new(c.as_fd(), c.interest())).collect();
        if self.accepting {
            watched.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut watched, timeout.map_or(PollTimeout::NONE, rounded_up)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<bool> =
            watched.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty())).collect();
        for (connection, ready) in self.connections.iter_mut().zip(&ready) {
            connection.ready = *ready;
        }
        Ok(ready.get(self.connections.len()).copied().unwrap_or(false))
    }

    /// Lets the connections that began a large request first go on receiving it.
    fn grant_large_requests(&mut self, now: Instant) {
        let mut large: Vec<&mut Connection> =
            self.connections.iter_mut().filter(|c| c.receives_large_request()).collect();
        large.sort_by_key(|connection| connection.began_at());
        for (place, connection) in large.into_iter().enumerate() {
            connection.grant(place < MAX_LARGE_REQUESTS, now);
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) => match peer_uid(&stream) {
                Ok(uid) if self.allowed_uids.contains(&uid) => {
                    let session = Session::new(self.policy.clone(), Narrowing::Open);
                    self.connections.push(Connection::new(stream, session));
                    self.accepting = self.connections.len() < MAX_CONNECTIONS;
                }
                Ok(uid) => self.log_refusal(&format!("uid {uid}; --allow-uid {uid} would let it connect")),
                Err(error) => self.log_refusal(&format!("a peer whose uid is not known ({error})")),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Most likely out of descriptors: until a connection ends, trying again would only spin.
            Err(_) => self.accepting = self.connections.is_empty(),
        }
    }

    fn log_refusal(&mut self, who: &str) {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals <= MAX_LOGGED_REFUSALS {
            write_stderr(format!("tinyagent-signer: refused a connection from {who}\n").as_bytes());
        }
    }
}

/// A wait as poll takes it: whole milliseconds, never ending before the deadline.
fn rounded_up(wait: Duration) -> PollTimeout {
    PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
}

#[cfg(target_os = "linux")]
fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let peer = nix::sys::socket::getsockopt(stream, nix::sys::socket::sockopt::PeerCredentials)?;
    Ok(peer.uid())
}

#[cfg(not(target_os = "linux"))]
fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(nix::unistd::getpeereid(stream)?.0.as_raw())
}
