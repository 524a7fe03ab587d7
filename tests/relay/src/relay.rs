//! The relay as a test holds it: started with options, stopped when dropped, asked what it received, told how
//! to answer, and with its state open to be set.

use crate::access::{Grant, GrantState, Membership, Role};
use crate::event::{Event, Key};
use crate::hostile::Served;
use crate::request::Request;
use crate::script::{Matcher, Reply, wait_until};
use crate::server::{Listening, Server, lock};
use crate::store::Room;
use crate::tls::Tls;
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How a relay is started. The default listens on a free port of 127.0.0.1, open to every key.
#[derive(Clone)]
pub struct Options {
    /// Addresses to listen on. Port 0 takes a free one; later addresses with port 0 take the first one's.
    pub listen: Vec<String>,
    /// Tenant path prefix, such as `/r/acme`; empty for none.
    pub prefix: String,
    /// The largest request body, in bytes. The relay's own limit is 1 MiB.
    pub body_limit: u64,
    /// Public key (hex) of the owner, who may do everything.
    pub owner: Option<String>,
    /// Who may read and write.
    pub membership: Membership,
    /// Whether a publishing key other than owner and moderators needs a grant that covers what it publishes.
    pub grants_enforced: bool,
    /// Whether templates are altered before they are returned; see [`Relay::served_templates`].
    pub hostile: bool,
    /// Seed of the hostile mode's randomness.
    pub hostile_seed: u64,
    /// Seconds by which the relay's whole clock is off: its `Date`, its judgement of proofs, its templates.
    pub clock_offset: i64,
    /// Entries of one `tools/list` page; `None` serves all at once.
    pub page_size: Option<usize>,
    /// Further entries of the tool table, sent as they are; a call of one echoes its arguments.
    pub extra_tools: Vec<Value>,
    /// Tools that are neither listed nor known.
    pub without_tools: Vec<String>,
    /// What happens to a connection once an answer has been sent.
    pub idle: Idle,
    /// Serves https with this certificate.
    pub tls: Option<Tls>,
    /// Whether requests are recorded. Off, memory stays flat however many come.
    pub record: bool,
    /// Whether each request is logged in one line on stderr.
    pub log: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: vec!["127.0.0.1:0".into()],
            prefix: String::new(),
            body_limit: 1024 * 1024,
            owner: None,
            membership: Membership::Open,
            grants_enforced: false,
            hostile: false,
            hostile_seed: 0,
            clock_offset: 0,
            page_size: None,
            extra_tools: Vec::new(),
            without_tools: Vec::new(),
            idle: Idle::Keep,
            tls: None,
            record: true,
            log: false,
        }
    }
}

/// What happens to a connection between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// It is kept for two minutes.
    Keep,
    /// It is closed (FIN) when no other request came within this time.
    Close(Duration),
    /// It is reset (RST) when no other request came within this time.
    Reset(Duration),
}

/// What happens to a connection as soon as it is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptFault {
    /// Nothing is ever read from it.
    Stall,
    /// It is closed (FIN).
    Close,
    /// It is reset (RST).
    Reset,
}

/// A running relay. Dropping it closes every connection and frees the port.
pub struct Relay {
    server: Arc<Server>,
    listening: Vec<Listening>,
}

impl Relay {
    /// Starts a relay; a failure to listen is a panic, as a test wants it.
    pub fn start(options: Options) -> Relay {
        Relay::try_start(options).expect("the relay listens")
    }

    /// Starts a relay.
    pub fn try_start(options: Options) -> io::Result<Relay> {
        let (server, listening) = Server::start(options)?;
        Ok(Relay { server, listening })
    }

    /// The relay's URL on its first address, with the prefix and without a trailing slash: what `--relay` takes.
    pub fn url(&self) -> String {
        self.origin() + &self.server.options.prefix
    }

    /// The URL under another host name that leads here.
    pub fn url_for(&self, host: &str) -> String {
        format!("{}://{host}:{}{}", self.server.scheme(), self.port(), self.server.options.prefix)
    }

    /// The first address.
    pub fn address(&self) -> SocketAddr {
        self.listening[0].address
    }

    /// Scheme, host and port of the first address.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.server.scheme(), self.listening[0].address)
    }

    /// The port, which all addresses share.
    pub fn port(&self) -> u16 {
        self.listening[0].address.port()
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        lock(&self.server.log).clone()
    }

    /// Every POST so far.
    pub fn posts(&self) -> Vec<Arc<Request>> {
        self.requests().into_iter().filter(|request| request.method == "POST").collect()
    }

    /// Every `tools/call` of this tool so far.
    pub fn calls_of(&self, tool: &str) -> Vec<Arc<Request>> {
        self.requests().into_iter().filter(|request| request.tool() == Some(tool)).collect()
    }

    /// Forgets the requests so far; numbering goes on from 0.
    pub fn clear_requests(&self) {
        lock(&self.server.log).clear();
    }

    /// Waits until this many requests have arrived; false if that takes longer than the timeout.
    pub fn wait_for(&self, count: usize, timeout: Duration) -> bool {
        wait_until(&self.server.log, &self.server.logged, timeout, |log| log.len() >= count)
    }

    /// Waits until this many requests that match have arrived.
    pub fn wait_for_matching(
        &self,
        count: usize,
        timeout: Duration,
        test: impl Fn(&Request) -> bool,
    ) -> bool {
        wait_until(&self.server.log, &self.server.logged, timeout, |log| {
            log.iter().filter(|request| test(request)).count() >= count
        })
    }

    /// How many connections have been accepted so far.
    pub fn connections(&self) -> u64 {
        self.server.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    pub fn open_connections(&self) -> usize {
        lock(&self.server.connections).len()
    }

    /// Replies so to the next matching request that no older script takes.
    pub fn script(&self, matcher: Matcher, reply: Reply) {
        lock(&self.server.script).add(matcher, reply, true);
    }

    /// Replies so to every matching request that no older script takes.
    pub fn script_always(&self, matcher: Matcher, reply: Reply) {
        lock(&self.server.script).add(matcher, reply, false);
    }

    /// Forgets every script.
    pub fn clear_script(&self) {
        lock(&self.server.script).clear();
    }

    /// How many one-time scripts have not been used.
    pub fn unused_scripts(&self) -> usize {
        lock(&self.server.script).unused()
    }

    /// Does this to the next accepted connection, in order of the calls.
    pub fn on_accept(&self, fault: AcceptFault) {
        lock(&self.server.accept_faults).push_back(fault);
    }

    /// How many of these faults no connection has met yet.
    pub fn faults_to_come(&self) -> usize {
        lock(&self.server.accept_faults).len()
    }

    /// Changes what happens to connections between requests.
    pub fn set_idle(&self, idle: Idle) {
        *lock(&self.server.idle) = idle;
    }

    /// Replaces the whole `tools/list` table by these entries, sent as they are.
    pub fn set_listed_tools(&self, entries: Vec<Value>) {
        lock(&self.server.state).table.set_listed(entries);
    }

    /// How often this tool was executed to a result that was not an error. A write counts once for the
    /// template, as `NAME`, and once for the publication, as `NAME+event`.
    pub fn executed(&self, tool: &str) -> u64 {
        lock(&self.server.state).executed.get(tool).copied().unwrap_or(0)
    }

    /// Every event that was published through a tool, in order.
    pub fn published(&self) -> Vec<Event> {
        lock(&self.server.state).store.published()
    }

    /// Every template that was returned in hostile mode, with what was altered in it, in order.
    pub fn served_templates(&self) -> Vec<Served> {
        lock(&self.server.state).hostile.as_ref().map(|hostile| hostile.served.clone()).unwrap_or_default()
    }

    /// Gives a key a grant, or replaces its grant.
    pub fn set_grant(&self, pubkey: &str, grant: Grant) {
        lock(&self.server.state).access.grants.insert(pubkey.into(), grant);
    }

    /// Pauses, revokes, expires or reactivates a grant; false if there is none.
    pub fn set_grant_state(&self, pubkey: &str, state: GrantState) -> bool {
        let mut guard = lock(&self.server.state);
        guard.access.grants.get_mut(pubkey).map(|grant| grant.state = state).is_some()
    }

    /// Takes a grant away as if it had never been.
    pub fn remove_grant(&self, pubkey: &str) {
        lock(&self.server.state).access.grants.remove(pubkey);
    }

    /// Makes a key a member with this role.
    pub fn set_role(&self, pubkey: &str, role: Role) {
        lock(&self.server.state).access.roles.insert(pubkey.into(), role);
    }

    /// Makes a key a stranger.
    pub fn remove_member(&self, pubkey: &str) {
        lock(&self.server.state).access.roles.remove(pubkey);
    }

    /// Changes who may read and write.
    pub fn set_membership(&self, membership: Membership) {
        lock(&self.server.state).access.membership = membership;
    }

    /// Changes whether grants are enforced.
    pub fn enforce_grants(&self, enforced: bool) {
        lock(&self.server.state).access.enforced = enforced;
    }

    /// Adds a room, or replaces one.
    pub fn add_room(&self, room: Room) {
        lock(&self.server.state).store.rooms.insert(room.id.clone(), room);
    }

    /// Posts a message as some other participant; returns its event id.
    pub fn post(&self, room: &str, author: &Key, content: &str) -> String {
        let mut state = lock(&self.server.state);
        let now = self.server.now();
        state.store.seed_message(room, author, content, now)
    }

    /// Stores a file that every key may read; returns its SHA-256.
    pub fn add_file(&self, bytes: Vec<u8>, media_type: &str, filename: &str) -> String {
        let now = self.server.now();
        lock(&self.server.state).store.add_file(bytes, media_type, filename, None, now)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.server.stop(self.listening.drain(..));
    }
}
