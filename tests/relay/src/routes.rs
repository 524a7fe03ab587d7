//! Which path is what, and the answers that need no signature.

use crate::answer::Answer;
use crate::request::Request;
use crate::server::Server;
use crate::{manage, mcp};
use serde_json::json;

/// What the relay itself answers.
pub(crate) fn answer(server: &Server, request: &Request) -> Answer {
    let Some(path) = request.path().strip_prefix(server.options.prefix.as_str()) else {
        return Answer::new(404).header("Content-Type", "text/plain").body("not found\n");
    };
    let reads = request.method == "GET";
    match path {
        "/mcp" => mcp::answer(server, request),
        "/readyz" if reads => Answer::new(200).header("Content-Type", "text/plain").body("ready\n"),
        "/manage/rpc" if request.method == "POST" => manage::answer(server, request),
        "/" | "" if request.method == "POST" => manage::answer(server, request),
        "/" | "" if reads => front(request),
        _ => Answer::new(404).header("Content-Type", "text/plain").body("not found\n"),
    }
}

/// The NIP-11 document where it is asked for, else a page for people.
fn front(request: &Request) -> Answer {
    let wants = |value: &str| value.split(',').any(|part| part.trim().starts_with("application/nostr+json"));
    if !request.headers_named("accept").any(wants) {
        return Answer::html(200, "<!doctype html><title>relay</title><p>A development relay.</p>\n");
    }
    let document = json!({
        "name": "development relay",
        "description": "A strict, scriptable relay for tests.",
        "software": "tinyagent-relay",
        "version": env!("CARGO_PKG_VERSION"),
        "supported_nips": [1, 7, 11, 22, 29, 34, 54, 86, 92, 98],
    });
    Answer::json(200, &document).set_header("Content-Type", "application/nostr+json")
}
