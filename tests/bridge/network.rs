//! Contract 4 over the network as it is: address families, names, certificates and HTTP/2, each
//! against real sockets. Where the machine does not let a test arrange its network, the test says so.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, program, run, write_script};
use tinyagent_relay::{Authority, Framing, Matcher, Options, Relay, Reply, Step, Tls, faults};

use crate::outcome::{assert_answered, error_text, failed_read};
use crate::relay_faults::FullBacklog;

/// A file of the test's own that is gone with the value.
pub struct TempFile(PathBuf);

impl TempFile {
    pub fn new(name: &str, content: &str) -> Self {
        let file = TempFile::named(name);
        std::fs::write(&file.0, content).expect("a temporary file");
        file
    }

    /// A path for a file that something else will make.
    pub fn named(name: &str) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        TempFile(std::env::temp_dir().join(format!("tinyagent-{}-{number}-{name}", std::process::id())))
    }

    pub fn path(&self) -> String {
        self.0.to_str().expect("a plain path").to_owned()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A directory of the test's own that is gone with the value.
struct TempDirectory(PathBuf);

impl TempDirectory {
    fn new() -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tinyagent-{}-{number}-directory", std::process::id()));
        std::fs::create_dir(&path).expect("a temporary directory");
        TempDirectory(path)
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn secure(tls: Tls) -> Relay {
    Relay::start(Options { tls: Some(tls), ..Options::default() })
}

/// Options of a host that trusts this authority alone.
pub fn trusting(ca: &TempFile, args: &[&str]) -> HostOptions {
    HostOptions::args(args).env("SSL_CERT_FILE", ca.path())
}

#[test]
fn case_109_a_relay_on_ipv6_is_reached_by_address_and_the_proof_names_it_in_brackets() {
    let Ok(relay) = Relay::try_start(Options { listen: vec!["[::1]:0".into()], ..Options::default() }) else {
        return eprintln!("left out: this machine has no IPv6");
    };
    for (spelled, host_name) in [("[::1]", "[::1]"), ("[0:0:0:0:0:0:0:1]", "[::1]")] {
        relay.clear_requests();
        let mut host = Host::at(&format!("http://{spelled}:{}", relay.port()), HostOptions::default());
        assert_answered(&host.call("list_rooms", "{}"));
        let post = &relay.posts()[0];
        let url = format!("http://{host_name}:{}/mcp", relay.port());
        assert_eq!(post.proof.as_ref().and_then(|proof| proof.tag("u")), Some(&*url));
    }
}

#[test]
fn case_109_localhost_is_reached_while_one_family_refuses_or_hangs() {
    let Some(names) = NameService::with_hosts("127.0.0.1 localhost\n::1 localhost\n") else { return };
    for alive in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(relay) = Relay::try_start(Options { listen: vec![alive.into()], ..Options::default() }) else {
            eprintln!("left out: {alive} cannot be listened on");
            continue;
        };
        let other = if alive.starts_with('[') { "127.0.0.1" } else { "[::1]" };
        let mut host = names.host(&relay.url_for("localhost"), &[]);
        assert_answered(&host.call("list_rooms", "{}"));
        let hanging = FullBacklog::new(&format!("{other}:{}", relay.port()));
        let mut host = names.host(&relay.url_for("localhost"), &[]);
        assert_answered(&host.call("list_rooms", "{}"));
        assert_eq!(hanging.port(), relay.port());
    }
}

#[test]
fn case_108_an_own_authority_is_trusted_where_ssl_cert_file_names_it_and_nowhere_else() {
    let authority = Authority::new();
    let relay = secure(authority.issue(&["127.0.0.1", "localhost"]));
    let ca = TempFile::new("ca.pem", authority.pem());
    let mut host = Host::with(&relay, trusting(&ca, &["--allow-writes"]));
    assert_answered(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("post_message", r#"{"room":"general","content":"over TLS"}"#));
    assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
    assert_eq!(
        relay.posts()[0].proof.as_ref().and_then(|p| p.tag("u")),
        Some(&*format!("{}/mcp", relay.url()))
    );
    let other = TempFile::new("ca.pem", Authority::new().pem());
    relay.clear_requests();
    for options in [trusting(&other, &[]), HostOptions::default()] {
        let mut host = Host::with(&relay, options);
        let text = error_text(&host.call("list_rooms", "{}")).to_owned();
        assert!(text.starts_with("transport: ") && text.to_lowercase().contains("certificate"), "{text}");
        host.assert_alive();
    }
    assert!(relay.requests().is_empty());
}

#[test]
fn case_108_an_own_authority_is_trusted_where_ssl_cert_dir_names_its_directory() {
    let (ours, other) = (Authority::new(), Authority::new());
    let relay = secure(ours.issue(&["127.0.0.1"]));
    let full = TempDirectory::new();
    let empty = TempDirectory::new();
    let put = |name: &str, text: &str| std::fs::write(full.0.join(name), text).expect("a temporary file");
    put("other.pem", other.pem());
    let call = |directory: &TempDirectory| {
        let path = directory.0.to_str().expect("a plain path");
        Host::with(&relay, HostOptions::default().env("SSL_CERT_DIR", path)).call("list_rooms", "{}")
    };
    let text = error_text(&call(&full)).to_owned();
    assert!(text.starts_with("transport: ") && text.to_lowercase().contains("certificate"), "{text}");
    let text = error_text(&call(&empty)).to_owned();
    assert!(text.starts_with("transport: ") && text.contains("CA certificates"), "{text}");
    assert!(relay.requests().is_empty());
    put("ours.pem", ours.pem());
    assert_answered(&call(&full));
}

#[test]
fn case_108_a_certificate_that_expired_or_is_for_another_host_is_refused_and_named() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    for (tls, named) in [
        (authority.issue_expired(&["127.0.0.1"]), "expired"),
        (authority.issue(&["localhost"]), "not valid for"),
        (authority.issue(&["127.0.0.2", "relay.test"]), "not valid for"),
    ] {
        let relay = secure(tls);
        let mut host = Host::with(&relay, trusting(&ca, &["--allow-writes"]));
        for tool in ["list_rooms", "post_message"] {
            let text = error_text(&host.call(tool, r#"{"room":"general","content":"x"}"#)).to_owned();
            let place = format!("transport: cannot connect to {}: ", relay.address());
            assert!(
                text.starts_with(&place) && text.contains("certificate") && text.contains(named),
                "{text}"
            );
            assert!(!text.contains("may have taken effect"), "{text}");
        }
        let report = host.call("tiny_diagnose", "{}")["result"]["structuredContent"].take();
        assert_eq!(report["verdict"], "unreachable");
        assert!(report["advice"].as_str().is_some_and(|advice| advice.contains(named)), "{report}");
        assert!(relay.requests().is_empty());
    }
}

#[test]
fn case_108_a_relay_that_speaks_plain_http_on_an_https_port_is_not_spoken_to_in_the_clear() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let plain = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut begun = vec![0; 1024];
        let length = client.read(&mut begun).expect("its first bytes");
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        begun.truncate(length);
        begun
    });
    let ca = TempFile::new("ca.pem", Authority::new().pem());
    let mut host = Host::at(&format!("https://{address}"), trusting(&ca, &[]));
    let text = error_text(&host.call("list_rooms", "{}")).to_owned();
    assert!(text.starts_with(&format!("transport: cannot connect to {address}: ")), "{text}");
    let begun = plain.join().expect("the listener");
    assert_eq!(begun[0], 0x16, "a TLS handshake");
    assert!(!String::from_utf8_lossy(&begun).contains("Nostr"));
}

#[test]
fn a_file_of_authorities_that_is_missing_or_empty_is_named_and_only_costs_the_calls() {
    let authority = Authority::new();
    let relay = secure(authority.issue(&["127.0.0.1"]));
    let empty = TempFile::new("ca.pem", "");
    for path in ["/nonexistent/ca.pem".to_owned(), empty.path()] {
        let mut host = Host::with(&relay, HostOptions::default().env("SSL_CERT_FILE", path));
        let text = error_text(&host.call("list_rooms", "{}")).to_owned();
        assert!(text.starts_with("transport: no CA certificates could be loaded"), "{text}");
        assert!(text.ends_with("; correct or unset SSL_CERT_FILE and SSL_CERT_DIR"), "{text}");
        assert_eq!(host.ask("tools/list", "{}")["result"]["tools"].as_array().map(Vec::len), Some(1));
        host.assert_alive();
    }
}

#[test]
fn http_2_is_spoken_where_the_relay_offers_it() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    for offered in [true, false] {
        let tls = authority.issue(&["127.0.0.1"]);
        let relay = secure(if offered { tls.with_http2() } else { tls });
        let mut host = Host::with(&relay, trusting(&ca, &["--allow-writes"]));
        assert_eq!(host.ask("tools/list", "{}")["result"]["tools"].as_array().map(Vec::len), Some(36));
        assert_answered(&host.call("list_rooms", "{}"));
        assert_answered(&host.call("post_message", r#"{"room":"general","content":"over TLS"}"#));
        let posts = relay.posts();
        assert_eq!(posts.len(), 4);
        assert!(posts.iter().all(|post| post.http2 == offered && post.proof.is_some()));
        assert_eq!(relay.connections(), 1);
    }
}

#[test]
fn http_2_refusals_and_cancellations_are_not_repeated_by_the_http_client() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let relay = secure(authority.issue(&["127.0.0.1"]).with_http2());
    let mut host = Host::with(&relay, trusting(&ca, &["--allow-writes"]));
    assert_answered(&host.call("list_rooms", "{}"));
    for ending in [Reply::reset(), Reply::close()] {
        relay.clear_requests();
        relay.script(Matcher::tool("post_message"), ending);
        let text = error_text(&host.call("post_message", r#"{"room":"general","content":"x"}"#)).to_owned();
        assert!(text.starts_with("transport: "), "{text}");
        assert_eq!(relay.posts().len(), 1, "{text}");
    }
    assert_answered(&host.call("list_rooms", "{}"));
}

#[test]
fn a_connection_that_went_silent_ends_with_the_call_that_met_it() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    for http2 in [true, false] {
        let tls = authority.issue(&["127.0.0.1"]);
        let relay = secure(if http2 { tls.with_http2() } else { tls });
        let mut host = Host::with(&relay, trusting(&ca, &["--timeout", "2"]));
        assert_answered(&host.call("list_rooms", "{}"));
        relay.script(Matcher::tool("list_rooms"), Reply::hang());
        let text = error_text(&host.call("list_rooms", "{}")).to_owned();
        assert_eq!(text, "transport: 127.0.0.1 did not answer in time");
        assert_answered(&host.call("list_rooms", "{}"));
        let on: Vec<u64> = relay.posts().iter().map(|post| post.connection).collect();
        assert!(on[0] == on[1] && on[1] != on[2], "http2 {http2}: {on:?}");
    }
}

#[test]
fn an_http_2_connection_that_ended_between_two_calls_costs_neither() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let tls = authority.issue(&["127.0.0.1"]).with_http2();
    let relay = secure(tls.clone());
    let (url, address) = (relay.url(), relay.address());
    let mut host = Host::at(&url, trusting(&ca, &["--allow-writes"]));
    assert_answered(&host.call("list_rooms", "{}"));
    drop(relay);
    let options = Options { tls: Some(tls), listen: vec![address.to_string()], ..Options::default() };
    let relay = Relay::start(options);
    assert_answered(&host.call("list_rooms", "{}"));
    assert_answered(&host.call("post_message", r#"{"room":"general","content":"once"}"#));
    assert_eq!((relay.posts().len(), relay.published().len(), relay.connections()), (3, 1, 1));
}

#[test]
fn an_answer_that_lasts_until_the_end_needs_the_farewell_of_tls() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let relay = secure(authority.issue(&["127.0.0.1"]));
    let mut host = Host::with(&relay, trusting(&ca, &[]));
    let until_the_end = |end: Step| {
        Reply::from_answer(move |_, answer| {
            let bytes = answer.framing(Framing::UntilClose).to_bytes("");
            Reply::steps([Step::Write(bytes), end.clone()])
        })
    };
    relay.script(Matcher::tool("list_rooms"), until_the_end(Step::Close));
    assert_answered(&host.call("list_rooms", "{}"));
    let text = failed_read(&relay, &mut host, until_the_end(Step::Abandon));
    assert!(text.starts_with("transport: the answer (HTTP 200) broke off: peer closed"), "{text}");
    assert!(!text.contains("://"), "{text}");
}

#[test]
fn large_requests_and_answers_pass_over_tls_and_http_2() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    for http2 in [true, false] {
        let tls = authority.issue(&["127.0.0.1"]);
        let tls = Some(if http2 { tls.with_http2() } else { tls });
        let relay = Relay::start(Options { tls, body_limit: 16 << 20, ..Options::default() });
        let image = format!(
            r#"{{"content":[{{"type":"image","mimeType":"image/png","data":"{}"}}]}}"#,
            "A".repeat(4 << 20)
        );
        relay.script(Matcher::tool("list_jobs"), Reply::result_text(&image));
        let mut host = Host::with(&relay, trusting(&ca, &[]));
        let arguments = format!(r#"{{"q":"{}"}}"#, "a".repeat(8 << 20));
        let answer = host.call("list_jobs", &arguments);
        assert_eq!(answer["result"]["content"][0]["data"].as_str().map(str::len), Some(4 << 20));
        assert_eq!(relay.calls_of("list_jobs")[0].arguments(), Some(&*arguments));
    }
}

#[test]
fn a_compressed_answer_is_read_over_tls_too() {
    let authority = Authority::new();
    let ca = TempFile::new("ca.pem", authority.pem());
    let relay = secure(authority.issue(&["127.0.0.1"]).with_http2());
    relay.script_always(
        Matcher::any(),
        Reply::map(|_, answer| {
            let body = faults::gzip(&answer.body);
            answer.header("Content-Encoding", "gzip").body(body)
        }),
    );
    assert_answered(&Host::with(&relay, trusting(&ca, &[])).call("list_rooms", "{}"));
}

/// A mount namespace (and where asked a network namespace) in which name resolution is the test's own.
/// Dropping it removes its files.
struct NameService {
    script: TempFile,
    _files: Vec<TempFile>,
}

impl NameService {
    /// The machine's network, with these lines as /etc/hosts.
    fn with_hosts(lines: &str) -> Option<Self> {
        let hosts = TempFile::new("hosts", lines);
        let setup = format!("mount --bind {} /etc/hosts", hosts.path());
        Self::new("--mount", &setup, vec![hosts])
    }

    /// A network of its own with nothing but loopback, in which names are asked of this server.
    fn asking(server: &str, setup: &str) -> Option<Self> {
        let resolv =
            TempFile::new("resolv.conf", &format!("nameserver {server}\noptions timeout:30 attempts:5\n"));
        let setup =
            format!("ip link set lo up && {setup} && mount --bind {} /etc/resolv.conf", resolv.path());
        Self::new("--mount --net", &setup, vec![resolv])
    }

    fn new(namespaces: &str, setup: &str, files: Vec<TempFile>) -> Option<Self> {
        let unshare = format!("unshare {namespaces} sh -c '{setup}'");
        let tried = Command::new("sh").args(["-c", &unshare]).output();
        if !tried.as_ref().is_ok_and(|output| output.status.success()) {
            let why = tried.map_or_else(
                |e| e.to_string(),
                |output| String::from_utf8_lossy(&output.stderr).into_owned(),
            );
            eprintln!("left out: no namespace can be made here ({})", why.trim());
            return None;
        }
        let tinyagent = program("tinyagent");
        let text = format!(
            "exec unshare {namespaces} sh -c '{setup} && exec \"$0\" \"$@\"' {} \"$@\"",
            tinyagent.display()
        );
        let script = TempFile::named("in-namespace");
        write_script(&script.0, &text);
        Some(NameService { script, _files: files })
    }

    fn host(&self, url: &str, args: &[&str]) -> Host {
        Host::at(url, HostOptions { program: Some(self.script.0.clone()), ..HostOptions::args(args) })
    }
}

#[test]
fn a_name_that_cannot_be_resolved_is_a_transport_error() {
    // Nothing listens on port 53 of this loopback, which the kernel says at once.
    let Some(names) = NameService::asking("127.0.0.53", "true") else { return };
    let mut host = names.host("http://relay.test", &["--allow-writes", "--timeout", "20"]);
    for tool in ["list_rooms", "post_message"] {
        let text = error_text(&host.call(tool, "{}")).to_owned();
        assert!(text.starts_with("transport: cannot connect to relay.test:80: "), "{text}");
        assert!(!text.contains("may have taken effect"), "{text}");
    }
    let report = host.call("tiny_diagnose", "{}")["result"]["structuredContent"].take();
    assert_eq!(report["verdict"], "unreachable");
    assert_eq!(host.end().code, Some(0));
}

#[test]
fn a_name_server_that_is_silent_holds_up_neither_ping_nor_the_end() {
    // A veth whose other end is up and silent: what is sent to a neighbour that never answers just waits.
    let setup = "ip link add quiet0 type veth peer name quiet1 && ip addr add 192.0.2.1/24 dev quiet0 \
                 && ip link set quiet0 up && ip link set quiet1 up \
                 && ip neigh add 192.0.2.53 lladdr 02:00:00:00:00:35 dev quiet0";
    let Some(names) = NameService::asking("192.0.2.53", setup) else { return };
    let mut host = names.host("https://relay.test", &["--allow-writes", "--timeout", "2"]);
    let listing = host.take_id();
    host.send(&tinyagent_harness::request(listing, "tools/list", "{}"));
    let calls = [host.begin_call("list_rooms", "{}"), host.begin_call("post_message", "{}")];
    host.assert_alive();
    assert_eq!(error_text(&host.answer(calls[0])), "transport: relay.test did not answer in time");
    assert!(error_text(&host.answer(calls[1])).ends_with("the call was not sent"));
    host.assert_alive();
    host.begin_call("list_rooms", "{}");
    let ended = host.end();
    assert_eq!(ended.code, Some(0));
    assert!(ended.took < Duration::from_secs(2), "{:?}", ended.took);
}

#[test]
fn the_command_reports_a_relay_that_cannot_be_found() {
    let output =
        run(&["diagnose", "--relay", "http://relay.invalid", "--timeout", "1"], &[(KEY_VARIABLE, KEY)]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("tinyagent: unreachable: the relay does not answer"), "{stderr}");
}
