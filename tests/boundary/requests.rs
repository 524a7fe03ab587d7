//! Requests to the signer at random: as the protocol writes them, from parts that matter, and then changed
//! byte by byte. It holds no expectation of its own.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tinyagent_harness::catalog::{READ, WRITE};

/// The tools that the signer under attack may be asked for; requests are mostly for these.
pub const EXPOSED: [&str; 7] = [
    "read_room",
    "list_rooms",
    "post_message",
    "comment",
    "request_grant",
    "request_decision",
    "upload_attachment",
];

/// JSON text of a string.
fn string() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[a-z]{0,8}",
        2 => any::<String>(),
        1 => Just("}},\"name\":\"publish_event\",\"x\":{\"y\":\"".to_owned()),
    ];
    text.prop_map(|text| serde_json::to_string(&text).expect("a text"))
}

/// JSON text of an object's key; often one that matters.
fn key() -> impl Strategy<Value = String> {
    let known = [
        "event",
        "Event",
        "EVENT",
        "eVeNT",
        "\\u0065vent",
        "e\\u0056ent",
        "events",
        "name",
        "arguments",
        "_meta",
        "method",
        "room",
        "content",
        "url",
    ];
    prop_oneof![select(known.to_vec()).prop_map(|key| format!("\"{key}\"")), string()]
}

/// JSON text of any value, with white space in places.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        select(&["-0", "1E+2", "1.0", "9007199254740993", "123456789012345678901234567890"][..])
            .prop_map(str::to_owned),
        string(),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::vec((key(), inner), 0..4).prop_map(members),
        ]
    })
}

fn members(members: Vec<(String, String)>) -> String {
    let members: Vec<String> = members.iter().map(|(key, value)| format!("{key} :{value}")).collect();
    format!("{{{}}}", members.join(", "))
}

/// JSON text of the arguments: mostly an object.
fn arguments() -> impl Strategy<Value = String> {
    let object = prop::collection::vec((key(), value()), 0..4).prop_map(members);
    prop_oneof![16 => object, 4 => Just("{}".to_owned()), 1 => Just("{ \n}".to_owned()), 1 => value()]
}

/// JSON text of a tool's name: mostly exposed.
fn tool() -> impl Strategy<Value = String> {
    let others: Vec<&'static str> = READ.into_iter().chain(WRITE.iter().map(|(name, _)| *name)).collect();
    let foreign =
        ["publish_event", "read_management", "Post_message", "post_message ", "post_message\\u0000"];
    prop_oneof![
        12 => select(&EXPOSED[..]).prop_map(|name| format!("\"{name}\"")),
        2 => select(others).prop_map(|name| format!("\"{name}\"")),
        1 => select(foreign.to_vec()).prop_map(|name| format!("\"{name}\"")),
        1 => string(),
    ]
}

fn kind() -> impl Strategy<Value = u64> {
    let known = [9_u64, 1111, 7, 11, 1621, 27235, 22242, 24242, 1, 0, 30023];
    prop_oneof![6 => select(&[9_u64, 1111][..]), 2 => select(known.to_vec()), 1 => any::<u64>()]
}

/// JSON text of a tag list.
fn tags() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        6 => select(&["\"h\"", "\"e\"", "\"p\"", "\"-\""][..]).prop_map(str::to_owned),
        1 => select(&["\"grant\"", "\"request\"", "\"\\u0067rant\"", "\"Grant\""][..]).prop_map(str::to_owned),
        2 => string(),
    ];
    let tag = (name, prop::collection::vec(string(), 0..3))
        .prop_map(|(name, rest)| format!("[{}]", [vec![name], rest].concat().join(",")));
    prop::collection::vec(tag, 0..4).prop_map(|tags| format!("[{}]", tags.join(", ")))
}

fn template() -> impl Strategy<Value = String> {
    (kind(), tags(), string(), prop::option::of(any::<u32>())).prop_map(|(kind, tags, content, at)| {
        let at = at.map(|at| format!(",\"created_at\":{at}")).unwrap_or_default();
        format!("{{\"kind\":{kind},\"tags\":{tags},\"content\":{content}{at}}}")
    })
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof![any::<u64>().prop_map(|id| id.to_string()), Just("0".to_owned())]
}

/// A request as the protocol writes it, its parts at random.
pub fn request() -> impl Strategy<Value = String> {
    let list = |item: BoxedStrategy<String>| {
        prop::option::of(prop::collection::vec(item, 0..4).prop_map(|items| format!("[{}]", items.join(","))))
    };
    prop_oneof![
        1 => (id(), prop::option::of(string())).prop_map(|(id, cursor)| {
            let cursor = cursor.map(|cursor| format!(",\"cursor\":{cursor}")).unwrap_or_default();
            format!("{{\"list_tools\":{{\"id\":{id}{cursor}}}}}")
        }),
        6 => (id(), tool(), arguments()).prop_map(|(id, tool, arguments)| {
            format!("{{\"call_tool\":{{\"id\":{id},\"tool\":{tool},\"arguments\":{arguments}}}}}")
        }),
        12 => (id(), tool(), arguments(), template()).prop_map(|(id, tool, arguments, template)| {
            format!(
                "{{\"publish\":{{\"template\":{template},\"tool\":{tool},\"id\":{id},\"arguments\":{arguments}}}}}"
            )
        }),
        1 => (list(string().boxed()), list(any::<u32>().prop_map(|kind| kind.to_string()).boxed()))
            .prop_map(|(rooms, kinds)| {
                let member = |name, list: Option<String>| list.map(|list| format!("\"{name}\":{list}"));
                let members: Vec<String> =
                    [member("rooms", rooms), member("kinds", kinds)].into_iter().flatten().collect();
                format!("{{\"browse_grant\":{{{}}}}}", members.join(","))
            }),
        1 => any::<bool>().prop_map(|writes| format!("{{\"narrow\":{{\"tools\":[],\"allow_writes\":{writes}}}}}")),
    ]
}

/// One change of a frame's bytes.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// Another byte in a place.
    Set(Index, u8),
    /// More bytes before a place.
    Insert(Index, Vec<u8>),
    /// Without the bytes between two places.
    Remove(Index, Index),
    /// The bytes between two places once more at the second.
    Repeat(Index, Index),
}

/// Any change.
pub fn mutation() -> impl Strategy<Value = Mutation> {
    let marks =
        ["{", "}", "\"", "\\", ",", ":", "[", "]", "0", "\"id\":1,", "\"event\":1,", "}}", "\\u0065", " "];
    let insert = prop_oneof![
        select(marks.to_vec()).prop_map(|mark| mark.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 1..4)
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<Index>(), insert).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Remove(from, to)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
    ]
}

/// Changes a frame.
pub fn mutate(frame: &mut Vec<u8>, mutation: &Mutation) {
    let range = |from: &Index, to: &Index, length: usize| {
        let (from, to) = (from.index(length), to.index(length));
        // Short pieces, or little of a request would be left.
        from.min(to)..from.max(to).min(from.min(to) + 24)
    };
    match mutation {
        _ if frame.is_empty() => {}
        Mutation::Set(at, byte) => {
            let at = at.index(frame.len());
            frame[at] = *byte;
        }
        Mutation::Insert(at, bytes) => {
            let at = at.index(frame.len());
            frame.splice(at..at, bytes.iter().copied());
        }
        Mutation::Remove(from, to) => drop(frame.drain(range(from, to, frame.len()))),
        Mutation::Repeat(from, to) => {
            let piece = frame[range(from, to, frame.len())].to_vec();
            let at = to.index(frame.len());
            frame.splice(at..at, piece);
        }
    }
}
