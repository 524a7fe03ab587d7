//! What can be wrong with a key, said without repeating any of it.

use std::fmt;

/// Where a key was looked for, as the user named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An environment variable.
    Variable(String),
    /// A file.
    File(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File(path) => write!(f, "the key file {path}"),
        }
    }
}

/// A key that cannot be used, and where it came from.
#[derive(Debug, thiserror::Error)]
#[error("{origin} {fault}")]
pub struct KeyError {
    /// Where the key was looked for.
    pub origin: Source,
    /// What is wrong with it.
    pub fault: KeyFault,
}

/// What is wrong with a key (contract section 1). Each text completes a sentence that begins with
/// the [`Source`].
#[derive(Debug, thiserror::Error)]
pub enum KeyFault {
    /// No variable of that name, or an empty one.
    #[error("is not set")]
    NotSet,
    /// A file without content.
    #[error("is empty")]
    EmptyFile,
    /// The host passed a `${…}` on instead of a value.
    #[error(
        "holds an unsubstituted placeholder instead of a key; Hermes looks for its value in \
         ~/.hermes/.env, and the entry's `env` must pass it on"
    )]
    Placeholder,
    /// White space or quotes around the value.
    #[error("has white space or quotes around the key; remove them")]
    Padded,
    /// A public key.
    #[error("holds a public key (npub); the secret key begins with nsec1")]
    PublicKey,
    /// A key encrypted with a password (NIP-49).
    #[error("holds an encrypted key (ncryptsec); decrypt it to an nsec first")]
    Encrypted,
    /// Hexadecimal, but not 32 bytes.
    #[error("has {0} hexadecimal characters; a key has 64")]
    HexLength(usize),
    /// An nsec with a character that bech32 does not have, or with mixed case.
    #[error(
        "begins like an nsec but is not bech32 (a character is wrong, or upper and lower case are mixed)"
    )]
    NotBech32,
    /// An nsec whose checksum fails.
    #[error("is not a valid nsec: its checksum does not match (a character is missing or wrong)")]
    Checksum,
    /// A valid bech32 text with the prefix of an nsec that does not carry exactly 32 bytes.
    #[error("is not a valid nsec: it does not carry exactly 32 bytes")]
    NsecLength,
    /// No form of key at all.
    #[error("is neither 64 hexadecimal characters nor an nsec")]
    Unknown,
    /// The number zero.
    #[error("is zero, which is not a secret key")]
    Zero,
    /// A number past the last key of the curve.
    #[error("is not below the order of the curve secp256k1, so it is not a secret key")]
    OutOfRange,
    /// The file cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(#[source] std::io::Error),
    /// Not a file, or too large for one.
    #[error("is not a regular file of at most {limit} bytes")]
    NotAFile {
        /// The most that is read, in bytes.
        limit: usize,
    },
    /// The file belongs to somebody else.
    #[error("belongs to uid {0}; it must belong to root or to the user of this process")]
    Owner(u32),
    /// Others than the owner may use the file.
    #[error("is accessible to its group or to others (mode {0:04o}); run chmod 600 on it")]
    Mode(u32),
    /// The kernel gives no memory or no randomness.
    #[error("cannot be kept: {0}")]
    System(#[source] std::io::Error),
}
