//! The name of the environment variable that holds the key, checked once at the edge (contract 1).
//!
//! The signer is started with this one variable as its whole environment, so a name that the loader, libc
//! or the runtime obeys would let whoever sets `--key-env` steer the signer. No refused name is ever echoed
//! unless it is on the public list below: it may be a key pasted into the wrong place.

use std::fmt;

use thiserror::Error;

/// The default of `--key-env`.
const DEFAULT: &str = "TINY_PRIVATE_KEY";

/// Longest name accepted, in bytes; longer than any real one, and than no key form.
const NAME_LIMIT_BYTES: usize = 256;

/// A name of only hexadecimal digits is taken for a key, or half of one, from this length on.
const HEX_KEY_FROM_DIGITS: usize = 32;

/// Prefixes of names that the dynamic loader, libc, a runtime or the service manager acts on, in upper case
/// (ld.so(8), environ(7), systemd.exec(5)).
const OBEYED_PREFIXES: [&str; 11] =
    ["LD_", "GLIBC_", "DYLD_", "MALLOC_", "LC_", "RUST_", "RES_", "GCONV_", "SYSTEMD_", "LISTEN_", "_RLD"];

/// Whole names that libc, a shell, or every program acts on, in upper case.
const OBEYED_NAMES: [&str; 32] = [
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "IFS",
    "ENV",
    "BASH_ENV",
    "TZ",
    "TZDIR",
    "TMPDIR",
    "TMP",
    "TEMP",
    "TERM",
    "SHELL",
    "USER",
    "LOGNAME",
    "PWD",
    "LOCPATH",
    "NLSPATH",
    "GETCONF_DIR",
    "HOSTALIASES",
    "RESOLV_HOST_CONF",
    "LOCALDOMAIN",
    "POSIXLY_CORRECT",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
];

/// A checked name of the key variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyEnv(String);

impl KeyEnv {
    /// Checks a name given with `--key-env`.
    ///
    /// # Errors
    /// When it looks like a key, is not a variable's name, or is one that the system acts on.
    pub fn parse(name: &str) -> Result<Self, KeyEnvError> {
        if looks_like_key(name) {
            return Err(KeyEnvError::LooksLikeKey);
        }
        let of_name_characters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let begins_like_name = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !of_name_characters || !begins_like_name || name.len() > NAME_LIMIT_BYTES {
            return Err(KeyEnvError::NotAName);
        }
        let upper = name.to_ascii_uppercase();
        if let Some(known) = OBEYED_NAMES.into_iter().find(|known| *known == upper) {
            return Err(KeyEnvError::Obeyed(known));
        }
        match OBEYED_PREFIXES.into_iter().find(|prefix| upper.starts_with(prefix)) {
            Some(prefix) => Err(KeyEnvError::ObeyedPrefix(prefix)),
            None => Ok(Self(name.into())),
        }
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for KeyEnv {
    fn default() -> Self {
        Self(DEFAULT.into())
    }
}

impl fmt::Display for KeyEnv {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Why a name is refused; the texts do not repeat it, except one that is on a public list.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyEnvError {
    /// It has the form of a key.
    #[error(
        "--key-env takes the name of a variable, and this looks like a key itself; \
         put the key into a variable such as TINY_PRIVATE_KEY, and treat this one as exposed"
    )]
    LooksLikeKey,
    /// It is not a name.
    #[error("--key-env takes the name of a variable: letters, digits and _, not beginning with a digit")]
    NotAName,
    /// It means something to the loader or libc.
    #[error("--key-env cannot be {0}, which the system itself acts on; use a name such as TINY_PRIVATE_KEY")]
    Obeyed(&'static str),
    /// It begins like names that mean something to the loader or libc.
    #[error(
        "--key-env cannot begin with {0}: the system itself acts on such names; use one such as TINY_PRIVATE_KEY"
    )]
    ObeyedPrefix(&'static str),
}

/// Whether a text has the form of a key: anything that begins like an nsec, and a long run of nothing but
/// hexadecimal digits. Wide on purpose, since half a key is still a secret.
pub fn looks_like_key(text: &str) -> bool {
    let text = text.trim();
    let begins_like_nsec = text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nsec1"));
    let hex = text.len() >= HEX_KEY_FROM_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    begins_like_nsec || hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_are_accepted_as_given() {
        for name in ["TINY_PRIVATE_KEY", "k", "_K9", "agent_key", "DEADBEEF", "HOMEKEY", "LDX", "ABCDEF0123"]
        {
            assert_eq!(KeyEnv::parse(name).as_ref().map(KeyEnv::as_str), Ok(name));
        }
        assert_eq!(KeyEnv::parse(DEFAULT), Ok(KeyEnv::default()));
    }

    #[test]
    fn names_that_the_system_obeys_are_refused() {
        for name in [
            "LD_PRELOAD",
            "ld_preload",
            "GLIBC_TUNABLES",
            "PATH",
            "Home",
            "MALLOC_CHECK_",
            "LC_ALL",
            "TZ",
            "LISTEN_FDS",
            "Bash_Env",
        ] {
            let refused = KeyEnv::parse(name);
            assert!(matches!(refused, Err(KeyEnvError::Obeyed(_) | KeyEnvError::ObeyedPrefix(_))), "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "K".repeat(NAME_LIMIT_BYTES + 1);
        for name in ["", " ", "A B", "A=B", "A-B", "9A", "SCHLÜSSEL", "A\0B", "${KEY}", &long] {
            assert_eq!(KeyEnv::parse(name), Err(KeyEnvError::NotAName), "{name:?}");
        }
    }

    #[test]
    fn a_key_given_as_name_is_refused_and_not_echoed() {
        let hex = "9F".repeat(32);
        let nsec = format!("nsec1{}", "q".repeat(58));
        for key in [&hex, &hex.to_lowercase(), &hex[..63], &nsec, &nsec.to_uppercase(), &format!(" {nsec}\n")]
        {
            let refusal = KeyEnv::parse(key).expect_err("a key is not a name");
            assert_eq!(refusal, KeyEnvError::LooksLikeKey);
            assert!(!format!("{refusal} {refusal:?}").contains(key.trim()));
        }
    }
}
