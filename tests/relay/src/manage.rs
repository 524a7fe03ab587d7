//! The NIP-86 endpoint, of which the relay serves one method, `browsegrant`: what the signing key is here.
//!
//! `POST <prefix>/manage/rpc` (or `POST <prefix>/`) with `Content-Type: application/nostr+json+rpc`, a NIP-98
//! proof with `payload`, and `{"method":"browsegrant","params":[{"rooms":[…],"kinds":[…]}]}`, where each key
//! and the object itself may be left out. The answer is
//!
//! ```json
//! {"result": {
//!   "pubkey": "…", "member": true, "role": "owner|moderator|member|agent|none",
//!   "grant": {"id": "…", "operator": "…", "rooms": [], "kinds": [], "rate": 60, "expires": null},
//!   "state": "active|paused|revoked|expired|none", "enforced": true,
//!   "allows": {"rooms": [], "kinds": []}, "rate": 60, "expires": null,
//!   "needs": {"rooms": [], "kinds": []}, "missing": {"rooms": [], "kinds": []}
//! }}
//! ```
//!
//! `grant`, `rate` and `expires` are null where there is no grant; `needs` and `missing` are there only when
//! rooms or kinds were asked for. Errors are `{"error":"…"}`: 401 for the proof, 403 for a stranger to a
//! members-only relay, 415, and 400 with `unsupported: …` for any other method.

use crate::access::Membership;
use crate::answer::Answer;
use crate::request::{Request, Unread};
use crate::server::{Server, lock};
use serde_json::{Value, json};

fn error(status: u16, message: &str) -> Answer {
    Answer::json(status, &json!({"error": message}))
}

/// Answers a request for the management endpoint.
pub(crate) fn answer(server: &Server, request: &Request) -> Answer {
    if request.unread == Some(Unread::TooLarge) {
        return error(413, "the body is larger than the relay accepts").header("Connection", "close");
    }
    let content_type = request.header("content-type").unwrap_or_default();
    if content_type.split(';').next().unwrap_or_default().trim() != "application/nostr+json+rpc" {
        return error(415, "Content-Type must be application/nostr+json+rpc");
    }
    let Some(proof) = &request.proof else {
        return error(401, request.proof_error.as_deref().unwrap_or("authorization required"))
            .header("WWW-Authenticate", "Nostr realm=\"tiny\"");
    };
    let Some(call) = request.json().filter(Value::is_object) else {
        return error(400, "invalid: the body is not one JSON object");
    };
    let Some(method) = call.get("method").and_then(Value::as_str) else {
        return error(400, "invalid: there is no method");
    };
    if method != "browsegrant" {
        return error(400, &format!("unsupported: method {method}"));
    }
    let asked = call.get("params").and_then(|params| params.get(0)).unwrap_or(&Value::Null);
    let list = |name: &str| asked.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let rooms: Option<Vec<String>> =
        list("rooms").iter().map(|room| Some(room.as_str()?.to_owned())).collect();
    let kinds: Option<Vec<u64>> = list("kinds").iter().map(Value::as_u64).collect();
    let (Some(rooms), Some(kinds)) = (rooms, kinds) else {
        return error(400, "invalid: rooms are strings and kinds are integers");
    };
    let state = lock(&server.state);
    if state.access.membership == Membership::MembersOnly && state.access.role(&proof.pubkey).is_none() {
        return error(403, "restricted: this relay is members-only; ask its owner for access");
    }
    let asked = if asked.get("rooms").or(asked.get("kinds")).is_some() { asked } else { &Value::Null };
    Answer::json(
        200,
        &json!({"result": state.access.browse(&proof.pubkey, &rooms, &kinds, asked, server.now())}),
    )
}
