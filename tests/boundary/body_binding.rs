//! Claim 5: what was checked is what is sent. Every body that reaches the relay has the hash that its proof
//! names, and a proof buys nothing for another body.

use tinyagent_harness::Host;
use tinyagent_relay::{Options, Relay, client::Post, sha256_hex};

use crate::peer::{Peer, call, proof_in};
use crate::support::{NewKey, with_key};
use crate::wire;

/// Every kind of call: the table, reading, a store, both halves of a publication, the NIP-86 call.
#[test]
fn every_body_that_the_relay_receives_has_the_hash_of_its_proof() {
    let (relay, key) = (Relay::start(Options::default()), NewKey::make());
    let mut host = Host::with(&relay, with_key(&key.hex, &["--allow-writes"]));
    host.ask("tools/list", "{}");
    host.text("list_rooms", "{}");
    host.text("read_room", r#"{"id":"general","x":9007199254740993, "e": 1E+2,"s":"é\u2028🦀"}"#);
    host.text("read_room", &format!(r#"{{"id":"general","pad":"{}"}}"#, "x".repeat(300_000)));
    host.text("upload_attachment", r#"{"filename":"a.txt","media_type":"text/plain","data":"aGk="}"#);
    host.text("post_message", r#"{"room":"general","content":"Zürich \ud83e\udd80 \u0001 </script>"}"#);
    host.text("post_message", &format!(r#"{{"room":"general","content":"{}"}}"#, "y".repeat(100_000)));
    host.call("tiny_diagnose", r#"{"rooms":["general"],"kinds":[9]}"#);
    assert_eq!(host.end().code, Some(0));

    let mut seen: Vec<String> = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    for request in relay.posts() {
        let proof = request.proof.as_ref().unwrap_or_else(|| panic!("{:?}", request.proof_error));
        let hash = sha256_hex(&request.body);
        assert_eq!(proof.tag("payload"), Some(hash.as_str()), "{}", request.target);
        assert_eq!(proof.tag("method"), Some(request.method.as_str()));
        assert_eq!(proof.tag("u"), Some(format!("{}{}", relay.url(), request.target).as_str()));
        assert_eq!(proof.pubkey, key.public);
        assert!(ids.insert(proof.id.clone()), "a proof was used twice");
        let event = if request.event().is_some() { "+event" } else { "" };
        let name = request.tool().or(request.rpc_method()).unwrap_or(request.path());
        seen.push(format!("{name}{event}"));
    }
    for kind in
        ["tools/list", "read_room", "upload_attachment", "post_message", "post_message+event", "/manage/rpc"]
    {
        assert!(seen.iter().any(|name| name == kind), "{kind} was not called: {seen:?}");
    }
}

#[test]
fn a_proof_buys_nothing_for_another_body_url_or_method_and_nothing_twice() {
    let relay = Relay::start(Options::default());
    let mut peer = Peer::at(&relay.url(), &[]);
    let arguments = r#"{"id":"general"}"#;
    let mut proven = || {
        let answer = peer.ask(&call("read_room", arguments));
        proof_in(&answer["proof"]);
        answer["proof"]["authorization"].as_str().expect("a text").to_owned()
    };
    let post = |body: String| {
        let key = tinyagent_relay::Key::random();
        let mut post = Post::call(&relay.url(), &key, "read_room", arguments);
        post.body = body.into_bytes();
        post
    };
    let body = wire::call_body("1", "read_room", arguments);
    let send = |post: Post, proof: &str| post.header("Authorization", proof).send().status;

    // The control: the body that the signer hashed is taken, once.
    let proof = proven();
    assert_eq!(send(post(body.clone()), &proof), 200);
    assert_eq!(send(post(body.clone()), &proof), 401, "a second time");
    for changed in [
        body.replace("read_room", "list_jobs"),
        body.replace("general", "private"),
        body.replace("\"id\":1", "\"id\":2"),
        format!("{body} "),
        body.replacen('{', "{ ", 1),
    ] {
        assert_ne!(changed, body);
        assert_eq!(send(post(changed.clone()), &proven()), 401, "{changed}");
    }
    let mut elsewhere = post(body.clone());
    elsewhere.url = format!("{}/mcp?x=1", relay.url());
    assert_eq!(send(elsewhere, &proven()), 401, "another query");
    let mut elsewhere = post(body);
    elsewhere.url = format!("{}/manage/rpc", relay.url());
    elsewhere = elsewhere.header("Content-Type", "application/nostr+json+rpc");
    assert_eq!(send(elsewhere, &proven()), 401, "another path");
}
