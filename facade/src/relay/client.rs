//! One HTTP exchange with the relay: bounded in time and size, never repeated here.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Method, Request, StatusCode};
use tokio::time::Instant;

use tinyagent_protocol::body::{Endpoint, RELAY_PROTOCOL_VERSION};
use tinyagent_protocol::relay_url::RelayUrl;

use super::body::{self, RequestBody};
use super::connection::{ConnectError, Connections, Target, cause, is_closed};
use super::proxy::RelayProxy;
use super::tls::Roots;
use crate::failure::Failure;
use crate::watchdog::Watchdog;

/// The largest answer, decoded (contract 4).
pub const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The coding that [`body::read`] decodes.
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

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
    /// Whether the relay closed a reused connection before any byte of an answer, so that this request was most
    /// likely never read.
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

impl From<ConnectError> for NoAnswer {
    fn from(error: ConnectError) -> Self {
        Self::unsent(error.to_string())
    }
}

/// The way to one relay.
pub struct RelayClient {
    host: String,
    connections: Connections,
    /// What every request for the MCP endpoint says.
    mcp_headers: HeaderMap,
    watchdog: Cell<Watchdog>,
    mcp: Result<Target, NoAnswer>,
    manage: Result<Target, NoAnswer>,
}

impl RelayClient {
    /// Prepares the client; nothing is sent.
    pub fn new(relay: &RelayUrl, proxy: Option<RelayProxy>, roots: Roots) -> Self {
        let target = |endpoint: Endpoint| Target::new(&endpoint.url(relay)).map_err(NoAnswer::from);
        let (mcp, manage) = (target(Endpoint::Mcp), target(Endpoint::Manage));
        let connections = Connections::new(relay, proxy, roots);
        // Its index has room for the rest, and so has that of a copy.
        let mut mcp_headers = HeaderMap::with_capacity(12);
        mcp_headers.extend([
            (ACCEPT_ENCODING, GZIP),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("application/json, text/event-stream")),
            (
                HeaderName::from_static("mcp-protocol-version"),
                HeaderValue::from_static(RELAY_PROTOCOL_VERSION),
            ),
        ]);
        let host = relay.host().to_owned();
        Self { host, connections, mcp_headers, watchdog: Cell::default(), mcp, manage }
    }

    /// Connects while the host still shakes hands, so that its first call need not wait for it. What goes
    /// wrong here, that call meets and tells.
    pub async fn warm(&self) {
        self.connections.warm().await;
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// [`NoAnswer`]; the request is never sent twice here.
    pub async fn post(&self, post: Post, deadline: Instant) -> Result<HttpAnswer, NoAnswer> {
        let target = match post.endpoint {
            Endpoint::Mcp => &self.mcp,
            Endpoint::Manage => &self.manage,
        };
        let target = target.as_ref().map_err(NoAnswer::clone)?;
        let mut headers = self.headers(&post);
        headers.insert(AUTHORIZATION, authorization(post.authorization)?);
        let begun = post.body.begun();
        if Instant::now() >= deadline {
            return Err(NoAnswer::unsent(self.no_answer_in_time()));
        }
        let exchange = pin!(self.exchange(request(Method::POST, headers, post.body), target));
        self.within(deadline, exchange).await.unwrap_or_else(|| {
            Err(NoAnswer { detail: self.no_answer_in_time(), sent: begun.get(), stale: false })
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
        let target = Target::new(url)?;
        let headers =
            HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept)), (ACCEPT_ENCODING, GZIP)]);
        let exchange = pin!(self.exchange(request(Method::GET, headers, RequestBody::empty()), &target));
        self.within(Instant::now() + limit, exchange)
            .await
            .unwrap_or_else(|| Err(NoAnswer::unsent(format!("no answer within {} s", limit.as_secs()))))
    }

    /// The outcome of `work`, or none where it is not there by then.
    async fn within<F: Future>(&self, deadline: Instant, work: Pin<&mut F>) -> Option<F::Output> {
        // Exchanges beside each other need one each; nearly all come one after the other.
        let mut watchdog = self.watchdog.take();
        let outcome = watchdog.bound(deadline, work).await;
        self.watchdog.set(watchdog);
        outcome
    }

    async fn exchange(
        &self,
        mut request: Request<RequestBody>,
        target: &Target,
    ) -> Result<HttpAnswer, NoAnswer> {
        let begun = request.body().begun();
        let must_be_whole = request.method() == Method::POST;
        let (connection, mut response) = loop {
            let mut connection = self.connections.get().await?;
            let mut failed = match connection.send(request, target).await {
                Ok(response) => break (connection, response),
                Err(failed) => failed,
            };
            // An idle connection that ended before it took any of the request; the next one may have it.
            if let Some(unsent) = failed.take_message().filter(|_| connection.was_idle) {
                request = unsent;
                continue;
            }
            let error = failed.into_error();
            let detail = if is_closed(&error) {
                "the relay closed the connection without an answer".into()
            } else {
                format!("no valid HTTP answer: {}", cause(&error))
            };
            return Err(NoAnswer { detail, sent: begun.get(), stale: connection.was_stale(&error) });
        };
        let status = response.status();
        let body = if status == StatusCode::OK && must_be_whole {
            let whole = body::read(&mut response, MAX_ANSWER_BYTES).await;
            whole.map_err(|detail| NoAnswer { detail, sent: true, stale: false })?
        } else {
            Box::pin(body::read_if_possible(&mut response)).await
        };
        self.connections.keep(connection);
        Ok(HttpAnswer { status, headers: std::mem::take(response.headers_mut()), body })
    }

    fn headers(&self, post: &Post) -> HeaderMap {
        let mut headers = match post.endpoint {
            Endpoint::Mcp => self.mcp_headers.clone(),
            Endpoint::Manage => HeaderMap::from_iter([
                (ACCEPT_ENCODING, GZIP),
                (CONTENT_TYPE, HeaderValue::from_static("application/nostr+json+rpc")),
                (ACCEPT, HeaderValue::from_static("application/json")),
            ]),
        };
        if let Some(method) = post.method {
            headers.insert(HeaderName::from_static("mcp-method"), HeaderValue::from_static(method));
        }
        if let Some(tool) = post.tool {
            headers.insert(HeaderName::from_static("mcp-name"), HeaderValue::from_static(tool));
        }
        for (name, value) in &post.parameters {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
                continue;
            };
            headers.append(name, value);
        }
        headers
    }

    fn no_answer_in_time(&self) -> String {
        format!("{} did not answer in time", self.host)
    }
}

fn authorization(proof: String) -> Result<HeaderValue, NoAnswer> {
    let mut value = HeaderValue::from_maybe_shared(Bytes::from(proof))
        .map_err(|_| NoAnswer::unsent("the signer's proof is not a header value"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn request(method: Method, headers: HeaderMap, body: RequestBody) -> Request<RequestBody> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    request
}
