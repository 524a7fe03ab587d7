//! `--bind-arguments`: whether a template says what the host called the tool for (design 7).
//!
//! What is bound stands as data in [`table`]; here are the few ways in which a tag can follow from an
//! argument. A tag that no row lists is refused, so a relay cannot add words, people or powers of its own.
//! It never asks a clock: the time is a parameter.

mod asked;
mod attachments;
mod grant;
#[cfg(test)]
mod tests;

pub mod table;

use std::borrow::Cow;
use std::collections::HashSet;

use thiserror::Error;

use crate::catalog::Tool;
use crate::message::Arguments;
use crate::template::Template;
use asked::Asked;
use attachments::Attachments;
use table::{Content, Row, Source, Tags};

/// The ids, keys or texts that arguments name.
type Names<'a> = HashSet<Cow<'a, str>>;

/// How far a template's time may lie from the judging clock, in seconds (design 7).
pub const TIME_WINDOW_SECONDS: u64 = 600;

/// Where a template and the arguments part. Texts name the field, never what stands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// The content.
    #[error("the template's content is not the {0} argument")]
    Content(&'static str),
    /// A tag is missing, or says something else than the argument.
    #[error("the template's {0} tag is not the {1} argument")]
    Tag(&'static str, &'static str),
    /// A tag that the tool has, but that nothing in this call asks for.
    #[error("the template has a tag {0} that no argument asks for")]
    Unasked(&'static str),
    /// A tag that the tool does not have.
    #[error("the template has a tag that the tool is not known to set")]
    Unlisted,
    /// The time.
    #[error("the template's created_at is more than ten minutes from the signer's clock")]
    Time,
    /// An argument that cannot be compared.
    #[error("the {0} argument has a type that cannot be compared; give it the type of the tool's schema")]
    Type(&'static str),
    /// An argument whose name a relay may take for another one's.
    #[error("the {0} argument is spelled in another case; write it as the tool's schema does")]
    Spelling(&'static str),
    /// Two arguments that a relay may take for one.
    #[error("two arguments have the same name; give each once")]
    Repeated,
    /// More arguments than a tool has, or more attachments than a message takes.
    #[error("there are more arguments or attachments than the tool takes")]
    TooMany,
    /// The table has no row.
    #[error("no rule binds this kind to the arguments of the tool")]
    NoRow,
}

/// Judges a template that a call of `tool` with these arguments returned, at the time `now` in seconds
/// since 1970.
///
/// # Errors
/// The first [`Mismatch`].
pub fn judge(tool: &Tool, arguments: Arguments<'_>, template: &Template, now: u64) -> Result<(), Mismatch> {
    let row = table::row(tool.name, template.kind).ok_or(Mismatch::NoRow)?;
    let asked = Asked::read(arguments)?;
    if template.created_at.is_some_and(|at| at.abs_diff(now) > TIME_WINDOW_SECONDS) {
        return Err(Mismatch::Time);
    }
    row.judge_content(&asked, template)?;
    for rule in row.tags {
        rule.judge(&asked, template)?;
    }
    let is_listed = |name: &String| row.tags.iter().any(|rule| rule.names.contains(&name.as_str()));
    if template.tags.iter().all(|tag| tag.first().is_some_and(is_listed)) {
        Ok(())
    } else {
        Err(Mismatch::Unlisted)
    }
}

impl Row {
    fn judge_content(&self, asked: &Asked<'_>, template: &Template) -> Result<(), Mismatch> {
        let content = template.content.as_str();
        let (argument, agrees) = match self.content {
            Content::Argument(argument) => (argument, content == asked.text(argument)?.unwrap_or_default()),
            Content::Attaching(argument) => {
                let text = asked.text(argument)?.unwrap_or_default();
                let rest = content.strip_prefix(&*text);
                let attachments = Attachments::read(asked)?;
                (argument, rest.is_some_and(|rest| attachments.explain(rest)))
            }
            Content::Reason(argument) => (argument, grant::gives_reason(template, asked.text(argument)?)),
        };
        if agrees { Ok(()) } else { Err(Mismatch::Content(argument)) }
    }
}

impl Tags {
    fn judge(&self, asked: &Asked<'_>, template: &Template) -> Result<(), Mismatch> {
        let is_named =
            |tag: &&Vec<String>| tag.first().is_some_and(|name| self.names.contains(&name.as_str()));
        let tags: Vec<&[String]> = template.tags.iter().filter(is_named).map(Vec::as_slice).collect();
        match self.source {
            Source::Required(argument) => match asked.text(argument)? {
                Some(text) => self.say(argument, &tags, &[&text], true),
                None => Err(self.differs(argument)),
            },
            Source::Text(argument) => match asked.text(argument)? {
                Some(text) => self.say(argument, &tags, &[&text], !text.is_empty()),
                None => self.absent(&tags),
            },
            Source::TextIfGiven(argument) => match asked.text(argument)? {
                Some(text) => self.say(argument, &tags, &[&text], !text.is_empty()),
                None => Ok(()),
            },
            Source::Trimmed(argument) => match asked.text(argument)? {
                Some(text) => self.say(argument, &tags, &[&text, text.trim()], !text.trim().is_empty()),
                None => self.absent(&tags),
            },
            Source::Integer(argument) => match asked.digits(argument)? {
                Some(digits) => self.say(argument, &tags, &[digits], digits != "0"),
                None => self.absent(&tags),
            },
            Source::IntegerIfGiven(argument) => match asked.digits(argument)? {
                Some(digits) => self.say(argument, &tags, &[digits], digits != "0"),
                None => Ok(()),
            },
            Source::Each(argument) => self.name_each(argument, &tags, &asked.texts(argument, tags.len())?),
            Source::Named(arguments) => {
                self.name_each(arguments[0], &tags, &asked.named(arguments)?.into_iter().collect())
            }
            Source::NamedOrResolved(arguments, most) => {
                let named: Names<'_> = asked.named(arguments)?.into_iter().collect();
                if named.is_empty() {
                    self.resolve(&tags, &named, most)
                } else {
                    self.name_each(arguments[0], &tags, &named)
                }
            }
            Source::NamedAndResolved(arguments, most) => {
                let named: Names<'_> = asked.named(arguments)?.into_iter().collect();
                let has_tag = |id: &Cow<'_, str>| tags.iter().any(|tag| tag.get(1).is_some_and(|v| v == id));
                if !named.iter().all(has_tag) {
                    return Err(self.differs(arguments[0]));
                }
                self.resolve(&tags, &named, most.saturating_sub(named.len()))
            }
            Source::RootOf(argument) => match asked.named(&[argument])?.into_iter().next() {
                Some(_) if tags.is_empty() => Err(self.differs(argument)),
                Some(id) => self.resolve(&tags, &HashSet::from([id]), 1).map_err(|_| self.differs(argument)),
                None => self.absent(&tags),
            },
            Source::Marked(marker, argument) => {
                let named = asked.named(&[argument])?;
                let agrees = |tag: &&[String]| {
                    tag.get(3).is_none_or(|m| m != marker)
                        || tag.get(1).is_some_and(|id| named.iter().any(|n| n == id))
                };
                if tags.iter().all(agrees) { Ok(()) } else { Err(self.differs(argument)) }
            }
            Source::Address { kind, author, identifier } => {
                let (author_key, name) = (asked.text(author)?, asked.text(identifier)?);
                match author_key.filter(|key| !key.is_empty()) {
                    Some(key) => {
                        let address = format!("{kind}:{key}:{}", name.unwrap_or_default());
                        self.name_each(identifier, &tags, &HashSet::from([address.into()]))
                    }
                    None => self.absent(&tags),
                }
            }
            Source::AddressBy { kind, author } => match asked.text(author)?.filter(|key| !key.is_empty()) {
                Some(key) => {
                    let address = format!("{kind}:{key}:");
                    let is_by = |tag: &&[String]| tag.get(1).is_some_and(|value| value.starts_with(&address));
                    let agrees = !tags.is_empty() && tags.iter().all(is_by);
                    if agrees { Ok(()) } else { Err(self.differs(author)) }
                }
                None => self.absent(&tags),
            },
            Source::Line { line, side } => match (asked.digits(line)?, asked.text(side)?) {
                (None, None) => self.absent(&tags),
                (Some(line_text), Some(side_text)) => {
                    let agrees =
                        |tag: &&[String]| tag.len() == 3 && tag[1] == line_text && tag[2] == *side_text;
                    if tags.len() == 1 && tags.iter().all(agrees) { Ok(()) } else { Err(self.differs(line)) }
                }
                _ => Err(self.differs(line)),
            },
            Source::Attachments => {
                let attachments = Attachments::read(asked)?;
                if attachments.is_empty() {
                    self.absent(&tags)
                } else if attachments.are_described_by(&tags) {
                    Ok(())
                } else {
                    Err(self.differs(attachments::ARGUMENT))
                }
            }
            Source::Grant { changes, reason } => {
                let [[_, text]] = &tags[..] else { return Err(self.differs(changes)) };
                let changes_asked = asked.get(changes)?.ok_or(Mismatch::Type(changes))?;
                if !changes_asked.is_object() {
                    return Err(Mismatch::Type(changes));
                }
                let agrees = grant::asks_for(text, changes_asked, asked.text(reason)?.as_deref());
                if agrees { Ok(()) } else { Err(self.differs(changes)) }
            }
            Source::Unbound(_) => Ok(()),
        }
    }

    /// Every tag has one value, which is among `texts`; there is one at least where that is required.
    fn say(
        &self,
        argument: &'static str,
        tags: &[&[String]],
        texts: &[&str],
        required: bool,
    ) -> Result<(), Mismatch> {
        let says = |tag: &&[String]| tag.len() == 2 && texts.contains(&tag[1].as_str());
        let agrees = tags.iter().all(says) && (!required || !tags.is_empty());
        if agrees { Ok(()) } else { Err(self.differs(argument)) }
    }

    /// Each of `named` has a tag, and every tag names one of them.
    fn name_each(
        &self,
        argument: &'static str,
        tags: &[&[String]],
        named: &Names<'_>,
    ) -> Result<(), Mismatch> {
        if named.is_empty() {
            return self.absent(tags);
        }
        let mut seen = HashSet::with_capacity(named.len());
        for tag in tags {
            match tag.get(1).filter(|value| named.contains(value.as_str())) {
                Some(value) => seen.insert(value.as_str()),
                None => return Err(self.differs(argument)),
            };
        }
        if seen.len() == named.len() { Ok(()) } else { Err(self.differs(argument)) }
    }

    /// At most `most` ids or keys beside the named ones.
    fn resolve(&self, tags: &[&[String]], named: &Names<'_>, most: usize) -> Result<(), Mismatch> {
        let mut others: Vec<&str> = Vec::new();
        for tag in tags {
            let value = tag.get(1).map(String::as_str).unwrap_or_default();
            if named.contains(value) || others.contains(&value) {
                continue;
            }
            if others.len() == most || crate::hex::decode::<32>(value).is_none() {
                return Err(Mismatch::Unasked(self.names[0]));
            }
            others.push(value);
        }
        Ok(())
    }

    fn absent(&self, tags: &[&[String]]) -> Result<(), Mismatch> {
        if tags.is_empty() { Ok(()) } else { Err(Mismatch::Unasked(self.names[0])) }
    }

    fn differs(&self, argument: &'static str) -> Mismatch {
        Mismatch::Tag(self.names[0], argument)
    }
}
