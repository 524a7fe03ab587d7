//! The errors that a host sees as a tool result, in the contract's words (contract 4).

use std::fmt;

use thiserror::Error;

/// Why a call has no result of the relay's own. The prefix tells a host's model whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The relay does not let this key do it.
    #[error("permission: {0}")]
    Permission(String),
    /// The relay was not reached, or its answer is none.
    #[error("transport: {0}")]
    Transport(Detail),
    /// The relay answered with an error.
    #[error("relay: {0}")]
    Relay(String),
    /// The signer refused or is gone.
    #[error("signer: {0}")]
    Signer(String),
    /// A request that is refused here, in words of its own.
    #[error("{0}")]
    Refused(String),
}

/// What went wrong on the way, and whether the request may have had an effect all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// One short line without markup.
    pub text: String,
    /// Whether the relay may have executed the request.
    pub uncertain: bool,
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    /// The relay certainly did nothing.
    pub fn not_sent(text: impl Into<String>) -> Self {
        Self::Transport(Detail { text: text.into(), uncertain: false })
    }

    /// The relay may have done what was asked.
    pub fn uncertain(text: impl Into<String>) -> Self {
        Self::Transport(Detail { text: text.into(), uncertain: true })
    }

    /// For a write: says where the outcome is not known, with the event's id where one was sent.
    pub fn of_a_write(self, event: Option<&str>) -> Self {
        match self {
            Self::Transport(Detail { text, uncertain: true }) => {
                let event = event.map(|id| format!(" (event {id})")).unwrap_or_default();
                Self::uncertain(format!("{text}; the call may have taken effect{event}"))
            }
            other => other,
        }
    }
}

/// The longest foreign text that is shown, in characters.
const SHOWN_CHARACTERS: usize = 300;

/// A foreign text as one short line: control characters gone, at most 300 characters.
pub fn one_line(text: &str) -> String {
    let line = one_line_of_any_length(
        text.get(..text.floor_char_boundary(8 * SHOWN_CHARACTERS)).unwrap_or_default(),
    );
    match line.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A text of our own as one line.
pub fn one_line_of_any_length(text: &str) -> String {
    let between = |c: char| c.is_whitespace() || c.is_control();
    text.split(between).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
