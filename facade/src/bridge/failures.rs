//! What a call that fails on its way is to the host.

use tinyagent_protocol::catalog::{Access, Tool};
use tinyagent_protocol::policy::{Refusal, Rule};
use tinyagent_protocol::template::Template;

use crate::failure::Failure;
use crate::relay::answer::Unanswered;
use crate::result::{HostResult, ResultError};
use crate::signer::SignerError;

/// What a failure means for this tool: after a write that may stand, its text says so and names the event.
pub fn of_a_call(tool: &Tool, unanswered: Unanswered, event: Option<&str>) -> Unanswered {
    match tool.access {
        Access::Read => unanswered,
        Access::Write => Unanswered { failure: unanswered.failure.of_a_write(event), hint: unanswered.hint },
    }
}

/// The failure of a call whose result cannot be given to a host.
pub fn result_failure(tool: &Tool, error: ResultError, event: Option<&str>) -> Unanswered {
    let failure = Failure::uncertain(error.to_string());
    of_a_call(tool, failure.into(), event)
}

/// The host's own `event` argument has a text of its own; every other refusal names its rule.
pub fn refused(refusal: &Refusal) -> Failure {
    match refusal.rule {
        Rule::EventArgument => Failure::Refused(refusal.message.clone()),
        _ => Failure::Signer(SignerError::Refused(refusal.clone()).to_string()),
    }
}

/// What the host sees where the signer gave nothing.
pub fn signer_failure(error: SignerError) -> Failure {
    match &error {
        SignerError::Refused(refusal) => refused(refusal),
        _ => Failure::Signer(error.to_string()),
    }
}

/// A template that is not signed: the contract's text and what the relay returned.
pub fn refused_template(
    refusal: &Refusal,
    template: &Template,
    tool: &Tool,
    result: &HostResult,
) -> HostResult {
    let text = if refusal.rule.concerns_template() {
        refusal.message.clone()
    } else {
        unexpected_again(template, tool)
    };
    HostResult::error_with(text, result.structured().cloned())
}

/// The contract's text for a template that the tool does not publish.
pub fn unexpected_again(template: &Template, tool: &Tool) -> String {
    let (kind, name) = (template.kind, tool.name);
    format!(
        "the relay returned an unsigned event this tool is not expected to publish: kind {kind} from {name}"
    )
}
