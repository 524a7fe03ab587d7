//! The key: how it comes in, where it stays, and the two operations it allows.
//!
//! It is decoded from the environment block or a file straight into one page of memory and never
//! leaves it; no type here can print, copy or serialise it. Outside this module it signs what the
//! policy approved and nothing else: the types of `prove` and `sign_publication` say so.

mod fault;
mod file;
mod generate;
mod text;

use std::io;
use std::path::Path;
use std::thread;

use tinyagent_protocol::body::Body;
use tinyagent_protocol::event::{PublicKey, SignedEvent, UnsignedEvent};
use tinyagent_protocol::policy::{Approved, Policy, Publication};
use tinyagent_protocol::proof;
use zeroize::Zeroize;

use crate::sys::curve::Curve;
use crate::sys::environ;
use crate::sys::memory::{Contents, SealedPage, SecretPage};
use crate::sys::stack::with_wiped_stack;

pub use crate::sys::memory::Backing;
pub use fault::{KeyError, KeyFault, Source};
pub use generate::generate;

/// How the key page is kept, for the hardening report.
pub struct Keeping {
    /// What holds the page.
    pub backing: Backing,
    /// Why that is not `memfd_secret`, or why the page is not locked.
    pub shortfall: Option<io::Error>,
    /// Why the page may show up in a dump or in a child, where that could not be excluded.
    pub unadvised: Option<io::Error>,
}

/// The secret key, ready to sign. No Clone, no Debug, no Serialize.
pub struct Key {
    page: SealedPage,
    public: [u8; 32],
    /// Two, since a publication takes two signatures and waits for no blinding between them.
    contexts: [Context; 2],
}

/// What makes one signature, and is then blinded anew.
struct Context {
    curve: Curve,
    /// Whether it was blinded since its last signature.
    is_blinded: bool,
}

impl Context {
    fn new() -> io::Result<Self> {
        let mut seed = random()?;
        let curve = Curve::new(&seed);
        seed.zeroize();
        Ok(Self { curve, is_blinded: true })
    }

    fn blind_again(&mut self) -> io::Result<()> {
        if !self.is_blinded {
            let mut seed = random()?;
            self.curve.blind(&seed);
            seed.zeroize();
            self.is_blinded = true;
        }
        Ok(())
    }
}

impl Key {
    /// Reads the key from an environment variable and wipes it there, whatever comes of it.
    pub fn from_environment(name: &str) -> Result<(Self, Keeping), KeyError> {
        let loaded = environ::take(name, |value| {
            let text = value.ok_or(KeyFault::NotSet)?;
            Self::load(|page| with_wiped_stack(|| text::decode(text, &mut page.scalar)))
        });
        loaded.map_err(|fault| KeyError { origin: Source::Variable(name.into()), fault })
    }

    /// Reads the key from a file that only its owner, who is root or this user, may use.
    pub fn from_file(path: &Path) -> Result<(Self, Keeping), KeyError> {
        let loaded = file::open(path).and_then(|file| {
            Self::load(|page| {
                let decoded = file::read(&file, &mut page.text).and_then(|length| {
                    with_wiped_stack(|| text::decode(&page.text[..length], &mut page.scalar))
                });
                page.text.zeroize();
                decoded
            })
        });
        loaded.map_err(|fault| KeyError { origin: Source::File(path.display().to_string()), fault })
    }

    fn load(fill: impl FnOnce(&mut Contents) -> Result<(), KeyFault>) -> Result<(Self, Keeping), KeyFault> {
        let mut page = SecretPage::map().map_err(KeyFault::System)?;
        fill(page.contents_mut())?;
        let mut contexts =
            [Context::new().map_err(KeyFault::System)?, Context::new().map_err(KeyFault::System)?];
        let public = with_wiped_stack(|| {
            let Contents { keypair, scalar, .. } = page.contents_mut();
            let public = contexts[0].curve.load(scalar, keypair);
            scalar.zeroize();
            public
        })
        .ok_or(KeyFault::OutOfRange)?;
        let (shortfall, unadvised) = (page.shortfall.take(), page.unadvised.take());
        let keeping = Keeping { backing: page.backing, shortfall, unadvised };
        let page = page.seal().map_err(KeyFault::System)?;
        // Making the key pair has used its blinding once.
        contexts[0].is_blinded = false;
        Ok((Self { page, public, contexts }, keeping))
    }

    /// The x-only public key (BIP 340).
    pub fn public(&self) -> PublicKey {
        PublicKey(self.public)
    }

    /// A signed proof for one POST of `body`, which only an approved request gives.
    pub fn prove(&mut self, policy: &Policy, body: &Body<'_>, now: u64) -> io::Result<SignedEvent> {
        let nonce = random()?;
        let proof = proof::proof(policy, body, self.public(), nonce, now);
        self.sign_event(proof)
    }

    /// The signed event of an approved publication.
    pub fn sign_publication(
        &mut self,
        approved: &Approved<Publication<'_>>,
        now: u64,
    ) -> io::Result<SignedEvent> {
        self.sign_event(approved.template.event(self.public(), now))
    }

    fn sign_event(&mut self, event: UnsignedEvent) -> io::Result<SignedEvent> {
        let id = event.id();
        let signature = self.sign(&id.0)?;
        Ok(event.with_signature(id, signature))
    }

    /// The BIP 340 signature of an event id, with fresh auxiliary randomness, on a context that
    /// was blinded since its signature before.
    fn sign(&mut self, id: &[u8; 32]) -> io::Result<[u8; 64]> {
        let ready = self.contexts.iter().position(|context| context.is_blinded).unwrap_or(0);
        let context = &mut self.contexts[ready];
        context.blind_again()?;
        let mut randomness = random()?;
        context.is_blinded = false;
        let keypair = &self.page.contents().keypair;
        let signature = with_wiped_stack(|| context.curve.sign(id, keypair, &randomness));
        randomness.zeroize();
        signature.ok_or_else(|| io::Error::other("libsecp256k1 did not sign"))
    }

    /// Blinds anew what has signed. To be called once the answer is on its way: it takes about as long as
    /// the signatures, and the next ones make up for it when it was not called.
    ///
    /// Whoever waits for the answer runs first: a kernel that has put it behind this process, on the same
    /// processor, would otherwise let it wait for the blinding as well.
    pub fn blind_after_answer(&mut self) -> io::Result<()> {
        if !self.contexts.iter().all(|context| context.is_blinded) {
            thread::yield_now();
        }
        self.contexts.iter_mut().try_for_each(Context::blind_again)
    }
}

/// Bytes from the kernel's generator.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|failed| match failed.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(failed.to_string()),
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::stack::{WIPED_STACK_BYTES, depth_of};
    use secp256k1::{Keypair, XOnlyPublicKey, schnorr};

    const SCALAR: [u8; 32] = [0x11; 32];

    impl Key {
        /// How many signatures wait for no blinding.
        fn ready(&self) -> usize {
            self.contexts.iter().filter(|context| context.is_blinded).count()
        }
    }

    fn key() -> Key {
        let (key, keeping) = Key::load(|page| {
            page.scalar = SCALAR;
            Ok(())
        })
        .unwrap();
        assert!(keeping.backing == Backing::MemfdSecret || keeping.shortfall.is_some());
        key
    }

    #[test]
    fn the_public_key_is_the_library_s_and_the_scalar_is_gone() {
        let key = key();
        let secret = secp256k1::SecretKey::from_secret_bytes(SCALAR).unwrap();
        let library = Keypair::from_secret_key(&secret).x_only_public_key().0;
        assert_eq!(key.public().0, library.to_byte_array());
        assert_eq!(key.page.contents().scalar, [0; 32]);
    }

    #[test]
    fn signatures_verify_differ_and_blind_the_context_between_them() {
        let mut key = key();
        let public = XOnlyPublicKey::from_byte_array(key.public().0).unwrap();
        let mut seen = Vec::new();
        for round in 0..20u8 {
            let id = [round / 2; 32];
            let ready = key.ready();
            let signature = key.sign(&id).unwrap();
            assert_eq!(key.ready(), ready.saturating_sub(1));
            schnorr::Signature::from_byte_array(signature).verify(&id, &public).unwrap();
            assert!(!seen.contains(&signature), "auxiliary randomness was not fresh");
            seen.push(signature);
            if round % 4 != 0 {
                key.blind_after_answer().unwrap();
                assert_eq!(key.ready(), key.contexts.len());
            }
        }
    }

    #[test]
    fn what_is_overwritten_of_the_stack_is_twice_what_handling_the_key_writes_to() {
        let key = key();
        let nsec = bech32::encode::<bech32::Bech32>(bech32::Hrp::parse("nsec").unwrap(), &SCALAR).unwrap();
        let texts = ["11".repeat(32), nsec];
        let mut depths = vec![depth_of(|| {
            let signature = key.contexts[0].curve.sign(&[7; 32], &key.page.contents().keypair, &[9; 32]);
            assert!(signature.is_some());
        })];
        for text in &texts {
            let mut scalar = [0; 32];
            depths.push(depth_of(|| assert!(text::decode(text.as_bytes(), &mut scalar).is_ok())));
            assert_eq!(scalar, SCALAR);
        }
        let mut page = SecretPage::map().unwrap();
        depths.push(depth_of(|| {
            assert!(key.contexts[0].curve.load(&SCALAR, &mut page.contents_mut().keypair).is_some())
        }));
        println!("signing, reading hex, reading an nsec, making the key pair: {depths:?} bytes");
        for depth in depths {
            assert!((64..WIPED_STACK_BYTES / 2).contains(&depth), "{depth} of {WIPED_STACK_BYTES}");
        }
    }

    #[test]
    fn a_scalar_that_is_no_key_is_refused() {
        for scalar in [[0; 32], [0xff; 32]] {
            let loaded = Key::load(|page| {
                page.scalar = scalar;
                Ok(())
            });
            assert!(matches!(loaded, Err(KeyFault::OutOfRange)));
        }
    }

    fn key_file(name: &str, content: &[u8], mode: u32) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("tinyagent-key-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_key_file_is_read_only_when_nobody_else_may_use_it() {
        let text = format!("{}\n", "11".repeat(32));
        let cases: [(&str, &[u8], u32, Option<&str>); 6] = [
            ("good", text.as_bytes(), 0o600, None),
            ("read-only", text.trim().as_bytes(), 0o400, None),
            ("group", text.as_bytes(), 0o640, Some("chmod 600")),
            ("others", text.as_bytes(), 0o604, Some("chmod 600")),
            ("empty", b"\n", 0o600, Some("is empty")),
            ("large", &[b'1'; 2000], 0o600, Some("regular file")),
        ];
        for (name, content, mode, refusal) in cases {
            let path = key_file(name, content, mode);
            let loaded = Key::from_file(&path);
            std::fs::remove_file(&path).unwrap();
            match (loaded, refusal) {
                (Ok((key, _)), None) => assert_eq!(key.public(), self::key().public(), "{name}"),
                (Err(refused), Some(said)) => {
                    assert!(refused.to_string().contains(said), "{name}: {refused}")
                }
                (loaded, _) => panic!("{name}: {:?}", loaded.map(|_| ())),
            }
        }
        assert!(
            Key::from_file(Path::new("/dev/null")).is_err_and(|e| e.to_string().contains("regular file"))
        );
        assert!(
            Key::from_file(Path::new("/nonexistent"))
                .is_err_and(|e| e.to_string().contains("cannot be read"))
        );
    }
}
