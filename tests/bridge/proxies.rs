//! Contract 4: a proxy that the environment names is used for an https relay elsewhere and for nothing
//! else, and it sees no more than the relay's name.

use tinyagent_harness::{Host, HostOptions, KEY, KEY_VARIABLE, run};
use tinyagent_relay::{Authority, Options, Proxy, Relay};

use crate::commands::failure;
use crate::network::{TempFile, secure, trusting};
use crate::outcome::{assert_answered, error_text};

/// An https relay that only a proxy can find, under the name relay.test and the default port.
struct BehindProxy {
    relay: Relay,
    proxy: Proxy,
    ca: TempFile,
}

impl BehindProxy {
    fn start() -> Self {
        let authority = Authority::new();
        let relay = secure(authority.issue(&["relay.test"]));
        let proxy = Proxy::start();
        proxy.route("relay.test:443", relay.address());
        BehindProxy { relay, proxy, ca: TempFile::new("ca.pem", authority.pem()) }
    }

    fn host(&self, variable: &str, value: &str) -> Host {
        Host::at("https://relay.test", trusting(&self.ca, &[]).env(variable, value))
    }
}

#[test]
fn case_107_an_https_relay_is_reached_through_the_proxy_which_sees_nothing_but_the_name() {
    let behind = BehindProxy::start();
    for variable in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        let before = behind.proxy.connections().len();
        let mut host = behind.host(variable, &behind.proxy.url());
        assert_answered(&host.call("list_rooms", "{}"));
        assert!(host.text("tiny_diagnose", "{}").starts_with("ok: "));
        let connections = behind.proxy.connections();
        assert!(connections.len() > before, "{variable}");
        for connection in &connections {
            assert_eq!(connection.line(), "CONNECT relay.test:443 HTTP/1.1");
            assert!(!connection.head.to_lowercase().contains("authorization"), "{}", connection.head);
            assert!(!connection.head.contains("Nostr"), "{}", connection.head);
            let sent = String::from_utf8_lossy(&connection.sent).into_owned();
            assert!(!sent.contains("Nostr") && !sent.contains("tools/call"), "in the clear");
        }
    }
    for post in behind.relay.posts() {
        assert_eq!(post.header("host"), Some("relay.test"));
        assert_eq!(post.header("proxy-authorization"), None);
    }
    let proof = behind.relay.posts()[0].proof.clone().expect("a proof");
    assert_eq!(proof.tag("u"), Some("https://relay.test/mcp"));
}

#[test]
fn case_117_the_default_https_port_stands_neither_in_the_url_nor_in_the_host_header() {
    let behind = BehindProxy::start();
    for spelling in ["https://relay.test:443", "HTTPS://Relay.TEST:0443/", "wss://relay.test"] {
        behind.relay.clear_requests();
        let options = trusting(&behind.ca, &[]).env("HTTPS_PROXY", behind.proxy.url());
        assert_answered(&Host::at(spelling, options).call("list_rooms", "{}"));
        let post = &behind.relay.posts()[0];
        assert_eq!(post.header("host"), Some("relay.test"), "{spelling}");
        assert_eq!(post.proof.as_ref().and_then(|p| p.tag("u")), Some("https://relay.test/mcp"));
    }
}

#[test]
fn case_107_the_proxy_is_given_the_user_name_and_password_of_its_url_and_nothing_else() {
    let behind = BehindProxy::start();
    let url = behind.proxy.url().replace("http://", "http://user:p%40ss@");
    assert_answered(&behind.host("HTTPS_PROXY", &url).call("list_rooms", "{}"));
    let head = behind.proxy.connections()[0].head.to_lowercase();
    // The base64 of "user:p@ss", in lower case.
    assert!(head.contains("proxy-authorization: basic dxnlcjpwqhnz"), "{head}");
    assert!(!head.contains("\nauthorization"), "{head}");
}

#[test]
fn case_107_a_loopback_relay_and_a_plain_http_relay_are_never_asked_through_a_proxy() {
    let authority = Authority::new();
    let secure = secure(authority.issue(&["127.0.0.1", "localhost"]));
    let plain = Relay::start(Options::default());
    let ca = TempFile::new("ca.pem", authority.pem());
    let proxy = Proxy::start();
    for url in [secure.url(), secure.url_for("localhost"), plain.url(), plain.url_for("localhost")] {
        let options = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
            .iter()
            .fold(trusting(&ca, &[]), |options, variable| options.env(variable, proxy.url()));
        assert_answered(&Host::at(&url, options).call("list_rooms", "{}"));
    }
    assert!(proxy.connections().is_empty());
}

#[test]
fn case_107_no_proxy_keeps_the_relay_it_names_away_from_the_proxy() {
    let behind = BehindProxy::start();
    for (no_proxy, used) in [
        ("relay.test", false),
        (".test", false),
        ("*", false),
        ("other.test,127.0.0.1", true),
        ("lay.test", true),
    ] {
        let before = behind.proxy.connections().len();
        let options = trusting(&behind.ca, &["--timeout", "1"]).env("HTTPS_PROXY", behind.proxy.url());
        let mut host = Host::at("https://relay.test", options.env("NO_PROXY", no_proxy));
        let answer = host.call("list_rooms", "{}");
        assert_eq!(behind.proxy.connections().len() > before, used, "{no_proxy}: {answer}");
    }
}

#[test]
fn a_proxy_over_tls_is_used_where_its_certificate_is_trusted_and_told_nothing_where_it_is_not() {
    let authority = Authority::new();
    let relay = secure(authority.issue(&["relay.test"]).with_http2());
    let proxy = Proxy::start();
    proxy.route("relay.test:443", relay.address());
    let ca = TempFile::new("ca.pem", authority.pem());
    let call = |proxy_url: &str| {
        let url = proxy_url.replace("https://", "https://user:secret@");
        let options = trusting(&ca, &[]).env("HTTPS_PROXY", url);
        Host::at("https://relay.test", options).call("list_rooms", "{}")
    };
    assert_answered(&call(&proxy.secure_url(&authority.issue(&["127.0.0.1"]))));
    assert_eq!(proxy.connections().len(), 1);
    assert_eq!(proxy.connections()[0].line(), "CONNECT relay.test:443 HTTP/1.1");
    assert!(relay.posts()[0].http2);
    for tls in [authority.issue(&["proxy.test"]), Authority::new().issue(&["127.0.0.1"])] {
        let text = error_text(&call(&proxy.secure_url(&tls))).to_owned();
        assert!(text.starts_with("transport: cannot connect through the proxy 127.0.0.1:"), "{text}");
        assert!(text.contains("certificate") && !text.contains("secret"), "{text}");
    }
    assert_eq!(proxy.connections().len(), 1);
}

#[test]
fn a_tunnel_is_open_after_200_whatever_the_headers_say_of_a_body() {
    let behind = BehindProxy::start();
    for opening in [
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        behind.proxy.open_with(opening);
        assert_answered(&behind.host("HTTPS_PROXY", &behind.proxy.url()).call("list_rooms", "{}"));
    }
}

#[test]
fn case_107_a_proxy_that_is_down_or_refuses_is_named_without_its_password() {
    let behind = BehindProxy::start();
    let refused = |host: &mut Host, place: &str| {
        let text = error_text(&host.call("list_rooms", "{}")).to_owned();
        assert!(
            text.starts_with(&format!("transport: cannot connect through the proxy {place}: ")),
            "{text}"
        );
        assert!(!text.contains("secret"), "{text}");
        host.assert_alive();
    };
    let place = behind.proxy.url().replace("http://", "");
    behind.proxy.refuse_with("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    refused(&mut behind.host("HTTPS_PROXY", &format!("http://user:secret@{place}")), &place);
    behind.proxy.refuse_with("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    refused(&mut behind.host("HTTPS_PROXY", &format!("http://{place}")), &place);
    behind.proxy.refuse_with("nonsense\r\n\r\n");
    refused(&mut behind.host("HTTPS_PROXY", &format!("http://{place}")), &place);
    let BehindProxy { relay, proxy, ca } = behind;
    drop(proxy);
    let options = trusting(&ca, &[]).env("HTTPS_PROXY", format!("http://user:secret@{place}"));
    refused(&mut Host::at("https://relay.test", options), &place);
    assert!(relay.requests().is_empty());
}

#[test]
fn a_variable_that_names_no_proxy_ends_the_start_and_is_named_without_its_value() {
    let relay = ["--relay", "https://relay.test"];
    for (variable, value, said) in [
        ("HTTPS_PROXY", "secret@@:x", "HTTPS_PROXY is not the address of a proxy; "),
        ("https_proxy", "http://user:secret@", "https_proxy is not the address of a proxy; "),
        ("HTTPS_PROXY", "http://proxy.test:secret", "HTTPS_PROXY is not the address of a proxy; "),
        ("ALL_PROXY", "ftp://secret.test:21", "ALL_PROXY is not the address of a proxy; "),
        ("all_proxy", "socks5://secret.test:1080", "all_proxy names a socks5 proxy; "),
    ] {
        for command in ["mcp", "diagnose"] {
            let output = run(&[&[command], &relay[..]].concat(), &[(KEY_VARIABLE, KEY), (variable, value)]);
            let line = failure(&output);
            assert!(line.starts_with(said) && line.ends_with("or unset it"), "{line}");
            assert!(!line.contains("secret"), "{line}");
        }
    }
}

#[test]
fn a_variable_that_names_no_proxy_is_of_no_account_where_no_proxy_is_used() {
    for (url, more) in [
        ("http://127.0.0.1:9", ("NO_PROXY", "")),
        ("https://127.0.0.1:9", ("NO_PROXY", "")),
        ("http://relay.test", ("NO_PROXY", "")),
        ("https://relay.test", ("NO_PROXY", "relay.test")),
        ("https://relay.test", ("HTTPS_PROXY", "http://127.0.0.1:9")),
    ] {
        let options = HostOptions::default().env("ALL_PROXY", ":::").env(more.0, more.1);
        Host::at(url, options).assert_alive();
    }
}
