//! The bodies that are sent to the relay, written down a second time from the contract and without the
//! product's own code.

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
