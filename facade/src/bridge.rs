//! One request on its way to the relay: policy, signer, relay, result.
//!
//! The bridge has what every forwarded request needs and nothing of the host. It never sends a request
//! twice, but for the three cases that contract 4 names, each with a new id and a new proof.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use tinyagent_protocol::body::Endpoint;
use tinyagent_protocol::catalog::{Access, Tool};
use tinyagent_protocol::event::PublicKey;
use tinyagent_protocol::json::Json;
use tinyagent_protocol::message::{Arguments, CallTool, ListTools, Message, Publish, Request};
use tinyagent_protocol::policy::{Policy, Refusal, Rule};
use tinyagent_protocol::template::{Recognized, Template};

use crate::failure::Failure;
use crate::relay::answer::{self, Hint, RelayResult, Unanswered};
use crate::relay::client::{NoAnswer, Post, RelayClient, RequestBody};
use crate::relay::headers::HeaderParameter;
use crate::result::{HostResult, ResultError, clean};
use crate::signer::{Signer, SignerError};

/// What every forwarded request needs.
pub struct Bridge {
    /// What may be asked; the signer judges by its own copy.
    pub policy: Policy,
    /// The agent's public key.
    pub pubkey: PublicKey,
    /// The way to proofs.
    pub signer: Signer,
    /// The way to the relay.
    pub relay: RelayClient,
    /// The client's own name for itself, as `initialize` gave it.
    pub client: RefCell<Option<Rc<str>>>,
    next_id: Cell<u64>,
}

/// A call of an exposed tool, as the host made it.
pub struct HostCall {
    /// The tool.
    pub tool: &'static Tool,
    /// The arguments as the host wrote them; empty where it gave none.
    pub arguments: Bytes,
    progress: Progress,
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
        Self { tool, arguments, progress: Progress::default() }
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

    /// Notes that a request is on its way while `answer` is waited for.
    async fn posting<T>(&self, answer: impl Future<Output = T>) -> T {
        self.progress.posted.set(true);
        let answer = answer.await;
        self.progress.posted.set(false);
        answer
    }

    fn arguments(&self) -> Result<Arguments<'_>, Failure> {
        let text = if self.arguments.is_empty() { Arguments::NONE.as_bytes() } else { &self.arguments };
        // A part of the host's line, which was checked when it was read.
        let json = std::str::from_utf8(text).ok().map(Json::of_checked);
        json.and_then(Arguments::new).ok_or_else(|| Failure::Refused("arguments must be an object".into()))
    }
}

/// Gives the headers that a tool's schema asks for; may fetch the table first.
pub trait HeaderSource {
    /// The headers known for this tool.
    fn of(&self, tool: &'static Tool) -> Vec<HeaderParameter>;

    /// Fetches the table anew, for at most as long as the call may still take.
    fn refresh(&self, deadline: Instant) -> impl Future<Output = ()>;
}

/// What the relay's result means for the call.
enum Judged {
    /// It goes to the host.
    Result(HostResult),
    /// It is a template that may be signed.
    Template(Template),
}

impl Bridge {
    /// A bridge for this policy and key.
    pub fn new(policy: Policy, pubkey: PublicKey, signer: Signer, relay: RelayClient) -> Self {
        Self { policy, pubkey, signer, relay, client: RefCell::default(), next_id: Cell::new(1) }
    }

    /// The client's label for a message to the signer.
    pub fn label(&self) -> Option<Rc<str>> {
        self.client.borrow().clone()
    }

    /// The life of a tools/call: asked once; where the relay returns a template that may be signed,
    /// signed and submitted. The flag says whether the relay answered at all.
    ///
    /// # Errors
    /// A failure that the host sees as a tool error, and what it says of the table.
    pub async fn call(
        &self,
        call: &HostCall,
        deadline: Instant,
        headers: &impl HeaderSource,
    ) -> Result<HostResult, Unanswered> {
        let arguments = call.arguments()?;
        let request = || CallTool { id: 0, tool: Cow::Borrowed(call.tool.name), arguments };
        self.policy.judge_call(request()).map_err(|refusal| refused(&refusal))?;
        let answered = self.forward_call(call, arguments, deadline, headers).await;
        let answered = answered.map_err(|unanswered| of_a_call(call.tool, unanswered, None))?;
        let mut template = match self.judge(call.tool, arguments, &answered, None)? {
            Judged::Result(result) => return Ok(result),
            Judged::Template(template) => template,
        };
        let structured = answered_structured(&answered);
        drop(answered);
        let mut told_before = false;
        let (event, submitted) = loop {
            let signed = match self.sign(call, arguments, &template).await {
                Ok(signed) => signed,
                Err(SignerError::Refused(refusal)) if refusal.rule.concerns_template() => {
                    return Ok(HostResult::error_with(refusal.message, structured));
                }
                Err(error) => return Err(signer_failure(error).into()),
            };
            let event = signed.event.clone();
            debug!(tool = call.tool.name, event = %event, kind = template.kind, "submitting a signed event");
            // Should it be signed again, then as the same event.
            template.created_at = Some(signed.created_at);
            match self.submit(signed, deadline, call, headers).await {
                Err(unanswered) if !told_before && may_repeat(unanswered.hint, headers, deadline).await => {
                    told_before = true;
                }
                submitted => break (event, submitted),
            }
        };
        let submitted = submitted.map_err(|unanswered| of_a_call(call.tool, unanswered, Some(&event)))?;
        match self.judge(call.tool, arguments, &submitted, Some(&event))? {
            Judged::Result(result) => Ok(result),
            Judged::Template(template) => Ok(HostResult::error_with(
                unexpected_again(&template, call.tool),
                answered_structured(&submitted),
            )),
        }
    }

    /// Fetches one page of the relay's tool table.
    ///
    /// # Errors
    /// The failure that stderr and diagnosis name.
    pub async fn list(&self, cursor: Option<&str>, deadline: Instant) -> Result<RelayResult, Failure> {
        let mut stale_before = false;
        loop {
            let id = self.take_id();
            let list = || ListTools { id, cursor: cursor.map(Cow::Borrowed) };
            let label = self.label();
            let message =
                Message { request: Request::ListTools(list()), client: label.as_deref().map(Cow::Borrowed) };
            let nothing = Bytes::new();
            let authorization = self.signer.proof(&message, &nothing).await.map_err(signer_failure)?;
            let post = Post {
                endpoint: Endpoint::Mcp,
                method: Some("tools/list"),
                tool: None,
                parameters: Vec::new(),
                authorization,
                body: RequestBody::new(&self.policy.judge_listing(list()).body(), &nothing),
            };
            match self.relay.post(post, deadline).await {
                Ok(http) => return answer::read(http, id).map_err(|unanswered| unanswered.failure),
                Err(NoAnswer { stale: true, .. }) if !stale_before => stale_before = true,
                Err(none) => return Err(none.into_failure()),
            }
        }
    }

    /// Sends the call, again where contract 4 allows it.
    async fn forward_call(
        &self,
        call: &HostCall,
        arguments: Arguments<'_>,
        deadline: Instant,
        headers: &impl HeaderSource,
    ) -> Result<RelayResult, Unanswered> {
        let (mut stale_before, mut told_before) = (false, false);
        loop {
            let id = self.take_id();
            let request = || CallTool { id, tool: Cow::Borrowed(call.tool.name), arguments };
            let approved = self.policy.judge_call(request()).map_err(|refusal| refused(&refusal))?;
            let label = self.label();
            let message = Message {
                request: Request::CallTool(request()),
                client: label.as_deref().map(Cow::Borrowed),
            };
            let authorization = self.signer.proof(&message, &call.arguments).await.map_err(signer_failure)?;
            let body = RequestBody::new(&approved.body(), &call.arguments);
            let post = self.tool_post(call.tool, arguments, headers, authorization, body);
            match call.posting(self.relay.post(post, deadline)).await {
                Ok(http) => match answer::read(http, id) {
                    Err(unanswered)
                        if !told_before && may_repeat(unanswered.hint, headers, deadline).await =>
                    {
                        told_before = true;
                    }
                    answered => return answered,
                },
                Err(NoAnswer { stale: true, .. }) if call.tool.access == Access::Read && !stale_before => {
                    stale_before = true;
                }
                Err(none) => return Err(none.into_failure().into()),
            }
        }
    }

    fn tool_post(
        &self,
        tool: &'static Tool,
        arguments: Arguments<'_>,
        headers: &impl HeaderSource,
        authorization: String,
        body: RequestBody,
    ) -> Post {
        let parameters = headers.of(tool).into_iter();
        let parameters = parameters.filter_map(|p| p.value(arguments.json()).map(|value| (p.header, value)));
        Post {
            endpoint: Endpoint::Mcp,
            method: Some("tools/call"),
            tool: Some(tool.name),
            parameters: parameters.collect(),
            authorization,
            body,
        }
    }

    /// Has the template signed. What comes back was checked against it.
    async fn sign<'a>(
        &self,
        call: &'a HostCall,
        arguments: Arguments<'a>,
        template: &Template,
    ) -> Result<Submission<'a>, SignerError> {
        let id = self.take_id();
        let request =
            |id| Publish { id, tool: Cow::Borrowed(call.tool.name), arguments, template: template.clone() };
        let approved = self.policy.judge_publication(request(id), now()).map_err(SignerError::Refused)?;
        let label = self.label();
        let message =
            Message { request: Request::Publish(request(id)), client: label.as_deref().map(Cow::Borrowed) };
        let published = self.signer.publish(&message, &call.arguments, template, self.pubkey).await?;
        let body = RequestBody::new(&approved.body(&published.event), &call.arguments);
        let (event, created_at) = (published.event.id.to_string(), published.event.event.created_at);
        Ok(Submission { id, arguments, event, created_at, authorization: published.authorization, body })
    }

    /// Sends the signed event once.
    async fn submit(
        &self,
        submission: Submission<'_>,
        deadline: Instant,
        call: &HostCall,
        headers: &impl HeaderSource,
    ) -> Result<RelayResult, Unanswered> {
        let Submission { id, arguments, event, authorization, body, .. } = submission;
        call.progress.event.replace(Some(event));
        let post = self.tool_post(call.tool, arguments, headers, authorization, body);
        match call.posting(self.relay.post(post, deadline)).await {
            Ok(http) => answer::read(http, id),
            Err(none) => Err(none.into_failure().into()),
        }
    }

    /// Decides what a relay's result is: for the host, for signing, or a template to be refused.
    fn judge(
        &self,
        tool: &'static Tool,
        arguments: Arguments<'_>,
        answered: &RelayResult,
        event: Option<&str>,
    ) -> Result<Judged, Unanswered> {
        let json = answered.json();
        let unsigned = json.get("structuredContent").filter(|s| s.is_object()).map(|structured| {
            let repeated = structured.members().filter(|(key, _)| key == "unsigned").count() > 1;
            structured.get("unsigned").map_or(Recognized::Other, |unsigned| {
                match Template::recognize(unsigned) {
                    Recognized::Template(_) if repeated => Recognized::Unsignable,
                    recognized => recognized,
                }
            })
        });
        let needs_cleaning =
            answered.traits.spaced || answered.traits.lone_surrogate || answered.traits.line_separator;
        let result = if needs_cleaning {
            HostResult::from_relay(&Bytes::from(clean(json.text())))
        } else {
            HostResult::of_clean(json, &answered.bytes())
        };
        let result = result.map_err(|error| result_failure(tool, error, event))?;
        match unsigned {
            Some(Recognized::Template(template)) if !result.is_error() => {
                let request =
                    Publish { id: 0, tool: Cow::Borrowed(tool.name), arguments, template: template.clone() };
                match self.policy.judge_publication(request, now()) {
                    Ok(_) => Ok(Judged::Template(template)),
                    Err(refusal) if refusal.rule == Rule::ArgumentsMismatch && event.is_none() => {
                        Err(refused(&refusal).into())
                    }
                    Err(refusal) => Ok(Judged::Result(refused_template(&refusal, &template, tool, &result))),
                }
            }
            Some(Recognized::Unsignable) if !result.is_error() => Err(Failure::not_sent(
                "the relay returned an event template that cannot be signed as written",
            )
            .into()),
            _ => Ok(Judged::Result(result)),
        }
    }

    /// A JSON-RPC id that no request before had.
    fn take_id(&self) -> u64 {
        self.next_id.replace(self.next_id.get() + 1)
    }
}

/// A signed event on its way.
struct Submission<'a> {
    id: u64,
    arguments: Arguments<'a>,
    event: String,
    created_at: u64,
    authorization: String,
    body: RequestBody,
}

/// Whether the relay said that it executed nothing in a way that a repetition mends; where a header did not
/// fit, the table is fetched first.
async fn may_repeat(hint: Hint, headers: &impl HeaderSource, deadline: Instant) -> bool {
    if hint == Hint::HeaderMismatch {
        headers.refresh(deadline).await;
    }
    matches!(hint, Hint::HeaderMismatch | Hint::VersionOffered)
}

fn of_a_call(tool: &Tool, unanswered: Unanswered, event: Option<&str>) -> Unanswered {
    match tool.access {
        Access::Read => unanswered,
        Access::Write => Unanswered { failure: unanswered.failure.of_a_write(event), hint: unanswered.hint },
    }
}

fn result_failure(tool: &Tool, error: ResultError, event: Option<&str>) -> Unanswered {
    let failure = Failure::uncertain(error.to_string());
    of_a_call(tool, failure.into(), event)
}

/// The host's own `event` argument has a text of its own; every other refusal names its rule.
fn refused(refusal: &Refusal) -> Failure {
    match refusal.rule {
        Rule::EventArgument => Failure::Refused(refusal.message.clone()),
        _ => Failure::Signer(SignerError::Refused(refusal.clone()).to_string()),
    }
}

/// Seconds since 1970; a clock before that counts as 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn signer_failure(error: SignerError) -> Failure {
    match &error {
        SignerError::Refused(refusal) => refused(refusal),
        _ => Failure::Signer(error.to_string()),
    }
}

/// A template that is not signed: the contract's text and what the relay returned.
fn refused_template(refusal: &Refusal, template: &Template, tool: &Tool, result: &HostResult) -> HostResult {
    let text = if refusal.rule.concerns_template() {
        refusal.message.clone()
    } else {
        unexpected_again(template, tool)
    };
    HostResult::error_with(text, result.structured().cloned())
}

fn unexpected_again(template: &Template, tool: &Tool) -> String {
    let (kind, name) = (template.kind, tool.name);
    format!(
        "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {name}"
    )
}

/// The `structuredContent` of an answer, clean.
fn answered_structured(answered: &RelayResult) -> Option<Bytes> {
    let structured = answered.json().get("structuredContent").filter(|value| value.is_object())?;
    Some(clean(structured.text()).into())
}
