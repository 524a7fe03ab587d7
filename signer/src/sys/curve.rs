//! libsecp256k1 working on the key where it lies, without a copy in a Rust type.
//!
//! The library's own `SecretKey` and `Keypair` are `Copy`; this module hands pointers into the key
//! page instead. It signs whatever 32 bytes it is given: only `custody` calls it.

use secp256k1::ffi::{self, CPtr};
use secp256k1::{Secp256k1, SignOnly};

/// Bytes of libsecp256k1's key pair: the secret scalar and the public point.
pub const KEYPAIR_BYTES: usize = size_of::<ffi::Keypair>();

/// A signing context. libsecp256k1 blinds its work with secret values in the context against side
/// channels; they are to be replaced after every signature.
pub struct Curve {
    context: Secp256k1<SignOnly>,
}

impl Curve {
    /// A context blinded by `seed`, which is random.
    pub fn new(seed: &[u8; 32]) -> Self {
        let mut curve = Self { context: Secp256k1::signing_only() };
        curve.blind(seed);
        curve
    }

    /// Blinds the context anew; `seed` is random and mixed with what is there.
    pub fn blind(&mut self, seed: &[u8; 32]) {
        self.context.seeded_randomize(seed);
    }

    /// Fills `keypair` from the scalar and returns the x-only public key (BIP 340), or None for a
    /// scalar that is zero or not below the curve order.
    pub fn load(&self, scalar: &[u8; 32], keypair: &mut [u8; KEYPAIR_BYTES]) -> Option<[u8; 32]> {
        let context = self.context.ctx().as_ptr();
        let pair: *mut ffi::Keypair = keypair.as_mut_ptr().cast();
        let mut public = [0; 32];
        // SAFETY: `ffi::Keypair` is an array of `KEYPAIR_BYTES` bytes with alignment 1, so `pair`
        // is a valid one to write; `scalar` does not overlap it (two references); the context was
        // built for signing and lives as long as `self`; the point outlives the last call.
        let valid = unsafe {
            let mut point = ffi::XOnlyPublicKey::new();
            ffi::secp256k1_keypair_create(context, pair, scalar.as_ptr()) == 1
                && ffi::secp256k1_keypair_xonly_pub(context, &mut point, std::ptr::null_mut(), pair) == 1
                && ffi::secp256k1_xonly_pubkey_serialize(context, public.as_mut_ptr(), &point) == 1
        };
        valid.then_some(public)
    }

    /// The BIP 340 signature of a 32-byte message, with auxiliary randomness. None if the key pair
    /// was not filled by [`Curve::load`].
    pub fn sign(
        &self,
        message: &[u8; 32],
        keypair: &[u8; KEYPAIR_BYTES],
        randomness: &[u8; 32],
    ) -> Option<[u8; 64]> {
        let extra = ffi::SchnorrSigExtraParams::new(None, randomness.as_c_ptr().cast());
        let mut signature = [0; 64];
        // SAFETY: every pointer is to a live array of the size that the function reads or writes:
        // 64 bytes of signature, 32 of message (whose length is passed), a key pair of
        // `KEYPAIR_BYTES` bytes with alignment 1, 32 of randomness inside `extra`. The default
        // nonce function is used; the context was built for signing.
        let done = unsafe {
            ffi::secp256k1_schnorrsig_sign_custom(
                self.context.ctx().as_ptr(),
                signature.as_mut_ptr(),
                message.as_ptr(),
                message.len(),
                keypair.as_ptr().cast(),
                &extra,
            )
        };
        (done == 1).then_some(signature)
    }
}
