//! TLS in front of the relay: the certificate and key that a test gives, HTTP/1.1 by ALPN and HTTP/2 where the
//! test wants it. It never asks a client for a certificate.

use crate::http::Duplex;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;

/// What a TLS relay presents.
#[derive(Clone)]
pub struct Tls {
    /// The certificates in DER, the relay's own first.
    pub chain: Vec<Vec<u8>>,
    /// The private key in DER (PKCS #8, SEC 1 or PKCS #1).
    pub key: Vec<u8>,
    /// Whether HTTP/2 is offered beside HTTP/1.1, and preferred.
    pub http2: bool,
}

impl Tls {
    /// Reads chain and key from PEM.
    pub fn from_pem(chain: &str, key: &str) -> io::Result<Tls> {
        let bad =
            |error: rustls::pki_types::pem::Error| io::Error::new(ErrorKind::InvalidInput, error.to_string());
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .map(|certificate| Ok(certificate.map_err(bad)?.to_vec()))
            .collect::<io::Result<_>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(bad)?;
        Ok(Tls { chain, key: key.secret_der().to_vec(), http2: false })
    }

    /// The same with HTTP/2 offered.
    pub fn with_http2(self) -> Tls {
        Tls { http2: true, ..self }
    }

    pub(crate) fn config(&self) -> io::Result<Arc<ServerConfig>> {
        let bad = |error: rustls::Error| io::Error::new(ErrorKind::InvalidInput, error);
        let chain = self.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let key = PrivateKeyDer::try_from(self.key.clone())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(bad)?;
        let protocols: &[&[u8]] = if self.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

/// A connection that is to be greeted in TLS; the handshake happens with the first read.
pub(crate) fn wrap(config: Arc<ServerConfig>, stream: TcpStream) -> io::Result<Box<dyn Duplex>> {
    let session = ServerConnection::new(config).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

/// A connection whose handshake is done.
pub(crate) fn resume(session: ServerConnection, stream: TcpStream) -> Box<dyn Duplex> {
    Box::new(StreamOwned::new(session, stream))
}

impl Duplex for StreamOwned<ServerConnection, TcpStream> {
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }

    fn farewell(&mut self) {
        self.conn.send_close_notify();
    }
}
