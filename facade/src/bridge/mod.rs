//! One request on its way to the relay: policy, signer, relay, result.
//!
//! The bridge has what every forwarded request needs and nothing of the host. It never sends a request
//! twice, but for the three cases that contract 4 names, each with a new id and a new proof.

mod failures;
mod host_call;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use tinyagent_protocol::body::Endpoint;
use tinyagent_protocol::catalog::{Access, Tool};
use tinyagent_protocol::event::PublicKey;
use tinyagent_protocol::message::{Arguments, CallTool, ListTools, Message, Publish, Request};
use tinyagent_protocol::policy::{Policy, Rule};
use tinyagent_protocol::template::{Recognized, Template};

use host_call::FRESH_LIMIT;
pub use host_call::{HostCall, Surroundings};

use crate::failure::Failure;
use crate::relay::answer::{self, Hint, RelayResult, Unanswered};
use crate::relay::body::RequestBody;
use crate::relay::client::{NoAnswer, Post, RelayClient};
use crate::result::{HostResult, clean};
use crate::signer::{Signer, SignerError};
use failures::{of_a_call, refused, refused_template, result_failure, signer_failure, unexpected_again};

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
    /// Whether the last answer came soon enough that a proof made meanwhile is still fresh.
    is_quick: Cell<bool>,
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
        Self {
            policy,
            pubkey,
            signer,
            relay,
            client: RefCell::default(),
            next_id: Cell::new(1),
            is_quick: Cell::new(true),
        }
    }

    /// The client's label for a message to the signer.
    pub fn label(&self) -> Option<Rc<str>> {
        self.client.borrow().clone()
    }

    /// The life of a tools/call: asked once; where the relay returns a template that may be signed,
    /// signed and submitted.
    ///
    /// # Errors
    /// A failure that the host sees as a tool error, and what it says of the table.
    pub async fn call(
        &self,
        call: &HostCall,
        deadline: Instant,
        surroundings: &impl Surroundings,
    ) -> Result<HostResult, Unanswered> {
        let arguments = call.arguments()?;
        let answered = self.forward_call(call, arguments, deadline, surroundings).await;
        let answered = answered.map_err(|unanswered| of_a_call(call.tool, unanswered, None))?;
        let template = match self.judge(call.tool, arguments, &answered, None)? {
            Judged::Result(result) => return Ok(result),
            Judged::Template(template) => template,
        };
        let structured = answered_structured(&answered);
        drop(answered);
        // Boxed, since a read would carry the room for it about.
        Box::pin(self.publish(call, arguments, template, structured, deadline, surroundings)).await
    }

    /// The second half of a write: has the template signed and submits the event. `structured` is what the
    /// relay returned with the template.
    async fn publish(
        &self,
        call: &HostCall,
        arguments: Arguments<'_>,
        mut template: Template,
        structured: Option<Bytes>,
        deadline: Instant,
        surroundings: &impl Surroundings,
    ) -> Result<HostResult, Unanswered> {
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
            match self.submit(signed, deadline, call, surroundings).await {
                Err(unanswered)
                    if !told_before && may_repeat(unanswered.hint, surroundings, deadline).await =>
                {
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

    /// Asks for the proof of a call whose turn comes next, so that the signer works while the relay does. It
    /// changes nothing but the time: what cannot be asked for now is asked for in the call's turn. Behind a
    /// slow relay it would only be asked for twice, and is not.
    pub fn ask_ahead(&self, call: &HostCall) {
        let Ok(arguments) = call.arguments() else { return };
        let request = CallTool { id: 0, tool: Cow::Borrowed(call.tool.name), arguments };
        if !self.is_quick.get() || call.is_asked_ahead() || self.policy.judge_call(request).is_err() {
            return;
        }
        let (id, label) = (self.take_id(), self.label());
        let message = call_message(call, arguments, id, label.as_deref());
        if let Ok(proof) = self.signer.proof_ahead(&message, &call.arguments) {
            call.asked_ahead(id, proof);
        }
    }

    /// Sends the call, again where contract 4 allows it.
    async fn forward_call(
        &self,
        call: &HostCall,
        arguments: Arguments<'_>,
        deadline: Instant,
        surroundings: &impl Surroundings,
    ) -> Result<RelayResult, Unanswered> {
        let (mut stale_before, mut told_before) = (false, false);
        loop {
            let ahead = call.take_ahead();
            let id = ahead.as_ref().map_or_else(|| self.take_id(), |ahead| ahead.id);
            let request = CallTool { id, tool: Cow::Borrowed(call.tool.name), arguments };
            let approved = self.policy.judge_call(request).map_err(|refusal| refused(&refusal))?;
            let proven = match ahead {
                Some(ahead) => ahead.proof.wait().await.ok(),
                None => None,
            };
            let authorization = match proven {
                Some(authorization) => authorization,
                None => {
                    let label = self.label();
                    let message = call_message(call, arguments, id, label.as_deref());
                    self.signer.proof(&message, &call.arguments).await.map_err(signer_failure)?
                }
            };
            let body = RequestBody::new(&approved.body(), &call.arguments);
            let post = self.tool_post(call.tool, arguments, surroundings, authorization, body);
            let sent = Instant::now();
            let answered = call.posting(pin!(self.relay.post(post, deadline)), surroundings).await;
            self.is_quick.set(sent.elapsed() < FRESH_LIMIT);
            match answered {
                Ok(http) => match answer::read(http, id) {
                    Err(unanswered)
                        if !told_before && may_repeat(unanswered.hint, surroundings, deadline).await =>
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
        surroundings: &impl Surroundings,
        authorization: String,
        body: RequestBody,
    ) -> Post {
        let parameters = surroundings.headers_of(tool).into_iter();
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
        surroundings: &impl Surroundings,
    ) -> Result<RelayResult, Unanswered> {
        let Submission { id, arguments, event, authorization, body, .. } = submission;
        call.submits(event);
        let post = self.tool_post(call.tool, arguments, surroundings, authorization, body);
        match call.posting(pin!(self.relay.post(post, deadline)), surroundings).await {
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
        let unsigned = answered.structured().map(|structured| {
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
            HostResult::from_relay(&Bytes::from(clean(answered.json().text())))
        } else {
            HostResult::of_clean(answered.fields(), &answered.bytes())
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

fn call_message<'a>(
    call: &HostCall,
    arguments: Arguments<'a>,
    id: u64,
    label: Option<&'a str>,
) -> Message<'a> {
    let request = CallTool { id, tool: Cow::Borrowed(call.tool.name), arguments };
    Message { request: Request::CallTool(request), client: label.map(Cow::Borrowed) }
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
async fn may_repeat(hint: Hint, surroundings: &impl Surroundings, deadline: Instant) -> bool {
    if hint == Hint::HeaderMismatch {
        // Boxed, since every call would carry the room for it about.
        Box::pin(surroundings.refresh(deadline)).await;
    }
    matches!(hint, Hint::HeaderMismatch | Hint::VersionOffered)
}

/// Seconds since 1970; a clock before that counts as 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The `structuredContent` of an answer, clean.
fn answered_structured(answered: &RelayResult) -> Option<Bytes> {
    Some(clean(answered.structured()?.text()).into())
}
