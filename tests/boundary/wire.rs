//! What a signature may stand for, written down a second time from the contract and without the product's
//! own code: the catalog, and the bodies that are sent to the relay.

/// The tools that read (contract 3).
pub const READ: [&str; 17] = [
    "list_repositories",
    "read_repository",
    "list_issues",
    "read_issue",
    "list_pull_requests",
    "read_pull_request",
    "list_files",
    "read_file",
    "read_attachment",
    "list_rooms",
    "read_room",
    "read_thread",
    "list_wiki",
    "read_wiki_page",
    "list_jobs",
    "read_job",
    "read_status",
];

/// The tools that write, each with the kinds that are signed for it (contract 3).
pub const WRITE: [(&str, &[u64]); 18] = [
    ("create_issue", &[1621]),
    ("create_pull_request", &[1618]),
    ("comment", &[1111]),
    ("post_message", &[9]),
    ("start_thread", &[11]),
    ("reply_in_thread", &[12]),
    ("react", &[7]),
    ("publish_wiki_page", &[30818]),
    ("propose_wiki_merge", &[818]),
    ("upload_attachment", &[]),
    ("request_decision", &[9, 1111]),
    ("request_grant", &[1111]),
    ("request_job", &[43001]),
    ("accept_job", &[43002]),
    ("job_progress", &[43003]),
    ("job_result", &[43004]),
    ("job_error", &[43006]),
    ("cancel_job", &[43005]),
];

/// Kinds that open doors elsewhere: NIP-42, Blossom, NIP-98 (contract 5).
pub const AUTHORIZATIONS: [u64; 3] = [22242, 24242, 27235];

/// The kinds of a tool, none for one that reads; None for a name outside the catalog.
pub fn kinds_of(tool: &str) -> Option<&'static [u64]> {
    let writes = WRITE.iter().find(|(name, _)| *name == tool).map(|(_, kinds)| *kinds);
    writes.or_else(|| READ.contains(&tool).then_some(&[]))
}

/// Whether a tool writes.
pub fn writes(tool: &str) -> bool {
    WRITE.iter().any(|(name, _)| *name == tool)
}

/// The `_meta` of every request (contract 4).
fn meta() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"tinyagent","version":"{version}"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}"#
    )
}

/// The body of a `tools/list`; the cursor as JSON text.
pub fn list_body(id: &str, cursor: Option<&str>) -> String {
    let cursor = cursor.map(|cursor| format!("\"cursor\":{cursor},")).unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{cursor}{}}}}}"#, meta())
}

/// The body of a `tools/call`.
pub fn call_body(id: &str, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}",{},"arguments":{arguments}}}}}"#,
        meta()
    )
}

/// The arguments of a resubmission: the host's, and the event as their last member.
pub fn with_event(arguments: &str, event: &str) -> String {
    let open = arguments.strip_suffix('}').expect("an object");
    let is_empty = open.trim_start_matches('{').trim().is_empty();
    format!("{open}{}\"event\":{event}}}", if is_empty { "" } else { "," })
}

/// The body of the NIP-86 call; both lists as JSON text.
pub fn grant_body(rooms: Option<&str>, kinds: Option<&str>) -> String {
    let member = |name: &str, list: Option<&str>| list.map(|list| format!("\"{name}\":{list}"));
    let members: Vec<String> =
        [member("rooms", rooms), member("kinds", kinds)].into_iter().flatten().collect();
    format!(r#"{{"method":"browsegrant","params":[{{{}}}]}}"#, members.join(","))
}

/// An event as it is sent: compact, NIP-01's keys in their order.
pub fn json(event: &tinyagent_relay::Event) -> String {
    serde_json::to_string(event).expect("texts, numbers and lists")
}
