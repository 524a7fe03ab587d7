//! From the relay's result to the host's: keys chosen, text made fit for one line, sizes bounded
//! (contract 4 and 6).
//!
//! Large blocks that need no change are passed on from the relay's own answer without a copy.

use std::borrow::Cow;

use bytes::Bytes;
use tinyagent_protocol::event::push_string;
use tinyagent_protocol::json::{Json, JsonError};

use crate::host::separators::escaped;

/// The longest text of a block, in bytes (contract 6).
pub const TEXT_LIMIT_BYTES: usize = 65_536;

/// The largest `structuredContent`, in bytes of compact JSON (contract 6).
pub const STRUCTURED_LIMIT_BYTES: usize = 262_144;

/// The longest answer line: TypeScript hosts close the connection at 10 MiB (contract 6).
pub const LINE_LIMIT_BYTES: usize = 8 << 20;

/// Room that is left in a line for the id and the keys around the result.
const ENVELOPE_BYTES: usize = 70 << 10;

/// A non-text block below this size is not worth a note in its place.
const SMALL_BLOCK_BYTES: usize = 256;

/// The keys of a relay's result that a host's has as well.
pub const RESULT_KEYS: [&str; 3] = ["content", "structuredContent", "isError"];

/// What a permission failure of the relay begins with.
const PERMISSION_WORDS: [&str; 2] = ["restricted:", "auth-required:"];

/// A tool result for the host.
#[derive(Debug, Default)]
pub struct HostResult {
    content: Vec<Block>,
    structured: Option<Bytes>,
    is_error: Option<bool>,
}

#[derive(Clone, Debug)]
enum Block {
    /// A text block with nothing but its text.
    Text(String),
    /// Any block as the relay wrote it.
    Raw { json: Bytes, is_text: bool },
}

/// Why a relay's result cannot be given to a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// `content` is not a list of blocks.
    #[error("invalid answer: content is not a list of blocks")]
    Content,
    /// Only if the rewriting broke it.
    #[error("invalid answer: {0}")]
    Json(#[from] JsonError),
}

impl HostResult {
    /// A tool error with one text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![Block::Text(text.into())], structured: None, is_error: Some(true) }
    }

    /// A tool error with the relay's `structuredContent` beside the text.
    pub fn error_with(text: impl Into<String>, structured: Option<Bytes>) -> Self {
        Self { structured, ..Self::error(text) }
    }

    /// A result with one text and a structured value, as tiny_diagnose gives.
    pub fn report(text: impl Into<String>, structured: String) -> Self {
        Self { content: vec![Block::Text(text.into())], structured: Some(structured.into()), is_error: None }
    }

    /// Takes over a relay's result, which must be clean (see [`clean`]).
    ///
    /// # Errors
    /// [`ResultError`].
    pub fn from_relay(bytes: &Bytes) -> Result<Self, ResultError> {
        Self::of_clean(Json::check(bytes)?.0.fields(RESULT_KEYS).values, bytes)
    }

    /// Takes over the values of [`RESULT_KEYS`], which were checked, are clean and lie in `bytes`.
    ///
    /// # Errors
    /// [`ResultError`].
    pub fn of_clean(
        [content, structured, is_error]: [Option<Json<'_>>; RESULT_KEYS.len()],
        bytes: &Bytes,
    ) -> Result<Self, ResultError> {
        let content = match content {
            None => Vec::new(),
            Some(content) if content.is_array() => content
                .elements()
                .map(|block| Block::read(block, bytes))
                .collect::<Option<_>>()
                .ok_or(ResultError::Content)?,
            Some(_) => return Err(ResultError::Content),
        };
        let structured = structured.filter(|value| value.is_object());
        let structured = structured.map(|value| bytes.slice_ref(value.text().as_bytes()));
        let mut result = Self { content, structured, is_error: is_error.and_then(Json::as_bool) };
        if result.is_error == Some(true) {
            result.mark_permission();
        }
        Ok(result)
    }

    /// Whether the relay calls it an error.
    pub fn is_error(&self) -> bool {
        self.is_error == Some(true)
    }

    /// The structured value, if it is an object.
    pub fn structured(&self) -> Option<&Bytes> {
        self.structured.as_ref()
    }

    /// Puts `permission: ` before what the relay calls restricted (contract 4).
    fn mark_permission(&mut self) {
        let is_marked = |text: &str| PERMISSION_WORDS.iter().any(|word| text.starts_with(word));
        let message = self.structured.as_ref().and_then(|structured| {
            let (json, _) = Json::check(structured).ok()?;
            json.get("message")?.as_str().map(Cow::into_owned)
        });
        if let Some(message) = message.filter(|message| is_marked(message)) {
            let block = Block::Text(format!("permission: {message}"));
            match self.content.iter_mut().find(|block| block.is_text()) {
                Some(first) => *first = block,
                None => self.content.push(block),
            }
            return;
        }
        for block in &mut self.content {
            if let Some(text) = block.text().filter(|text| is_marked(text)) {
                *block = Block::Text(format!("permission: {text}"));
            }
        }
    }

    /// Applies the bounds and gives the result's JSON in pieces.
    pub fn into_pieces(mut self) -> Vec<Bytes> {
        self.bound_texts();
        self.bound_structured();
        self.bound_line();
        let mut pieces = Vec::with_capacity(self.content.len() * 2 + 4);
        let mut text = String::from("{\"content\":[");
        for (i, block) in self.content.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            match block {
                Block::Text(content) => push_text_block(&mut text, content),
                Block::Raw { json, .. } => push_piece(&mut pieces, &mut text, json),
            }
        }
        text.push(']');
        if let Some(structured) = &self.structured {
            text.push_str(",\"structuredContent\":");
            push_piece(&mut pieces, &mut text, structured);
        }
        if let Some(is_error) = self.is_error {
            text.push_str(if is_error { ",\"isError\":true" } else { ",\"isError\":false" });
        }
        text.push('}');
        pieces.push(text.into());
        pieces
    }

    fn bound_texts(&mut self) {
        for block in &mut self.content {
            if block.size() <= TEXT_LIMIT_BYTES {
                continue;
            }
            if let Some(text) = block.text().filter(|text| text.len() > TEXT_LIMIT_BYTES) {
                let shown = text.floor_char_boundary(TEXT_LIMIT_BYTES);
                let total = text.len();
                *block =
                    Block::Text(format!("{}\n[truncated: {shown} of {total} bytes shown]", &text[..shown]));
            }
        }
    }

    fn bound_structured(&mut self) {
        let Some(total) = self.structured.as_ref().map(Bytes::len).filter(|n| *n > STRUCTURED_LIMIT_BYTES)
        else {
            return;
        };
        self.structured = Some(format!("{{\"truncated\":true,\"bytes\":{total}}}").into());
        let note = format!(
            "[structuredContent truncated: {total} bytes exceeds the {STRUCTURED_LIMIT_BYTES} byte limit]"
        );
        match self.content.iter_mut().find(|block| block.is_text()) {
            Some(first) => *first = Block::Text(format!("{}\n{note}", first.text().unwrap_or_default())),
            None => self.content.push(Block::Text(note)),
        }
    }

    /// Keeps the line under its limit: first the largest blocks that are no text go, then the last
    /// blocks, each with a note of what was left out.
    fn bound_line(&mut self) {
        let limit = LINE_LIMIT_BYTES - ENVELOPE_BYTES;
        let fixed = self.structured.as_ref().map_or(0, Bytes::len);
        let mut total: usize = fixed + self.content.iter().map(|block| block.size() + 1).sum::<usize>();
        if total < limit {
            return;
        }
        let mut others: Vec<usize> =
            (0..self.content.len()).filter(|i| !self.content[*i].is_text()).collect();
        others.sort_by_key(|i| std::cmp::Reverse(self.content[*i].size()));
        for i in others {
            let size = self.content[i].size();
            if total < limit || size <= SMALL_BLOCK_BYTES {
                break;
            }
            let kind = self.content[i].kind();
            self.content[i] =
                Block::Text(format!("[{kind} block left out: {size} bytes exceed the line's limit]"));
            total = total + self.content[i].size() - size;
        }
        let (mut count, mut bytes) = (0, 0);
        while total >= limit {
            let Some(block) = self.content.pop() else { break };
            total -= block.size() + 1;
            count += 1;
            bytes += block.size();
        }
        if count > 0 {
            self.content.push(Block::Text(format!(
                "[the last {count} blocks left out: {bytes} bytes exceed the line's limit]"
            )));
        }
    }
}

impl Block {
    fn read(block: Json<'_>, bytes: &Bytes) -> Option<Self> {
        let kind = block.get("type").filter(|_| block.is_object())?.as_str()?;
        let is_text = kind == "text" && block.get("text").is_some_and(Json::is_string);
        Some(Self::Raw { json: bytes.slice_ref(block.text().as_bytes()), is_text })
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_) | Self::Raw { is_text: true, .. })
    }

    /// The text of a text block.
    fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Raw { json, is_text: true } => Json::check(json).ok()?.0.get("text")?.as_str(),
            Self::Raw { .. } => None,
        }
    }

    fn kind(&self) -> String {
        match self {
            Self::Text(_) => "text".into(),
            Self::Raw { json, .. } => {
                let kind = Json::check(json)
                    .ok()
                    .and_then(|(json, _)| json.get("type")?.as_str().map(Cow::into_owned));
                tinyagent_protocol::policy::shown(&kind.unwrap_or_default())
            }
        }
    }

    /// Its size in the line, in bytes.
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => {
                let mut json = String::new();
                push_text_block(&mut json, text);
                json.len()
            }
            Self::Raw { json, .. } => json.len(),
        }
    }
}

fn push_text_block(out: &mut String, text: &str) {
    out.push_str("{\"type\":\"text\",\"text\":");
    push_host_string(out, text);
    out.push('}');
}

/// Small pieces are copied together, large ones are passed on as they lie.
fn push_piece(pieces: &mut Vec<Bytes>, text: &mut String, json: &Bytes) {
    const COPY_BYTES: usize = 16 << 10;
    if json.len() <= COPY_BYTES
        && let Ok(small) = std::str::from_utf8(json)
    {
        return text.push_str(small);
    }
    pieces.push(std::mem::take(text).into());
    pieces.push(json.clone());
}

/// Appends a JSON string in which nothing can end a line for any host.
pub fn push_host_string(out: &mut String, text: &str) {
    let start = out.len();
    push_string(out, text);
    if let Cow::Owned(escaped) = escaped(&out[start..]) {
        out.truncate(start);
        out.push_str(&escaped);
    }
}

/// Makes checked JSON fit for a host's line: no white space between tokens, no half characters, no
/// character that some hosts take for a line end. One pass, no recursion.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let Some(quote) = rest.find('"') else {
            push_tokens(&mut out, rest);
            return out;
        };
        push_tokens(&mut out, &rest[..quote]);
        let string = &rest[quote..];
        let end = string_end(string);
        push_clean_string(&mut out, &string[..end]);
        rest = &string[end..];
    }
}

fn push_tokens(out: &mut String, tokens: &str) {
    out.extend(tokens.chars().filter(|c| !matches!(c, ' ' | '\t' | '\r' | '\n')));
}

/// The length of the string that `text` begins with, quotes included.
fn string_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(step) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += step;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

fn push_clean_string(out: &mut String, string: &str) {
    let string = escaped(string);
    let mut rest = &*string;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let length = escape_length(&rest[at..]);
        let escape = &rest[at..at + length];
        out.push_str(&rest[..at]);
        // A pair is twelve characters long; a surrogate in an escape of six has lost its other half.
        let lone = length == 6
            && matches!(escape.as_bytes()[2..4], [b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F']);
        out.push_str(if lone { "\\ufffd" } else { escape });
        rest = &rest[at + length..];
    }
    out.push_str(rest);
}

/// The length of the escape that `text` begins with: 2, 6, or 12 for a whole surrogate pair.
fn escape_length(text: &str) -> usize {
    let unit = |at: usize| text.get(at + 2..at + 6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    if text.as_bytes().get(1) != Some(&b'u') {
        return 2;
    }
    let high = unit(0).is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
    let low = text.get(6..8) == Some("\\u") && unit(6).is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
    if high && low { 12 } else { 6 }
}

#[cfg(test)]
mod tests;
