//! The proxy that the environment names for an https relay.
//!
//! It is used for a relay that is not this machine, and for nothing else; its password is shown nowhere.

use std::env;

use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::Matcher;
use thiserror::Error;
use tinyagent_protocol::relay_url::RelayUrl;

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

/// The proxy for this relay that the environment names (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`). It may hold
/// a password, so it is neither cloned nor shown.
pub struct RelayProxy {
    tls: bool,
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
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
        let tls = scheme == "https";
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(ProxyError::NoProxy(name))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let port = match authority.rsplit('@').next().and_then(|place| place.strip_prefix(host)) {
            Some("" | ":") => {
                if tls {
                    443
                } else {
                    80
                }
            }
            Some(port) => port[1..].parse().map_err(|_| ProxyError::NoProxy(name))?,
            None => return Err(ProxyError::NoProxy(name)),
        };
        let authorization = intercept.basic_auth().cloned().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        Ok(Some(Self { tls, host: host.to_owned(), port, authorization }))
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

    /// Whether the connection to the proxy itself is encrypted.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The user name and password as the proxy's header carries them.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }
}
