//! The relay's URL in the one spelling that both processes use for requests and for proofs.
//!
//! A proof's `u` tag must equal the URL that is sent, byte for byte, so the URL is parsed once, here,
//! into a form that an HTTP client has nothing left to normalise in.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// Why a relay URL is refused. No message repeats the URL: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RelayUrlError {
    /// No `scheme://`, or one that is not a relay's.
    #[error("--relay needs a URL that begins with https://, http://, wss:// or ws://")]
    Scheme,
    /// No host.
    #[error("--relay names no host")]
    NoHost,
    /// A user name or a password.
    #[error("--relay must not hold a user name or a password; the agent's key is the identity")]
    Userinfo,
    /// A query.
    #[error("--relay must not hold a query (`?…`)")]
    Query,
    /// A fragment.
    #[error("--relay must not hold a fragment (`#…`)")]
    Fragment,
    /// A host that is neither a name, an IPv4 nor a bracketed IPv6 address.
    #[error(
        "--relay's host is not a valid name or address; write international names in their xn-- form and IPv6 in brackets"
    )]
    Host,
    /// A port that is no number from 1 to 65535.
    #[error("--relay's port is not a number from 1 to 65535")]
    Port,
    /// A path that an HTTP client would rewrite.
    #[error("--relay's path must not hold spaces, backslashes, control characters, or `.` and `..` segments")]
    Path,
}

/// A relay's origin and path prefix, normalised: ws and wss become http and https, the host is in
/// lower case, the default port and one trailing `/` are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayUrl {
    base: String,
    tls: bool,
    host: String,
    port: u16,
}

impl RelayUrl {
    /// Parses what `--relay` accepts (contract 1).
    ///
    /// # Errors
    /// [`RelayUrlError`], without any part of the URL.
    pub fn parse(text: &str) -> Result<Self, RelayUrlError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(RelayUrlError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" | "ws" => false,
            "https" | "wss" => true,
            _ => return Err(RelayUrlError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if authority.contains('@') {
            return Err(RelayUrlError::Userinfo);
        }
        if tail.contains('?') {
            return Err(RelayUrlError::Query);
        }
        if tail.contains('#') {
            return Err(RelayUrlError::Fragment);
        }
        let (host, port) = host_and_port(authority)?;
        let default = if tls { 443 } else { 80 };
        let port = port.unwrap_or(default);
        let shown_port = if port == default { String::new() } else { format!(":{port}") };
        let path = path(tail.strip_suffix('/').unwrap_or(tail))?;
        let scheme = if tls { "https" } else { "http" };
        Ok(Self { base: format!("{scheme}://{host}{shown_port}{path}"), tls, host, port })
    }

    /// The URL without a trailing `/`, such as `https://relay.example/r/acme`.
    pub fn as_str(&self) -> &str {
        &self.base
    }

    /// The MCP endpoint.
    pub fn mcp(&self) -> String {
        format!("{}/mcp", self.base)
    }

    /// The NIP-86 management endpoint.
    pub fn manage(&self) -> String {
        format!("{}/manage/rpc", self.base)
    }

    /// The readiness probe.
    pub fn readyz(&self) -> String {
        format!("{}/readyz", self.base)
    }

    /// The relay information document (NIP-11).
    pub fn information(&self) -> String {
        format!("{}/", self.base)
    }

    /// Whether the connection is encrypted.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The host as it stands in the URL, an IPv6 address in its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host names this machine itself.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
            || host.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback())
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), RelayUrlError> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (inside, after) = rest.split_once(']').ok_or(RelayUrlError::Host)?;
        let address: Ipv6Addr = inside.parse().map_err(|_| RelayUrlError::Host)?;
        let port =
            if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(RelayUrlError::Host)?) };
        (format!("[{address}]"), port)
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        (name_or_ipv4(host)?, port)
    };
    let port = match port {
        None | Some("") => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0).ok_or(RelayUrlError::Port)?)
        }
        Some(_) => return Err(RelayUrlError::Port),
    };
    Ok((host, port))
}

/// A host name in lower case. A name whose last label is a number must be a plain IPv4 address,
/// because the URL standard reads `0x7f.1` and the like as one and would rewrite it.
fn name_or_ipv4(host: &str) -> Result<String, RelayUrlError> {
    if host.is_empty() {
        return Err(RelayUrlError::NoHost);
    }
    let host = host.to_ascii_lowercase();
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let name = host.strip_suffix('.').unwrap_or(&host);
    if host.len() > 253 || !name.split('.').all(label) {
        return Err(RelayUrlError::Host);
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    if numeric && host.parse::<Ipv4Addr>().is_err() {
        return Err(RelayUrlError::Host);
    }
    Ok(host)
}

/// The path, with the characters percent-encoded that the URL standard encodes in a path.
fn path(tail: &str) -> Result<String, RelayUrlError> {
    let mut path = String::with_capacity(tail.len());
    for segment in tail.split('/').skip(1) {
        let dots = segment.to_ascii_lowercase().replace("%2e", ".");
        if dots == "." || dots == ".." {
            return Err(RelayUrlError::Path);
        }
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                0..=0x20 | b'\\' | 0x7f => return Err(RelayUrlError::Path),
                b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'^' | 0x80.. => {
                    path.push_str(&format!("%{byte:02X}"))
                }
                _ => path.push(char::from(byte)),
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_for_every_way_to_write_it() {
        for (written, base) in [
            ("https://H.example:443", "https://h.example"),
            ("HTTP://LOCALHOST:80/", "http://localhost"),
            ("ws://127.0.0.1:8080/r/acme/", "http://127.0.0.1:8080/r/acme"),
            ("wss://relay.example/r/%C3%A9", "https://relay.example/r/%C3%A9"),
            ("https://relay.example/r/é", "https://relay.example/r/%C3%A9"),
            ("http://[0:0::1]:80/x", "http://[::1]/x"),
            ("https://relay.example:80", "https://relay.example:80"),
            ("https://relay.example//", "https://relay.example/"),
            ("https://relay.example:", "https://relay.example"),
            ("https://Relay.Example/Case", "https://relay.example/Case"),
        ] {
            assert_eq!(RelayUrl::parse(written).expect(written).as_str(), base, "{written}");
        }
    }

    #[test]
    fn refuses_each_bad_part_without_echoing_it() {
        for (written, error) in [
            ("relay.example", RelayUrlError::Scheme),
            ("ftp://relay.example", RelayUrlError::Scheme),
            ("https://", RelayUrlError::NoHost),
            ("https:///mcp", RelayUrlError::NoHost),
            ("https://u:hunter2@relay.example", RelayUrlError::Userinfo),
            ("https://relay.example/?hunter2", RelayUrlError::Query),
            ("https://relay.example?hunter2", RelayUrlError::Query),
            ("https://relay.example/#hunter2", RelayUrlError::Fragment),
            ("https://re lay", RelayUrlError::Host),
            ("https://relay..example", RelayUrlError::Host),
            ("https://[::1", RelayUrlError::Host),
            ("https://[::1]x", RelayUrlError::Host),
            ("https://0x7f.1", RelayUrlError::Host),
            ("https://127.1", RelayUrlError::Host),
            ("https://rélay.example", RelayUrlError::Host),
            ("https://relay.example:0", RelayUrlError::Port),
            ("https://relay.example:65536", RelayUrlError::Port),
            ("https://relay.example:hunter2", RelayUrlError::Port),
            ("https://relay.example/a/../b", RelayUrlError::Path),
            ("https://relay.example/%2E%2e/b", RelayUrlError::Path),
            ("https://relay.example/a b", RelayUrlError::Path),
        ] {
            let got = RelayUrl::parse(written).expect_err(written);
            assert_eq!(got, error, "{written}");
            assert!(!got.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn knows_loopback() {
        for (url, loopback) in [
            ("http://localhost:1", true),
            ("http://127.8.0.1", true),
            ("http://[::1]", true),
            ("http://10.0.0.1", false),
            ("http://relay.example", false),
        ] {
            assert_eq!(RelayUrl::parse(url).expect(url).is_loopback(), loopback, "{url}");
        }
    }
}
