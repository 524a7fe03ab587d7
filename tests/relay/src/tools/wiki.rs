//! Wiki pages and merge requests (NIP-54): each author keeps a version of a page, the newest one counts.

use super::input::Form::{Hex, Integer, Text, Words};
use super::input::{Input, optional, required};
use super::tags::{draft, tag};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::event::Event;
use serde_json::{Value, json};

const PAGE: u64 = 30818;
const MERGE_REQUEST: u64 = 818;

const D: Input = required("d", Words(200), "Name of the page, in its normalised form.");

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "list_wiki",
        title: "List wiki pages",
        about: "List wiki pages with their preferred version. `q` searches titles and summaries, `author` prefers \
                that key's versions.",
        access: ToolAccess::Read,
        inputs: &[
            optional("q", Text, "Only pages whose title or summary contains this."),
            optional("author", Hex, "Whose versions to prefer."),
            optional("limit", Integer(1, 200), "How many pages to return."),
        ],
        run: list_wiki,
    },
    Tool {
        name: "read_wiki_page",
        title: "Read a wiki page",
        about: "Read a page by `d` with its versions, its `history` of revisions with their states, merge requests \
                and redirects. `author` or `version` selects the version shown.",
        access: ToolAccess::Read,
        inputs: &[
            D,
            optional("author", Hex, "Whose version to show."),
            optional("version", Hex, "Event id of the version to show."),
        ],
        run: read_wiki_page,
    },
    Tool {
        name: "read_merge_request",
        title: "Read a wiki merge request",
        about: "Read a wiki merge request by `id` with its status, proposed version and target version.",
        access: ToolAccess::Read,
        inputs: &[required("id", Hex, "Event id of the merge request.")],
        run: read_merge_request,
    },
    Tool {
        name: "publish_wiki_page",
        title: "Publish a wiki page",
        about: "Publish or replace the key's version of a kind 30818 wiki page, with `fork_author` and \
                `fork_event` to record a fork.",
        access: ToolAccess::Publish { kinds: &[PAGE], tags: &["d", "title"] },
        inputs: &[
            D,
            required("title", Words(200), "Title."),
            required("content", Text, "The page, in Djot or Asciidoc."),
            optional("summary", Text, "One sentence."),
            optional("fork_author", Hex, "Author of the version this one was made from."),
            optional("fork_event", Hex, "Event id of that version."),
        ],
        run: publish_wiki_page,
    },
    Tool {
        name: "propose_wiki_merge",
        title: "Propose a wiki merge",
        about: "Ask a page's author to take in a version with a kind 818 merge request.",
        access: ToolAccess::Publish { kinds: &[MERGE_REQUEST], tags: &["a", "p", "e"] },
        inputs: &[
            D,
            required("author", Hex, "Author who is asked."),
            required("version", Hex, "Event id of the proposed version."),
            optional("base", Hex, "Event id of the version it was made from."),
            optional("content", Text, "Why."),
        ],
        run: propose_wiki_merge,
    },
];

/// The version of a page that counts: of this author where one is named, else the newest.
fn preferred<'a>(call: &'a Call, d: &str, author: Option<&str>) -> Option<&'a Event> {
    let of_page = |event: &Event| event.kind == PAGE && event.tag("d") == Some(d);
    let by_author =
        call.store.newest(usize::MAX, 1, |event| of_page(event) && author == Some(&event.pubkey)).0.pop();
    by_author.or_else(|| call.store.newest(usize::MAX, 1, of_page).0.pop())
}

fn shown(event: &Event) -> Value {
    json!({
        "d": event.tag("d"), "title": event.tag("title"), "summary": event.tag("summary"),
        "author": event.pubkey, "version": event.id, "created_at": event.created_at,
    })
}

fn list_wiki(call: &mut Call) -> Result<Outcome, String> {
    let wanted = call.arguments.text("q").unwrap_or_default();
    let limit = call.arguments.integer("limit").unwrap_or(50) as usize;
    let mut names: Vec<&str> = call
        .store
        .events
        .iter()
        .filter(|event| event.kind == PAGE)
        .filter_map(|event| event.tag("d"))
        .collect();
    names.sort_unstable();
    names.dedup();
    let contains = |event: &&Event| {
        ["title", "summary"].iter().any(|name| event.tag(name).is_some_and(|value| value.contains(wanted)))
    };
    let pages: Vec<Value> = names
        .into_iter()
        .filter_map(|d| preferred(call, d, call.arguments.text("author")))
        .filter(contains)
        .take(limit)
        .map(shown)
        .collect();
    Ok(Outcome::Data(json!({"pages": pages})))
}

fn read_wiki_page(call: &mut Call) -> Result<Outcome, String> {
    let d = call.arguments.must("d");
    let page = match call.arguments.text("version") {
        Some(version) => call.store.event(version).filter(|event| event.tag("d") == Some(d)),
        None => preferred(call, d, call.arguments.text("author")),
    };
    let page = page.ok_or_else(|| format!("there is no wiki page {d}"))?;
    let (history, _) =
        call.store.newest(usize::MAX, 200, |event| event.kind == PAGE && event.tag("d") == Some(d));
    let (requests, _) = call.store.newest(usize::MAX, 200, |event| {
        event.kind == MERGE_REQUEST && event.tag("a").is_some_and(|a| a.rsplit(':').next() == Some(d))
    });
    let mut data = shown(page);
    data["content"] = page.content.clone().into();
    data["history"] = history.into_iter().map(shown).collect();
    data["merge_requests"] = requests.into_iter().map(|event| event.id.clone()).collect();
    Ok(Outcome::Data(data))
}

fn read_merge_request(call: &mut Call) -> Result<Outcome, String> {
    let id = call.arguments.must("id");
    let request = call.store.event(id).filter(|event| event.kind == MERGE_REQUEST);
    let request = request.ok_or_else(|| format!("there is no merge request {id}"))?;
    Ok(Outcome::Data(json!({
        "id": id, "pubkey": request.pubkey, "target": request.tag("a"), "versions":
        request.tags_named("e").collect::<Vec<_>>(), "content": request.content, "status": "open",
    })))
}

fn publish_wiki_page(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let d = arguments.must("d");
    let mut tags = vec![tag(["d", d]), tag(["title", arguments.must("title").trim()])];
    if let Some(summary) = arguments.text("summary") {
        tags.push(tag(["summary", summary]));
    }
    if let Some(author) = arguments.text("fork_author") {
        tags.push(tag(["a", &format!("{PAGE}:{author}:{d}"), "", "fork"]));
    }
    if let Some(event) = arguments.text("fork_event") {
        tags.push(tag(["e", event, "", "fork"]));
    }
    Ok(draft(call, PAGE, tags, arguments.must("content")))
}

fn propose_wiki_merge(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let (d, author) = (arguments.must("d"), arguments.must("author"));
    let mut tags = vec![tag(["a", &format!("{PAGE}:{author}:{d}")]), tag(["p", author])];
    if let Some(base) = arguments.text("base") {
        tags.push(tag(["e", base]));
    }
    tags.push(tag(["e", arguments.must("version"), "", "source"]));
    Ok(draft(call, MERGE_REQUEST, tags, arguments.must("content")))
}
