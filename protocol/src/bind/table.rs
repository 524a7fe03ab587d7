//! What is bound, tool by tool: one row for each kind that a tool may publish.
//!
//! Sources are the relay document, the NIPs it names, and for argument names what the development relay
//! takes. A tag that a row does not list is refused; what no source states is listed as unbound, with the
//! reason, and never guessed.

/// A row: what a template of this kind, returned to this tool, must say.
#[derive(Debug)]
pub struct Row {
    /// The tool.
    pub tool: &'static str,
    /// The kind.
    pub kind: u64,
    /// Where the content comes from.
    pub content: Content,
    /// Where its tags come from.
    pub tags: &'static [Tags],
}

/// Where the content comes from; an absent argument means an empty content.
#[derive(Debug)]
pub enum Content {
    /// It equals this argument.
    Argument(&'static str),
    /// The same, and references to `attachments` may follow.
    Attaching(&'static str),
    /// It equals this argument, trimmed or not, or is empty where the `grant` tag holds it.
    Reason(&'static str),
}

/// Where the tags of one name come from.
#[derive(Debug)]
pub struct Tags {
    /// Their name, or the names that relays use for the same thing.
    pub names: &'static [&'static str],
    /// What they must say.
    pub source: Source,
}

/// What tags must say. Except where it says otherwise, an argument that is not given has no tag.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Exactly this argument, which must be given.
    Required(&'static str),
    /// Exactly this argument.
    Text(&'static str),
    /// Exactly this argument; free where it is not given.
    TextIfGiven(&'static str),
    /// This argument, trimmed or not.
    Trimmed(&'static str),
    /// This integer.
    Integer(&'static str),
    /// This integer; free where it is not given.
    IntegerIfGiven(&'static str),
    /// One tag for each text of this list.
    Each(&'static str),
    /// One tag for each id or key that these arguments name.
    Named(&'static [&'static str]),
    /// The same; where none is named, at most so many that the relay resolves.
    NamedOrResolved(&'static [&'static str], usize),
    /// One tag for each that these arguments name, and others that the relay resolves, up to so many in all.
    NamedAndResolved(&'static [&'static str], usize),
    /// The id that this argument names, or the one root that the relay resolves it to, or both.
    RootOf(&'static str),
    /// Where a tag carries this marker, it names what this argument names. Other tags are not looked at.
    Marked(&'static str, &'static str),
    /// The address (NIP-01) of this kind, author and identifier.
    Address {
        /// The kind.
        kind: u64,
        /// The argument that names the author.
        author: &'static str,
        /// The argument that names the identifier.
        identifier: &'static str,
    },
    /// An address of this kind and author, with any identifier.
    AddressBy {
        /// The kind.
        kind: u64,
        /// The argument that names the author.
        author: &'static str,
    },
    /// `["line", line, side]` (relay document, Reviewing a diff line).
    Line {
        /// The argument with the line's number.
        line: &'static str,
        /// The argument with the side.
        side: &'static str,
    },
    /// The descriptors in `attachments` (NIP-92).
    Attachments,
    /// JSON of these changes, for this reason where it gives one, beside the base grant's id.
    Grant {
        /// The argument with the changes.
        changes: &'static str,
        /// The argument with the reason.
        reason: &'static str,
    },
    /// Not bound, for this reason.
    Unbound(&'static str),
}

use Source::{
    Address, AddressBy, Attachments, Each, Grant, Integer, IntegerIfGiven, Line, Marked, Named,
    NamedAndResolved, NamedOrResolved, Required, RootOf, Text, TextIfGiven, Trimmed, Unbound,
};

const fn tag(names: &'static [&'static str], source: Source) -> Tags {
    Tags { names, source }
}

const ROOM: Tags = tag(&["h"], Required("room"));
const TIMELINE: Tags = tag(&["previous"], Unbound("NIP-29: the relay's own place in the room's timeline"));
const KIND_OF_ROOT: Tags = tag(&["K"], Unbound("NIP-22: the kind of the root that the relay resolves"));
const ROOT_ADDRESS: Tags =
    tag(&["a", "A"], Unbound("NIP-22: the address of an event that the host named by its id"));
const REPOSITORY: Tags = tag(&["a"], Address { kind: 30617, author: "owner", identifier: "repo" });
const HISTORY: Tags =
    tag(&["r", "merge-base"], Unbound("NIP-34: commits that the relay reads from the repository"));
const JOB: Tags = tag(&["e"], NamedOrResolved(&["job"], 1));
const REQUESTER: Tags = tag(&["p"], NamedAndResolved(&[], 1));
const JOB_DETAILS: Tags = tag(
    &["i", "output", "param", "bid", "relays", "status", "amount", "t"],
    Unbound("no source says how kinds 43001 to 43006 carry what the relay document gives to NIP-90 jobs"),
);

const fn job_answer(tool: &'static str, kind: u64) -> Row {
    Row { tool, kind, content: Content::Argument("content"), tags: &[JOB, REQUESTER, JOB_DETAILS] }
}

/// The rows. Each tool of the catalog has one for each of its kinds; a test holds the two together.
pub static TABLE: [Row; 18] = [
    Row {
        tool: "create_issue",
        kind: 1621,
        content: Content::Argument("content"),
        tags: &[
            REPOSITORY,
            tag(&["p"], Named(&["owner"])),
            tag(&["subject", "title"], Trimmed("title")),
            tag(&["t"], Each("labels")),
            HISTORY,
        ],
    },
    Row {
        tool: "create_pull_request",
        kind: 1618,
        content: Content::Argument("content"),
        tags: &[
            REPOSITORY,
            tag(&["p"], Named(&["owner"])),
            tag(&["subject", "title"], Trimmed("title")),
            tag(&["t"], Each("labels")),
            tag(&["c"], Text("commit")),
            tag(&["clone"], Text("clone")),
            tag(&["branch-name"], Text("branch")),
            HISTORY,
        ],
    },
    Row {
        tool: "comment",
        kind: 1111,
        content: Content::Argument("content"),
        tags: &[
            tag(&["e"], Named(&["root"])),
            tag(&["E"], NamedAndResolved(&[], 1)),
            tag(&["p"], NamedOrResolved(&["root_pubkey"], 1)),
            tag(&["P"], NamedAndResolved(&[], 1)),
            tag(&["k"], IntegerIfGiven("root_kind")),
            KIND_OF_ROOT,
            ROOT_ADDRESS,
            tag(&["file"], Text("file")),
            tag(&["line"], Line { line: "line", side: "side" }),
        ],
    },
    Row {
        tool: "post_message",
        kind: 9,
        content: Content::Attaching("content"),
        tags: &[ROOM, tag(&["p"], Each("mentions")), tag(&["imeta"], Attachments), TIMELINE],
    },
    Row {
        tool: "start_thread",
        kind: 11,
        content: Content::Attaching("content"),
        tags: &[ROOM, tag(&["title", "subject"], Trimmed("title")), tag(&["imeta"], Attachments), TIMELINE],
    },
    Row {
        tool: "reply_in_thread",
        kind: 12,
        content: Content::Attaching("content"),
        tags: &[
            ROOM,
            tag(&["e"], RootOf("root")),
            // The authors of the root and of the reply that was named.
            tag(&["p"], NamedAndResolved(&[], 2)),
            tag(&["imeta"], Attachments),
            TIMELINE,
        ],
    },
    Row {
        tool: "react",
        kind: 7,
        content: Content::Argument("content"),
        tags: &[
            tag(&["e"], Named(&["target"])),
            tag(&["p"], NamedOrResolved(&["pubkey"], 1)),
            tag(&["h"], Text("room")),
            tag(&["k"], Unbound("NIP-25: the kind of the event that the host named by its id")),
            tag(&["a"], Unbound("NIP-25: the address of the event that the host named by its id")),
            TIMELINE,
        ],
    },
    Row {
        tool: "publish_wiki_page",
        kind: 30818,
        content: Content::Argument("content"),
        tags: &[
            // Where only a title is given, the relay names the page.
            tag(&["d"], TextIfGiven("d")),
            tag(&["title"], Trimmed("title")),
            tag(&["summary"], Trimmed("summary")),
            tag(&["a"], AddressBy { kind: 30818, author: "fork_author" }),
            tag(&["e"], Named(&["fork_event"])),
        ],
    },
    Row {
        tool: "propose_wiki_merge",
        kind: 818,
        content: Content::Argument("content"),
        tags: &[
            tag(&["a"], Address { kind: 30818, author: "author", identifier: "d" }),
            tag(&["p"], Named(&["author"])),
            tag(&["e"], Named(&["version", "base"])),
            tag(&["e"], Marked("source", "version")),
        ],
    },
    Row {
        tool: "request_decision",
        kind: 9,
        content: Content::Argument("content"),
        tags: &[
            ROOM,
            tag(&["e"], RootOf("root")),
            tag(&["p"], Named(&["pubkey"])),
            tag(&["request"], Required("request")),
            tag(&["expiration"], Integer("expiration")),
            tag(&["subject", "title"], Trimmed("subject")),
            TIMELINE,
        ],
    },
    Row {
        tool: "request_decision",
        kind: 1111,
        content: Content::Argument("content"),
        tags: &[
            // A request in a room is a kind 9 event: with a room given, this kind has no tag to carry it.
            tag(&["h"], Text("room")),
            tag(&["e"], Named(&["root"])),
            tag(&["E"], NamedAndResolved(&[], 1)),
            // The one who is asked, and the author of what is commented on.
            tag(&["p"], NamedAndResolved(&["pubkey", "root_pubkey"], 2)),
            tag(&["P"], NamedAndResolved(&[], 1)),
            tag(&["k"], IntegerIfGiven("root_kind")),
            KIND_OF_ROOT,
            ROOT_ADDRESS,
            tag(&["request"], Required("request")),
            tag(&["expiration"], Integer("expiration")),
            tag(&["subject", "title"], Trimmed("subject")),
        ],
    },
    Row {
        tool: "request_grant",
        kind: 1111,
        content: Content::Reason("reason"),
        tags: &[
            tag(&["grant"], Grant { changes: "changes", reason: "reason" }),
            // The relay derives the current grant and its operator.
            tag(&["e", "E"], NamedAndResolved(&[], 1)),
            tag(&["p", "P"], NamedAndResolved(&[], 1)),
            tag(&["a", "A"], Unbound("the address of the current grant, which the relay derives")),
            tag(&["k", "K"], Unbound("the kind of a grant, in the relay's references to it")),
        ],
    },
    Row {
        tool: "request_job",
        kind: 43001,
        content: Content::Argument("content"),
        tags: &[
            tag(&["p"], Named(&["pubkey"])),
            tag(&["h"], Text("room")),
            tag(&["expiration"], Integer("expiration")),
            JOB_DETAILS,
            TIMELINE,
        ],
    },
    job_answer("accept_job", 43002),
    Row {
        tool: "job_progress",
        kind: 43003,
        content: Content::Argument("content"),
        tags: &[JOB, REQUESTER, tag(&["percent"], IntegerIfGiven("percent")), JOB_DETAILS],
    },
    job_answer("job_result", 43004),
    job_answer("job_error", 43006),
    job_answer("cancel_job", 43005),
];

/// The row for a template of this kind from this tool.
pub fn row(tool: &str, kind: u64) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.tool == tool && row.kind == kind)
}
