//! JSON lines on standard input and output, for auditors and tests: the same requests and answers as on
//! the socket, one object a line. Blank lines are passed over.

use std::io;

use nix::errno::Errno;
use tinyagent_protocol::frame::MAX_REQUEST_BYTES;

use crate::inbox::Inbox;
use crate::session::{Ended, Session, Signer};
use crate::sys::socket::read;

/// Why the signer ends.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// Standard input ended between two lines, or standard output has no reader.
    #[error("the peer closed the stream")]
    ByPeer,
    /// Standard input or output broke.
    #[error("standard input or output failed: {0}")]
    Io(#[from] io::Error),
    /// More than a request can have without a line end.
    #[error("a line is longer than {MAX_REQUEST_BYTES} bytes")]
    TooLong,
    /// No request, or no signature.
    #[error(transparent)]
    Session(#[from] Ended),
}

/// Answers lines until the input ends or something that is no request arrives. A last line
/// without a line end counts.
pub fn serve(session: &mut Session, signer: &mut Signer) -> Closed {
    let mut inbox = Inbox::new();
    loop {
        if let Err(closed) = serve_one(&mut inbox, session, signer) {
            return closed;
        }
        if let Err(error) = signer.key.blind_after_answer() {
            return Closed::Io(error);
        }
    }
}

fn serve_one(inbox: &mut Inbox, session: &mut Session, signer: &mut Signer) -> Result<(), Closed> {
    let end = next_line(inbox)?;
    let line = inbox.bytes()[..end].trim_ascii();
    if !line.is_empty() {
        let mut answer = session.answer(signer, line)?.to_json();
        answer.push('\n');
        write_all(answer.as_bytes())?;
    }
    inbox.consume(end);
    Ok(())
}

/// The length of the first line, its end included.
fn next_line(inbox: &mut Inbox) -> Result<usize, Closed> {
    let mut searched = 0;
    loop {
        if let Some(at) = inbox.bytes()[searched..].iter().position(|byte| *byte == b'\n') {
            return Ok(searched + at + 1);
        }
        searched = inbox.bytes().len();
        if searched > MAX_REQUEST_BYTES {
            return Err(Closed::TooLong);
        }
        match read(io::stdin(), inbox.room()) {
            Ok(0) if searched == 0 => return Err(Closed::ByPeer),
            Ok(0) => return Ok(searched),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn write_all(mut bytes: &[u8]) -> Result<(), Closed> {
    while !bytes.is_empty() {
        match nix::unistd::write(io::stdout(), bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::EINTR) => {}
            Err(Errno::EPIPE) => return Err(Closed::ByPeer),
            Err(errno) => return Err(Closed::Io(errno.into())),
        }
    }
    Ok(())
}
