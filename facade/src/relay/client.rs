//! One HTTP exchange with the relay: bounded in time and size, never repeated here.

use std::collections::VecDeque;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use reqwest::{Client, Method, Response, StatusCode, Url};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use tinyagent_protocol::body::{Body, Endpoint, RELAY_PROTOCOL_VERSION};
use tinyagent_protocol::relay_url::RelayUrl;

use super::network::{self, RelayProxy, Roots, noting_reuse};
use super::sse::Events;
use crate::failure::{Failure, one_line};

/// The largest answer, decoded (contract 4).
pub const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The largest body of a refusal that is read for its message, in bytes.
const MAX_REFUSAL_BYTES: usize = 1 << 20;

/// How long the body of a refusal is waited for.
const REFUSAL_LIMIT: Duration = Duration::from_secs(2);

/// Bodies up to this size are sent as one piece.
const COPY_BYTES: usize = 16 << 10;

/// A request to the relay, ready to be sent once.
pub struct Post {
    /// Where to.
    pub endpoint: Endpoint,
    /// The JSON-RPC method, for its header; none for NIP-86.
    pub method: Option<&'static str>,
    /// The tool's name, for its header.
    pub tool: Option<&'static str>,
    /// Headers that mirror arguments.
    pub parameters: Vec<(String, String)>,
    /// The proof.
    pub authorization: String,
    /// The body.
    pub body: RequestBody,
}

/// An HTTP answer, whole.
#[derive(Debug)]
pub struct HttpAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The decoded body; of an event stream, the one response in it. Empty where a refusal's could not be
    /// read.
    pub body: Bytes,
}

/// Why there is no HTTP answer.
#[derive(Clone, Debug)]
pub struct NoAnswer {
    /// One short line.
    pub detail: String,
    /// Whether any byte of the request may have reached the relay.
    pub sent: bool,
    /// Whether the relay had closed a reused connection, so that this request was most likely never read.
    pub stale: bool,
}

impl NoAnswer {
    fn unsent(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), sent: false, stale: false }
    }

    /// The failure that a host sees.
    pub fn into_failure(self) -> Failure {
        if self.sent { Failure::uncertain(self.detail) } else { Failure::not_sent(self.detail) }
    }
}

/// The connection to one relay.
pub struct RelayClient {
    relay: RelayUrl,
    proxy: Option<RelayProxy>,
    client: watch::Receiver<Option<Result<Client, String>>>,
    mcp: Result<Url, NoAnswer>,
    manage: Result<Url, NoAnswer>,
}

impl RelayClient {
    /// Prepares the client. For an https relay the CA certificates are read on a thread, and the first
    /// request waits for it.
    pub fn new(relay: &RelayUrl, proxy: Option<RelayProxy>, roots: Roots) -> Self {
        let (ready, client) = watch::channel(None);
        let make = {
            let (relay, proxy) = (relay.clone(), proxy.clone());
            move || network::client(&relay, proxy.as_ref(), roots).map_err(|error| error.to_string())
        };
        if relay.tls() {
            std::thread::spawn(move || ready.send_replace(Some(make())));
        } else {
            ready.send_replace(Some(make()));
        }
        let endpoint = |endpoint: Endpoint| parsed(&endpoint.url(relay));
        let (mcp, manage) = (endpoint(Endpoint::Mcp), endpoint(Endpoint::Manage));
        Self { relay: relay.clone(), proxy, client, mcp, manage }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// [`NoAnswer`]; the request is never sent twice here.
    pub async fn post(&self, post: Post, deadline: Instant) -> Result<HttpAnswer, NoAnswer> {
        let url = match post.endpoint {
            Endpoint::Mcp => &self.mcp,
            Endpoint::Manage => &self.manage,
        };
        let url = url.clone()?;
        let headers = headers(&post)?;
        let begun = post.body.begun.clone();
        if Instant::now() >= deadline {
            return Err(NoAnswer::unsent(self.no_answer_in_time()));
        }
        let exchange = async {
            let request = self.client().await?.request(Method::POST, url).headers(headers);
            let request = request.body(reqwest::Body::wrap(post.body));
            let (sent, reused) = noting_reuse(request.send()).await;
            let response = sent.map_err(|error| self.explain(&error, reused, &begun))?;
            let (status, headers) = (response.status(), response.headers().clone());
            let body = if status == StatusCode::OK {
                let whole = read_body(response, MAX_ANSWER_BYTES).await;
                whole.map_err(|detail| NoAnswer { detail, sent: true, stale: false })?
            } else {
                read_if_possible(response).await
            };
            Ok(HttpAnswer { status, headers, body })
        };
        let answered = timeout_at(deadline, exchange).await;
        answered.unwrap_or_else(|_| {
            let sent = begun.load(Ordering::Relaxed);
            Err(NoAnswer { detail: self.no_answer_in_time(), sent, stale: false })
        })
    }

    /// Fetches a public document, of which at most the status matters.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn get(
        &self,
        url: &str,
        accept: &'static str,
        limit: Duration,
    ) -> Result<HttpAnswer, NoAnswer> {
        let exchange = async {
            let request = self.client().await?.get(parsed(url)?).header(ACCEPT, accept);
            let nothing = AtomicBool::new(false);
            let (sent, reused) = noting_reuse(request.send()).await;
            let response = sent.map_err(|error| self.explain(&error, reused, &nothing))?;
            let (status, headers) = (response.status(), response.headers().clone());
            Ok(HttpAnswer { status, headers, body: read_if_possible(response).await })
        };
        match timeout_at(Instant::now() + limit, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer::unsent(format!("no answer within {} s", limit.as_secs()))),
        }
    }

    fn no_answer_in_time(&self) -> String {
        format!("{} did not answer in time", self.relay.host())
    }

    async fn client(&self) -> Result<Client, NoAnswer> {
        let mut client = self.client.clone();
        let made = client.wait_for(Option::is_some).await;
        match made.as_deref() {
            Ok(Some(Ok(client))) => Ok(client.clone()),
            Ok(Some(Err(error))) => Err(NoAnswer::unsent(error)),
            _ => Err(NoAnswer::unsent("the HTTP client could not be set up")),
        }
    }

    /// What a failed send means.
    fn explain(&self, error: &reqwest::Error, reused: bool, begun: &AtomicBool) -> NoAnswer {
        let cause = cause(error);
        if error.is_connect() {
            let target = match &self.proxy {
                Some(proxy) => format!("through the proxy {}", proxy.shown()),
                None => format!("to {}:{}", self.relay.host(), self.relay.port()),
            };
            return NoAnswer::unsent(format!("cannot connect {target}: {cause}"));
        }
        if error.is_builder() {
            return NoAnswer::unsent(cause);
        }
        let closed = source_of::<hyper::Error>(error)
            .is_some_and(|e| e.is_incomplete_message() || e.is_closed())
            || source_of::<io::Error>(error).is_some_and(|e| {
                matches!(
                    e.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::ConnectionAborted
                )
            });
        let detail = if closed {
            "the relay closed the connection without an answer".into()
        } else {
            format!("no valid HTTP answer: {cause}")
        };
        NoAnswer { detail, sent: begun.load(Ordering::Relaxed), stale: reused && closed }
    }
}

/// Reads a body that is an answer: whole, decoded, at most `limit` bytes; of an event stream, the response.
async fn read_body(mut response: Response, limit: usize) -> Result<Bytes, String> {
    let status = response.status();
    if let Some(encoding) = response.headers().get(CONTENT_ENCODING).filter(|value| *value != "identity") {
        let encoding = one_line(&String::from_utf8_lossy(encoding.as_bytes()));
        return Err(format!("HTTP {status} with the unsupported content-encoding {encoding}"));
    }
    let mut events = is_event_stream(response.headers()).then(Events::default);
    let mut body = BytesMut::new();
    let mut only = Bytes::new();
    loop {
        let chunk = match response.chunk().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            Err(error) => {
                let status = status.as_u16();
                return Err(format!("the answer (HTTP {status}) broke off: {}", cause(&error)));
            }
        };
        let held = only.len() + body.len() + events.as_ref().map_or(0, Events::held);
        if held + chunk.len() > limit {
            return Err(format!("the answer exceeds {} MiB", limit >> 20));
        }
        if let Some(events) = &mut events {
            if let Some(found) = events.push(&chunk) {
                return Ok(found.into());
            }
        } else if held == 0 {
            only = chunk;
        } else {
            if body.is_empty() {
                let expected = response.content_length().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                body.reserve((only.len() + chunk.len()).max(expected.min(limit)));
                body.extend_from_slice(&std::mem::take(&mut only));
            }
            body.extend_from_slice(&chunk);
        }
    }
    if events.is_some() {
        return Err("the event stream ended without the answer".into());
    }
    Ok(if body.is_empty() { only } else { body.freeze() })
}

/// Reads a body that only explains a status; the status holds whatever the body is like.
async fn read_if_possible(response: Response) -> Bytes {
    let read = timeout(REFUSAL_LIMIT, read_body(response, MAX_REFUSAL_BYTES)).await;
    read.ok().and_then(Result::ok).unwrap_or_default()
}

fn headers(post: &Post) -> Result<HeaderMap, NoAnswer> {
    let mut headers = HeaderMap::with_capacity(8 + post.parameters.len());
    let mut authorization = HeaderValue::try_from(&post.authorization)
        .map_err(|_| NoAnswer::unsent("the signer's proof is not a header value"))?;
    authorization.set_sensitive(true);
    headers.insert(AUTHORIZATION, authorization);
    if post.endpoint == Endpoint::Manage {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/nostr+json+rpc"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        return Ok(headers);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert("mcp-protocol-version", HeaderValue::from_static(RELAY_PROTOCOL_VERSION));
    if let Some(method) = post.method {
        headers.insert("mcp-method", HeaderValue::from_static(method));
    }
    if let Some(tool) = post.tool {
        headers.insert("mcp-name", HeaderValue::from_static(tool));
    }
    for (name, value) in &post.parameters {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            continue;
        };
        headers.append(name, value);
    }
    Ok(headers)
}

fn parsed(url: &str) -> Result<Url, NoAnswer> {
    match Url::parse(url) {
        Ok(parsed) if parsed.as_str() == url => Ok(parsed),
        // A proof of one spelling would not fit a request of another.
        _ => Err(NoAnswer::unsent(
            "the relay's URL has a spelling that HTTP clients rewrite; use its plain form",
        )),
    }
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The innermost cause of an error, as one short line without the operating system's number.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let text = innermost.to_string();
    one_line(text.split(" (os error").next().unwrap_or_default())
}

fn source_of<E: std::error::Error + 'static>(error: &reqwest::Error) -> Option<&E> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}

/// A request body in pieces that are sent from where they lie.
#[derive(Debug)]
pub struct RequestBody {
    pieces: VecDeque<Bytes>,
    /// Set once the HTTP client has taken a piece, before which the relay can have executed nothing.
    begun: Arc<AtomicBool>,
}

impl RequestBody {
    /// The body's bytes; `line` is the host's line in which its arguments lie.
    pub fn new(body: &Body<'_>, line: &Bytes) -> Self {
        let [head, arguments, tail] = body.pieces();
        let length = head.len() + arguments.len() + tail.len();
        let pieces = if length <= COPY_BYTES || arguments.len() <= COPY_BYTES {
            [Bytes::from([head, arguments, tail].concat())].into()
        } else {
            let copied = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            [copied(head), line.slice_ref(arguments.as_bytes()), copied(tail)].into()
        };
        Self { pieces, begun: Arc::default() }
    }

    fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.begun.store(true, Ordering::Relaxed);
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length())
    }
}
