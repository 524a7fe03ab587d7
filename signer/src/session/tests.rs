//! A property over random and mutated requests: whatever comes back verifies against the policy and
//! the request, or nothing is signed. It judges by tables and checks of its own, not by the policy module.

use base64::Engine;
use secp256k1::{XOnlyPublicKey, schnorr};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tinyagent_protocol::relay_url::RelayUrl;

use tinyagent_protocol::event::SignedEvent;
use tinyagent_protocol::json::Json;

use super::*;

const RELAY: &str = "http://relay.example:8080/team";

/// Tools with the kinds that may be signed for them (contract 3), among them some that exist on the
/// relay only, or nowhere.
const TOOLS: [(&str, bool, &[u64]); 11] = [
    ("read_room", false, &[]),
    ("list_rooms", false, &[]),
    ("post_message", true, &[9]),
    ("comment", true, &[1111]),
    ("request_grant", true, &[1111]),
    ("request_decision", true, &[9, 1111]),
    ("upload_attachment", true, &[]),
    ("publish_wiki_page", true, &[30818]),
    ("publish_event", true, &[]),
    ("READ_ROOM", false, &[]),
    ("", false, &[]),
];

const KINDS: [u64; 12] = [9, 1111, 30818, 1, 0, 5, 22242, 24242, 27235, 30392, 4294967305, u64::MAX];

const ARGUMENTS: [&str; 9] = [
    "{}",
    r#"{"room":"a"}"#,
    r#"{"n":9007199254740993,"x": 1.0}"#,
    r#"{"event":{"id":"x"}}"#,
    r#"{"eVENT":null,"room":"a"}"#,
    r#"{"\u0065vent":1}"#,
    r#"{"a":{"event":1}}"#,
    r#"{"name":"publish_event","arguments":{}}"#,
    r#"{"text":"}},\"name\":\"x\",{{"}"#,
];

const TAGS: [&str; 5] = ["h", "e", "grant", "request", "p"];

/// A small generator with a fixed seed, so that a failure can be repeated (xorshift64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

/// One request as it was meant, before any mutation.
struct Meant {
    tool: (&'static str, bool, &'static [u64]),
    arguments: &'static str,
    kind: u64,
    tag: &'static str,
    content: String,
    publish: bool,
}

impl Meant {
    fn random(dice: &mut Dice) -> Self {
        Self {
            tool: dice.pick(&TOOLS),
            arguments: dice.pick(&ARGUMENTS),
            kind: dice.pick(&KINDS),
            tag: dice.pick(&TAGS),
            content: format!("text {} \u{1}\"<é", dice.roll(1000)),
            publish: dice.roll(3) > 0,
        }
    }

    fn frame(&self) -> Vec<u8> {
        let call = format!(r#""id":7,"tool":"{}","arguments":{}"#, self.tool.0, self.arguments);
        if !self.publish {
            return format!(r#"{{"call_tool":{{{call}}}}}"#).into_bytes();
        }
        let template = json!({"kind": self.kind, "tags": [[self.tag, "x"]], "content": self.content});
        format!(r#"{{"publish":{{{call},"template":{template}}}}}"#).into_bytes()
    }

    /// Whether the rules of contract 5 allow it, by this file's tables.
    fn is_allowed(&self, exposed: &[&str], writes: bool) -> bool {
        let (name, write, kinds) = self.tool;
        let calls = exposed.contains(&name) && (!write || writes);
        let smuggles =
            write && matches!(self.arguments.get(..9), Some("{\"event\":" | "{\"eVENT\":" | "{\"\\u0065v"));
        let owned = match self.tag {
            "grant" => name == "request_grant",
            "request" => name == "request_decision",
            _ => true,
        };
        calls && !smuggles && (!self.publish || (kinds.contains(&self.kind) && owned))
    }
}

fn signer() -> Signer {
    let path = std::env::temp_dir().join(format!("tinyagent-session-{}", std::process::id()));
    std::fs::write(&path, "17".repeat(32)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (key, _) = Key::from_file(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let events = Bucket::new(u32::MAX, Instant::now());
    Signer { key, hardening: vec![], events, proofs: None, log: None }
}

/// The event in JSON, its id and signature checked against the key by the library.
fn verified(event: &Value, public: &XOnlyPublicKey) -> Value {
    let text =
        json!([0, event["pubkey"], event["created_at"], event["kind"], event["tags"], event["content"]]);
    let id: [u8; 32] = Sha256::digest(text.to_string()).into();
    assert_eq!(event["id"], tinyagent_protocol::hex::encode(&id));
    let signature = tinyagent_protocol::hex::decode(event["sig"].as_str().unwrap()).unwrap();
    schnorr::verify(&schnorr::Signature::from_byte_array(signature), &id, public).unwrap();
    event.clone()
}

/// Checks that a proof is for exactly this body at the policy's URL.
fn check_proof(authorization: &Value, body: &str, public: &XOnlyPublicKey) {
    let token = authorization.as_str().unwrap().strip_prefix("Nostr ").unwrap();
    let text = base64::engine::general_purpose::STANDARD.decode(token).unwrap();
    let proof = verified(&serde_json::from_slice(&text).unwrap(), public);
    assert_eq!((&proof["kind"], &proof["content"]), (&json!(27235), &json!("")));
    let payload = tinyagent_protocol::hex::encode(&Sha256::digest(body));
    let expected =
        [json!(["u", format!("{RELAY}/mcp")]), json!(["method", "POST"]), json!(["payload", payload])];
    assert_eq!(proof["tags"].as_array().unwrap()[..3], expected);
}

/// The body of contract 4, written out here once more.
fn body(meant: &Meant, event: Option<&str>) -> String {
    let arguments = match event {
        None => meant.arguments.to_owned(),
        Some(event) if meant.arguments == "{}" => format!("{{\"event\":{event}}}"),
        Some(event) => format!("{},\"event\":{event}}}", &meant.arguments[..meant.arguments.len() - 1]),
    };
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{{\"name\":\"{}\",\"_meta\":{{\
         \"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
         \"io.modelcontextprotocol/clientInfo\":{{\"name\":\"tinyagent\",\"version\":\"{VERSION}\"}},\
         \"io.modelcontextprotocol/clientCapabilities\":{{}}}},\"arguments\":{arguments}}}}}",
        meant.tool.0
    )
}

#[test]
fn whatever_is_signed_is_what_the_policy_allows_and_what_was_asked() {
    let mut signer = signer();
    let public = XOnlyPublicKey::from_byte_array(signer.key.public().0).unwrap();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut signed = 0;
    for round in 0..3000 {
        let writes = dice.roll(4) > 0;
        let mut exposed: Vec<&str> = Vec::new();
        for (name, write, _) in &TOOLS[..8] {
            if (!write || writes) && dice.roll(3) > 0 {
                exposed.push(name);
            }
        }
        if exposed.is_empty() {
            continue;
        }
        let policy = Policy::new(RelayUrl::parse(RELAY).unwrap(), Some(&exposed.join(",")), writes).unwrap();
        let mut session = Session::new(policy, Narrowing::NotOffered);
        let meant = Meant::random(&mut dice);
        let answer = session.answer(&mut signer, &meant.frame()).unwrap().to_json();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let allowed = meant.is_allowed(&exposed, writes);
        let was_signed = answer.get("proof").is_some() || answer.get("published").is_some();
        assert_eq!(allowed, was_signed, "round {round}: {answer}");
        if !was_signed {
            assert!(answer["refused"]["rule"].is_string());
            continue;
        }
        signed += 1;
        if meant.publish {
            let event = verified(&answer["published"]["event"], &public);
            let expected = json!([meant.kind, [[meant.tag, "x"]], meant.content]);
            assert_eq!(json!([event["kind"], event["tags"], event["content"]]), expected);
            // The event stands in the body as the two processes write it, keys in NIP-01's order.
            let text =
                SignedEvent::parse(Json::check(event.to_string().as_bytes()).unwrap().0).unwrap().to_json();
            check_proof(&answer["published"]["authorization"], &body(&meant, Some(&text)), &public);
        } else {
            check_proof(&answer["proof"]["authorization"], &body(&meant, None), &public);
        }
    }
    assert!(signed > 100, "only {signed} of the requests were signed");
}

#[test]
fn a_mutated_frame_ends_the_session_or_is_judged_like_any_other() {
    let mut signer = signer();
    let public = XOnlyPublicKey::from_byte_array(signer.key.public().0).unwrap();
    let policy = Policy::new(RelayUrl::parse(RELAY).unwrap(), None, true).unwrap();
    let mut session = Session::new(policy, Narrowing::NotOffered);
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let (mut ended, mut answered) = (0, 0);
    for _ in 0..20_000 {
        let mut frame = Meant::random(&mut dice).frame();
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(frame.len());
            match dice.roll(5) {
                0 => frame[at] = dice.roll(256) as u8,
                1 if frame.len() > 1 => drop(frame.remove(at)),
                2 => frame.insert(at, b"\"{}[],:\\ 0"[dice.roll(10)]),
                3 => frame.truncate(at.max(1)),
                _ => {
                    let end = at + dice.roll(frame.len() - at);
                    let part = frame[at..end].to_vec();
                    frame.splice(at..at, part);
                }
            }
        }
        match session.answer(&mut signer, &frame) {
            Err(Ended::Malformed(_)) => ended += 1,
            Err(other) => panic!("{other}"),
            Ok(answer) => {
                answered += 1;
                if let Answer::Published { event, .. } = answer {
                    let event = verified(&serde_json::from_str(&event.to_json()).unwrap(), &public);
                    let kind = event["kind"].as_u64().unwrap();
                    assert!(![22242, 24242, 27235].contains(&kind), "signed an authorization: {event}");
                    assert!(TOOLS.iter().any(|(_, _, kinds)| kinds.contains(&kind)), "{event}");
                }
            }
        }
    }
    assert!(ended > 1000 && answered > 500, "{ended} ended, {answered} answered");
}
