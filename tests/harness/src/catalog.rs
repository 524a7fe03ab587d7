//! The catalog, written down a second time from the contract.
//!
//! On purpose it uses nothing of the product's own table: a tool or kind that slips in there is noticed here.

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

/// What the development relay lists and nobody is ever offered.
pub const HIDDEN: [&str; 8] = [
    "publish_event",
    "read_management",
    "set_policy",
    "set_status",
    "run_job",
    "create_room",
    "pause_agent",
    "approve_join",
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
