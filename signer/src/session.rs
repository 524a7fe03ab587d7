//! Everything that may be asked of the signer: one match over the typed requests.
//!
//! A session has its own policy, which can only become narrower; the key and the rates are the
//! signer's, shared by all sessions. A refusal is an answer; what is no request at all ends the session.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tinyagent_protocol::VERSION;
use tinyagent_protocol::body::Body;
use tinyagent_protocol::label;
use tinyagent_protocol::message::{
    Answer, BrowseGrant, CallTool, Description, ListTools, Malformed, Message, Narrow, Publish, Request,
};
use tinyagent_protocol::policy::{Policy, Refusal, Rule, shown};
use tinyagent_protocol::proof::authorization;
use tinyagent_protocol::report::Measure;

use crate::audit::{Decision, Entry, Log};
use crate::custody::Key;
use crate::rate::Bucket;

/// What all sessions share.
pub struct Signer {
    /// The key.
    pub key: Key,
    /// What its hardening came to.
    pub hardening: Vec<Measure>,
    /// Events that may still be signed.
    pub events: Bucket,
    /// Proofs that may still be given, where that is bounded.
    pub proofs: Option<Bucket>,
    /// Where each decision is recorded before it takes effect.
    pub log: Option<Log>,
}

/// Whether a session may become narrower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrowing {
    /// Its one client gave the policy itself, on the command line.
    NotOffered,
    /// Not done yet.
    Open,
    /// Done; a second time is refused.
    Done,
}

/// What ends a session without an answer.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The peer does not speak the protocol.
    #[error("malformed request: {0}")]
    Malformed(#[from] Malformed),
    /// No randomness, or libsecp256k1 did not sign.
    #[error("cannot sign: {0}")]
    CannotSign(#[from] io::Error),
}

/// Why a request gets no signature.
enum Denied {
    Refused(Refusal),
    CannotSign(io::Error),
}

impl From<Refusal> for Denied {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Self {
        Self::CannotSign(error)
    }
}

/// One peer's view of the signer.
pub struct Session {
    policy: Policy,
    narrowing: Narrowing,
}

impl Session {
    /// A session under the signer's policy.
    pub fn new(policy: Policy, narrowing: Narrowing) -> Self {
        Self { policy, narrowing }
    }

    /// Answers one frame, once the decision is on record.
    pub fn answer(&mut self, signer: &mut Signer, frame: &[u8]) -> Result<Answer, Ended> {
        let Message { request, client } = Message::parse(frame)?;
        let mut entry = Entry { client: client.map(|name| label::normalise(&name)), ..Entry::default() };
        let answer = match request {
            Request::Describe => return Ok(self.describe(signer)),
            Request::Narrow(request) => self.narrow(signer, &request, &mut entry),
            Request::ListTools(request) => self.list_tools(signer, request, &mut entry),
            Request::CallTool(request) => self.call_tool(signer, request, &mut entry),
            Request::Publish(request) => self.publish(signer, request, &mut entry),
            Request::BrowseGrant(request) => self.browse_grant(signer, request, &mut entry),
        };
        match answer.and_then(|answer| record(signer, &entry, Decision::Signed).map(|()| answer)) {
            Ok(answer) => Ok(answer),
            Err(Denied::Refused(refusal)) => {
                // A refusal stands whether or not it can be recorded.
                let _ = record(signer, &entry, Decision::Refused(refusal.rule));
                Ok(Answer::Refused(refusal))
            }
            Err(Denied::CannotSign(error)) => Err(error.into()),
        }
    }

    fn describe(&self, signer: &Signer) -> Answer {
        Answer::Description(Box::new(Description {
            version: VERSION.into(),
            pubkey: signer.key.public().to_string(),
            policy: self.policy.describe(),
            max_events_per_minute: signer.events.per_minute(),
            hardening: signer.hardening.clone(),
        }))
    }

    fn narrow(
        &mut self,
        signer: &Signer,
        request: &Narrow<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Answer, Denied> {
        entry.request = "narrow";
        match self.narrowing {
            Narrowing::NotOffered => {
                let message = "this signer has one client, which gave the policy on the command line";
                Err(Refusal::new(Rule::NarrowNotOffered, message).into())
            }
            Narrowing::Done => {
                Err(Refusal::new(Rule::NarrowTwice, "this connection has been narrowed already").into())
            }
            Narrowing::Open => {
                self.policy = self.policy.narrowed(&request.tools, request.allow_writes)?;
                self.narrowing = Narrowing::Done;
                Ok(self.describe(signer))
            }
        }
    }

    fn list_tools(
        &self,
        signer: &mut Signer,
        request: ListTools<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Answer, Denied> {
        entry.request = "list_tools";
        let approved = self.policy.judge_listing(request);
        self.prove(signer, &approved.body(), entry)
    }

    fn call_tool(
        &self,
        signer: &mut Signer,
        request: CallTool<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Answer, Denied> {
        entry.request = "call_tool";
        entry.tool = Some(shown(&request.tool).into());
        let approved = self.policy.judge_call(request)?;
        self.prove(signer, &approved.body(), entry)
    }

    fn publish(
        &self,
        signer: &mut Signer,
        request: Publish<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Answer, Denied> {
        entry.request = "publish";
        entry.tool = Some(shown(&request.tool).into());
        entry.kind = Some(request.template.kind);
        let now = now();
        let approved = self.policy.judge_publication(request, now)?;
        take_event(signer)?;
        let event = signer.key.sign_publication(&approved, now)?;
        entry.event = Some(event.id);
        let authorization = self.authorize(signer, &approved.body(&event), entry)?;
        Ok(Answer::Published { event: Box::new(event), authorization })
    }

    fn browse_grant(
        &self,
        signer: &mut Signer,
        request: BrowseGrant<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Answer, Denied> {
        entry.request = "browse_grant";
        let approved = self.policy.judge_grant_query(request);
        self.prove(signer, &approved.body(), entry)
    }

    fn prove(&self, signer: &mut Signer, body: &Body<'_>, entry: &mut Entry<'_>) -> Result<Answer, Denied> {
        Ok(Answer::Proof { authorization: self.authorize(signer, body, entry)? })
    }

    /// The `Authorization` value for one POST of `body`.
    fn authorize(
        &self,
        signer: &mut Signer,
        body: &Body<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<String, Denied> {
        take_proof(signer)?;
        let proof = signer.key.prove(&self.policy, body, now())?;
        entry.proof = Some(proof.id);
        entry.body = proof.event.tags.iter().find(|tag| tag[0] == "payload").map(|tag| tag[1].clone());
        Ok(authorization(&proof))
    }
}

/// Puts a decision on record, where a log is kept. Without its record nothing leaves.
fn record(signer: &mut Signer, entry: &Entry<'_>, decision: Decision) -> Result<(), Denied> {
    let Some(log) = &mut signer.log else { return Ok(()) };
    log.append(entry, decision, now())
        .map_err(|error| Refusal::new(Rule::AuditLog, format!("{error}; nothing was signed")).into())
}

fn take_event(signer: &mut Signer) -> Result<(), Refusal> {
    let rate = signer.events.per_minute();
    signer.events.take(Instant::now()).map_err(|wait| {
        let message =
            format!("the limit of {rate} events a minute is reached; try again in {}", seconds(wait));
        Refusal::new(Rule::Rate, message)
    })
}

fn take_proof(signer: &mut Signer) -> Result<(), Refusal> {
    let Some(proofs) = &mut signer.proofs else { return Ok(()) };
    let rate = proofs.per_minute();
    proofs.take(Instant::now()).map_err(|wait| {
        let message =
            format!("the limit of {rate} proofs a minute is reached; try again in {}", seconds(wait));
        Refusal::new(Rule::ProofRate, message)
    })
}

/// A wait, rounded up to whole seconds.
fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)))
}

/// Seconds since 1970 by the signer's own clock; a clock before that counts as 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
