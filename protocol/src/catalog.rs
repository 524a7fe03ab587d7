//! The curated tools and, for each write tool, the event kinds it may publish (contract 3).
//!
//! Nothing outside this table is ever exposed or signed for, whatever a relay lists. The relay's
//! newer document uses NIP-90 kinds for jobs; this table holds.

/// Whether a tool only reads, or publishes or stores something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Offered by default.
    Read,
    /// Offered only with `--allow-writes`.
    Write,
}

/// A row of the catalog.
#[derive(Debug, PartialEq, Eq)]
pub struct Tool {
    /// The relay's name for it.
    pub name: &'static str,
    /// Whether it needs `--allow-writes`.
    pub access: Access,
    /// The kinds that are signed for it; empty for a read tool and for a store.
    pub kinds: &'static [u64],
}

const fn read(name: &'static str) -> Tool {
    Tool { name, access: Access::Read, kinds: &[] }
}

const fn write(name: &'static str, kinds: &'static [u64]) -> Tool {
    Tool { name, access: Access::Write, kinds }
}

/// Every tool, in the order in which the default list offers them.
pub static CATALOG: [Tool; 35] = [
    read("list_repositories"),
    read("read_repository"),
    read("list_issues"),
    read("read_issue"),
    read("list_pull_requests"),
    read("read_pull_request"),
    read("list_files"),
    read("read_file"),
    read("read_attachment"),
    read("list_rooms"),
    read("read_room"),
    read("read_thread"),
    read("list_wiki"),
    read("read_wiki_page"),
    read("list_jobs"),
    read("read_job"),
    read("read_status"),
    write("create_issue", &[1621]),
    write("create_pull_request", &[1618]),
    write("comment", &[1111]),
    write("post_message", &[9]),
    write("start_thread", &[11]),
    write("reply_in_thread", &[12]),
    write("react", &[7]),
    write("publish_wiki_page", &[30818]),
    write("propose_wiki_merge", &[818]),
    write("upload_attachment", &[]),
    write("request_decision", &[9, 1111]),
    write("request_grant", &[1111]),
    write("request_job", &[43001]),
    write("accept_job", &[43002]),
    write("job_progress", &[43003]),
    write("job_result", &[43004]),
    write("job_error", &[43006]),
    write("cancel_job", &[43005]),
];

/// Kinds that authorise something instead of publishing it: NIP-42, Blossom and NIP-98. Never signed
/// from a template, whatever the tool (contract 5).
pub const AUTHORIZATION_KINDS: [u64; 3] = [22242, 24242, 27235];

/// The tag that asks for powers, and the one tool from which it is signed (contract 5).
pub const GRANT_TAG: (&str, &str) = ("grant", "request_grant");

/// The tag that asks a person to decide, and the one tool from which it is signed (contract 5).
pub const REQUEST_TAG: (&str, &str) = ("request", "request_decision");

/// The tool of this name, matched exactly.
pub fn tool(name: &str) -> Option<&'static Tool> {
    CATALOG.iter().find(|tool| tool.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_kind_of_the_table_authorises_anything() {
        for tool in &CATALOG {
            assert!(tool.kinds.iter().all(|kind| !AUTHORIZATION_KINDS.contains(kind)), "{}", tool.name);
            assert!(tool.access == Access::Write || tool.kinds.is_empty(), "{}", tool.name);
        }
        assert_eq!(CATALOG.iter().filter(|t| t.access == Access::Read).count(), 17);
    }
}
