//! Who may do what: membership, roles, and the grants that bound what an agent publishes.

use crate::event::Event;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Who may read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Every key counts as a member.
    Open,
    /// Only listed keys write; strangers may read, and `browsegrant` tells them that they are no members.
    Listed,
    /// Only listed keys may do anything; `browsegrant` answers strangers with 403.
    MembersOnly,
}

/// What a key is to the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May do everything.
    Owner,
    /// May read management and manage agents.
    Moderator,
    /// May read and write.
    Member,
    /// May read, and write within its grant.
    Agent,
}

impl Role {
    /// The role's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Role::Owner => "owner",
            Role::Moderator => "moderator",
            Role::Member => "member",
            Role::Agent => "agent",
        }
    }
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantState {
    /// In force.
    Active,
    /// Stopped until resumed.
    Paused,
    /// Ended.
    Revoked,
    /// Past its time.
    Expired,
}

impl GrantState {
    /// The state's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            GrantState::Active => "active",
            GrantState::Paused => "paused",
            GrantState::Revoked => "revoked",
            GrantState::Expired => "expired",
        }
    }
}

/// What an agent may publish: the content of a kind 30392 event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The id of the grant's event.
    pub id: String,
    /// The public key of the operator who gave it.
    pub operator: String,
    /// Its state.
    pub state: GrantState,
    /// The rooms it covers.
    pub rooms: Vec<String>,
    /// The kinds it covers.
    pub kinds: Vec<u64>,
    /// Events a minute.
    pub rate: u64,
    /// When it ends, in seconds since the epoch.
    pub expires: Option<u64>,
}

impl Grant {
    /// An active grant for these rooms and kinds, 60 events a minute, without an end.
    pub fn active(rooms: &[&str], kinds: &[u64]) -> Grant {
        Grant {
            id: "9".repeat(64),
            operator: "0".repeat(63) + "1",
            state: GrantState::Active,
            rooms: rooms.iter().map(|room| room.to_string()).collect(),
            kinds: kinds.to_vec(),
            rate: 60,
            expires: None,
        }
    }
}

pub(crate) struct Access {
    pub owner: Option<String>,
    pub membership: Membership,
    pub enforced: bool,
    pub roles: HashMap<String, Role>,
    pub grants: HashMap<String, Grant>,
}

impl Access {
    /// The role of a key; `None` for a stranger.
    pub fn role(&self, pubkey: &str) -> Option<Role> {
        if self.owner.as_deref() == Some(pubkey) {
            return Some(Role::Owner);
        }
        let default = match self.membership {
            Membership::Open if self.grants.contains_key(pubkey) => Some(Role::Agent),
            Membership::Open => Some(Role::Member),
            _ => None,
        };
        self.roles.get(pubkey).copied().or(default)
    }

    /// Whether a key may read.
    pub fn may_read(&self, pubkey: &str) -> Result<(), String> {
        match (self.membership, self.role(pubkey)) {
            (Membership::MembersOnly, None) => Err("restricted: this relay is for members only".into()),
            _ => Ok(()),
        }
    }

    /// The state of a key's grant at a time: a grant past its end has expired, whatever it says.
    pub fn grant_state(&self, pubkey: &str, now: u64) -> Option<GrantState> {
        let grant = self.grants.get(pubkey)?;
        let over = grant.expires.is_some_and(|expires| expires <= now);
        Some(if over && grant.state == GrantState::Active { GrantState::Expired } else { grant.state })
    }

    /// Whether the author of an event may publish it. A grant request needs no kind in the grant.
    pub fn may_publish(&self, event: &Event, grant_request: bool, now: u64) -> Result<(), String> {
        let role = self.role(&event.pubkey);
        match role {
            None => return Err("restricted: only members may publish here".into()),
            Some(Role::Owner | Role::Moderator) => return Ok(()),
            _ if !self.enforced => return Ok(()),
            _ => {}
        }
        let Some(state) = self.grant_state(&event.pubkey, now) else {
            return Err("auth-required: this key holds no grant; ask an operator for one".into());
        };
        if state != GrantState::Active {
            return Err(format!("restricted: the grant of this key is {}", state.name()));
        }
        let grant = &self.grants[&event.pubkey];
        if grant_request {
            return Ok(());
        }
        if !grant.kinds.contains(&event.kind) {
            return Err(format!("restricted: the grant does not cover kind {}", event.kind));
        }
        match event.tag("h") {
            Some(room) if !grant.rooms.iter().any(|granted| granted == room) => {
                Err(format!("restricted: the grant does not cover room {room}"))
            }
            _ => Ok(()),
        }
    }

    /// The result of `browsegrant`; its form is described in [`crate::manage`].
    pub fn browse(&self, pubkey: &str, rooms: &[String], kinds: &[u64], asked: &Value, now: u64) -> Value {
        let role = self.role(pubkey);
        let grant = self.grants.get(pubkey);
        let state = self.grant_state(pubkey, now);
        let free = !self.enforced || matches!(role, Some(Role::Owner | Role::Moderator));
        let active = grant.filter(|_| state == Some(GrantState::Active));
        let missing_rooms: Vec<&String> = rooms
            .iter()
            .filter(|room| !free && !active.is_some_and(|grant| grant.rooms.contains(room)))
            .collect();
        let missing_kinds: Vec<&u64> = kinds
            .iter()
            .filter(|kind| !free && !active.is_some_and(|grant| grant.kinds.contains(kind)))
            .collect();
        let mut result = json!({
            "pubkey": pubkey,
            "member": role.is_some(),
            "role": role.map(Role::name).unwrap_or("none"),
            "grant": grant.map(|grant| json!({
                "id": grant.id, "operator": grant.operator, "rooms": grant.rooms, "kinds": grant.kinds,
                "rate": grant.rate, "expires": grant.expires,
            })),
            "state": state.map(GrantState::name).unwrap_or("none"),
            "enforced": !free,
            "allows": {
                "rooms": active.map(|grant| grant.rooms.clone()).unwrap_or_default(),
                "kinds": active.map(|grant| grant.kinds.clone()).unwrap_or_default(),
            },
            "rate": grant.map(|grant| grant.rate),
            "expires": grant.and_then(|grant| grant.expires),
        });
        if !asked.is_null() {
            result["needs"] = json!({"rooms": rooms, "kinds": kinds});
            result["missing"] = json!({"rooms": missing_rooms, "kinds": missing_kinds});
        }
        result
    }
}
