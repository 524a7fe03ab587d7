//! What the relay keeps in memory: events in order of arrival, rooms, repositories and files. Issues, pages,
//! jobs and threads are not kept apart: the read tools find them among the events.

use crate::event::{Event, Key, Template, sha256_hex};
use std::collections::{BTreeMap, HashMap};

/// A chat room.
#[derive(Clone, Debug)]
pub struct Room {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its description.
    pub about: String,
    /// Public keys of its members; a key that posts becomes one.
    pub members: Vec<String>,
    /// When the last message was posted, in seconds since the epoch.
    pub last_message: Option<u64>,
}

impl Room {
    /// An empty room.
    pub fn new(id: &str, name: &str) -> Room {
        Room {
            id: id.into(),
            name: name.into(),
            about: String::new(),
            members: Vec::new(),
            last_message: None,
        }
    }
}

/// A hosted repository.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    pub owner: String,
    pub identifier: String,
    pub about: String,
    pub head: String,
    pub files: BTreeMap<String, String>,
}

/// A stored file.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub bytes: Vec<u8>,
    pub media_type: String,
    pub filename: String,
    pub room: Option<String>,
    pub uploaded: u64,
}

#[derive(Default)]
pub(crate) struct Store {
    pub events: Vec<Event>,
    pub rooms: BTreeMap<String, Room>,
    pub repositories: Vec<Repository>,
    pub files: BTreeMap<String, File>,
    by_id: HashMap<String, usize>,
    published: Vec<usize>,
    reactions: HashMap<String, Vec<String>>,
}

/// The author of everything that is there from the start.
pub(crate) fn seed_author() -> Key {
    Key::from_bytes([0x21; 32]).expect("a constant below the curve order")
}

impl Store {
    /// A store with a room `general`, a repository `garden` with an issue and a pull request, and a wiki page.
    pub fn seeded(now: u64) -> Store {
        let mut store = Store::default();
        let author = seed_author();
        let owner = author.public_hex();
        let then = now.saturating_sub(3600);
        for (id, name) in [("general", "General"), ("workshop", "Workshop")] {
            store.rooms.insert(id.into(), Room::new(id, name));
        }
        store.seed_message("general", &author, "Welcome. Say hello when you arrive.", then);
        store.seed_message("general", &author, "The seed catalogue is in the wiki.", then + 60);
        store.repositories.push(Repository {
            owner: owner.clone(),
            identifier: "garden".into(),
            about: "Beds, seeds and a watering plan.".into(),
            head: "5".repeat(40),
            files: BTreeMap::from([
                ("README.md".into(), "# Garden\n\nBeds, seeds and a watering plan.\n".into()),
                ("plan/beds.txt".into(), "north: beans\nsouth: squash\n".into()),
            ]),
        });
        let address = format!("30617:{owner}:garden");
        let tag = |values: &[&str]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>();
        let repository_tags =
            |subject: &str| vec![tag(&["a", &address]), tag(&["p", &owner]), tag(&["subject", subject])];
        let mut pull_request = repository_tags("Water the south bed first");
        pull_request.push(tag(&["c", &"7".repeat(40)]));
        pull_request.push(tag(&["clone", "https://relay.example/garden.git"]));
        let page = vec![tag(&["d", "seeds"]), tag(&["title", "Seeds"]), tag(&["summary", "What we sow."])];
        for (kind, tags, content) in [
            (1621, repository_tags("The north bed floods"), "After rain it stands under water."),
            (1618, pull_request, "It dries out sooner."),
            (30818, page, "= Seeds\n\nBeans and squash."),
        ] {
            store.insert(author.sign(Template { kind, created_at: then, tags, content: content.into() }));
        }
        store
    }

    /// Adds a message that no tool published; returns its id.
    pub fn seed_message(&mut self, room: &str, author: &Key, content: &str, now: u64) -> String {
        let tags = vec![vec!["h".into(), room.into()]];
        let event = author.sign(Template { kind: 9, created_at: now, tags, content: content.into() });
        let id = event.id.clone();
        self.insert(event);
        id
    }

    /// Stores an event that a tool published; false if it is stored already.
    pub fn publish(&mut self, event: Event) -> bool {
        let at = self.events.len();
        let is_new = self.insert(event);
        if is_new {
            self.published.push(at);
        }
        is_new
    }

    /// The events that tools published, in order.
    pub fn published(&self) -> Vec<Event> {
        self.published.iter().map(|at| self.events[*at].clone()).collect()
    }

    fn insert(&mut self, event: Event) -> bool {
        if self.by_id.contains_key(&event.id) {
            return false;
        }
        self.by_id.insert(event.id.clone(), self.events.len());
        match (event.kind, event.tag("h")) {
            (9007, Some(id)) => {
                let mut room = Room::new(id, event.tag("name").unwrap_or(id));
                room.about = event.tag("about").unwrap_or_default().into();
                self.rooms.entry(id.into()).or_insert(room);
            }
            (9 | 11 | 12, Some(id)) => {
                if let Some(room) = self.rooms.get_mut(id) {
                    room.last_message = Some(event.created_at);
                    if !room.members.contains(&event.pubkey) {
                        room.members.push(event.pubkey.clone());
                    }
                }
            }
            (7, _) => {
                if let Some(target) = event.tag("e") {
                    self.reactions.entry(target.into()).or_default().push(event.content.clone());
                }
            }
            _ => {}
        }
        self.events.push(event);
        true
    }

    /// The event with this id.
    pub fn event(&self, id: &str) -> Option<&Event> {
        self.by_id.get(id).map(|at| &self.events[*at])
    }

    /// The contents of the reactions to an event, in order.
    pub fn reactions(&self, id: &str) -> &[String] {
        self.reactions.get(id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The newest matching events that arrived before a place, newest first, and the place to go on from.
    pub fn newest(
        &self,
        before: usize,
        limit: usize,
        test: impl Fn(&Event) -> bool,
    ) -> (Vec<&Event>, Option<usize>) {
        let end = before.min(self.events.len());
        let mut found = Vec::new();
        for at in (0..end).rev().filter(|at| test(&self.events[*at])) {
            if found.len() == limit {
                return (found, Some(at + 1));
            }
            found.push(&self.events[at]);
        }
        (found, None)
    }

    /// Stores a file and returns its SHA-256.
    pub fn add_file(
        &mut self,
        bytes: Vec<u8>,
        media_type: &str,
        filename: &str,
        room: Option<&str>,
        now: u64,
    ) -> String {
        let hash = sha256_hex(&bytes);
        let file = File {
            bytes,
            media_type: media_type.into(),
            filename: filename.into(),
            room: room.map(Into::into),
            uploaded: now,
        };
        self.files.insert(hash.clone(), file);
        hash
    }

    /// The repository with this owner and identifier.
    pub fn repository(&self, owner: &str, identifier: &str) -> Result<&Repository, String> {
        let wanted =
            |repository: &&Repository| repository.owner == owner && repository.identifier == identifier;
        self.repositories.iter().find(wanted).ok_or_else(|| {
            format!("there is no repository {identifier} of {owner}; list_repositories shows them")
        })
    }
}
