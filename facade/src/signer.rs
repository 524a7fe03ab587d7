//! The facade's side of the socket to the signer: one exchange after the other, each bounded.
//!
//! It checks what comes back (the key, the event, its id) before anything is made of it. It holds no
//! key and can ask only for what `protocol::message` has a request for.

use std::cell::Cell;
use std::cmp::Ordering;
use std::io::{self, IoSlice};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use tinyagent_protocol::event::{PublicKey, SignedEvent};
use tinyagent_protocol::frame::{self, MAX_ANSWER_BYTES, MAX_REQUEST_BYTES};
use tinyagent_protocol::message::{Answer, Message};
use tinyagent_protocol::policy::Refusal;
use tinyagent_protocol::template::Template;

use crate::watchdog::Watchdog;

/// How long the signer may take for one answer. It needs microseconds, and a second for 48 MiB.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Arguments up to this size are copied into the frame, larger ones are sent from where they lie.
const COPY_BYTES: usize = 16 << 10;

/// What is kept of the buffer for answers from one to the next; a proof's takes a third of it.
const KEEP_BYTES: usize = 2 << 10;

/// Why an exchange gave no grant.
#[derive(Debug, Error)]
pub enum SignerError {
    /// The process or the connection has ended, or does not answer.
    #[error(
        "the signing process has ended; nothing was signed. The server restarts it when the host restarts the server"
    )]
    Gone,
    /// The policy does not allow it.
    #[error("refused ({}): {}", .0.rule.tag(), .0.message)]
    Refused(Refusal),
    /// The answer is not the one that the request has.
    #[error("{0}; the answer was not used")]
    Unexpected(String),
}

struct Job {
    frame: Vec<u8>,
    arguments: Bytes,
    tail: Vec<u8>,
    /// How much of the frame was sent.
    sent: usize,
    reply: oneshot::Sender<Answer>,
    _turn: Turn,
}

/// An exchange that was asked for and is not over.
struct Turn(Rc<State>);

impl Turn {
    fn begin(state: &Rc<State>) -> Self {
        state.asked.update(|asked| asked + 1);
        Self(state.clone())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.asked.update(|asked| asked - 1);
    }
}

/// A handle on the signer.
#[derive(Clone)]
pub struct Signer {
    jobs: mpsc::UnboundedSender<Job>,
    state: Rc<State>,
}

struct State {
    writer: OwnedWriteHalf,
    /// Exchanges that were asked for and are not over.
    asked: Cell<usize>,
    gone: Cell<bool>,
    end: Notify,
}

/// A signed event that was checked against the template it was asked for.
#[derive(Debug)]
pub struct Published {
    /// The event.
    pub event: Box<SignedEvent>,
    /// The proof of its submission.
    pub authorization: String,
}

impl Signer {
    /// Talks over this socket from now on; the exchanges run as a local task.
    ///
    /// # Errors
    /// When the socket cannot be registered with the runtime.
    pub fn start(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let (reader, writer) = UnixStream::from_std(socket)?.into_split();
        // Bounded by who asks: the call whose turn it is and the one behind it, a few diagnoses, one listing.
        let (jobs, inbox) = mpsc::unbounded_channel();
        let state =
            Rc::new(State { writer, asked: Cell::new(0), gone: Cell::new(false), end: Notify::new() });
        let signer = Self { jobs, state: state.clone() };
        tokio::task::spawn_local(async move {
            exchange_all(reader, &state.writer, inbox).await;
            state.gone.set(true);
            state.end.notify_waiters();
        });
        Ok(signer)
    }

    /// Whether the signer has ended.
    pub fn is_gone(&self) -> bool {
        self.state.gone.get()
    }

    /// Waits until the signer has ended.
    pub async fn gone(&self) {
        while !self.is_gone() {
            self.state.end.notified().await;
        }
    }

    /// Asks for a proof.
    ///
    /// # Errors
    /// [`SignerError`].
    pub async fn proof(&self, message: &Message<'_>, line: &Bytes) -> Result<String, SignerError> {
        proof(self.ask(message, line).await?)
    }

    /// Asks for a proof that is awaited later.
    ///
    /// # Errors
    /// [`SignerError`].
    pub fn proof_ahead(&self, message: &Message<'_>, line: &Bytes) -> Result<ProofAhead, SignerError> {
        Ok(ProofAhead(self.begin(message, line)?))
    }

    /// Asks for a template's event and the proof of its submission.
    ///
    /// # Errors
    /// [`SignerError`]; an event that is not the template's, by this key, is never returned.
    pub async fn publish(
        &self,
        message: &Message<'_>,
        line: &Bytes,
        template: &Template,
        pubkey: PublicKey,
    ) -> Result<Published, SignerError> {
        match self.ask(message, line).await? {
            Answer::Published { event, authorization } => {
                if is_of(&event, template, pubkey) {
                    Ok(Published { event, authorization })
                } else {
                    Err(SignerError::Unexpected("the signed event is not the template's".into()))
                }
            }
            other => Err(unexpected(other)),
        }
    }

    /// One exchange. `line` is the host's line in which the message's arguments lie.
    ///
    /// # Errors
    /// [`SignerError::Gone`].
    pub async fn ask(&self, message: &Message<'_>, line: &Bytes) -> Result<Answer, SignerError> {
        self.begin(message, line)?.await.map_err(|_| SignerError::Gone)
    }

    /// Begins an exchange. Where none is under way, its frame leaves at once, so that the signer works while
    /// this process gets to waiting for it.
    fn begin(&self, message: &Message<'_>, line: &Bytes) -> Result<oneshot::Receiver<Answer>, SignerError> {
        let is_first = self.state.asked.get() == 0;
        let (mut job, answer) = Job::new(message, line, Turn::begin(&self.state))?;
        if is_first && job.arguments.is_empty() {
            // What goes wrong here, the exchange itself meets.
            job.sent = self.state.writer.try_write(&job.frame).unwrap_or(0);
        }
        self.jobs.send(job).map_err(|_| SignerError::Gone)?;
        Ok(answer)
    }
}

/// A proof on its way. Dropped, it is nobody's.
pub struct ProofAhead(oneshot::Receiver<Answer>);

impl ProofAhead {
    /// Waits for it.
    ///
    /// # Errors
    /// [`SignerError`].
    pub async fn wait(self) -> Result<String, SignerError> {
        proof(self.0.await.map_err(|_| SignerError::Gone)?)
    }
}

impl Job {
    fn new(
        message: &Message<'_>,
        line: &Bytes,
        turn: Turn,
    ) -> Result<(Self, oneshot::Receiver<Answer>), SignerError> {
        let (head, arguments, tail) = message.pieces();
        let length = head.len() + arguments.len() + tail.len();
        let header = frame::header(length, MAX_REQUEST_BYTES).map_err(|error| {
            SignerError::Unexpected(format!("the call is too large to be signed: {error}"))
        })?;
        let mut frame = Vec::with_capacity(
            frame::HEADER_BYTES + head.len() + arguments.len().min(COPY_BYTES) + tail.len(),
        );
        frame.extend_from_slice(&header);
        frame.extend_from_slice(head.as_bytes());
        let (arguments, tail) = if arguments.len() <= COPY_BYTES {
            frame.extend_from_slice(arguments.as_bytes());
            frame.extend_from_slice(tail.as_bytes());
            (Bytes::new(), Vec::new())
        } else {
            (line.slice_ref(arguments.as_bytes()), tail.into_bytes())
        };
        let (reply, answer) = oneshot::channel();
        Ok((Self { frame, arguments, tail, sent: 0, reply, _turn: turn }, answer))
    }
}

fn proof(answer: Answer) -> Result<String, SignerError> {
    match answer {
        Answer::Proof { authorization } => Ok(authorization),
        other => Err(unexpected(other)),
    }
}

fn unexpected(answer: Answer) -> SignerError {
    match answer {
        Answer::Refused(refusal) => SignerError::Refused(refusal),
        Answer::Failed { message } => SignerError::Unexpected(message),
        _ => SignerError::Unexpected("the signer answered another question".into()),
    }
}

fn is_of(signed: &SignedEvent, template: &Template, pubkey: PublicKey) -> bool {
    let event = &signed.event;
    event.id() == signed.id
        && event.pubkey == pubkey
        && event.kind == template.kind
        && event.tags == template.tags
        && event.content == template.content
        && template.created_at.is_none_or(|at| at == event.created_at)
}

/// Runs until the signer is gone, breaks the protocol, or is no longer wanted.
async fn exchange_all(
    mut reader: OwnedReadHalf,
    writer: &OwnedWriteHalf,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    let mut watchdog = Watchdog::default();
    let mut buffer = Vec::new();
    loop {
        let job = tokio::select! {
            biased;
            job = jobs.recv() => job,
            // Between exchanges the signer has nothing to say: whatever comes is its end.
            _ = reader.read_u8() => return,
        };
        let Some(job) = job else { return };
        let exchange = async {
            write_frame(writer, &job).await?;
            read_frame(&mut reader, &mut buffer).await
        };
        let bounded = watchdog.bound(Instant::now() + ANSWER_LIMIT, pin!(exchange)).await;
        let Some(Ok(())) = bounded else { return };
        let Ok(answer) = Answer::parse(&buffer[frame::HEADER_BYTES..]) else { return };
        // The asker may have been cancelled; its answer is then nobody's.
        let _ = job.reply.send(answer);
    }
}

async fn write_frame(writer: &OwnedWriteHalf, job: &Job) -> io::Result<()> {
    let mut pieces =
        [IoSlice::new(&job.frame[job.sent..]), IoSlice::new(&job.arguments), IoSlice::new(&job.tail)];
    let mut rest = &mut pieces[..];
    // Takes away what is empty at the front.
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match writer.try_write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(put) => IoSlice::advance_slices(&mut rest, put),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writer.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads one frame, header included, and nothing of another.
async fn read_frame(reader: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.clear();
    buffer.shrink_to(KEEP_BYTES);
    buffer.reserve(KEEP_BYTES);
    let mut length = None;
    loop {
        if let (Some(header), None) = (buffer.first_chunk(), length) {
            length = Some(frame::length(*header, MAX_ANSWER_BYTES).map_err(io::Error::other)?);
        }
        match length.map(|length| buffer.len().cmp(&(frame::HEADER_BYTES + length))) {
            Some(Ordering::Equal) => return Ok(()),
            Some(Ordering::Greater) => return Err(io::ErrorKind::InvalidData.into()),
            Some(Ordering::Less) | None => {}
        }
        if reader.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as Socket;
    use std::thread;

    use nix::sys::socket::{setsockopt, sockopt};
    use tinyagent_protocol::json::Json;
    use tinyagent_protocol::message::{Arguments, CallTool, Request};
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    fn message(id: u64, arguments: &Bytes) -> Message<'_> {
        let json = Json::check(arguments).expect("JSON").0;
        let arguments = Arguments::new(json).expect("an object");
        Message {
            request: Request::CallTool(CallTool { id, tool: Cow::Borrowed("x"), arguments }),
            client: None,
        }
    }

    /// Answers each request with its id and the size of its arguments; says how many there were.
    fn answer_all(mut socket: Socket) -> usize {
        for count in 0.. {
            let mut header = [0; frame::HEADER_BYTES];
            if socket.read_exact(&mut header).is_err() {
                return count;
            }
            let mut request = vec![0; frame::length(header, MAX_REQUEST_BYTES).expect("a length")];
            socket.read_exact(&mut request).expect("a whole request");
            let Request::CallTool(call) = Message::parse(&request).expect("a request").request else {
                panic!("another request")
            };
            let authorization = format!("{} {}", call.id, call.arguments.text().len());
            let answer = Answer::Proof { authorization }.to_json();
            let header = frame::header(answer.len(), MAX_ANSWER_BYTES).expect("short");
            socket.write_all(&[&header[..], answer.as_bytes()].concat()).expect("a reader");
        }
        unreachable!("an endless range")
    }

    #[test]
    fn requests_arrive_whole_and_in_order_however_little_the_socket_takes_at_once() {
        let (ours, theirs) = Socket::pair().expect("sockets");
        setsockopt(&ours, sockopt::SndBuf, &4096).expect("a small buffer");
        let peer = thread::spawn(|| answer_all(theirs));
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.expect("a runtime");
        let mut asked = 0;
        runtime.block_on(async {
            let signer = Signer::start(ours).expect("a signer");
            for size in [10, 2000, COPY_BYTES - 20, COPY_BYTES + 20, 300_000, 10] {
                let arguments = Bytes::from(format!("{{\"a\":\"{}\"}}", "x".repeat(size)));
                let answer = |id: u64| format!("{id} {}", arguments.len());
                asked += 3;
                let first = signer.proof_ahead(&message(1, &arguments), &arguments).expect("asked");
                let second = signer.proof_ahead(&message(2, &arguments), &arguments).expect("asked");
                let third = signer.proof(&message(3, &arguments), &arguments).await;
                assert_eq!(third.expect("a proof"), answer(3));
                assert_eq!(first.wait().await.expect("a proof"), answer(1));
                assert_eq!(second.wait().await.expect("a proof"), answer(2));
            }
            assert_eq!(signer.state.asked.get(), 0);
        });
        drop(runtime);
        assert_eq!(peer.join().expect("no panic"), asked);
    }
}
