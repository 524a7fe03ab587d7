//! Certificates for tests: an authority of one's own and what it signs. None of them is known to any system.

use crate::event::sha256_hex;
use crate::tls::Tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, date_time_ymd};

/// A certificate authority that lives as long as the value.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// A new authority.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key can be made");
        // Two authorities of one name would make a client report a bad signature, not an unknown issuer.
        let name = format!("Test authority {}", &sha256_hex(key.public_key_raw())[..16]);
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).expect("the authority signs itself").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's own certificate in PEM, for `SSL_CERT_FILE`.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for these DNS names and addresses.
    pub fn issue(&self, names: &[&str]) -> Tls {
        self.sign(names, false)
    }

    /// A certificate that was good in 2020.
    pub fn issue_expired(&self, names: &[&str]) -> Tls {
        self.sign(names, true)
    }

    fn sign(&self, names: &[&str], expired: bool) -> Tls {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).expect("the names are DNS names or addresses");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2020, 12, 31);
        }
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        Tls { chain: vec![certificate.der().to_vec()], key: key.serialize_der(), http2: false }
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}
