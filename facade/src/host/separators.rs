//! The characters that some hosts take for a line end, though they may stand unescaped in a JSON string.

use std::borrow::Cow;

/// NEL and the line and paragraph separators, on which Python's `str.splitlines` cuts, for one.
const SEPARATORS: [(char, &str); 3] =
    [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

/// JSON text with these characters as escapes. They can stand nowhere but in its strings.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(SEPARATORS.map(|(separator, _)| separator)) {
        return Cow::Borrowed(json);
    }
    let escaped = SEPARATORS.iter().fold(json.to_owned(), |text, (from, to)| text.replace(*from, to));
    Cow::Owned(escaped)
}
