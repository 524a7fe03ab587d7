//! The hardening report: what each process says of its own isolation.
//!
//! Both processes fill the same form, so that an auditor reads one vocabulary. A measure is never
//! reported as on because a call returned zero: whoever writes `On` has tested the effect.

use serde::{Deserialize, Serialize};

/// Whether a measure holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// In force and, where that can be tested from inside, tested.
    On,
    /// This kernel or platform does not offer it.
    Unavailable,
    /// It is offered, but could not be put in force or did not pass its self-test.
    Failed,
}

/// One measure of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its stable name, such as `no-new-privs`; THREAT_MODEL.md explains each.
    pub measure: String,
    /// Whether it holds.
    pub state: State,
    /// Why it does not hold, or in which form it does (`landlock ABI 7`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Measure {
    /// A measure that holds.
    pub fn on(measure: &str) -> Self {
        Self { measure: measure.into(), state: State::On, why: None }
    }

    /// A measure that holds, in the form that `how` names.
    pub fn on_as(measure: &str, how: impl Into<String>) -> Self {
        Self { measure: measure.into(), state: State::On, why: Some(how.into()) }
    }

    /// A measure that this kernel or platform does not offer.
    pub fn unavailable(measure: &str, why: impl Into<String>) -> Self {
        Self { measure: measure.into(), state: State::Unavailable, why: Some(why.into()) }
    }

    /// A measure that is offered and does not hold.
    pub fn failed(measure: &str, why: impl Into<String>) -> Self {
        Self { measure: measure.into(), state: State::Failed, why: Some(why.into()) }
    }
}
