//! TLS: which certificate authorities are trusted, and when their files are read.

use std::env;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tinyagent_protocol::relay_url::RelayUrl;
use tokio_rustls::TlsConnector;

/// Why no encrypted connection can be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// No certificate authority could be read.
    #[error("no CA certificates could be loaded{0}; install ca-certificates or set SSL_CERT_FILE")]
    NoRoots(String),
    /// None could be read from where the environment says.
    #[error("no CA certificates could be loaded{0}; correct or unset SSL_CERT_FILE and SSL_CERT_DIR")]
    NoNamedRoots(String),
    /// The TLS library refused its settings.
    #[error("TLS cannot be set up: {0}")]
    Settings(#[from] rustls::Error),
}

/// The certificate authorities that the relay's certificate may come from.
pub enum Roots {
    /// Nothing is encrypted.
    Unneeded,
    /// Those that the environment names, read before this process gave up most of the file system: the
    /// file's directory may be the host's, with its configuration and the key in it.
    Named(Result<RootCertStore, TlsError>),
    /// The system's, read when the connector is made.
    System,
}

impl Roots {
    /// Decides, and reads what `SSL_CERT_FILE` and `SSL_CERT_DIR` name.
    pub fn prepare(relay: &RelayUrl) -> Self {
        let is_named = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        match (relay.tls(), is_named("SSL_CERT_FILE") || is_named("SSL_CERT_DIR")) {
            (false, _) => Self::Unneeded,
            (true, true) => Self::Named(native_roots().map_err(TlsError::NoNamedRoots)),
            (true, false) => Self::System,
        }
    }

    /// Whether files are still to be read.
    pub fn are_unread(&self) -> bool {
        matches!(self, Self::System)
    }

    /// Makes the connectors, to the relay and to a proxy before it. Reading the system's CA certificates
    /// takes tens of milliseconds, so this belongs on a thread of its own.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn connectors(self) -> Result<Connectors, TlsError> {
        let roots = match self {
            Self::Unneeded => RootCertStore::empty(),
            Self::Named(roots) => roots?,
            Self::System => native_roots().map_err(TlsError::NoRoots)?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let plain = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut offering_http2 = plain.clone();
        offering_http2.alpn_protocols = [&b"h2"[..], b"http/1.1"].map(<[u8]>::to_vec).into();
        Ok(Connectors { relay: Arc::new(offering_http2).into(), proxy: Arc::new(plain).into() })
    }
}

/// Makes encrypted connections.
#[derive(Clone)]
pub struct Connectors {
    /// To the relay; offers HTTP/2.
    pub relay: TlsConnector,
    /// To a proxy, which is asked by HTTP/1.1.
    pub proxy: TlsConnector,
}

/// The system's CA certificates, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`; else why there are none.
fn native_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(why);
    }
    Ok(roots)
}
