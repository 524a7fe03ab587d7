//! A forward proxy for tests: CONNECT tunnels and plain requests, each head recorded, bytes passed on. What a
//! client lets a proxy see is exactly what this one keeps.

use crate::server::lock;
use crate::tls::Tls;
use rustls::ServerConfig;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use tokio_rustls::TlsAcceptor;

/// The largest head that is read, in bytes.
const HEAD_LIMIT_BYTES: usize = 64 * 1024;
/// How much of a client's tunnelled bytes is kept, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// One connection to the proxy.
#[derive(Clone, Debug, Default)]
pub struct Proxied {
    /// The head of the first request, byte for byte.
    pub head: String,
    /// What the client sent after it, up to 64 KiB.
    pub sent: Vec<u8>,
}

impl Proxied {
    /// The first line, such as `CONNECT relay.example:443 HTTP/1.1`.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// A running proxy on 127.0.0.1. Dropping it frees the port; tunnels that stand end with their peers.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    connections: Mutex<Vec<Proxied>>,
    routes: Mutex<HashMap<String, SocketAddr>>,
    refusal: Mutex<Option<Vec<u8>>>,
    opening: Mutex<Option<Vec<u8>>>,
    listening: Mutex<Vec<SocketAddr>>,
    stopped: Mutex<bool>,
}

impl Proxy {
    /// Starts a proxy on a free port.
    pub fn start() -> Proxy {
        let shared = Arc::new(Shared::default());
        let serving = shared.clone();
        let address = shared.listen(move |stream| serving.serve(stream));
        Proxy { address, shared }
    }

    /// Serves over TLS too, at this URL.
    pub fn secure_url(&self, tls: &Tls) -> String {
        let config = tls.config().expect("a certificate and its key");
        let to = self.address;
        // A failed handshake is the client's to report.
        let address = self.shared.listen(move |stream| drop(out_of_tls(stream, config.clone(), to)));
        format!("https://{address}")
    }

    /// The proxy's URL, for `HTTPS_PROXY`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Leads `host:port` to this address instead of where its name would.
    pub fn route(&self, authority: &str, to: SocketAddr) {
        lock(&self.shared.routes).insert(authority.into(), to);
    }

    /// Answers every further request with these bytes instead of passing it on.
    pub fn refuse_with(&self, answer: impl Into<Vec<u8>>) {
        *lock(&self.shared.refusal) = Some(answer.into());
    }

    /// Opens every further tunnel with these bytes.
    pub fn open_with(&self, answer: impl Into<Vec<u8>>) {
        *lock(&self.shared.opening) = Some(answer.into());
    }

    /// The connections so far, in order of their first request.
    pub fn connections(&self) -> Vec<Proxied> {
        lock(&self.shared.connections).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        *lock(&self.shared.stopped) = true;
        for address in &*lock(&self.shared.listening) {
            let _ = TcpStream::connect(address);
        }
    }
}

impl Shared {
    /// Listens on a free port, with a thread for each client.
    fn listen(self: &Arc<Self>, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        lock(&self.listening).push(address);
        let shared = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if *lock(&shared.stopped) {
                    return;
                }
                let serve = serve.clone();
                std::thread::spawn(move || serve(stream));
            }
        });
        address
    }

    fn serve(&self, mut client: TcpStream) {
        let Ok((head, rest)) = read_head(&mut client) else { return };
        let index = {
            let mut connections = lock(&self.connections);
            connections.push(Proxied { head: head.clone(), sent: rest.clone() });
            connections.len() - 1
        };
        let refusal = lock(&self.refusal).clone();
        if let Some(answer) = refusal {
            let _ = client.write_all(&answer);
            return;
        }
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let tunnels = method == "CONNECT";
        // A plain request names the whole URL; what is passed on names the path alone, as to an origin.
        let plain = target.strip_prefix("http://").unwrap_or(target);
        let (authority, path) = plain.split_at(plain.find('/').unwrap_or(plain.len()));
        let route = lock(&self.routes).get(authority).copied();
        let upstream = route.map_or_else(|| TcpStream::connect(authority), TcpStream::connect);
        let Ok(mut upstream) = upstream else {
            let _ = client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
            return;
        };
        let opened = if tunnels {
            let opening = lock(&self.opening).clone();
            client.write_all(opening.as_deref().unwrap_or(b"HTTP/1.1 200 Connection established\r\n\r\n"))
        } else {
            upstream.write_all(head.replacen(target, path, 1).as_bytes())
        };
        if opened.and_then(|()| upstream.write_all(&rest)).is_ok() {
            self.pass_on(index, client, upstream);
        }
    }

    fn pass_on(&self, index: usize, mut client: TcpStream, mut upstream: TcpStream) {
        let (Ok(mut back_from), Ok(mut back_to)) = (upstream.try_clone(), client.try_clone()) else { return };
        std::thread::spawn(move || {
            let _ = io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Write);
        });
        let mut piece = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = client.read(&mut piece) {
            let sent = &mut lock(&self.connections)[index].sent;
            let room = KEPT_BYTES.saturating_sub(sent.len()).min(n);
            sent.extend(&piece[..room]);
            if upstream.write_all(&piece[..n]).is_err() {
                break;
            }
        }
        let _ = upstream.shutdown(Shutdown::Write);
    }
}

/// Passes on what is inside of TLS.
fn out_of_tls(client: TcpStream, config: Arc<ServerConfig>, to: SocketAddr) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        client.set_nonblocking(true)?;
        let client = tokio::net::TcpStream::from_std(client)?;
        let mut client = TlsAcceptor::from(config).accept(client).await?;
        let mut proxy = tokio::net::TcpStream::connect(to).await?;
        tokio::io::copy_bidirectional(&mut client, &mut proxy).await.map(drop)
    })
}

/// The head up to its empty line, and what came with it.
fn read_head(client: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = bytes.split_off(at + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), rest));
        }
        let mut piece = [0; 4096];
        let n = client.read(&mut piece)?;
        if n == 0 || bytes.len() > HEAD_LIMIT_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(&piece[..n]);
    }
}
