//! Tools that a host must never see: management by owner and moderators, and publishing anything at all. Most
//! only say that they were called; a test looks at the count.

use super::input::Form::{Choice, Hex, Object, Words};
use super::input::{Input, optional, required};
use super::{Call, Outcome, Tool, ToolAccess};
use crate::access::{GrantState, Role};
use serde_json::{Value, json};

const PUBKEY: Input = required("pubkey", Hex, "The key concerned.");
const JOB_NAME: Input = required("name", Words(100), "Name of the job.");

pub(super) const TOOLS: &[Tool] = &[
    Tool {
        name: "publish_event",
        title: "Publish an event",
        about: "Publish any signed Nostr event.",
        access: ToolAccess::Publish { kinds: &[], tags: &[] },
        inputs: &[],
        run: |_| Err("argument event is required: a signed event".into()),
    },
    Tool {
        name: "read_status",
        title: "Read the relay's status",
        about: "Read service health, storage and job status as an owner or moderator.",
        access: ToolAccess::Read,
        inputs: &[],
        run: read_status,
    },
    managed(
        "read_management",
        "Read management",
        "Run a read-only management method.",
        &[METHOD],
        read_management,
    ),
    managed(
        "list_agents",
        "List agents",
        "List granted agents with their state and scope.",
        &[],
        list_agents,
    ),
    managed("list_join_requests", "List access requests", "List access requests, pending first.", &[], done),
    managed("run_job", "Run a job", "Queue an existing job to run now.", &[JOB_NAME], done),
    managed(
        "add_job",
        "Add a job",
        "Add a pull, push, import, mirror, dump or backup job.",
        &[JOB_NAME],
        done,
    ),
    managed("remove_job", "Remove a job", "Remove a job and cancel its pending runs.", &[JOB_NAME], done),
    managed("backup_now", "Back up", "Queue a backup of relay data.", &[], done),
    managed("set_policy", "Set the policy", "Apply a partial policy update as the owner.", &[POLICY], done),
    managed("pause_agent", "Pause an agent", "Stop an agent until it is resumed.", &[PUBKEY], |call| {
        set_grant_state(call, GrantState::Paused)
    }),
    managed("resume_agent", "Resume an agent", "Let a paused agent publish again.", &[PUBKEY], |call| {
        set_grant_state(call, GrantState::Active)
    }),
    managed(
        "revoke_agent",
        "Revoke an agent",
        "End an agent's grant and remove its role.",
        &[PUBKEY],
        |call| set_grant_state(call, GrantState::Revoked),
    ),
    managed(
        "approve_join",
        "Approve a member",
        "Approve an access request by `pubkey`.",
        &[PUBKEY],
        approve_join,
    ),
    managed("deny_join", "Deny a member", "Deny an access request by `pubkey`.", &[PUBKEY], done),
];

const METHOD: Input = required(
    "method",
    Choice(&["stats", "getpolicy", "listaudit", "listjobs", "listmembers"]),
    "The method.",
);
const POLICY: Input = optional("policy", Object, "The settings to change.");

const fn managed(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    inputs: &'static [Input],
    run: fn(&mut Call) -> Result<Outcome, String>,
) -> Tool {
    Tool { name, title, about, access: ToolAccess::Manage, inputs, run }
}

fn done(_: &mut Call) -> Result<Outcome, String> {
    Ok(Outcome::Data(json!({"result": true})))
}

fn read_status(call: &mut Call) -> Result<Outcome, String> {
    if !matches!(call.access.role(call.caller), Some(Role::Owner | Role::Moderator)) {
        return Err("restricted: only the owner and moderators may read the relay's status".into());
    }
    let (events, files) = (call.store.events.len(), call.store.files.len());
    Ok(Outcome::Data(json!({"health": "ok", "events": events, "files": files, "jobs": []})))
}

fn read_management(call: &mut Call) -> Result<Outcome, String> {
    let result = match call.arguments.must("method") {
        "getpolicy" => json!({"owner": call.access.owner, "reads": "open"}),
        "listmembers" => call.access.roles.iter().map(|(key, role)| json!([key, role.name()])).collect(),
        _ => json!([]),
    };
    Ok(Outcome::Data(json!({"result": result})))
}

fn list_agents(call: &mut Call) -> Result<Outcome, String> {
    let agents: Value = call
        .access
        .grants
        .iter()
        .map(|(key, grant)| json!({"pubkey": key, "state": grant.state.name(), "kinds": grant.kinds}))
        .collect();
    Ok(Outcome::Data(json!({"agents": agents})))
}

fn set_grant_state(call: &mut Call, state: GrantState) -> Result<Outcome, String> {
    let key = call.arguments.must("pubkey");
    let grant = call.access.grants.get_mut(key).ok_or_else(|| format!("{key} holds no grant"))?;
    grant.state = state;
    done(call)
}

fn approve_join(call: &mut Call) -> Result<Outcome, String> {
    let key = call.arguments.must("pubkey").to_owned();
    call.access.roles.insert(key, Role::Member);
    done(call)
}
