//! Scripted answers: which request is meant, and what to do instead of (or after) answering it as the relay
//! would. A script never changes what is recorded.

use crate::answer::Answer;
use crate::request::Request;
use serde_json::Value;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Test = Arc<dyn Fn(&Request) -> bool + Send + Sync>;
type FromAnswer = Arc<dyn Fn(&Request, Answer) -> Reply + Send + Sync>;

/// Says which requests a scripted reply is for.
#[derive(Clone)]
pub struct Matcher {
    test: Test,
    skip: usize,
    before_body: bool,
}

impl Matcher {
    /// Every request for which this is true.
    pub fn when(test: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Matcher {
        Matcher { test: Arc::new(test), skip: 0, before_body: false }
    }

    /// Every request.
    pub fn any() -> Matcher {
        Matcher::when(|_| true)
    }

    /// Requests for this path; a tenant prefix is part of it.
    pub fn path(path: &str) -> Matcher {
        let path = path.to_owned();
        Matcher::when(move |request| request.path() == path)
    }

    /// Requests with this JSON-RPC method, such as `tools/list`.
    pub fn rpc(method: &str) -> Matcher {
        let method = method.to_owned();
        Matcher::when(move |request| request.rpc_method() == Some(&method))
    }

    /// `tools/call` of this tool.
    pub fn tool(tool: &str) -> Matcher {
        let tool = tool.to_owned();
        Matcher::when(move |request| request.tool() == Some(&tool))
    }

    /// `tools/call` of this tool without an `event` argument.
    pub fn plain_call(tool: &str) -> Matcher {
        Matcher::tool(tool).and(|request| request.argument("event").is_none())
    }

    /// `tools/call` of this tool with an `event` argument.
    pub fn resubmission(tool: &str) -> Matcher {
        Matcher::tool(tool).and(|request| request.argument("event").is_some())
    }

    /// The same, and this must be true as well.
    pub fn and(self, test: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Matcher {
        let first = self.test;
        Matcher { test: Arc::new(move |request| first(request) && test(request)), ..self }
    }

    /// Only from the nth such request on, counted from 1 since the script was given.
    pub fn nth(self, n: usize) -> Matcher {
        Matcher { skip: n.saturating_sub(1), ..self }
    }

    /// As soon as the head is there; the body is left unread, so JSON-RPC and tool matchers never match.
    pub fn before_body(self) -> Matcher {
        Matcher { before_body: true, ..self }
    }
}

/// What happens to a request that a [`Matcher`] picked.
#[derive(Clone)]
pub struct Reply(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Normal,
    Answer(Answer),
    Steps(Vec<Step>),
    FromRequest(Arc<dyn Fn(&Request) -> Reply + Send + Sync>),
    FromAnswer(FromAnswer),
}

/// One step of a reply that is played byte by byte. After the last step the connection is kept, so what was
/// written should be a whole answer unless one of the steps ends the connection.
///
/// Over HTTP/2 nothing is written: waits are waited, `Reset` refuses the stream (REFUSED_STREAM, which says
/// that nothing was processed), and any other ending cancels it.
#[derive(Clone)]
pub enum Step {
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes these bytes a few at a time, with a pause after each piece.
    Drip {
        /// What is written.
        bytes: Vec<u8>,
        /// How many bytes at a time.
        chunk: usize,
        /// The pause.
        every: Duration,
    },
    /// Writes these bytes again and again until the client leaves.
    Endless(Vec<u8>),
    /// Waits.
    Sleep(Duration),
    /// Waits until the test opens the gate.
    Wait(Gate),
    /// Reads and discards until the client closes the connection, then closes it too.
    UntilClientLeaves,
    /// Reads and writes nothing any more, until the relay is dropped.
    Stall,
    /// Closes the connection in order (FIN).
    Close,
    /// Closes the connection with a reset (RST).
    Reset,
    /// Closes a TLS connection without its closing alert; in the clear it is [`Step::Close`].
    Abandon,
}

impl Reply {
    /// As the relay would answer; with [`Matcher::nth`] and one-time scripts it lets requests pass.
    pub fn normal() -> Reply {
        Reply(Kind::Normal)
    }

    /// A JSON-RPC result with the request's own id.
    pub fn result(result: Value) -> Reply {
        Reply::result_text(&result.to_string())
    }

    /// The same from a text that is sent as it is, valid or not.
    pub fn result_text(result: &str) -> Reply {
        let result = result.to_owned();
        Reply::with(move |request| Reply::http(Answer::json_text(200, request.result_text(&result))))
    }

    /// A JSON-RPC error with the request's own id, in an answer of this status.
    pub fn error(status: u16, code: i64, message: &str) -> Reply {
        Reply::error_with(status, code, message, None)
    }

    /// The same with `data`.
    pub fn error_with(status: u16, code: i64, message: &str, data: Option<Value>) -> Reply {
        let message = message.to_owned();
        Reply::with(move |request| {
            Reply::http(Answer::rpc_error(status, Some(request.rpc_id()), code, &message, data.clone()))
        })
    }

    /// This answer.
    pub fn http(answer: Answer) -> Reply {
        Reply(Kind::Answer(answer))
    }

    /// These bytes and nothing else; the connection is kept.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply::steps([Step::Write(bytes.into())])
    }

    /// These steps, one after the other.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Reply {
        Reply(Kind::Steps(steps.into_iter().collect()))
    }

    /// Closes the connection without an answer; the request has no effect.
    pub fn close() -> Reply {
        Reply::steps([Step::Close])
    }

    /// Resets the connection without an answer; the request has no effect.
    pub fn reset() -> Reply {
        Reply::steps([Step::Reset])
    }

    /// Answers nothing until the client leaves; the request has no effect.
    pub fn hang() -> Reply {
        Reply::steps([Step::UntilClientLeaves])
    }

    /// Waits at the gate, then answers as the relay would.
    pub fn hold(gate: &Gate) -> Reply {
        let gate = gate.clone();
        Reply::with(move |_| {
            gate.wait_inside();
            Reply::normal()
        })
    }

    /// Waits, then answers as the relay would.
    pub fn delay(time: Duration) -> Reply {
        Reply::with(move |_| {
            std::thread::sleep(time);
            Reply::normal()
        })
    }

    /// A reply made from the request.
    pub fn with(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Reply {
        Reply(Kind::FromRequest(Arc::new(reply)))
    }

    /// Executes the request as the relay would, and makes the reply from its answer.
    pub fn from_answer(reply: impl Fn(&Request, Answer) -> Reply + Send + Sync + 'static) -> Reply {
        Reply(Kind::FromAnswer(Arc::new(reply)))
    }

    /// Executes the request as the relay would, and sends its answer changed.
    pub fn map(change: impl Fn(&Request, Answer) -> Answer + Send + Sync + 'static) -> Reply {
        Reply::from_answer(move |request, answer| Reply::http(change(request, answer)))
    }

    /// Executes the request as the relay would, and plays these steps instead of its answer.
    pub fn execute_then(steps: impl IntoIterator<Item = Step>) -> Reply {
        let steps: Vec<Step> = steps.into_iter().collect();
        Reply::from_answer(move |_, _| Reply::steps(steps.clone()))
    }
}

/// A gate at which scripted replies wait until the test opens it. Clones are the same gate.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Default)]
struct GateState {
    open: bool,
    arrived: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate::default()
    }

    /// Lets everyone through who waits or comes later.
    pub fn open(&self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).open = true;
        self.0.1.notify_all();
    }

    /// Waits until this many replies have come to the gate; false if that takes longer than the timeout.
    pub fn wait_arrived(&self, count: usize, timeout: Duration) -> bool {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = |state: &mut GateState| state.arrived < count;
        let (state, _) =
            self.0.1.wait_timeout_while(state, timeout, waiting).unwrap_or_else(PoisonError::into_inner);
        state.arrived >= count
    }

    pub(crate) fn wait_inside(&self) {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        self.0.1.notify_all();
        while !state.open {
            state = self.0.1.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Gate")
    }
}

/// The rules of one relay, oldest first.
#[derive(Default)]
pub(crate) struct Script(Vec<Rule>);

struct Rule {
    matcher: Matcher,
    reply: Reply,
    once: bool,
}

impl Script {
    pub fn add(&mut self, matcher: Matcher, reply: Reply, once: bool) {
        self.0.push(Rule { matcher, reply, once });
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The reply of the first rule that matches, which is used up if it was for one request.
    pub fn take(&mut self, request: &Request, before_body: bool) -> Reply {
        for index in 0..self.0.len() {
            let rule = &mut self.0[index];
            if rule.matcher.before_body != before_body || !(rule.matcher.test)(request) {
                continue;
            }
            if rule.matcher.skip > 0 {
                rule.matcher.skip -= 1;
                continue;
            }
            return if rule.once { self.0.remove(index).reply } else { rule.reply.clone() };
        }
        Reply::normal()
    }

    /// Whether any rule wants to see heads.
    pub fn has_head_rules(&self) -> bool {
        self.0.iter().any(|rule| rule.matcher.before_body)
    }

    /// How many one-time rules have not been used.
    pub fn unused(&self) -> usize {
        self.0.iter().filter(|rule| rule.once).count()
    }
}

/// Waits on the condition variable of a log until `done` or the deadline.
pub(crate) fn wait_until<T>(
    lock: &Mutex<T>,
    changed: &Condvar,
    timeout: Duration,
    mut done: impl FnMut(&mut T) -> bool,
) -> bool {
    let deadline = Instant::now() + timeout;
    let mut guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if done(&mut guard) {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        guard = changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
