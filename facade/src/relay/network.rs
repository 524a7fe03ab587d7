//! The HTTP client: what it may do, which roots it trusts, and whether a proxy stands between.
//!
//! Redirects and the client's own retries are off, because a proof is bound to one URL and used once.
//! A proxy is used for an https relay that is not this machine, and for nothing else.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Client, Proxy, redirect, retry};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tinyagent_protocol::relay_url::RelayUrl;
use tokio::task_local;
use tower_layer::Layer;
use tower_service::Service;

/// An idle connection is kept for this long; relays and the proxies before them drop it sooner or later.
const KEEP_IDLE: Duration = Duration::from_secs(90);

/// Why no client can be made.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// No certificate authority could be read.
    #[error("no CA certificates could be loaded{0}; install ca-certificates or set SSL_CERT_FILE")]
    NoRoots(String),
    /// The TLS library refused its settings.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The HTTP library refused its settings.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] reqwest::Error),
}

/// Why the proxy that the environment names cannot be used; the texts never repeat its value, which may hold
/// a password.
#[derive(Debug, Error)]
pub enum ProxyError {
    /// Its value is no proxy's address.
    #[error("{0} is not the address of a proxy; write it like http://proxy.example:3128, or unset it")]
    NoProxy(&'static str),
    /// It is a proxy of another kind.
    #[error("{0} names a {1} proxy; name an http or https proxy, or unset it")]
    Scheme(&'static str, String),
}

/// The first of these variables that is set and not empty, by name and value.
fn variable(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    let values = names.into_iter().filter_map(|name| Some((name, env::var_os(name)?)));
    let values = values.map(|(name, value)| (name, value.to_string_lossy().into_owned()));
    values.into_iter().find(|(_, value)| !value.is_empty())
}

/// The proxy for this relay that the environment names (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`).
#[derive(Clone, Debug)]
pub struct RelayProxy {
    url: String,
    host: String,
    port: u16,
}

impl RelayProxy {
    /// Looks the proxy up; `None` for plain http, for this machine itself, and for a relay that `NO_PROXY` names.
    ///
    /// # Errors
    /// [`ProxyError`]: a relay is not reached past a proxy that was asked for.
    pub fn from_environment(relay: &RelayUrl) -> Result<Option<Self>, ProxyError> {
        let asked = variable(["HTTPS_PROXY", "https_proxy"]).or_else(|| variable(["ALL_PROXY", "all_proxy"]));
        let (Some((name, value)), Ok(target)) = (asked, relay.as_str().parse()) else { return Ok(None) };
        let excepted = variable(["NO_PROXY", "no_proxy"]).map(|(_, list)| list).unwrap_or_default();
        let matching = |proxy: String, excepted: String| {
            Matcher::builder().all(proxy).no(excepted).build().intercept(&target)
        };
        let is_excepted = matching("http://any.invalid".into(), excepted).is_none();
        if !relay.tls() || relay.is_loopback() || is_excepted {
            return Ok(None);
        }
        let intercept = matching(value, String::new()).ok_or(ProxyError::NoProxy(name))?;
        let uri = intercept.uri();
        let scheme = uri.scheme_str().unwrap_or_default();
        if !["http", "https"].contains(&scheme) {
            return Err(ProxyError::Scheme(name, scheme.into()));
        }
        let default = if scheme == "https" { 443 } else { 80 };
        let mut url = uri.to_string();
        if let Some(basic) = intercept.basic_auth().and_then(|value| value.to_str().ok()) {
            url = with_credentials(&url, basic).unwrap_or(url);
        }
        let host = uri.host().filter(|host| !host.is_empty() && Proxy::all(&url).is_ok());
        let host = host.ok_or(ProxyError::NoProxy(name))?.to_owned();
        Ok(Some(Self { url, host, port: uri.port_u16().unwrap_or(default) }))
    }

    /// Host and port, without credentials, for messages.
    pub fn shown(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Its host, an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The proxy's URL with the user name and password that its `Basic` value holds, percent-encoded.
fn with_credentials(url: &str, basic: &str) -> Option<String> {
    use base64::Engine;
    let encoded = basic.strip_prefix("Basic ")?;
    let plain = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok()?;
    let (user, password) = plain.split_once(':')?;
    let mut url = reqwest::Url::parse(url).ok()?;
    url.set_username(user).ok()?;
    url.set_password(Some(password)).ok()?;
    Some(url.into())
}

task_local! {
    /// Set where the request that is being polled began a connection.
    static BEGAN_CONNECTION: Arc<AtomicBool>;
}

/// Polls a request and gives its outcome with whether it was sent on a reused connection: the HTTP client
/// connects within the poll of the request that needs it, whatever other requests do meanwhile.
pub async fn noting_reuse<T>(request: impl Future<Output = T>) -> (T, bool) {
    let began = Arc::new(AtomicBool::new(false));
    let outcome = BEGAN_CONNECTION.scope(began.clone(), request).await;
    (outcome, !began.load(Ordering::Relaxed))
}

/// Has connectors note in [`noting_reuse`] that they were needed.
#[derive(Clone, Copy, Debug)]
struct NoteConnections;

impl<S> Layer<S> for NoteConnections {
    type Service = Noted<S>;

    fn layer(&self, inner: S) -> Noted<S> {
        Noted(inner)
    }
}

/// A connector that notes when it is needed.
#[derive(Clone, Debug)]
struct Noted<S>(S);

impl<S: Service<R>, R> Service<R> for Noted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, target: R) -> S::Future {
        // Outside of a request nobody asks.
        let _ = BEGAN_CONNECTION.try_with(|began| began.store(true, Ordering::Relaxed));
        self.0.call(target)
    }
}

/// The certificate authorities that the relay's certificate may come from.
pub enum Roots {
    /// Nothing is encrypted.
    Unneeded,
    /// Those that the environment names, read before this process gave up most of the file system: the
    /// file's directory may be the host's, with its configuration and the key in it.
    Named(Result<RootCertStore, NetworkError>),
    /// The system's, read when the client is made.
    System,
}

impl Roots {
    /// Decides, and reads what `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub fn prepare(relay: &RelayUrl) -> Self {
        let is_named = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        match (relay.tls(), is_named("SSL_CERT_FILE") || is_named("SSL_CERT_DIR")) {
            (false, _) => Self::Unneeded,
            (true, true) => Self::Named(native_roots()),
            (true, false) => Self::System,
        }
    }

    /// Whether files are still to be read.
    pub fn are_unread(&self) -> bool {
        matches!(self, Self::System)
    }
}

/// Makes the client. Reading the system's CA certificates takes tens of milliseconds, so for an https
/// relay this belongs on a thread of its own.
///
/// # Errors
/// [`NetworkError`].
pub fn client(relay: &RelayUrl, proxy: Option<&RelayProxy>, roots: Roots) -> Result<Client, NetworkError> {
    let roots = match roots {
        Roots::Unneeded => RootCertStore::empty(),
        Roots::Named(roots) => roots?,
        Roots::System => native_roots()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).into();
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .pool_idle_timeout(KEEP_IDLE)
        .pool_max_idle_per_host(4)
        .connector_layer(NoteConnections)
        .no_proxy();
    if let Some(proxy) = proxy {
        builder = builder.proxy(Proxy::all(&proxy.url)?);
    }
    if !relay.tls() {
        builder = builder.http1_only();
    }
    Ok(builder.build()?)
}

/// The system's CA certificates, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn native_roots() -> Result<RootCertStore, NetworkError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(NetworkError::NoRoots(why));
    }
    Ok(roots)
}
