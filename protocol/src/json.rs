//! Strict JSON text (RFC 8259), checked once in one iterative scan and then read in place.
//!
//! Everything that crosses a boundary of ours is carried as the text its author wrote, never as a
//! tree, so that numbers, key order and escapes survive and two parsers cannot see two values. The
//! scan uses no recursion and a fixed stack of bits, so that no nesting can exhaust the stack. It
//! never allocates and never follows a second grammar: what it accepts, it accepts whole.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// The deepest nesting that is accepted (contract 2: Python hosts cannot read deeper text).
pub const MAX_DEPTH: usize = 512;

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
        let mut scan = Scan { bytes, at: 0, traits: Traits::default() };
        scan.document()?;
        let value = text.trim_matches([' ', '\t', '\r', '\n']);
        Ok((Self(value), scan.traits))
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

    /// The first key that an object repeats, keys compared as characters.
    pub fn repeated_key(self) -> Option<Cow<'a, str>> {
        let mut seen = std::collections::HashSet::new();
        self.members().map(|(key, _)| key).find(|key| !seen.insert(key.clone()))
    }
}

/// Iterates over an object's members as decoded key and value.
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Json<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = next_item(self.text, &mut self.at)?;
        let value = next_item(self.text, &mut self.at)?;
        Some((Json(key).as_str()?, Json(value)))
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
    while matches!(bytes.get(*at)?, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':') {
        *at += 1;
    }
    let start = *at;
    let end = skip_checked(bytes, start)?;
    *at = end;
    (end > start).then(|| &text[start..end])
}

/// The end of the checked value that starts at `at`; `at` itself where a container closes.
fn skip_checked(bytes: &[u8], at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => skip_checked_string(bytes, at),
        b'{' | b'[' => {
            let (mut depth, mut i) = (0_usize, at);
            loop {
                match *bytes.get(i)? {
                    b'"' => {
                        i = skip_checked_string(bytes, i)?;
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

fn skip_checked_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut i = at + 1;
    loop {
        i += memchr::memchr2(b'"', b'\\', bytes.get(i..)?)?;
        if bytes[i] == b'"' {
            return Some(i + 1);
        }
        i += 2;
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

/// One bit a level: whether the open container is an object.
struct Nesting {
    bits: [u64; MAX_DEPTH / 64],
    depth: usize,
}

impl Nesting {
    fn push(&mut self, object: bool) -> Result<(), JsonError> {
        let word = self.bits.get_mut(self.depth / 64).ok_or(JsonError::Depth)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Ok(())
    }

    fn in_object(&self) -> bool {
        let top = self.depth - 1;
        self.bits[top / 64] & (1 << (top % 64)) != 0
    }
}

/// What the grammar allows next.
enum Expect {
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    CommaOrClose,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    traits: Traits,
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), JsonError> {
        let mut nesting = Nesting { bits: [0; MAX_DEPTH / 64], depth: 0 };
        let mut expect = Expect::Value;
        self.space();
        self.traits.spaced = false;
        loop {
            let byte = self.peek()?;
            expect = match expect {
                Expect::ValueOrClose if byte == b']' => self.close(&mut nesting),
                Expect::KeyOrClose if byte == b'}' => self.close(&mut nesting),
                Expect::Value | Expect::ValueOrClose => match byte {
                    b'{' => {
                        nesting.push(true)?;
                        self.at += 1;
                        Expect::KeyOrClose
                    }
                    b'[' => {
                        nesting.push(false)?;
                        self.at += 1;
                        Expect::ValueOrClose
                    }
                    _ => {
                        self.scalar(byte)?;
                        Expect::CommaOrClose
                    }
                },
                Expect::Key | Expect::KeyOrClose => {
                    if byte != b'"' {
                        return Err(self.fault());
                    }
                    self.string()?;
                    self.space();
                    if self.peek()? != b':' {
                        return Err(self.fault());
                    }
                    self.at += 1;
                    Expect::Value
                }
                Expect::CommaOrClose => match (byte, nesting.in_object()) {
                    (b',', true) => {
                        self.at += 1;
                        Expect::Key
                    }
                    (b',', false) => {
                        self.at += 1;
                        Expect::Value
                    }
                    (b'}', true) | (b']', false) => self.close(&mut nesting),
                    _ => return Err(self.fault()),
                },
            };
            if nesting.depth == 0 {
                let spaced = self.traits.spaced;
                self.space();
                self.traits.spaced = spaced;
                return if self.at == self.bytes.len() { Ok(()) } else { Err(self.fault()) };
            }
            self.space();
        }
    }

    fn close(&mut self, nesting: &mut Nesting) -> Expect {
        nesting.depth -= 1;
        self.at += 1;
        Expect::CommaOrClose
    }

    fn peek(&self) -> Result<u8, JsonError> {
        self.bytes.get(self.at).copied().ok_or(JsonError::Early)
    }

    fn fault(&self) -> JsonError {
        JsonError::Syntax(self.at)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.traits.spaced = true;
            self.at += 1;
        }
    }

    fn scalar(&mut self, byte: u8) -> Result<(), JsonError> {
        match byte {
            b'"' => self.string(),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(self.fault()),
        }
    }

    fn word(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.fault());
        }
        self.at += word.len();
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.at += usize::from(self.bytes[self.at] == b'-');
        if self.peek()? == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.bytes.get(self.at) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), JsonError> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.fault());
        }
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.plain_run();
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'\\' => self.escape()?,
                0..=0x1f => return Err(self.fault()),
                0xc2 => {
                    self.traits.line_separator |= self.bytes.get(self.at + 1) == Some(&0x85);
                    self.at += 1;
                }
                0xe2 => {
                    let tail = self.bytes.get(self.at + 1..self.at + 3);
                    self.traits.line_separator |= matches!(tail, Some([0x80, 0xa8 | 0xa9]));
                    self.at += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Passes over ASCII text that needs no look, 32 bytes at a time so that it can be vectorised.
    fn plain_run(&mut self) {
        let plain = |b: u8| b.wrapping_sub(0x20) < 0x60 && b != b'"' && b != b'\\';
        while let Some(chunk) = self.bytes.get(self.at..self.at + 32) {
            if !chunk.iter().fold(true, |all, b| all & plain(*b)) {
                break;
            }
            self.at += 32;
        }
        while self.bytes.get(self.at).is_some_and(|b| plain(*b)) {
            self.at += 1;
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        match self.peek()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                let code = self.code_unit()?;
                let pair_follows = (0xd800..0xdc00).contains(&code)
                    && self.bytes[self.at..].starts_with(b"\\u")
                    && matches!(
                        self.bytes.get(self.at + 2..self.at + 4),
                        Some([b'd' | b'D', b'c'..=b'f' | b'C'..=b'F'])
                    );
                if pair_follows {
                    self.at += 1;
                    self.code_unit()?;
                } else if (0xd800..0xe000).contains(&code) {
                    self.traits.lone_surrogate = true;
                }
            }
            _ => return Err(self.fault()),
        }
        Ok(())
    }

    /// The four digits after `\u`, with `at` on the `u`.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at + 1..self.at + 5).ok_or(JsonError::Early)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.fault());
        }
        self.at += 5;
        Ok(hex4(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Traits, JsonError> {
        Json::check(text.as_bytes()).map(|(_, traits)| traits)
    }

    #[test]
    fn accepts_exactly_what_serde_json_accepts_on_the_grammar_s_edges() {
        for text in [
            "",
            " ",
            "0",
            "-0",
            "-",
            "01",
            "1.",
            "1.0",
            ".5",
            "1e",
            "1e+",
            "1E+2",
            "1e400",
            "-1.5e-7",
            "true",
            "tru",
            "nul",
            "null",
            "[]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\":1}x",
            "{}{}",
            "\"\\u12\"",
            "\"\\x\"",
            "\"\u{1}\"",
            "\"tab\there\"",
            "\"\\ud83e\\udd80\"",
            "[{\"a\":[{}]}]",
            "]",
            "}",
            "[}",
            "{]",
            "\"open",
            "\u{feff}1",
            "+1",
            "NaN",
            "[1]]",
            "\t[ 1 , 2 ]\r\n",
            "\"é\u{2028}\"",
            "1 1",
            "--1",
            "1.e1",
            "{\"a\":1 \"b\":2}",
        ] {
            let ours = check(text).is_ok();
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
            assert_eq!(ours, theirs, "{text:?}");
        }
    }

    #[test]
    fn nesting_ends_at_the_limit_and_never_on_the_stack() {
        let nest = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(check(&nest(MAX_DEPTH)).is_ok());
        assert_eq!(check(&nest(MAX_DEPTH + 1)), Err(JsonError::Depth));
        assert_eq!(check(&"{\"a\":".repeat(1_000_000)), Err(JsonError::Depth));
        let mixed = "[{\"a\":".repeat(256) + "1" + &"}]".repeat(256);
        assert!(check(&mixed).is_ok());
    }

    #[test]
    fn notices_surrogates_separators_and_space() {
        let none = Traits::default();
        assert_eq!(check(r#"{"a":"\ud83e\udd80 \\ud800"}"#), Ok(none));
        for lone in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\ud800""#, r#""\ud800x""#, r#""\ud800\u0041""#] {
            assert_eq!(check(lone), Ok(Traits { lone_surrogate: true, ..none }), "{lone}");
        }
        for separator in ["\"\u{85}\"", "\"\u{2028}\"", "\"a\u{2029}b\""] {
            assert_eq!(check(separator), Ok(Traits { line_separator: true, ..none }));
        }
        assert_eq!(check("\"\u{2027}\u{86}\""), Ok(none));
        assert_eq!(check("{ \"a\":1}"), Ok(Traits { spaced: true, ..none }));
        assert_eq!(check(" {\"a\":1} \n"), Ok(none));
    }

    #[test]
    fn reads_members_and_elements_in_place() {
        let text = br#" {"a" : [1, {"b":"}]"}, "x"] , "n\u0061me":"q\"\\\n\ud83e\udd80","c":-1.5e3,"d":{}} "#;
        let (json, _) = Json::check(text).expect("valid");
        let members: Vec<_> = json.members().map(|(k, v)| (k.into_owned(), v.text().to_owned())).collect();
        assert_eq!(members[0], ("a".into(), r#"[1, {"b":"}]"}, "x"]"#.into()));
        assert_eq!(members[1].0, "name");
        assert_eq!(json.get("name").and_then(Json::as_str).as_deref(), Some("q\"\\\n🦀"));
        assert_eq!(members[2].1, "-1.5e3");
        assert_eq!(members[3].1, "{}");
        let elements: Vec<_> = json.get("a").expect("a").elements().map(Json::text).collect();
        assert_eq!(elements, ["1", r#"{"b":"}]"}"#, r#""x""#]);
        assert_eq!(json.get("d").expect("d").members().count(), 0);
        assert_eq!(json.repeated_key(), None);
    }

    #[test]
    fn sees_a_repeated_key_through_its_escapes() {
        let (json, _) = Json::check(br#"{"name":1,"n\u0061me":2}"#).expect("valid");
        assert_eq!(json.repeated_key().as_deref(), Some("name"));
    }

    #[test]
    fn integers_are_digits_alone() {
        let number = |text: &'static str| Json::check(text.as_bytes()).expect("valid").0.as_u64();
        assert_eq!(number("9"), Some(9));
        for other in ["9.0", "\"9\"", "-1", "-0", "9e0", "18446744073709551616", "true"] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
