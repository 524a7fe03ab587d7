//! The requests of a diagnosis.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{DATE, HeaderMap};
use tokio::time::Instant;

use tinyagent_protocol::body::Endpoint;
use tinyagent_protocol::message::{BrowseGrant, Message, Request};
use tinyagent_protocol::relay_url::RelayUrl;

use super::Needs;
use super::report::Transport;
use crate::bridge::Bridge;
use crate::relay::answer::shown_status;
use crate::relay::body::RequestBody;
use crate::relay::client::{HttpAnswer, Post};

/// The bound on each readiness probe (contract 7).
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no answer to the signed call.
#[derive(Debug)]
pub enum NotAsked {
    /// The relay was not reachable, so nothing was signed.
    Unreachable,
    /// The signer gave no proof.
    Signer(String),
    /// The relay gave no answer.
    NoAnswer(String),
}

/// What the readiness probes found.
pub struct Reached {
    /// The report's `transport`.
    pub transport: Transport,
    /// The relay's clock.
    pub date: Option<SystemTime>,
}

/// Probes `/readyz`, then the relay information document.
pub async fn reach(bridge: &Bridge, relay: &RelayUrl, limit: Duration) -> Reached {
    let limit = limit.min(PROBE_LIMIT);
    let ready = bridge.relay.get(&relay.readyz(), "*/*", limit).await;
    if let Ok(answer) = &ready
        && answer.status.is_success()
    {
        return Reached {
            transport: Transport::reached("readyz", answer.status),
            date: date_of(&answer.headers),
        };
    }
    match bridge.relay.get(&relay.information(), "application/nostr+json", limit).await {
        Ok(answer) if answer.status.as_u16() < 500 => {
            Reached { transport: Transport::reached("nip11", answer.status), date: date_of(&answer.headers) }
        }
        Ok(answer) => {
            let error = format!("HTTP {}", shown_status(answer.status));
            Reached {
                transport: Transport::failed(Some(answer.status), error),
                date: date_of(&answer.headers),
            }
        }
        Err(none) => Reached { transport: Transport::failed(None, none.detail), date: None },
    }
}

/// Makes the signed `browsegrant` call.
///
/// # Errors
/// [`NotAsked`] where there is no HTTP answer.
pub async fn browse_grant(
    bridge: &Bridge,
    needs: Option<&Needs>,
    limit: Duration,
) -> Result<HttpAnswer, NotAsked> {
    let query = || {
        let rooms = needs.and_then(|needs| needs.rooms.as_ref());
        let rooms = rooms.map(|rooms| rooms.iter().map(|room| Cow::Borrowed(room.as_str())).collect());
        BrowseGrant { rooms, kinds: needs.and_then(|needs| needs.kinds.clone()) }
    };
    let label = bridge.label();
    let message =
        Message { request: Request::BrowseGrant(query()), client: label.as_deref().map(Cow::Borrowed) };
    let nothing = Bytes::new();
    let proof = bridge.signer.proof(&message, &nothing).await;
    let authorization = proof.map_err(|error| NotAsked::Signer(error.to_string()))?;
    let post = Post {
        endpoint: Endpoint::Manage,
        method: None,
        tool: None,
        parameters: Vec::new(),
        authorization,
        body: RequestBody::new(&bridge.policy.judge_grant_query(query()).body(), &nothing),
    };
    let answer = bridge.relay.post(post, Instant::now() + limit).await;
    answer.map_err(|none| NotAsked::NoAnswer(none.detail))
}

/// The relay's clock as the signed call's answer shows it.
pub fn date(answer: &Result<HttpAnswer, NotAsked>) -> Option<SystemTime> {
    date_of(&answer.as_ref().ok()?.headers)
}

fn date_of(headers: &HeaderMap) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()
}

/// By how many seconds this machine's clock is ahead of the relay's; behind is negative.
pub fn skew_seconds(relay: SystemTime) -> Option<i64> {
    let seconds = |duration: Duration| i64::try_from(duration.as_secs()).ok();
    match SystemTime::now().duration_since(relay) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => seconds(behind.duration()).map(|seconds| -seconds),
    }
}
