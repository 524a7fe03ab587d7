//! The report of a diagnosis, as `structuredContent` and as the command prints it (contract 7).

use hyper::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use tinyagent_protocol::event::PublicKey;
use tinyagent_protocol::report::{Measure, State};

use super::{Diagnosis, Needs, Verdict};
use crate::failure::one_line;

/// Whether the relay answers at all.
#[derive(Debug, Serialize)]
pub struct Transport {
    /// Whether it does.
    pub ok: bool,
    /// Which probe it answered: `readyz` or `nip11`.
    pub check: Option<&'static str>,
    /// The probe's HTTP status.
    pub status: Option<u16>,
    /// The class of the failure.
    pub class: Option<&'static str>,
    /// The failure.
    pub error: Option<String>,
}

impl Transport {
    /// A probe was answered.
    pub fn reached(check: &'static str, status: StatusCode) -> Self {
        Self { ok: true, check: Some(check), status: Some(status.as_u16()), class: None, error: None }
    }

    /// No probe was answered.
    pub fn failed(status: Option<StatusCode>, error: String) -> Self {
        let status = status.map(|status| status.as_u16());
        Self { ok: false, check: None, status, class: Some("transport"), error: Some(error) }
    }
}

/// Whether the relay accepts the signature.
#[derive(Debug, Default, Serialize)]
pub struct Authentication {
    /// Whether it does.
    pub ok: bool,
    /// The signed call's HTTP status.
    pub status: Option<u16>,
    /// The class of the failure.
    pub class: Option<&'static str>,
    /// The failure.
    pub error: Option<String>,
}

/// Rooms and kinds, where the question named any.
#[derive(Debug, Default, Serialize)]
pub struct Lists {
    /// Rooms.
    pub rooms: Vec<String>,
    /// Kinds.
    pub kinds: Vec<u64>,
}

/// How a process is protected.
#[derive(Debug, Serialize)]
struct Hardening {
    hardening: Vec<Measure>,
}

/// What a diagnosis found.
#[derive(Debug, Serialize)]
pub struct Report {
    relay: String,
    /// The key's public half, in hex.
    pub pubkey: String,
    /// Whether the relay answers.
    pub transport: Transport,
    /// Whether it accepts the signature.
    pub authentication: Authentication,
    /// Whether the key is a member, where the relay says so.
    pub member: Option<bool>,
    /// The key's role.
    pub role: Option<String>,
    /// The relay's own word on the grant.
    pub grant: Option<Box<RawValue>>,
    /// active, paused, revoked, expired or none.
    pub state: Option<String>,
    /// Whether the relay enforces grants for this key.
    pub enforced: Option<bool>,
    /// What the grant allows, in the relay's words.
    pub allows: Option<Box<RawValue>>,
    /// The grant's rate, in the relay's words.
    pub rate: Option<Box<RawValue>>,
    /// When the grant ends, in the relay's words.
    pub expires: Option<Box<RawValue>>,
    /// What was asked about.
    #[serde(rename = "needs", skip_serializing_if = "Option::is_none")]
    shown_needs: Option<Lists>,
    /// What of it the grant lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Lists>,
    /// The one word.
    pub verdict: Verdict,
    /// What to do.
    pub advice: String,
    /// By how much this machine's clock is ahead of the relay's.
    pub clock_skew_seconds: Option<i64>,
    signer: Hardening,
    facade: Hardening,
    /// The question itself.
    #[serde(skip)]
    pub needs: Option<Needs>,
}

impl Report {
    /// A report in which nothing but the transport is known.
    pub fn new(diagnosis: &Diagnosis, pubkey: PublicKey, needs: Needs, transport: Transport) -> Self {
        let needs = Some(needs).filter(|needs| *needs != Needs::default());
        let shown_needs = needs.as_ref().map(|needs| Lists {
            rooms: needs.rooms.clone().unwrap_or_default(),
            kinds: needs.kinds.clone().unwrap_or_default(),
        });
        Self {
            relay: diagnosis.relay.to_string(),
            pubkey: pubkey.to_string(),
            transport,
            authentication: Authentication::default(),
            member: None,
            role: None,
            grant: None,
            state: None,
            enforced: None,
            allows: None,
            rate: None,
            expires: None,
            missing: shown_needs.as_ref().map(|_| Lists::default()),
            shown_needs,
            verdict: Verdict::Error,
            advice: String::new(),
            clock_skew_seconds: None,
            signer: Hardening { hardening: diagnosis.signer.clone() },
            facade: Hardening { hardening: diagnosis.facade.clone() },
            needs,
        }
    }

    /// `<verdict>: <advice>` on one line.
    pub fn summary(&self) -> String {
        format!("{}: {}", self.verdict.as_str(), one_line(&self.advice))
    }

    /// The report as one line of JSON.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_else(|_| "{}".into());
        crate::result::clean(&json)
    }

    /// The report in a few lines for a person.
    pub fn to_text(&self) -> String {
        let works = |ok: bool, error: &Option<String>| match (ok, error) {
            (true, _) => "ok".to_owned(),
            (false, Some(error)) => format!("no: {error}"),
            (false, None) => "not tried".to_owned(),
        };
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
        let measures = self.signer.hardening.iter().chain(&self.facade.hardening);
        let (on, off): (Vec<&Measure>, Vec<&Measure>) =
            measures.partition(|measure| measure.state == State::On);
        let mut text = format!(
            "relay      {}\nkey        {}\nreachable  {}\nsignature  {}\nrole       {}\ngrant      {}\nisolation  {} of {} on\n",
            self.relay,
            self.pubkey,
            works(self.transport.ok, &self.transport.error),
            works(self.authentication.ok, &self.authentication.error),
            known(&self.role),
            known(&self.state),
            on.len(),
            on.len() + off.len()
        );
        for measure in off {
            let why = measure.why.as_deref().unwrap_or("no reason known");
            text.push_str(&format!("           {}: {}\n", measure.measure, one_line(why)));
        }
        text.push_str(&format!("{}\n", self.summary()));
        text
    }

    /// The report as indented JSON; the relay's own values stay on one line each.
    pub fn to_pretty_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|_| self.to_json())
    }
}
