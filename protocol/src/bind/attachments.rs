//! Attachments of a message: the references that a relay adds to the content and the `imeta` tags (NIP-92)
//! that describe them. Both must speak of the descriptors that the host gave.

use std::borrow::Cow;

use super::Mismatch;
use super::asked::Asked;

/// The argument that holds the descriptors.
pub const ARGUMENT: &str = "attachments";

/// The most attachments of one message (relay document, Room attachments).
const MAX_ATTACHMENTS: usize = 8;

/// The longest label that is not the file's name, in bytes: room for a word such as `image`.
const MAX_LABEL_BYTES: usize = 16;

/// A descriptor, as far as it is bound.
struct Attachment<'a> {
    url: Cow<'a, str>,
    sha256: Option<Cow<'a, str>>,
    filename: Option<Cow<'a, str>>,
}

/// The descriptors of a call.
pub struct Attachments<'a>(Vec<Attachment<'a>>);

impl<'a> Attachments<'a> {
    /// Reads the argument; absent is none.
    pub fn read(asked: &Asked<'a>) -> Result<Self, Mismatch> {
        const WRONG: Mismatch = Mismatch::Type(ARGUMENT);
        let mut all = Vec::new();
        let Some(value) = asked.get(ARGUMENT)? else { return Ok(Self(all)) };
        if !value.is_array() {
            return Err(WRONG);
        }
        for descriptor in value.elements() {
            if all.len() == MAX_ATTACHMENTS {
                return Err(Mismatch::TooMany);
            }
            if !descriptor.is_object() || descriptor.repeated_key().is_some() {
                return Err(WRONG);
            }
            let text = |name: &str| {
                let value = descriptor.get(name).filter(|value| !value.is_null());
                value.map(|value| value.as_exact_str().ok_or(WRONG)).transpose()
            };
            let url = text("url")?.filter(|url| !url.is_empty()).ok_or(WRONG)?;
            all.push(Attachment { url, sha256: text("sha256")?, filename: text("filename")? });
        }
        Ok(Self(all))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether what follows the argument in the content is references to these attachments and nothing else.
    pub fn explain(&self, rest: &str) -> bool {
        let mut rest = rest;
        if self.is_empty() {
            return rest.is_empty();
        }
        loop {
            rest = rest.trim_start();
            if rest.is_empty() {
                return true;
            }
            match self.0.iter().find_map(|attachment| attachment.after_reference(rest)) {
                Some(after) => rest = after,
                None => return false,
            }
        }
    }

    /// Whether these `imeta` tags describe each attachment, and nothing else.
    pub fn are_described_by(&self, tags: &[&[String]]) -> bool {
        let described_by = |attachment: &Attachment<'_>| tags.iter().any(|tag| attachment.is_in(tag));
        let is_ours = |tag: &&[String]| self.0.iter().any(|attachment| attachment.is_in(tag));
        self.0.iter().all(described_by) && tags.iter().all(is_ours)
    }
}

impl Attachment<'_> {
    /// What follows a reference to this attachment: a Markdown link or image, or the bare URL.
    fn after_reference<'t>(&self, text: &'t str) -> Option<&'t str> {
        let Some(link) = text.strip_prefix('!').unwrap_or(text).strip_prefix('[') else {
            let after = text.strip_prefix(&*self.url)?;
            return after
                .is_empty()
                .then_some(after)
                .or_else(|| after.starts_with(char::is_whitespace).then_some(after));
        };
        let target = format!("]({})", self.url);
        let (label, after) = link.split_once(&target)?;
        self.has_label(label).then_some(after)
    }

    /// A label is the file's name, or one short word: it must not become a place for sentences.
    fn has_label(&self, label: &str) -> bool {
        let is_name =
            |name: &Cow<'_, str>| label == name || label.replace('\\', "") == name.replace('\\', "");
        let is_word = label.len() <= MAX_LABEL_BYTES && label.bytes().all(|b| b.is_ascii_alphanumeric());
        is_word || self.filename.as_ref().is_some_and(is_name)
    }

    /// Whether an `imeta` tag is about this attachment: its URL and hash, and no other words.
    fn is_in(&self, tag: &[String]) -> bool {
        let items = || tag.iter().skip(1).map(|item| item.split_once(' ').unwrap_or((item, "")));
        items().any(|(key, _)| key == "url")
            && items().all(|(key, value)| match key {
                "url" => value == self.url,
                "x" => self.sha256.as_ref().is_none_or(|hash| value == hash),
                // Words and other places of NIP-92 and NIP-94, which no descriptor gave.
                "alt" | "summary" | "fallback" | "service" | "content" => false,
                _ => true,
            })
    }
}
