//! What the facade does all day and the sandbox has to leave possible.

use std::io;
use std::net::{Ipv4Addr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, raise};
use tinyagent_facade::relay::client::RelayClient;
use tinyagent_facade::relay::tls::Roots;
use tinyagent_protocol::relay_url::RelayUrl;
use tokio::runtime::LocalOptions;

type Outcome = Result<(), String>;

/// Everything by name, with what went wrong.
pub fn all(allowed_port: u16) -> Vec<(&'static str, Outcome)> {
    vec![
        ("connect to the planned port", said(TcpStream::connect((Ipv4Addr::LOCALHOST, allowed_port)))),
        ("resolve a name", said(("localhost", allowed_port).to_socket_addrs())),
        ("read the resolver's configuration", said(std::fs::read("/etc/resolv.conf"))),
        ("ask a name server", ask_name_server()),
        ("a stream socketpair", said(UnixStream::pair())),
        ("start a thread", thread::Builder::new().spawn(|| ()).map(drop).map_err(|error| error.to_string())),
        ("read own limits", getrlimit(Resource::RLIMIT_NOFILE).map(drop).map_err(|errno| errno.to_string())),
        ("a runtime", runtime()),
        ("a request over HTTP", request(allowed_port)),
    ]
}

/// How many root certificates of the system can be loaded.
pub fn root_certificates() -> usize {
    rustls_native_certs::load_native_certs().certs.len()
}

/// The datagram may go nowhere here; the kernel must let it go.
fn ask_name_server() -> Outcome {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| error.to_string())?;
    said(socket.connect((Ipv4Addr::LOCALHOST, 53)).and_then(|()| socket.send(b"?")))
}

/// Timers, blocking work on other threads, and signals: the driver of the last is a socketpair.
fn runtime() -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let kind = tokio::signal::unix::SignalKind::user_defined1();
        let mut signal = tokio::signal::unix::signal(kind).map_err(|error| error.to_string())?;
        tokio::task::spawn_blocking(|| raise(Signal::SIGUSR1))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|errno| errno.to_string())?;
        let got = tokio::time::timeout(Duration::from_secs(20), signal.recv()).await;
        got.map(drop).map_err(|_| "the signal did not arrive".to_owned())
    })
}

/// By the facade's own HTTP client, which resolves the name on another thread.
fn request(port: u16) -> Outcome {
    let url = format!("http://localhost:{port}");
    let relay = RelayUrl::parse(&url).map_err(|error| error.to_string())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let client = RelayClient::new(&relay, None, Roots::Unneeded);
        let answer = client.get(&format!("{url}/"), "*/*", Duration::from_secs(20)).await;
        let answer = answer.map_err(|none| none.detail)?;
        if answer.status.as_u16() == 204 { Ok(()) } else { Err(answer.status.to_string()) }
    })
}

fn said<T>(result: io::Result<T>) -> Outcome {
    result.map(drop).map_err(|error| error.to_string())
}
