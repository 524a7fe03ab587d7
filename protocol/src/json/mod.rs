//! Strict JSON text (RFC 8259), checked once in one iterative scan and then read in place.
//!
//! Everything that crosses a boundary of ours is carried as the text its author wrote, never as a
//! tree, so that numbers, key order and escapes survive and two parsers cannot see two values. The
//! scan uses no recursion and a fixed stack of bits, so that no nesting can exhaust the stack. It
//! never allocates and never follows a second grammar: what it accepts, it accepts whole.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use thiserror::Error;

mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use scan::Scan;

/// The deepest nesting that is accepted (contract 2: Python hosts cannot read deeper text).
pub const MAX_DEPTH: usize = 512;

/// Up to so many keys are compared with each other, which is quicker than a set.
const FEW_KEYS: usize = 16;

/// Why a text is not JSON that we accept. Positions are byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JsonError {
    /// The bytes are not UTF-8.
    #[error("invalid UTF-8 at byte {0}")]
    Utf8(usize),
    /// The text breaks the grammar.
    #[error("invalid JSON at byte {0}")]
    Syntax(usize),
    /// The text ends inside a value.
    #[error("the JSON text ends early")]
    Early,
    /// The nesting exceeds [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH} levels")]
    Depth,
}

/// What the scan noticed on its way, besides that the text is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// There is white space between tokens.
    pub spaced: bool,
    /// A string holds an escape of half a surrogate pair, which is no character.
    pub lone_surrogate: bool,
    /// A string holds U+0085, U+2028 or U+2029 unescaped, which some hosts take for a line end.
    pub line_separator: bool,
}

/// A JSON value's text, proven valid by [`Json::check`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl<'a> Json<'a> {
    /// Checks that `bytes` are one JSON value with nothing but white space around it.
    ///
    /// # Errors
    /// [`JsonError`] names the first fault.
    pub fn check(bytes: &'a [u8]) -> Result<(Self, Traits), JsonError> {
        let text = std::str::from_utf8(bytes).map_err(|e| JsonError::Utf8(e.valid_up_to()))?;
        let traits = Scan::new(bytes).traits()?;
        let value = text.trim_matches([' ', '\t', '\r', '\n']);
        Ok((Self(value), traits))
    }

    /// The value of a text that [`Json::check`] accepted before, not scanned again.
    ///
    /// What decides anything for the signer is never read so. Any other text is read wrongly, or panics.
    pub fn of_checked(text: &'a str) -> Self {
        Self(text)
    }

    /// The value's own text, without white space around it.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Whether the value is an object.
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Whether the value is an array.
    pub fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    /// Whether the value is a string.
    pub fn is_string(self) -> bool {
        self.0.starts_with('"')
    }

    /// Whether the value is a number.
    pub fn is_number(self) -> bool {
        self.0.starts_with(|c: char| c == '-' || c.is_ascii_digit())
    }

    /// Whether the value is `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// The value if it is `true` or `false`.
    pub fn as_bool(self) -> Option<bool> {
        match self.0 {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// The value if it is an integer written as digits alone and fits. `9.0` and `1e1` are not.
    pub fn as_u64(self) -> Option<u64> {
        self.is_digits().then(|| self.0.parse().ok()).flatten()
    }

    /// Whether the value is a non-negative integer written as digits alone, of any size.
    pub fn is_digits(self) -> bool {
        self.0.bytes().all(|b| b.is_ascii_digit())
    }

    /// The value if it is a string, each lone surrogate read as U+FFFD.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        Some(if inner.contains('\\') { Cow::Owned(unescape(inner).0) } else { Cow::Borrowed(inner) })
    }

    /// The value if it is a string of whole characters; `None` for one with a lone surrogate.
    pub fn as_exact_str(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if !inner.contains('\\') {
            return Some(Cow::Borrowed(inner));
        }
        let (text, whole) = unescape(inner);
        whole.then_some(Cow::Owned(text))
    }

    /// The members of an object in their order; empty for any other value.
    pub fn members(self) -> Members<'a> {
        Members { text: self.0, at: if self.is_object() { 1 } else { self.0.len() } }
    }

    /// The elements of an array in their order; empty for any other value.
    pub fn elements(self) -> Elements<'a> {
        Elements { text: self.0, at: if self.is_array() { 1 } else { self.0.len() } }
    }

    /// The first member with this key.
    pub fn get(self, key: &str) -> Option<Json<'a>> {
        self.members().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The members with these keys, found in one pass; none for any other value than an object.
    pub fn fields<const N: usize>(self, keys: [&str; N]) -> Fields<'a, N> {
        let mut fields = Fields { values: [None; N], repeated: None };
        let (mut seen, mut count) = ([""; FEW_KEYS], 0);
        for (key, value) in self.members() {
            if let Some(at) = keys.iter().position(|wanted| *wanted == key) {
                fields.values[at].get_or_insert(value);
            }
            match key {
                Cow::Borrowed(key) if count < FEW_KEYS => {
                    if fields.repeated.is_none() && seen[..count].contains(&key) {
                        fields.repeated = Some(Cow::Borrowed(key));
                    }
                    seen[count] = key;
                }
                // Many keys, or one that was written with escapes: compared apart, below.
                _ => count = FEW_KEYS,
            }
            count += 1;
        }
        if count > FEW_KEYS {
            let mut seen = HashSet::new();
            fields.repeated = self.members().map(|(key, _)| key).find(|key| !seen.insert(key.clone()));
        }
        fields
    }

    /// The first key that an object repeats, keys compared as characters.
    pub fn repeated_key(self) -> Option<Cow<'a, str>> {
        self.fields([]).repeated
    }
}

/// The members of an object that a reader asked for.
pub struct Fields<'a, const N: usize> {
    /// The first value of each key, in the order of asking.
    pub values: [Option<Json<'a>>; N],
    /// The first key that the object repeats, keys compared as characters.
    pub repeated: Option<Cow<'a, str>>,
}

/// Iterates over an object's members as decoded key and value.
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.text.as_bytes();
        let start = skip_separators(bytes, self.at)?;
        if bytes[start] != b'"' {
            return None;
        }
        let (end, escaped) = skip_checked_string(bytes, start)?;
        self.at = end;
        let key = &self.text[start + 1..end - 1];
        let value = next_item(self.text, &mut self.at)?;
        let key = if escaped { Cow::Owned(unescape(key).0) } else { Cow::Borrowed(key) };
        Some((key, Json(value)))
    }
}

/// Iterates over an array's elements.
pub struct Elements<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Json<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        next_item(self.text, &mut self.at).map(Json)
    }
}

/// The next value of a checked container, past separators; `None` at its end.
fn next_item<'a>(text: &'a str, at: &mut usize) -> Option<&'a str> {
    let bytes = text.as_bytes();
    let start = skip_separators(bytes, *at)?;
    let end = skip_checked(bytes, start)?;
    *at = end;
    (end > start).then(|| &text[start..end])
}

/// Where the next token of a checked container starts; `None` at the end of the text.
fn skip_separators(bytes: &[u8], mut at: usize) -> Option<usize> {
    while matches!(bytes.get(at)?, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') {
        at += 1;
    }
    Some(at)
}

/// The end of the checked value that starts at `at`; `at` itself where a container closes.
fn skip_checked(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => skip_checked_string(bytes, at).map(|(end, _)| end),
        b'{' | b'[' => {
            let (mut depth, mut i) = (0_usize, at);
            loop {
                match *bytes.get(i)? {
                    b'"' => {
                        i = skip_checked_string(bytes, i)?.0;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        depth -= 1;
                        if depth == 0 {
                            return Some(i + 1);
                        }
                    }
                    _ => {}
                }
                i += 1;
            }
        }
        _ => {
            let rest = &bytes[at..];
            let end =
                rest.iter().position(|b| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n'));
            Some(at + end.unwrap_or(rest.len()))
        }
    }
}

/// The end of the checked string that starts at `at`, and whether it holds escapes.
fn skip_checked_string(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let (mut i, mut escaped) = (at + 1, false);
    loop {
        i = quote_or_backslash(bytes, i)?;
        if bytes[i] == b'"' {
            return Some((i + 1, escaped));
        }
        escaped = true;
        i += 2;
    }
}

/// Where the next quote or backslash stands.
fn quote_or_backslash(bytes: &[u8], at: usize) -> Option<usize> {
    match words::find(bytes, at, words::SHORT_WORDS, words::quote_or_backslash) {
        Ok(at) => Some(at),
        Err(at) => memchr::memchr2(b'"', b'\\', bytes.get(at..)?).map(|further| at + further),
    }
}

/// Decodes a checked string's inner text. The flag is false where a lone surrogate became U+FFFD.
fn unescape(inner: &str) -> (String, bool) {
    let mut out = String::with_capacity(inner.len());
    let mut whole = true;
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        let escape = rest.as_bytes()[at + 1];
        rest = &rest[at + 2..];
        out.push(match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let high = hex4(rest.as_bytes());
                rest = &rest[4..];
                let low = if (0xd800..0xdc00).contains(&high) && rest.starts_with("\\u") {
                    Some(hex4(&rest.as_bytes()[2..])).filter(|low| (0xdc00..0xe000).contains(low))
                } else {
                    None
                };
                let code = match low {
                    Some(low) => {
                        rest = &rest[6..];
                        0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
                    }
                    None => high,
                };
                char::from_u32(code).unwrap_or_else(|| {
                    whole = false;
                    char::REPLACEMENT_CHARACTER
                })
            }
            other => char::from(other),
        });
    }
    out.push_str(rest);
    (out, whole)
}

/// Four hex digits as a number; a checked text has nothing else there.
fn hex4(digits: &[u8]) -> u32 {
    digits.iter().take(4).fold(0, |n, d| n << 4 | char::from(*d).to_digit(16).unwrap_or(0))
}
