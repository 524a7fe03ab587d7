//! The MCP server: what each message of the host leads to.
//!
//! Quick answers are given at once, so that a ping is never behind a call; everything else runs as a
//! task of its own on this thread. Each task ends in an answer, also where it panics.

pub mod calls;
mod panics;
pub mod run;
pub mod table;

use std::borrow::Cow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};
use tracing::{debug, info};

use tinyagent_protocol::VERSION;
use tinyagent_protocol::body::RELAY_PROTOCOL_VERSION;
use tinyagent_protocol::catalog::Tool;
use tinyagent_protocol::json::Json;
use tinyagent_protocol::label;
use tinyagent_protocol::policy::shown;

use crate::bridge::{Bridge, HostCall, Surroundings};
use crate::diagnose::{self, Diagnosis};
use crate::failure::Failure;
use crate::host;
use crate::host::message::{self, Id, Message, Params};
use crate::host::output::Output;
use crate::relay::answer::Hint;
use crate::relay::headers::HeaderParameter;
use crate::result::{HostResult, push_host_string};
use calls::{CallQueue, Pending, PendingRequests, QueuedCall};
use panics::unless_it_panics;
use table::Table;

/// The host revisions that are spoken, and the one for every other wish (contract 2).
const HOST_VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const DEFAULT_HOST_VERSION: &str = "2025-06-18";

/// How many diagnoses run at a time.
const MAX_DIAGNOSES: usize = 4;

/// Which revision a request was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// One of the revisions with a handshake; its results have no keys of the envelope's own.
    Handshake,
    /// 2026-07-28, as the request's own `_meta` says: a client of it that does not ask first reads no
    /// result without these keys, and would take a call that was carried out for a failed one.
    Stateless,
}

impl Era {
    fn of(params: Option<Params<'_>>) -> Self {
        let meta = params.and_then(|params| params.meta);
        let named = meta.and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion")?.as_str());
        if named.as_deref() == Some(RELAY_PROTOCOL_VERSION) { Self::Stateless } else { Self::Handshake }
    }
}

/// What the stateless revision demands of every result, and of a list.
const STATELESS_RESULT: &str = "\"resultType\":\"complete\"";
const STATELESS_LIST: &str = "\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"";

/// A server for one host.
pub struct Server {
    bridge: Rc<Bridge>,
    diagnosis: Diagnosis,
    table: Table,
    output: Output,
    pending: PendingRequests,
    queue: CallQueue,
    diagnosing: Semaphore,
    call_limit: Duration,
}

impl Server {
    /// A server on this bridge. `call_limit` bounds each host call, the wait in the queue included.
    pub fn new(bridge: Rc<Bridge>, diagnosis: Diagnosis, call_limit: Duration) -> Self {
        Self {
            table: Table::new(bridge.clone()),
            bridge,
            diagnosis,
            output: Output::default(),
            pending: PendingRequests::default(),
            queue: CallQueue::default(),
            diagnosing: Semaphore::new(MAX_DIAGNOSES),
            call_limit,
        }
    }

    /// Takes one line of the host.
    fn take(self: &Rc<Self>, line: &Bytes) {
        match Message::parse(line) {
            Message::Response => {}
            Message::Invalid { id, code, message } => self.send_error(id.as_ref(), code, &message),
            Message::Notification { method, params } => self.notified(&method, params),
            Message::Request { id, method, params } => match &*method {
                "ping" => self.send_result(&id, Era::of(params), STATELESS_RESULT, ["{}".into()]),
                "initialize" => self.initialize(&id, params),
                "tools/list" => self.list_tools(id, Era::of(params)),
                "tools/call" => self.call_tool(id, params, line),
                other => {
                    let message = format!("Method not found: {}", shown(other));
                    self.send_error(Some(&id), message::METHOD_NOT_FOUND, &message);
                }
            },
        }
    }

    // Cold, like the others of its kind: their large frames would be every call's.
    #[cold]
    fn initialize(&self, id: &Id, params: Option<Params<'_>>) {
        let params = params.map(|params| params.json);
        let text = |key: &str| params.and_then(|params| params.get(key)?.as_str());
        let asked = text("protocolVersion");
        let version =
            HOST_VERSIONS.iter().find(|v| asked.as_deref() == Some(**v)).unwrap_or(&DEFAULT_HOST_VERSION);
        let client = params.and_then(|params| params.get("clientInfo")?.get("name")?.as_str());
        let client = label::normalise(client.as_deref().unwrap_or_default());
        if !client.is_empty() {
            debug!(client, version, "initialize");
            self.bridge.client.replace(Some(client.into()));
        }
        let result = format!(
            "{{\"protocolVersion\":\"{version}\",\"capabilities\":{{\"tools\":{{}}}},\
             \"serverInfo\":{{\"name\":\"tinyagent\",\"version\":\"{VERSION}\"}}}}"
        );
        self.send_result(id, Era::Handshake, "", [result.into()]);
        let bridge = self.bridge.clone();
        spawn_local(async move { bridge.relay.warm().await });
    }

    #[cold]
    fn notified(&self, method: &str, params: Option<Json<'_>>) {
        if method != "notifications/cancelled" {
            return;
        }
        let Some(id) = params.and_then(|params| Id::new(params.get("requestId")?)) else { return };
        self.pending.cancel(&id);
        for dropped in self.queue.take_cancelled() {
            self.queue.done(dropped.call.arguments.len());
            self.pending.end(&dropped.pending);
        }
    }

    /// Notes a request that is not answered at once; where too many are, it is answered with an error.
    fn begin(&self, id: Id, era: Era) -> Option<Rc<Pending>> {
        let begun = self.pending.begin(id, era);
        begun.map_err(|id| self.send_error(Some(&id), message::INTERNAL_ERROR, TOO_MANY_REQUESTS)).ok()
    }

    #[cold]
    fn list_tools(self: &Rc<Self>, id: Id, era: Era) {
        let Some(pending) = self.begin(id, era) else { return };
        let server = self.clone();
        spawn_local(async move {
            let loading = server.clone();
            // A panic while loading leaves the table as it was; the list is answered all the same.
            let _ = spawn_local(async move { loading.table.ensure().await }).await;
            server.output.room().await;
            server.answer(&pending, STATELESS_LIST, vec![server.table.listing().into()]);
        });
    }

    fn call_tool(self: &Rc<Self>, id: Id, params: Option<Params<'_>>, line: &Bytes) {
        let invalid = |message: &str| self.send_error(Some(&id), message::INVALID_PARAMS, message);
        let era = Era::of(params);
        let Some(Params { name, arguments, .. }) = params.filter(|params| params.json.is_object()) else {
            return invalid("Invalid params: params must be an object");
        };
        let Some(name) = name.and_then(Json::as_str).filter(|name| !name.is_empty()) else {
            return invalid("Invalid params: name must be a non-empty string");
        };
        let arguments = match arguments {
            None => Bytes::new(),
            Some(arguments) if arguments.is_null() => Bytes::new(),
            Some(arguments) if arguments.is_object() => kept_apart(line, arguments.text()),
            Some(_) => return invalid("Invalid params: arguments must be an object"),
        };
        if name == diagnose::TOOL_NAME {
            return self.diagnose(id, era, arguments);
        }
        let Some(tool) = self.bridge.policy.exposed_tool(&name) else {
            return invalid(&format!("Unknown tool: {}", shown(&name)));
        };
        let Some(pending) = self.begin(id, era) else { return };
        let call = HostCall::new(tool, arguments);
        let deadline = Instant::now() + self.call_limit;
        if let Err(pending) = self.queue.push(QueuedCall { pending, call, deadline }) {
            self.refuse_to_wait(&pending);
        }
    }

    #[cold]
    fn refuse_to_wait(&self, pending: &Rc<Pending>) {
        let failure = Failure::not_sent("too many calls are waiting; the call was not sent");
        self.answer(pending, STATELESS_RESULT, HostResult::error(failure.to_string()).into_pieces());
    }

    /// Diagnoses beside the calls, a few at a time.
    #[cold]
    fn diagnose(self: &Rc<Self>, id: Id, era: Era, arguments: Bytes) {
        let Some(pending) = self.begin(id, era) else { return };
        let argument_bytes = arguments.len();
        if !self.queue.reserve(argument_bytes) {
            return self.refuse_to_wait(&pending);
        }
        let server = self.clone();
        spawn_local(async move {
            let asking = server.clone();
            let asked = spawn_local(async move {
                match timeout(asking.call_limit, asking.diagnosing.acquire()).await {
                    Ok(_turn) => asking.diagnosis.tool(&asking.bridge, &arguments).await,
                    Err(_) => HostResult::error(asking.late().to_string()),
                }
            });
            let result = asked.await.unwrap_or_else(|_| HostResult::error(INTERNAL_ERROR));
            server.queue.done(argument_bytes);
            server.output.room().await;
            server.answer(&pending, STATELESS_RESULT, result.into_pieces());
        });
    }

    /// What a call is told whose time was over before its turn came.
    fn late(&self) -> Failure {
        Failure::not_sent(format!(
            "{} s passed while earlier calls were waited for; the call was not sent",
            self.call_limit.as_secs()
        ))
    }

    /// Forwards calls, one after the other, for the life of the process.
    async fn forward_calls(self: Rc<Self>) {
        let mut signer_gone = pin!(self.bridge.signer.gone());
        loop {
            let QueuedCall { pending, call, deadline } = self.queue.next().await;
            self.output.room().await;
            let argument_bytes = call.arguments.len();
            let forwarded = unless_it_panics(pin!(self.forward(call, deadline, signer_gone.as_mut()))).await;
            let (result, follow_up) = forwarded.unwrap_or_else(|| (HostResult::error(INTERNAL_ERROR), false));
            self.queue.done(argument_bytes);
            self.answer(&pending, STATELESS_RESULT, result.into_pieces());
            if follow_up && self.table.is_wanted() {
                self.load_table();
            }
        }
    }

    /// Loads the table beside the calls.
    #[cold]
    fn load_table(self: &Rc<Self>) {
        let server = self.clone();
        spawn_local(async move { server.table.ensure().await });
    }

    /// One call; the flag says that the relay answered.
    async fn forward(
        &self,
        call: HostCall,
        deadline: Instant,
        signer_gone: Pin<&mut impl Future<Output = ()>>,
    ) -> (HostResult, bool) {
        let began = Instant::now();
        if began >= deadline {
            return (HostResult::error(self.late().to_string()), false);
        }
        if self.bridge.signer.is_gone() {
            return (HostResult::error(call.signer_ended().to_string()), false);
        }
        let outcome = tokio::select! {
            biased;
            outcome = self.bridge.call(&call, deadline, self) => outcome,
            () = signer_gone => Err(call.signer_ended().into()),
        };
        let spent = || began.elapsed().as_millis();
        match outcome {
            Ok(result) => {
                debug!(tool = call.tool.name, ms = spent(), is_error = result.is_error(), "answered");
                (result, true)
            }
            Err(unanswered) => {
                if unanswered.hint == Hint::UnknownTool {
                    self.table.mark_stale();
                }
                info!(tool = call.tool.name, ms = spent(), "{}", unanswered.failure);
                let answered = matches!(unanswered.failure, Failure::Permission(_) | Failure::Relay(_));
                (HostResult::error(unanswered.failure.to_string()), answered)
            }
        }
    }

    /// Answers a request unless it was cancelled, and forgets it. `keys` is what the stateless revision
    /// demands of this result.
    fn answer(&self, pending: &Rc<Pending>, keys: &str, result: Vec<Bytes>) {
        if !pending.is_cancelled() {
            self.send_result(&pending.id, pending.era, keys, result);
        }
        self.pending.end(pending);
    }

    fn send_result(&self, id: &Id, era: Era, keys: &str, result: impl IntoIterator<Item = Bytes>) {
        let mut head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":", id.as_str());
        let mut result = result.into_iter();
        let mut first = result.next().unwrap_or_default();
        if era == Era::Stateless && first.starts_with(b"{") {
            let comma = if first.len() > 2 || !first.ends_with(b"}") { "," } else { "" };
            head.push_str(&format!("{{{keys}{comma}"));
            first = first.slice(1..);
        }
        let pieces = [Bytes::from(head), first].into_iter().chain(result);
        self.output.send(pieces.chain([Bytes::from_static(b"}")]));
    }

    #[cold]
    fn send_error(&self, id: Option<&Id>, code: i32, message: &str) {
        let id = id.map_or(Cow::Borrowed("null"), |id| Cow::Borrowed(id.as_str()));
        let mut line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":");
        push_host_string(&mut line, message);
        line.push_str("}}");
        self.output.send([line.into()]);
    }
}

impl Surroundings for Server {
    fn headers_of(&self, tool: &'static Tool) -> Vec<HeaderParameter> {
        self.table.headers_of(tool)
    }

    async fn refresh(&self, deadline: Instant) {
        self.table.refresh(deadline).await;
    }

    fn has_next(&self) -> bool {
        self.queue.has_waiting()
    }

    fn prepare_next(&self) {
        self.queue.with_next(|next| self.bridge.ask_ahead(&next.call));
    }
}

const TOO_MANY_REQUESTS: &str = "Internal error: too many requests are unanswered";

/// The arguments in memory that holds little else: a mere part of the line would keep the whole line,
/// and whatever was read along with it, for as long as the call waits.
fn kept_apart(line: &Bytes, arguments: &str) -> Bytes {
    let most_of_the_line = arguments.len() > line.len() / 2;
    if line.len() > host::input::KEEP_BYTES && most_of_the_line {
        line.slice_ref(arguments.as_bytes())
    } else {
        Bytes::copy_from_slice(arguments.as_bytes())
    }
}

/// What a host sees where a task panicked; the panic itself is on stderr.
const INTERNAL_ERROR: &str = "transport: an internal error of tinyagent; see its log";
