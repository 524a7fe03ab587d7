//! Which environment variable may hold the key.

/// Why a name given to `--key-env` is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NameError {
    /// The user typed the key where its variable's name belongs; it is not repeated.
    #[error(
        "--key-env takes the name of an environment variable, not a key; the value given looks like a key"
    )]
    LooksLikeKey,
    /// Not a name at all.
    #[error("--key-env takes a name of letters, digits and _ that does not begin with a digit")]
    NotAName,
    /// A name that the dynamic loader, the C library or the shell obeys.
    #[error("--key-env cannot be {0}: the system gives that variable a meaning of its own")]
    Reserved(String),
}

/// Prefixes of variables that the dynamic loader, the C library or the runtime obey.
const RESERVED_PREFIXES: [&str; 8] =
    ["LD_", "DYLD_", "GLIBC_", "MALLOC_", "LC_", "RUST_", "SYSTEMD_", "LISTEN_"];

/// Whole names with such a meaning (ld.so(8), environ(7), systemd.exec(5)).
const RESERVED_NAMES: [&str; 26] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "PWD",
    "IFS",
    "ENV",
    "BASH_ENV",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TZDIR",
    "TMPDIR",
    "TMP",
    "TEMP",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "RES_OPTIONS",
    "RESOLV_HOST_CONF",
    "NOTIFY_SOCKET",
    "CREDENTIALS_DIRECTORY",
];

/// Accepts a name (contract section 1).
pub fn check(name: &str) -> Result<(), NameError> {
    if looks_like_key(name) {
        return Err(NameError::LooksLikeKey);
    }
    let mut characters = name.bytes();
    let starts_well = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_');
    if !starts_well || !characters.all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return Err(NameError::NotAName);
    }
    if RESERVED_NAMES.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(NameError::Reserved(name.into()));
    }
    Ok(())
}

/// Long runs of hexadecimal digits and anything that begins like an nsec; wide on purpose, since a
/// key with one character missing is still nearly a key.
pub fn looks_like_key(name: &str) -> bool {
    let lower = name.trim().to_ascii_lowercase();
    let hex = lower.bytes().filter(u8::is_ascii_hexdigit).count();
    lower.starts_with("nsec1") || (hex >= 48 && hex == lower.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for name in ["TINY_PRIVATE_KEY", "k", "_x9", "Nostr_Key"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_with_a_meaning_are_refused() {
        for name in ["LD_PRELOAD", "GLIBC_TUNABLES", "PATH", "DYLD_INSERT_LIBRARIES", "RUST_BACKTRACE"] {
            assert_eq!(check(name), Err(NameError::Reserved(name.into())));
        }
        for name in ["", "9A", "A-B", "A B", "A=B", "É"] {
            assert_eq!(check(name), Err(NameError::NotAName), "{name:?}");
        }
    }

    #[test]
    fn a_key_in_place_of_a_name_is_not_echoed() {
        let key = "ab".repeat(32);
        for name in
            [key.as_str(), &key[1..], "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"]
        {
            let refused = check(name).unwrap_err();
            assert_eq!(refused, NameError::LooksLikeKey);
            assert!(!refused.to_string().contains(name));
        }
    }
}
