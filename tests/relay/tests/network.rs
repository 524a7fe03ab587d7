//! TLS, HTTP/2 and the proxy, each against real sockets and an independent client.

use bytes::Bytes;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tinyagent_relay::client::Post;
use tinyagent_relay::*;

fn client_config(authority: &Authority, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

/// An HTTP/1.1 request through TLS; the text of the answer, or the error of the handshake.
fn request(
    config: Arc<ClientConfig>,
    stream: TcpStream,
    host: &str,
    post: &Post,
) -> Result<String, std::io::Error> {
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let session = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(session, stream);
    let (authority, target) = post.url.strip_prefix("https://").unwrap().split_once('/').unwrap();
    let mut bytes =
        format!("{} /{target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n", post.method);
    for (name, value) in &post.headers {
        bytes += &format!("{name}: {value}\r\n");
    }
    bytes += &format!("Content-Length: {}\r\n\r\n", post.body.len());
    stream.write_all(&[bytes.as_bytes(), &post.body].concat())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn secure(tls: Tls) -> (Relay, Key) {
    (Relay::start(Options { tls: Some(tls), ..Options::default() }), Key::random())
}

#[test]
fn a_relay_with_a_certificate_serves_https() {
    let authority = Authority::new();
    let (relay, key) = secure(authority.issue(&["localhost", "127.0.0.1"]));
    assert!(relay.url().starts_with("https://127.0.0.1:"));
    let config = client_config(&authority, &[]);
    for (host, url) in [("127.0.0.1", relay.url()), ("localhost", relay.url_for("localhost"))] {
        let stream = TcpStream::connect(relay.address()).unwrap();
        let answer =
            request(config.clone(), stream, host, &Post::call(&url, &key, "list_rooms", "{}")).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    assert_eq!(
        relay.requests()[1].proof.as_ref().unwrap().tag("u"),
        Some(&*format!("{}/mcp", relay.url_for("localhost")))
    );
}

#[test]
fn certificates_that_are_not_good_are_refused_by_clients() {
    let authority = Authority::new();
    let key = Key::random();
    let attempt = |tls: Tls, trusted: &Authority| {
        let (relay, _) = secure(tls);
        let stream = TcpStream::connect(relay.address()).unwrap();
        let post = Post::call(&relay.url(), &key, "list_rooms", "{}");
        let error = request(client_config(trusted, &[]), stream, "127.0.0.1", &post).unwrap_err();
        assert!(relay.requests().is_empty());
        error.to_string()
    };
    assert!(attempt(authority.issue_expired(&["127.0.0.1"]), &authority).contains("expired"));
    assert!(attempt(authority.issue(&["localhost"]), &authority).contains("not valid for name"));
    assert!(attempt(authority.issue(&["127.0.0.1"]), &Authority::new()).contains("UnknownIssuer"));
}

#[test]
fn a_tls_connection_can_be_abandoned_without_a_goodbye() {
    let authority = Authority::new();
    let (relay, key) = secure(authority.issue(&["127.0.0.1"]));
    relay.script(
        Matcher::any(),
        Reply::from_answer(|_, answer| Reply::steps([Step::Write(answer.to_bytes("")), Step::Abandon])),
    );
    let stream = TcpStream::connect(relay.address()).unwrap();
    let post = Post::call(&relay.url(), &key, "list_rooms", "{}");
    let error = request(client_config(&authority, &[]), stream, "127.0.0.1", &post).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn pem_is_read_like_der() {
    let authority = Authority::new();
    let issued = authority.issue(&["127.0.0.1"]);
    let pem = |name: &str, der: &[u8]| {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN {name}-----\n{text}\n-----END {name}-----\n")
    };
    let read =
        Tls::from_pem(&pem("CERTIFICATE", &issued.chain[0]), &pem("PRIVATE KEY", &issued.key)).unwrap();
    assert_eq!((read.chain, read.key), (issued.chain, issued.key));
    assert!(Tls::from_pem("", "").is_err());
}

/// Sends requests over one HTTP/2 connection and returns each one's status, or the reason of its refusal.
fn over_http2(
    relay: &Relay,
    authority: &Authority,
    posts: Vec<Post>,
) -> Vec<Result<(u16, Vec<u8>), h2::Reason>> {
    let config = client_config(authority, &[b"h2"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(relay.address()).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, stream).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut answers = Vec::new();
        for post in posts {
            let mut request = http::Request::builder().method("POST").uri(&post.url);
            for (name, value) in &post.headers {
                request = request.header(name, value);
            }
            let (answer, mut body) = sender.send_request(request.body(()).unwrap(), false).unwrap();
            body.send_data(Bytes::from(post.body), true).unwrap();
            answers.push(match answer.await {
                Err(error) => Err(error.reason().unwrap()),
                Ok(answer) => {
                    let (status, mut body, mut bytes) =
                        (answer.status().as_u16(), answer.into_body(), Vec::new());
                    while let Some(piece) = body.data().await {
                        bytes.extend(piece.unwrap());
                    }
                    Ok((status, bytes))
                }
            });
        }
        answers
    })
}

#[test]
fn http2_is_served_where_it_is_offered() {
    let authority = Authority::new();
    let (relay, key) = secure(authority.issue(&["127.0.0.1"]).with_http2());
    let call = |arguments: &str| Post::call(&relay.url(), &key, "list_rooms", arguments);
    relay.script(Matcher::any().nth(3), Reply::reset());
    relay.script(Matcher::any().nth(3), Reply::close());
    let large = format!("{{\"q\":\"{}\"}}", "a".repeat(2 << 20));
    let posts = vec![call("{\"n\":1.0}"), call("{}").without("Accept"), call("{}"), call("{}"), call("{}")];
    let answers = over_http2(&relay, &authority, posts);
    let statuses: Vec<Result<u16, h2::Reason>> = answers
        .iter()
        .map(|answer| answer.as_ref().map(|(status, _)| *status).map_err(|reason| *reason))
        .collect();
    assert_eq!(
        statuses,
        [Ok(200), Ok(406), Err(h2::Reason::REFUSED_STREAM), Err(h2::Reason::CANCEL), Ok(200)]
    );
    let json: serde_json::Value = serde_json::from_slice(&answers[0].as_ref().unwrap().1).unwrap();
    assert_eq!(json["result"]["isError"], false);
    let requests = relay.requests();
    assert!(
        requests.iter().all(|request| request.http2 && request.connection == 0 && request.proof.is_some())
    );
    assert_eq!((requests[0].arguments(), relay.executed("list_rooms")), (Some("{\"n\":1.0}"), 2));
    assert_eq!(over_http2(&relay, &authority, vec![call(&large)])[0].as_ref().unwrap().0, 413);

    let stream = TcpStream::connect(relay.address()).unwrap();
    let answer =
        request(client_config(&authority, &[b"http/1.1"]), stream, "127.0.0.1", &call("{}")).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[test]
fn the_proxy_tunnels_and_keeps_what_it_saw() {
    let authority = Authority::new();
    let (relay, key) = secure(authority.issue(&["relay.example"]));
    let proxy = Proxy::start();
    proxy.route("relay.example:443", relay.address());
    let mut stream = TcpStream::connect(proxy.url().strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(b"CONNECT relay.example:443 HTTP/1.1\r\nHost: relay.example:443\r\n\r\n").unwrap();
    let mut opened = [0; 39];
    stream.read_exact(&mut opened).unwrap();
    assert_eq!(&opened, b"HTTP/1.1 200 Connection established\r\n\r\n");
    let post = Post::call("https://relay.example", &key, "list_rooms", "{}");
    let answer = request(client_config(&authority, &[]), stream, "relay.example", &post).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let seen = &proxy.connections()[0];
    assert_eq!(seen.line(), "CONNECT relay.example:443 HTTP/1.1");
    // A TLS handshake record, and nothing of the request in the clear.
    assert_eq!(seen.sent[0], 0x16);
    assert!(!String::from_utf8_lossy(&seen.sent).contains("Nostr"));
}

#[test]
fn the_proxy_passes_plain_requests_on_and_can_refuse() {
    let (relay, key) = (Relay::start(Options::default()), Key::random());
    let proxy = Proxy::start();
    let ask = |line: &str| {
        let post = Post::call(&relay.url(), &key, "list_rooms", "{}");
        let mut stream = TcpStream::connect(proxy.url().strip_prefix("http://").unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut bytes = format!("{line}\r\nHost: {}\r\nConnection: close\r\n", relay.address());
        for (name, value) in &post.headers {
            bytes += &format!("{name}: {value}\r\n");
        }
        bytes += &format!("Content-Length: {}\r\n\r\n", post.body.len());
        stream.write_all(&[bytes.as_bytes(), &post.body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let line = format!("POST {}/mcp HTTP/1.1", relay.url());
    assert!(ask(&line).starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!((relay.requests()[0].target.as_str(), proxy.connections()[0].line()), ("/mcp", line.as_str()));
    assert!(ask("CONNECT 127.0.0.1:1 HTTP/1.1").starts_with("HTTP/1.1 502 "));
    proxy.refuse_with("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    assert!(ask(&line).starts_with("HTTP/1.1 407 "));
    assert_eq!((relay.requests().len(), proxy.connections().len()), (1, 3));
}
