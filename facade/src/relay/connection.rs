//! Connections to the relay: made when a request needs one, kept for the next request, never shared by
//! two requests at a time, in HTTP/2 neither: one that has gone silent ends with the request that met it.
//!
//! Nothing here knows what a request asks; it is sent once, and what becomes of it is the caller's to say.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tinyagent_protocol::relay_url::RelayUrl;
use tokio::sync::{Notify, watch};
use tokio::task::{spawn_local, yield_now};
use tokio::time::{Instant, timeout};

use super::body::RequestBody;
use super::proxy::RelayProxy;
use super::stream::{AnyStream, Noting, server_name, tcp, tunnel};
use super::tls::{Connectors, Roots};
use crate::failure::one_line;

/// An idle connection is kept for this long; relays and the proxies before them drop it sooner or later.
const KEEP_IDLE: Duration = Duration::from_secs(90);

/// How many idle connections are kept.
const MAX_IDLE: usize = 4;

/// How long the first connection is waited for before a request needs it.
const WARM_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// What TLS needs could not be set up.
    #[error("{0}")]
    Tls(String),
    /// The URL is not one for HTTP.
    #[error("the relay's URL is not one that HTTP can be spoken to")]
    Url,
    /// Nobody was reached, or not whom the certificate should name.
    #[error("cannot connect {target}: {cause}")]
    Unreachable {
        /// To whom, or through whom.
        target: String,
        /// One short line.
        cause: String,
    },
}

/// Where a request goes, in the two forms that the revisions of HTTP name it by.
#[derive(Clone, Debug)]
pub struct Target {
    path: Uri,
    whole: Uri,
    host: HeaderValue,
}

impl Target {
    /// The target of a URL.
    ///
    /// # Errors
    /// [`ConnectError::Url`].
    pub fn new(url: &str) -> Result<Self, ConnectError> {
        let whole: Uri = url.parse().map_err(|_| ConnectError::Url)?;
        // A proof of one spelling would not fit a request of another.
        if format!("{whole}") != url {
            return Err(ConnectError::Url);
        }
        let path = whole.path_and_query().cloned().map(Uri::from).ok_or(ConnectError::Url)?;
        let host = whole.authority().and_then(|host| HeaderValue::from_str(host.as_str()).ok());
        Ok(Self { path, whole, host: host.ok_or(ConnectError::Url)? })
    }
}

/// The connections to one relay.
pub struct Connections {
    relay: RelayUrl,
    proxy: Option<RelayProxy>,
    tls: watch::Receiver<Option<Result<Connectors, String>>>,
    idle: RefCell<Vec<Idle>>,
    warming: Cell<bool>,
    warmed: Notify,
}

/// A connection that waits for its next request.
struct Idle {
    sender: Sender,
    since: Instant,
    has_served: bool,
}

/// A connection that is one request's own.
pub struct Connection {
    sender: Sender,
    /// Whether it served a request before.
    pub reused: bool,
    /// Whether it waited for this request, so that it may have ended meanwhile.
    pub was_idle: bool,
}

enum Sender {
    /// With whether anything has come from the relay since the last request was handed over.
    Http1(http1::SendRequest<RequestBody>, Rc<Cell<bool>>),
    Http2(http2::SendRequest<RequestBody>),
}

impl Connections {
    /// Prepares the connections and makes none. The CA certificates of an https relay are read on a thread,
    /// and the first connection waits for it.
    pub fn new(relay: &RelayUrl, proxy: Option<RelayProxy>, roots: Roots) -> Self {
        let (ready, tls) = watch::channel(None);
        if relay.tls() {
            std::thread::spawn(move || {
                ready.send_replace(Some(roots.connectors().map_err(|error| error.to_string())))
            });
        }
        let (idle, warming, warmed) = Default::default();
        Self { relay: relay.clone(), proxy, tls, idle, warming, warmed }
    }

    /// An idle connection that the relay has not closed as far as is known, or a new one.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn get(&self) -> Result<Connection, ConnectError> {
        loop {
            if let Some(kept) = self.kept().await {
                return Ok(kept);
            }
            if !self.warming.get() {
                break;
            }
            self.warmed.notified().await;
        }
        // Boxed, since a future of its size would be moved about with every request that needs none of it.
        Ok(Connection { sender: Box::pin(self.connect()).await?, reused: false, was_idle: false })
    }

    async fn kept(&self) -> Option<Connection> {
        loop {
            let Idle { mut sender, since, has_served } = self.idle.borrow_mut().pop()?;
            if since.elapsed() < KEEP_IDLE && sender.is_ready(has_served).await {
                return Some(Connection { sender, reused: has_served, was_idle: true });
            }
        }
    }

    /// Makes the first connection before a request needs it. A request that comes meanwhile waits for it;
    /// where this fails, the request makes its own, and tells what goes wrong.
    pub async fn warm(&self) {
        if self.warming.get() || !self.idle.borrow().is_empty() {
            return;
        }
        let _warming = Warming::begin(self);
        if let Ok(Ok(sender)) = timeout(WARM_LIMIT, Box::pin(self.connect())).await {
            self.idle.borrow_mut().push(Idle { sender, since: Instant::now(), has_served: false });
        }
    }

    /// Takes a connection back whose answer was read. Where some of it was left unread, the connection is
    /// used again only if the rest has come by then.
    pub fn keep(&self, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        idle.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < KEEP_IDLE);
        if idle.len() < MAX_IDLE && !connection.sender.is_closed() {
            idle.push(Idle { sender: connection.sender, since: Instant::now(), has_served: true });
        }
    }

    async fn connect(&self) -> Result<Sender, ConnectError> {
        let connectors = match self.relay.tls() {
            true => Some(self.connectors().await?),
            false => None,
        };
        let made = self.connect_with(connectors).await;
        made.map_err(|error| {
            let target = match &self.proxy {
                Some(proxy) => format!("through the proxy {}", proxy.shown()),
                None => format!("to {}:{}", self.relay.host(), self.relay.port()),
            };
            ConnectError::Unreachable { target, cause: cause(&*error) }
        })
    }

    async fn connectors(&self) -> Result<Connectors, ConnectError> {
        let mut tls = self.tls.clone();
        let made = tls.wait_for(Option::is_some).await;
        match made.as_deref() {
            Ok(Some(Ok(connectors))) => Ok(connectors.clone()),
            Ok(Some(Err(error))) => Err(ConnectError::Tls(error.clone())),
            _ => Err(ConnectError::Tls("TLS could not be set up; the log says more".into())),
        }
    }

    async fn connect_with(&self, tls: Option<Connectors>) -> Result<Sender, Box<dyn Error>> {
        let (host, port) = (self.relay.host(), self.relay.port());
        let stream = match (&self.proxy, &tls) {
            (Some(proxy), Some(tls)) => tunnel(proxy, tls, host, port).await?,
            _ => tcp(host, port).await?,
        };
        let Some(tls) = tls else { return over_http1(stream).await };
        let stream = tls.relay.connect(server_name(host)?, stream).await?;
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            let handshake = Box::pin(http2::handshake(LocalTasks, TokioIo::new(stream)));
            let (sender, connection) = handshake.await?;
            spawn_local(connection);
            return Ok(Sender::Http2(sender));
        }
        over_http1(Box::new(stream)).await
    }
}

/// The time in which requests wait for [`Connections::warm`], which ends however that does.
struct Warming<'a>(&'a Connections);

impl<'a> Warming<'a> {
    fn begin(connections: &'a Connections) -> Self {
        connections.warming.set(true);
        Self(connections)
    }
}

impl Drop for Warming<'_> {
    fn drop(&mut self) {
        self.0.warming.set(false);
        self.0.warmed.notify_waiters();
    }
}

impl Connection {
    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// The HTTP library's, with the request itself where none of it was sent.
    pub async fn send(
        &mut self,
        mut request: Request<RequestBody>,
        target: &Target,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        match &mut self.sender {
            Sender::Http1(sender, heard) => {
                *request.uri_mut() = target.path.clone();
                request.headers_mut().insert(HOST, target.host.clone());
                heard.set(false);
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => {
                *request.uri_mut() = target.whole.clone();
                request.headers_mut().remove(HOST);
                sender.try_send_request(request).await
            }
        }
    }

    /// Whether this failure of [`Self::send`] means that the relay had closed the connection while it was
    /// idle: no byte of an answer has come.
    pub fn was_stale(&self, error: &hyper::Error) -> bool {
        let heard = matches!(&self.sender, Sender::Http1(_, heard) if heard.get());
        self.reused && is_closed(error) && !heard
    }
}

impl Sender {
    /// Whether the next request may be sent. A connection whose last answer has just been read needs one
    /// more turn of its task to know; one without a request before it is waited for, since it has nothing to
    /// finish.
    async fn is_ready(&mut self, has_served: bool) -> bool {
        if !has_served {
            return poll_fn(|cx| self.poll_ready(cx)).await.is_ok();
        }
        for _ in 0..2 {
            match poll_fn(|cx| Poll::Ready(self.poll_ready(cx))).await {
                Poll::Ready(ready) => return ready.is_ok(),
                Poll::Pending => yield_now().await,
            }
        }
        false
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        match self {
            Self::Http1(sender, _) => sender.poll_ready(cx),
            Self::Http2(sender) => sender.poll_ready(cx),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender, _) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

async fn over_http1(stream: AnyStream) -> Result<Sender, Box<dyn Error>> {
    let heard = Rc::default();
    let stream = Noting::new(stream, Rc::clone(&heard));
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    spawn_local(connection);
    Ok(Sender::Http1(sender, heard))
}

/// Runs what an HTTP/2 connection has to do beside its requests on this thread.
#[derive(Clone, Copy)]
struct LocalTasks;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalTasks {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

/// Whether an error means that the other end closed the connection, be it without TLS's farewell.
pub fn is_closed(error: &hyper::Error) -> bool {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
            return matches!(error.kind(), ConnectionReset | BrokenPipe | ConnectionAborted | UnexpectedEof);
        }
        source = error.source();
    }
    error.is_incomplete_message() || error.is_closed() || error.is_canceled()
}

/// The innermost cause of an error, as one short line without the operating system's number or the address of
/// a manual.
pub fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    let end = [" (os error", ": https://"].iter().filter_map(|extra| text.find(extra)).min();
    one_line(&text[..end.unwrap_or(text.len())])
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::io::duplex;

    use super::*;

    /// Driven by hand, so that the connection learns of its end between the look at it and the request.
    #[test]
    fn a_request_that_an_ended_connection_never_took_comes_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let (ours, theirs) = duplex(1024);
            let (sender, driver) = http1::handshake(TokioIo::new(ours)).await.expect("a connection");
            let mut driver = pin!(driver);
            let mut connection =
                Connection { sender: Sender::Http1(sender, Rc::default()), reused: true, was_idle: true };
            assert!(poll_fn(|cx| Poll::Ready(driver.as_mut().poll(cx).is_pending())).await);
            assert!(connection.sender.is_ready(true).await);
            drop(theirs);
            let target = Target::new("http://relay.test/mcp").expect("a URL");
            let (sent, _) =
                tokio::join!(connection.send(Request::new(RequestBody::empty()), &target), driver);
            let mut failed = sent.expect_err("nobody answers");
            assert!(failed.take_message().is_some(), "{failed:?}");
        });
    }
}
