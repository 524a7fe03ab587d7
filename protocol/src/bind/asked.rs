//! The arguments of a call as they are compared with a template: each name once, read by its exact spelling.
//!
//! Relays match names without regard to case and take the last, so look-alikes are refused here instead of
//! guessed at. A null is as if absent, as relays read it.

use std::borrow::Cow;
use std::collections::HashSet;

use super::Mismatch;
use crate::json::Json;
use crate::message::Arguments;

/// The most arguments of one call; the tool with the most has fewer than a dozen.
const MAX_ARGUMENTS: usize = 64;

/// The arguments of a call.
pub struct Asked<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Asked<'a> {
    /// Reads the arguments.
    pub fn read(arguments: Arguments<'a>) -> Result<Self, Mismatch> {
        let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        for (key, value) in arguments.json().members() {
            if members.iter().any(|(seen, _)| look_alike(seen, &key)) {
                return Err(Mismatch::Repeated);
            }
            if members.len() == MAX_ARGUMENTS {
                return Err(Mismatch::TooMany);
            }
            members.push((key, value));
        }
        Ok(Self(members))
    }

    /// An argument, if it is given.
    pub fn get(&self, name: &'static str) -> Result<Option<Json<'a>>, Mismatch> {
        match self.0.iter().find(|(key, _)| look_alike(key, name)) {
            Some((key, _)) if key != name => Err(Mismatch::Spelling(name)),
            Some((_, value)) => Ok(Some(*value).filter(|value| !value.is_null())),
            None => Ok(None),
        }
    }

    /// A text.
    pub fn text(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Mismatch> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        value.as_exact_str().map(Some).ok_or(Mismatch::Type(name))
    }

    /// A non-negative integer, as written.
    pub fn digits(&self, name: &'static str) -> Result<Option<&'a str>, Mismatch> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        if value.is_digits() { Ok(Some(value.text())) } else { Err(Mismatch::Type(name)) }
    }

    /// The distinct texts of a list, of which at most one more than `enough` are read: a template with
    /// fewer tags cannot name them all.
    pub fn texts(&self, name: &'static str, enough: usize) -> Result<HashSet<Cow<'a, str>>, Mismatch> {
        let mut texts = HashSet::new();
        let Some(value) = self.get(name)? else { return Ok(texts) };
        if !value.is_array() {
            return Err(Mismatch::Type(name));
        }
        for element in value.elements() {
            texts.insert(element.as_exact_str().ok_or(Mismatch::Type(name))?);
            if texts.len() > enough {
                break;
            }
        }
        Ok(texts)
    }

    /// The ids or keys that these arguments give; an empty text gives none.
    pub fn named(&self, names: &[&'static str]) -> Result<Vec<Cow<'a, str>>, Mismatch> {
        let mut named = Vec::with_capacity(names.len());
        for name in names {
            named.extend(self.text(name)?.filter(|text| !text.is_empty()));
        }
        Ok(named)
    }
}

/// Whether a decoder that folds case could take one name for the other.
pub fn look_alike(one: &str, other: &str) -> bool {
    let fold = |c: char| c.to_uppercase().flat_map(char::to_lowercase);
    one.chars().flat_map(fold).eq(other.chars().flat_map(fold))
}
