//! A host's call while it is carried out: how far it has come, and what was asked for it ahead of its turn.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tinyagent_protocol::catalog::{Access, Tool};
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::Arguments;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::relay::headers::HeaderParameter;
use crate::signer::ProofAhead;

/// How old a proof may be that was asked for ahead. Relays accept a minute (NIP-98); a call that waited longer
/// behind a slow one is proven anew, so that the age of a proof says when its request was sent.
pub(super) const FRESH_LIMIT: Duration = Duration::from_secs(2);

/// A call of an exposed tool, as the host made it.
pub struct HostCall {
    /// The tool.
    pub tool: &'static Tool,
    /// The arguments as the host wrote them; empty where it gave none.
    pub arguments: Bytes,
    progress: Progress,
    ahead: RefCell<Option<Ahead>>,
}

/// A proof that was asked for while an earlier call was at the relay.
pub(super) struct Ahead {
    /// The id of the request that it proves.
    pub id: u64,
    /// The proof itself.
    pub proof: ProofAhead,
    asked: Instant,
}

/// How far a call has come, for an answer that cannot wait for the relay's.
#[derive(Default)]
struct Progress {
    /// A request is on its way and not answered.
    posted: Cell<bool>,
    /// The event that was sent.
    event: RefCell<Option<String>>,
}

impl HostCall {
    /// A call that has not begun.
    pub fn new(tool: &'static Tool, arguments: Bytes) -> Self {
        Self { tool, arguments, progress: Progress::default(), ahead: RefCell::default() }
    }

    /// What the host sees where the signer ends while the relay is waited for: the process is about to
    /// end too, so nobody would be left to hear the relay's answer.
    pub fn signer_ended(&self) -> Failure {
        let event = self.progress.event.borrow();
        Failure::Signer(match (self.tool.access, self.progress.posted.get(), &*event) {
            (Access::Write, true, Some(event)) => {
                format!("the signing process has ended; the call may have taken effect (event {event})")
            }
            (Access::Write, true, None) => {
                "the signing process has ended; the call may have taken effect".into()
            }
            (Access::Write, false, _) => "the signing process has ended; nothing was published".into(),
            (Access::Read, ..) => "the signing process has ended before the relay answered".into(),
        })
    }

    /// Notes a proof that was asked for ahead.
    pub(super) fn asked_ahead(&self, id: u64, proof: ProofAhead) {
        self.ahead.replace(Some(Ahead { id, proof, asked: Instant::now() }));
    }

    /// Whether a proof was asked for ahead.
    pub(super) fn is_asked_ahead(&self) -> bool {
        self.ahead.borrow().is_some()
    }

    /// The proof that was asked for ahead, where it is still fresh. Given once.
    pub(super) fn take_ahead(&self) -> Option<Ahead> {
        self.ahead.take().filter(|ahead| ahead.asked.elapsed() < FRESH_LIMIT)
    }

    /// Notes the event that is about to be sent.
    pub(super) fn submits(&self, event: String) {
        self.progress.event.replace(Some(event));
    }

    /// Notes that a request is on its way while `answer` is waited for, and lets the call after this one be
    /// prepared meanwhile.
    pub(super) async fn posting<F: Future>(
        &self,
        mut answer: Pin<&mut F>,
        surroundings: &impl Surroundings,
    ) -> F::Output {
        self.progress.posted.set(true);
        let first = poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx))).await;
        if first.is_pending() && surroundings.has_next() {
            // This call's bytes leave before the next one is looked at.
            yield_now().await;
            surroundings.prepare_next();
        }
        let answer = match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => answer.await,
        };
        self.progress.posted.set(false);
        answer
    }

    /// The arguments as the policy judges them.
    ///
    /// # Errors
    /// A refusal where they are no object.
    pub(super) fn arguments(&self) -> Result<Arguments<'_>, Failure> {
        let text = if self.arguments.is_empty() { Arguments::NONE.as_bytes() } else { &self.arguments };
        // A part of the host's line, which was checked when it was read.
        let json = std::str::from_utf8(text).ok().map(Json::of_checked);
        json.and_then(Arguments::new).ok_or_else(|| Failure::Refused("arguments must be an object".into()))
    }
}

/// What a call meets on its way: the relay's tool table, and the calls that wait behind it.
pub trait Surroundings {
    /// The headers that the tool's schema is known to ask for.
    fn headers_of(&self, tool: &'static Tool) -> Vec<HeaderParameter>;

    /// Fetches the table anew, for at most as long as the call may still take.
    fn refresh(&self, deadline: Instant) -> impl Future<Output = ()>;

    /// Whether a call waits behind this one.
    fn has_next(&self) -> bool;

    /// Has [`super::Bridge::ask_ahead`] prepare that call.
    fn prepare_next(&self);
}
