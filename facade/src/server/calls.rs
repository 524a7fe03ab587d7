//! The queue of tools/call: one call at a time reaches the relay, in order of arrival.
//!
//! A call that waits can be cancelled and then never leaves; one that was sent runs to its end. In both
//! cases a cancelled call is never answered, because hosts drop a server that answers one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Era;
use crate::bridge::HostCall;
use crate::host::message::Id;

/// The most calls that wait.
const MAX_WAITING: usize = 4096;

/// The most bytes of arguments that wait or are being called with, but for a single call of any size.
const MAX_WAITING_BYTES: usize = 48 << 20;

/// The most requests that are unanswered, calls that wait included.
const MAX_UNANSWERED: usize = 8192;

/// The most bytes of their ids.
const MAX_ID_BYTES: usize = 4 << 20;

/// A request of the host that is not answered yet.
pub struct Pending {
    /// Its id.
    pub id: Id,
    /// The keys that its revision demands of the result, see [`super::Era`].
    pub era: Era,
    cancelled: Cell<bool>,
}

impl Pending {
    /// Whether the host no longer wants an answer.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.get()
    }
}

/// The host's requests that are not answered yet.
#[derive(Default)]
pub struct PendingRequests {
    requests: RefCell<Vec<Rc<Pending>>>,
    id_bytes: Cell<usize>,
    done: Notify,
}

impl PendingRequests {
    /// Notes a request.
    ///
    /// # Errors
    /// The id itself, where too many requests are unanswered.
    pub fn begin(&self, id: Id, era: Era) -> Result<Rc<Pending>, Id> {
        let mut requests = self.requests.borrow_mut();
        let id_bytes = self.id_bytes.get() + id.as_str().len();
        if requests.len() >= MAX_UNANSWERED || id_bytes > MAX_ID_BYTES {
            return Err(id);
        }
        self.id_bytes.set(id_bytes);
        let pending = Rc::new(Pending { id, era, cancelled: Cell::new(false) });
        requests.push(pending.clone());
        Ok(pending)
    }

    /// Forgets a request that was answered or dropped.
    pub fn end(&self, pending: &Rc<Pending>) {
        let mut requests = self.requests.borrow_mut();
        if let Some(at) = requests.iter().position(|other| Rc::ptr_eq(other, pending)) {
            requests.swap_remove(at);
            self.id_bytes.set(self.id_bytes.get() - pending.id.as_str().len());
        }
        if requests.is_empty() {
            self.done.notify_waiters();
        }
    }

    /// Marks every request of this id as cancelled.
    pub fn cancel(&self, id: &Id) {
        for pending in self.requests.borrow().iter().filter(|pending| pending.id == *id) {
            pending.cancelled.set(true);
        }
    }

    /// Whether nothing is unanswered.
    pub fn is_empty(&self) -> bool {
        self.requests.borrow().is_empty()
    }

    /// Waits until nothing is unanswered.
    pub async fn empty(&self) {
        while !self.is_empty() {
            self.done.notified().await;
        }
    }
}

/// A call with its place among the host's requests.
pub struct QueuedCall {
    /// The request to answer.
    pub pending: Rc<Pending>,
    /// What to call.
    pub call: HostCall,
    /// When the host's bound on the call ends, the wait in the queue included.
    pub deadline: Instant,
}

/// Calls that wait for the relay.
#[derive(Default)]
pub struct CallQueue {
    waiting: RefCell<VecDeque<QueuedCall>>,
    bytes: Cell<usize>,
    arrived: Notify,
}

impl CallQueue {
    /// Appends a call.
    ///
    /// # Errors
    /// The request to answer, where too many or too large calls wait.
    pub fn push(&self, call: QueuedCall) -> Result<(), Rc<Pending>> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= MAX_WAITING || !self.reserve(call.call.arguments.len()) {
            return Err(call.pending);
        }
        waiting.push_back(call);
        self.arrived.notify_one();
        Ok(())
    }

    /// Takes room for the arguments of a call; false where there is none.
    pub fn reserve(&self, argument_bytes: usize) -> bool {
        let bytes = self.bytes.get() + argument_bytes;
        let fits = bytes <= MAX_WAITING_BYTES || self.bytes.get() == 0;
        if fits {
            self.bytes.set(bytes);
        }
        fits
    }

    /// The next call that waits, cancelled ones included.
    pub async fn next(&self) -> QueuedCall {
        loop {
            if let Some(call) = self.waiting.borrow_mut().pop_front() {
                return call;
            }
            self.arrived.notified().await;
        }
    }

    /// Whether a call waits.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Looks at the next call that waits, which stays in its place.
    pub fn with_next(&self, look: impl FnOnce(&QueuedCall)) {
        if let Some(next) = self.waiting.borrow().front() {
            look(next);
        }
    }

    /// Gives back the room of a call that is done.
    pub fn done(&self, argument_bytes: usize) {
        self.bytes.set(self.bytes.get() - argument_bytes);
    }

    /// Takes the cancelled calls that wait out of the queue.
    pub fn take_cancelled(&self) -> Vec<QueuedCall> {
        let mut waiting = self.waiting.borrow_mut();
        let (cancelled, kept) = waiting.drain(..).partition(|call: &QueuedCall| call.pending.is_cancelled());
        *waiting = kept;
        Vec::from(cancelled)
    }
}
