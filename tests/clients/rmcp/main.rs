//! The official Rust client, which Codex and Goose are built on, against the real programs and the
//! development relay: every way it connects, calls, gives up and closes.

#![allow(clippy::expect_used, reason = "a test says by panicking what was not as expected")]

mod session;

use std::time::Duration;

use rmcp::model::{CallToolRequest, ClientRequest, ErrorCode, ProtocolVersion};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, PeerRequestOptions, ServiceError};
use serde_json::json;
use tinyagent_harness::{PUBKEY, run};
use tinyagent_relay::{Gate, Matcher, Reply};

use session::{Session, arrived, call};

/// The read tools and `tiny_diagnose` (contract 3).
const OFFERED_WITHOUT_WRITES: usize = 18;

/// Every tool and `tiny_diagnose` (contract 3).
const OFFERED_WITH_WRITES: usize = 36;

/// Revisions that begin with `initialize` and are spoken to a host (contract 2).
const WITH_HANDSHAKE: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
];

fn asking_first() -> (Vec<ProtocolVersion>, ProtocolVersion) {
    (vec![ProtocolVersion::V_2026_07_28], ProtocolVersion::V_2025_11_25)
}

/// Lists, writes, reads back, diagnoses and closes.
async fn whole_session(session: Session) {
    let tools = session.tools().await;
    assert_eq!(tools.len(), OFFERED_WITH_WRITES, "{tools:?}");
    assert_eq!(tools.last().map(String::as_str), Some("tiny_diagnose"));
    let posted = session
        .answered("post_message", json!({"room": "general", "content": "Hello \u{2028} \"rmcp\""}))
        .await;
    assert_eq!(posted["accepted"], true);
    let room = session.answered("read_room", json!({"id": "general", "limit": 1})).await;
    assert_eq!(room["messages"][0]["content"], "Hello \u{2028} \"rmcp\"");
    assert_eq!(room["messages"][0]["pubkey"], PUBKEY);
    let report = session.answered("tiny_diagnose", json!({"rooms": ["general"], "kinds": [9]})).await;
    assert_eq!((&report["verdict"], &report["pubkey"]), (&json!("ok"), &json!(PUBKEY)));
    assert_eq!(session.relay.published().len(), 1);
    session.close().await;
}

#[tokio::test]
async fn a_whole_session_in_every_revision_that_begins_with_a_handshake() {
    for version in WITH_HANDSHAKE {
        let session = Session::connect(version.clone(), &["--allow-writes"]).await;
        assert_eq!(session.version(), version);
        let server = session.peer().peer_info().expect("a handshake").server_info.clone().expect("a name");
        assert_eq!(server.name, "tinyagent");
        let printed = String::from_utf8(run(&["--version"], &[]).stdout).expect("UTF-8");
        assert_eq!(printed.trim(), format!("tinyagent {}", server.version));
        whole_session(session).await;
    }
}

#[tokio::test]
async fn a_client_that_asks_first_falls_back_to_the_handshake_in_the_same_process() {
    let (preferred_versions, legacy_version) = asking_first();
    let lifecycle =
        ClientLifecycleMode::Auto { preferred_versions, legacy_version: Some(legacy_version.clone()) };
    let session = Session::with(ProtocolVersion::LATEST, lifecycle, &["--allow-writes"]).await;
    let session = session.expect("a session");
    assert_eq!(session.version(), legacy_version);
    whole_session(session).await;
}

#[tokio::test]
async fn a_client_that_asks_for_a_revision_unknown_to_the_handshake_is_offered_one_it_speaks() {
    let session = Session::connect(ProtocolVersion::V_2026_07_28, &["--allow-writes"]).await;
    assert_eq!(session.version(), ProtocolVersion::V_2025_06_18);
    whole_session(session).await;
}

#[tokio::test]
async fn a_client_without_a_handshake_is_served_in_the_stateless_revision() {
    whole_session(Session::stateless(&["--allow-writes"]).await).await;
}

#[tokio::test]
async fn a_client_that_insists_on_discovery_is_told_that_the_method_is_not_there() {
    let (preferred_versions, _) = asking_first();
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
    let Err(error) = Session::with(ProtocolVersion::LATEST, lifecycle, &[]).await else {
        panic!("discovery is served");
    };
    let ClientInitializeError::JsonRpcError(said) = *error else { panic!("another error: {error}") };
    assert_eq!(said.code, ErrorCode::METHOD_NOT_FOUND);
    assert_eq!(said.message, "Method not found: server/discover");
}

#[tokio::test]
async fn without_allow_writes_a_write_tool_is_neither_offered_nor_called() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &[]).await;
    assert_eq!(session.tools().await.len(), OFFERED_WITHOUT_WRITES);
    let refused = session.call("post_message", json!({"room": "general", "content": "no"})).await;
    let Err(ServiceError::McpError(said)) = refused else { panic!("{refused:?}") };
    assert_eq!((said.code, &*said.message), (ErrorCode::INVALID_PARAMS, "Unknown tool: post_message"));
    assert!(session.relay.calls_of("post_message").is_empty());
    session.close().await;
}

#[tokio::test]
async fn the_relays_error_reaches_the_client_as_a_tool_error_and_the_session_goes_on() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &[]).await;
    let result = session.call("read_room", json!({"id": "nowhere"})).await.expect("an answer");
    assert_eq!(result.is_error, Some(true));
    session.relay.script(Matcher::tool("list_rooms"), Reply::error(429, -32000, "rate limited"));
    let result = session.call("list_rooms", json!({})).await.expect("an answer");
    let text = result.content[0].as_text().map(|text| text.text.clone()).expect("a text");
    assert!(text.starts_with("relay: rate limited"), "{text}");
    session.answered("list_rooms", json!({})).await;
    session.close().await;
}

#[tokio::test]
async fn calls_that_the_client_cancels_are_dropped_while_they_wait_and_finished_while_they_run() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &["--allow-writes"]).await;
    let gate = Gate::new();
    session.relay.script(Matcher::plain_call("post_message"), Reply::hold(&gate));
    let begin = async |tool, arguments| {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call(tool, arguments)));
        let options = PeerRequestOptions::no_options();
        session.peer().send_cancellable_request(request, options).await.expect("it is sent")
    };
    let running = begin("post_message", json!({"room": "general", "content": "once"})).await;
    arrived(&gate).await;
    let waiting = begin("list_wiki", json!({})).await;
    for handle in [waiting, running] {
        handle.cancel(Some("not needed".into())).await.expect("it is cancelled");
    }
    // Lines are read in order: once this is answered, both cancellations have been read.
    session.answered("tiny_diagnose", json!({})).await;
    gate.open();
    session.answered("list_rooms", json!({})).await;
    assert_eq!(session.relay.published().len(), 1, "the call that ran");
    assert!(session.relay.calls_of("list_wiki").is_empty(), "the call that waited");
    session.close().await;
}

#[tokio::test]
async fn a_call_that_times_out_at_the_client_leaves_the_session_usable() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &[]).await;
    let gate = Gate::new();
    session.relay.script(Matcher::tool("read_room"), Reply::hold(&gate));
    let request =
        ClientRequest::CallToolRequest(CallToolRequest::new(call("read_room", json!({"id": "general"}))));
    let options = PeerRequestOptions::with_timeout(Duration::from_millis(300));
    let handle = session.peer().send_cancellable_request(request, options).await.expect("it is sent");
    let outcome = handle.await_response().await;
    assert!(matches!(outcome, Err(ServiceError::Timeout { .. })), "{outcome:?}");
    session.answered("tiny_diagnose", json!({})).await;
    gate.open();
    session.answered("list_rooms", json!({})).await;
    session.close().await;
}

#[tokio::test]
async fn a_progress_token_changes_nothing_and_brings_no_notification() {
    // This client puts a token of its own into every request.
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &["--allow-writes"]).await;
    session.relay.script(Matcher::tool("list_rooms"), Reply::delay(Duration::from_millis(300)));
    session.answered("list_rooms", json!({})).await;
    session.answered("post_message", json!({"room": "general", "content": "token"})).await;
    for post in session.relay.posts() {
        assert!(!String::from_utf8_lossy(&post.body).contains("progressToken"), "the token was passed on");
    }
    assert_eq!(session.unasked(), 0);
    session.close().await;
}

#[tokio::test]
async fn calls_made_at_once_are_each_answered_with_their_own_result() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &[]).await;
    let rooms = session.call("read_room", json!({"id": "general"}));
    let lists = session.call("list_rooms", json!({}));
    let report = session.call("tiny_diagnose", json!({}));
    let (room, list, report) = tokio::join!(rooms, lists, report);
    let content = |result: Result<rmcp::model::CallToolResult, ServiceError>| {
        result.expect("an answer").structured_content.expect("structured content")
    };
    assert_eq!(content(room)["id"], "general");
    assert!(content(list)["rooms"].is_array());
    assert_eq!(content(report)["verdict"], "ok");
    session.close().await;
}

#[tokio::test]
async fn the_client_closes_in_time_while_a_call_is_in_flight() {
    let session = Session::connect(ProtocolVersion::V_2025_11_25, &[]).await;
    let gate = Gate::new();
    session.relay.script(Matcher::tool("read_room"), Reply::hold(&gate));
    let request =
        ClientRequest::CallToolRequest(CallToolRequest::new(call("read_room", json!({"id": "general"}))));
    let options = PeerRequestOptions::no_options();
    let _in_flight = session.peer().send_cancellable_request(request, options).await.expect("it is sent");
    arrived(&gate).await;
    session.close().await;
}
