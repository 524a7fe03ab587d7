//! From the answer to the signed call to class, verdict and advice (contract 7's table).

use hyper::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use tinyagent_protocol::json::Json;

use super::Needs;
use super::probe::NotAsked;
use super::report::{Authentication, Lists, Report};
use crate::failure::one_line;
use crate::relay::answer::shown_status;
use crate::relay::client::HttpAnswer;

/// The largest answer to the signed call that is read, in bytes.
const MAX_GRANT_BYTES: usize = 1 << 20;

/// Beyond this many seconds a relay refuses proofs for their time; advice names half of it (contract 7).
const NOTABLE_SKEW_SECONDS: i64 = 30;

/// The one word of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The agent can work.
    Ok,
    /// The grant is missing, inactive or too small.
    NeedsGrant,
    /// The relay does not know the key.
    NotAMember,
    /// The relay refuses the signature.
    Unauthorized,
    /// The relay does not answer.
    Unreachable,
    /// The relay does not serve what a diagnosis asks.
    Error,
}

impl Verdict {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::NeedsGrant => "needs-grant",
            Verdict::NotAMember => "not-a-member",
            Verdict::Unauthorized => "unauthorized",
            Verdict::Unreachable => "unreachable",
            Verdict::Error => "error",
        }
    }

    /// The exit status of `tinyagent diagnose` (contract 1).
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::NeedsGrant | Verdict::NotAMember | Verdict::Unauthorized => 2,
            Verdict::Unreachable | Verdict::Error => 3,
        }
    }
}

/// Fills in the verdict and everything that the answer says.
pub fn judge(report: &mut Report, answer: Result<HttpAnswer, NotAsked>) {
    match answer {
        Ok(answer) => judge_answer(report, &answer),
        Err(NotAsked::Unreachable) => {
            report.authentication.class = Some("transport");
            let error = report.transport.error.clone().unwrap_or_default();
            decide(
                report,
                Verdict::Unreachable,
                format!("the relay does not answer ({error}); check --relay and the network"),
            );
        }
        Err(NotAsked::NoAnswer(error)) => {
            fail(report, None, "transport", &error);
            decide(
                report,
                Verdict::Unreachable,
                format!("the signed call got no answer ({error}); try again"),
            );
        }
        Err(NotAsked::Signer(error)) => {
            fail(report, None, "signer", &error);
            decide(report, Verdict::Error, error);
        }
    }
}

fn judge_answer(report: &mut Report, answer: &HttpAnswer) {
    let status = answer.status;
    report.authentication.status = Some(status.as_u16());
    let said = error_text(&answer.body);
    let error = said.clone().unwrap_or_else(|| format!("HTTP {}", shown_status(status)));
    match status.as_u16() {
        200 => match read_result(&answer.body) {
            Some(result) => judge_result(report, result),
            None => {
                fail(report, Some(status), "transport", "the answer holds no valid result");
                let advice =
                    "the relay's answer to browsegrant holds no valid result; check that --relay is a relay";
                decide(report, Verdict::Unreachable, advice.into());
            }
        },
        403 if names_members_only(&error) => {
            fail(report, Some(status), "authorization", &error);
            let advice = membership_advice(report);
            decide(report, Verdict::NotAMember, advice);
        }
        401 | 403 => {
            fail(report, Some(status), "authorization", &error);
            let skew = report.clock_skew_seconds.filter(|skew| skew.abs() > NOTABLE_SKEW_SECONDS);
            let advice = match skew {
                Some(skew) if skew > 0 => format!(
                    "this machine's clock is {skew} s ahead of the relay's, which refuses such signatures; set the clock"
                ),
                Some(skew) => format!(
                    "this machine's clock is {} s behind the relay's, which refuses such signatures; set the clock",
                    -skew
                ),
                None => format!(
                    "the relay refused the signature ({error}); check that --relay is its public URL and the key is the agent's"
                ),
            };
            decide(report, Verdict::Unauthorized, advice);
        }
        400 if said.as_deref().is_some_and(|error| error.starts_with("unsupported:")) => {
            report.authentication =
                Authentication { ok: true, status: Some(400), class: None, error: Some(error) };
            let advice = "the signature works; the relay is too old to show the grant";
            decide(report, Verdict::Ok, advice.into());
        }
        429 => {
            fail(report, Some(status), "rate-limited", &error);
            decide(report, Verdict::Unreachable, "the relay limits the rate of requests; retry later".into());
        }
        300..=399 => {
            fail(report, Some(status), "protocol", &error);
            decide(
                report,
                Verdict::Error,
                format!(
                    "the relay redirects ({error}), which is not followed; give --relay the URL it leads to"
                ),
            );
        }
        400..=499 => {
            fail(report, Some(status), "protocol", &error);
            decide(
                report,
                Verdict::Error,
                format!("the relay does not serve this request ({error}); check --relay's path"),
            );
        }
        _ => {
            fail(report, Some(status), "transport", &error);
            decide(report, Verdict::Unreachable, format!("the relay fails ({error}); retry later"));
        }
    }
}

fn judge_result(report: &mut Report, result: Json<'_>) {
    report.authentication = Authentication { ok: true, status: Some(200), class: None, error: None };
    let raw = |key: &str| {
        let value = result.get(key).filter(|value| !value.is_null())?;
        RawValue::from_string(crate::result::clean(value.text())).ok()
    };
    let text = |key: &str| result.get(key).and_then(Json::as_str).map(|text| one_line(&text));
    report.member = result.get("member").and_then(Json::as_bool);
    report.role = text("role");
    report.grant = raw("grant");
    report.enforced = result.get("enforced").and_then(Json::as_bool);
    report.allows = raw("allows");
    report.rate = raw("rate");
    report.expires = raw("expires");
    let state =
        text("state").filter(|state| ["active", "paused", "revoked", "expired", "none"].contains(&&**state));
    let state = state.unwrap_or_else(|| if report.grant.is_some() { "active".into() } else { "none".into() });
    report.state = Some(state.clone());
    report.missing = report.needs.as_ref().map(|needs| missing(needs, result));
    if report.member == Some(false) {
        let advice = membership_advice(report);
        return decide(report, Verdict::NotAMember, advice);
    }
    let lacks =
        report.missing.as_ref().filter(|missing| !(missing.rooms.is_empty() && missing.kinds.is_empty()));
    let (verdict, advice) = if report.enforced == Some(false) {
        (Verdict::Ok, "the relay answers, accepts the signature and enforces no grant".into())
    } else if state != "active" {
        (Verdict::NeedsGrant, grant_advice(&state).into())
    } else if let Some(missing) = lacks {
        (Verdict::NeedsGrant, request_advice(missing))
    } else {
        (Verdict::Ok, "the relay answers, accepts the signature, and the grant is active".into())
    };
    decide(report, verdict, advice);
}

/// What the grant lacks: the relay's own word, else what its `allows` does not list.
fn missing(needs: &Needs, result: Json<'_>) -> Lists {
    let said = result.get("missing").filter(|missing| missing.is_object());
    let rooms = |json: Json<'_>| {
        json.elements().filter_map(|room| room.as_str().map(Into::into)).collect::<Vec<String>>()
    };
    let kinds = |json: Json<'_>| json.elements().filter_map(Json::as_u64).collect::<Vec<u64>>();
    if let Some(said) = said {
        return Lists {
            rooms: said.get("rooms").map(rooms).unwrap_or_default(),
            kinds: said.get("kinds").map(kinds).unwrap_or_default(),
        };
    }
    let allowed = |key: &str| result.get("allows")?.get(key).filter(|list| list.is_array());
    let mut lists = Lists::default();
    if let Some(allowed) = allowed("rooms").map(rooms) {
        let needed = needs.rooms.iter().flatten();
        lists.rooms = needed.filter(|room| !allowed.contains(room)).cloned().collect();
    }
    if let Some(allowed) = allowed("kinds").map(kinds) {
        lists.kinds = needs.kinds.iter().flatten().filter(|kind| !allowed.contains(kind)).copied().collect();
    }
    lists
}

fn membership_advice(report: &Report) -> String {
    format!("the relay does not know this key as a member; ask its owner to add the pubkey {}", report.pubkey)
}

fn grant_advice(state: &str) -> &'static str {
    match state {
        "paused" => "the grant is paused; ask its operator to resume it",
        "revoked" => "the grant was revoked; ask an operator for a new one",
        "expired" => "the grant has expired; ask its operator to renew it",
        _ => "the key has no grant; ask an operator for one",
    }
}

fn request_advice(missing: &Lists) -> String {
    let rooms = missing.rooms.join(", ");
    let kinds: Vec<String> = missing.kinds.iter().map(u64::to_string).collect();
    let kinds = kinds.join(", ");
    match (rooms.is_empty(), kinds.is_empty()) {
        (false, false) => format!("call request_grant with rooms {rooms} and kinds {kinds}"),
        (false, true) => format!("call request_grant with rooms {rooms}"),
        _ => format!("call request_grant with kinds {kinds}"),
    }
}

fn fail(report: &mut Report, status: Option<StatusCode>, class: &'static str, error: &str) {
    report.authentication = Authentication {
        ok: false,
        status: status.map(|status| status.as_u16()),
        class: Some(class),
        error: Some(error.into()),
    };
}

fn decide(report: &mut Report, verdict: Verdict, advice: String) {
    report.verdict = verdict;
    report.advice = advice;
}

fn read_result(body: &[u8]) -> Option<Json<'_>> {
    if body.len() > MAX_GRANT_BYTES {
        return None;
    }
    let (json, _) = Json::check(body).ok()?;
    json.get("result").filter(|result| result.is_object() && json.get("error").is_none_or(Json::is_null))
}

/// The relay's `error`, as NIP-86 puts it: a string, here also an object with a message.
fn error_text(body: &[u8]) -> Option<String> {
    let (json, _) = Json::check(body).ok()?;
    let error = json.get("error")?;
    let text = error.as_str().or_else(|| error.get("message")?.as_str())?;
    Some(one_line(&text)).filter(|text| !text.is_empty())
}

fn names_members_only(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    error.contains("members-only") || error.contains("members only")
}
