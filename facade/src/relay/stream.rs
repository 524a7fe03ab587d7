//! What a connection runs over: TCP, a tunnel through a proxy, or TLS in either, as one type.
//!
//! It says nothing to the relay and looks at no byte of it; it only notes that some have come.

use std::cell::Cell;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::spawn_local;
use tower_service::Service;

use super::body::RequestBody;
use super::proxy::RelayProxy;
use super::tls::Connectors;

/// A silent connection is asked for a sign of life this often, and given up after so many asked in vain, so
/// that a relay that vanished is noticed before the next request.
const PROBE_EVERY: Duration = Duration::from_secs(15);
const MAX_PROBES: u32 = 3;

/// A connection whose other end acknowledges nothing for this long is given up.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(30);

/// What a connection runs over.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Any of them.
pub type AnyStream = Box<dyn Stream>;

/// A stream that notes when something has come from its other end.
pub struct Noting {
    stream: AnyStream,
    heard: Rc<Cell<bool>>,
}

impl Noting {
    /// Notes in `heard`, which others may set back.
    pub fn new(stream: AnyStream, heard: Rc<Cell<bool>>) -> Self {
        Self { stream, heard }
    }
}

impl AsyncRead for Noting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.heard.set(true);
        }
        read
    }
}

impl AsyncWrite for Noting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Connects to the first of the name's addresses that answers (RFC 8305).
pub async fn tcp(host: &str, port: u16) -> Result<AnyStream, Box<dyn Error>> {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(PROBE_EVERY));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(MAX_PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT));
    let address =
        Uri::builder().scheme("http").authority(format!("{host}:{port}")).path_and_query("/").build()?;
    Ok(Box::new(connector.call(address).await?.into_inner()))
}

/// A stream to the relay through the proxy (RFC 9110, 9.3.6).
pub async fn tunnel(
    proxy: &RelayProxy,
    tls: &Connectors,
    host: &str,
    port: u16,
) -> Result<AnyStream, Box<dyn Error>> {
    let mut stream = tcp(proxy.host(), proxy.port()).await?;
    if proxy.tls() {
        stream = Box::new(tls.proxy.connect(server_name(proxy.host())?, stream).await?);
    }
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    spawn_local(connection.with_upgrades());
    let authority = format!("{host}:{port}");
    let mut request = Request::new(RequestBody::empty());
    *request.method_mut() = Method::CONNECT;
    request.headers_mut().insert(HOST, HeaderValue::from_str(&authority)?);
    if let Some(authorization) = proxy.authorization() {
        request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    *request.uri_mut() = Uri::builder().authority(authority).build()?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("the proxy answered {}", response.status()).into());
    }
    Ok(Box::new(TokioIo::new(hyper::upgrade::on(response).await?)))
}

/// Whom the certificate has to name.
pub fn server_name(host: &str) -> Result<ServerName<'static>, Box<dyn Error>> {
    Ok(ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?)
}
