//! A new key, for `keygen`: the only place that ever writes a secret out.
//!
//! Every buffer that held the secret is wiped once it has been written.

use std::io::{self, Write};

use bech32::{Bech32, Hrp};
use tinyagent_protocol::hex;
use zeroize::Zeroizing;

use super::{Key, KeyFault};

/// Writes one JSON line with a new key: `{"secret","pubkey","nsec","npub"}`.
pub fn generate(out: &mut impl Write) -> io::Result<()> {
    let secret = Zeroizing::new(random_scalar()?);
    let loaded = Key::load(|page| {
        page.scalar = *secret;
        Ok(())
    });
    let (key, _) = loaded.map_err(|fault: KeyFault| io::Error::other(fault.to_string()))?;
    let public = key.public();
    let nsec = Zeroizing::new(encode("nsec", &*secret)?);
    let npub = encode("npub", &public.0)?;
    let secret = Zeroizing::new(hex::encode(&*secret));
    let line = Zeroizing::new(format!(
        "{{\"secret\":\"{}\",\"pubkey\":\"{public}\",\"nsec\":\"{}\",\"npub\":\"{npub}\"}}\n",
        *secret, *nsec
    ));
    out.write_all(line.as_bytes())?;
    out.flush()
}

/// 32 random bytes that are a key; all but one in 2^127 are.
fn random_scalar() -> io::Result<[u8; 32]> {
    loop {
        let scalar: [u8; 32] = super::random()?;
        if scalar != [0; 32] && scalar < secp256k1::constants::CURVE_ORDER {
            return Ok(scalar);
        }
    }
}

/// NIP-19's form of 32 bytes.
fn encode(prefix: &str, bytes: &[u8]) -> io::Result<String> {
    let prefix = Hrp::parse(prefix).map_err(|error| io::Error::other(error.to_string()))?;
    bech32::encode::<Bech32>(prefix, bytes).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    #[test]
    fn both_forms_of_a_new_key_are_read_back_as_the_same_key() {
        let mut line = Vec::new();
        generate(&mut line).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&line).unwrap();
        let read = |name: &str| {
            let mut scalar = [0; 32];
            text::decode(line[name].as_str().unwrap().as_bytes(), &mut scalar).unwrap();
            scalar
        };
        assert_eq!(read("secret"), read("nsec"));
        assert_eq!(line["pubkey"].as_str().unwrap().len(), 64);
        assert!(line["npub"].as_str().unwrap().starts_with("npub1"));
    }
}
