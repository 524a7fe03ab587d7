//! Long tasks by the kinds of contract section 3: a request, and what its worker and its requester say of it.

use super::input::Form::{Choice, Flag, Hex, Integer, Text, Words};
use super::input::{Input, optional, required};
use super::tags::{draft, tag};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::event::Event;
use serde_json::{Value, json};

const REQUEST: u64 = 43001;
const ACCEPT: u64 = 43002;
const PROGRESS: u64 = 43003;
const RESULT: u64 = 43004;
const CANCEL: u64 = 43005;
const ERROR: u64 = 43006;

const JOB: Input = required("job", Hex, "Event id of the request.");
const NOTE: Input = optional("content", Text, "What to say about it.");

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "list_jobs",
        title: "List long tasks",
        about: "List long task requests visible to the key with each one's newest feedback status and result. \
                `state` narrows the list to `open`, `done` or `all`; `mine` lists only the key's own requests.",
        access: ToolAccess::Read,
        inputs: &[
            optional("state", Choice(&["open", "done", "all"]), "Which requests to list."),
            optional("mine", Flag, "Only the key's own requests."),
            optional("limit", Integer(1, 200), "How many requests to return."),
        ],
        run: list_jobs,
    },
    Tool {
        name: "read_job",
        title: "Read a long task",
        about: "Read one long task request by `id` with its feedback timeline and results.",
        access: ToolAccess::Read,
        inputs: &[required("id", Hex, "Event id of the request.")],
        run: read_job,
    },
    Tool {
        name: "request_job",
        title: "Request a long task",
        about: "Ask for a long task with a kind 43001 request, of one agent or of any.",
        access: ToolAccess::Publish { kinds: &[REQUEST], tags: &[] },
        inputs: &[
            required("content", Text, "What is to be done."),
            optional("pubkey", Hex, "The agent who is asked."),
            optional("room", Words(100), "Room in which it is to be followed."),
            optional(
                "expiration",
                Integer(0, i64::MAX >> 10),
                "When the request lapses, in seconds since 1970.",
            ),
        ],
        run: request_job,
    },
    Tool {
        name: "accept_job",
        title: "Accept a long task",
        about: "Say with a kind 43002 event that the key takes on a request.",
        access: ToolAccess::Publish { kinds: &[ACCEPT], tags: &["e", "p"] },
        inputs: &[JOB, NOTE],
        run: |call| answer(call, ACCEPT),
    },
    Tool {
        name: "job_progress",
        title: "Report progress",
        about: "Report progress on a long task with a kind 43003 event.",
        access: ToolAccess::Publish { kinds: &[PROGRESS], tags: &["e", "p"] },
        inputs: &[JOB, NOTE, optional("percent", Integer(0, 100), "How much is done.")],
        run: |call| answer(call, PROGRESS),
    },
    Tool {
        name: "job_result",
        title: "Deliver a result",
        about: "Deliver a long task's output with a kind 43004 event.",
        access: ToolAccess::Publish { kinds: &[RESULT], tags: &["e", "p"] },
        inputs: &[JOB, required("content", Text, "The output.")],
        run: |call| answer(call, RESULT),
    },
    Tool {
        name: "job_error",
        title: "Report a failure",
        about: "Say with a kind 43006 event that a long task failed, and why.",
        access: ToolAccess::Publish { kinds: &[ERROR], tags: &["e", "p"] },
        inputs: &[JOB, required("content", Text, "Why it failed.")],
        run: |call| answer(call, ERROR),
    },
    Tool {
        name: "cancel_job",
        title: "Cancel a long task",
        about: "Withdraw the key's own request with a kind 43005 event.",
        access: ToolAccess::Publish { kinds: &[CANCEL], tags: &["e"] },
        inputs: &[JOB, NOTE],
        run: |call| answer(call, CANCEL),
    },
];

/// What is said of a request, oldest first.
fn timeline<'a>(call: &'a Call, id: &str) -> Vec<&'a Event> {
    let (mut events, _) = call.store.newest(usize::MAX, 200, |event| {
        (ACCEPT..=ERROR).contains(&event.kind) && event.tag("e") == Some(id)
    });
    events.reverse();
    events
}

fn status(event: Option<&&Event>) -> &'static str {
    match event.map(|event| event.kind) {
        None => "open",
        Some(ACCEPT) => "accepted",
        Some(PROGRESS) => "processing",
        Some(RESULT) => "success",
        Some(CANCEL) => "cancelled",
        Some(_) => "error",
    }
}

fn shown(call: &Call, event: &Event) -> Value {
    let timeline = timeline(call, &event.id);
    json!({
        "id": event.id, "pubkey": event.pubkey, "created_at": event.created_at, "content": event.content,
        "asked": event.tag("p"), "status": status(timeline.last()),
        "feedback": timeline.iter().map(|event| json!({
            "id": event.id, "kind": event.kind, "pubkey": event.pubkey, "status": status(Some(event)),
            "content": event.content, "percent": event.tag("percent"),
        })).collect::<Vec<_>>(),
    })
}

fn list_jobs(call: &mut Call) -> Result<Outcome, String> {
    let state = call.arguments.text("state").unwrap_or("all");
    let limit = call.arguments.integer("limit").unwrap_or(50) as usize;
    let mine = call.arguments.flag("mine");
    let is_done = |event: &Event| timeline(call, &event.id).iter().any(|event| event.kind >= RESULT);
    let (jobs, _) = call.store.newest(usize::MAX, limit, |event| {
        event.kind == REQUEST
            && (!mine || event.pubkey == call.caller)
            && (state == "all" || is_done(event) == (state == "done"))
    });
    let jobs: Vec<Value> = jobs.into_iter().map(|event| shown(call, event)).collect();
    Ok(Outcome::Data(json!({"jobs": jobs})))
}

fn request<'a>(call: &'a Call, id: &str) -> Result<&'a Event, String> {
    let event = call.store.event(id).filter(|event| event.kind == REQUEST);
    event.ok_or_else(|| format!("there is no long task request {id}"))
}

fn read_job(call: &mut Call) -> Result<Outcome, String> {
    let event = request(call, call.arguments.must("id"))?;
    Ok(Outcome::Data(shown(call, event)))
}

fn request_job(call: &mut Call) -> Result<Outcome, String> {
    let arguments = &call.arguments;
    let mut tags = Vec::new();
    if let Some(agent) = arguments.text("pubkey") {
        tags.push(tag(["p", agent]));
    }
    if arguments.text("room").is_some() {
        tags.push(tag(["h", super::tags::room(call)?]));
    }
    if let Some(expiration) = arguments.integer("expiration") {
        tags.push(tag(["expiration", &expiration.to_string()]));
    }
    Ok(draft(call, REQUEST, tags, arguments.must("content")))
}

/// Feedback of this kind on the request that the call names.
fn answer(call: &mut Call, kind: u64) -> Result<Outcome, String> {
    let event = request(call, call.arguments.must("job"))?;
    if kind == CANCEL && event.pubkey != call.caller {
        return Err("restricted: only its requester may cancel a long task".into());
    }
    let mut tags = vec![tag(["e", &event.id]), tag(["p", &event.pubkey])];
    if let Some(percent) = call.arguments.integer("percent") {
        tags.push(tag(["percent", &percent.to_string()]));
    }
    Ok(draft(call, kind, tags, call.arguments.must("content")))
}
