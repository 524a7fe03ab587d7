//! The one scan that decides what is JSON: iterative, strict, with a fixed stack of bits.

use super::{JsonError, MAX_DEPTH, Traits, hex4, words};

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

pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    traits: Traits,
}

impl<'a> Scan<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, traits: Traits::default() }
    }

    /// Passes over the one value and the white space around it; says what it noticed.
    pub(super) fn traits(mut self) -> Result<Traits, JsonError> {
        self.document()?;
        Ok(self.traits)
    }

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

    /// Passes over ASCII text that needs no look: eight bytes at a time where a key may end, then 32, so that
    /// it can be vectorised.
    fn plain_run(&mut self) {
        match words::find(self.bytes, self.at, words::SHORT_WORDS, words::special) {
            Ok(at) => {
                self.at = at;
                return;
            }
            Err(at) => self.at = at,
        }
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
