//! The client's name as logs and audit records show it.

/// The longest label, in characters.
pub const MAX_LABEL: usize = 64;

/// A host's `clientInfo.name` in lower case, runs of anything but ASCII letters and digits as one `-`,
/// none at the ends (contract 2), cut at [`MAX_LABEL`].
pub fn normalise(name: &str) -> String {
    let mut label = String::new();
    for c in name.chars() {
        if label.len() >= MAX_LABEL {
            break;
        }
        if c.is_ascii_alphanumeric() {
            label.push(c.to_ascii_lowercase());
        } else if !label.is_empty() && !label.ends_with('-') {
            label.push('-');
        }
    }
    label.truncate(label.trim_end_matches('-').len());
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_whatever_a_host_calls_itself() {
        for (name, label) in [
            ("  Claude Code (v1) ", "claude-code-v1"),
            ("--x--", "x"),
            ("Zürich", "z-rich"),
            ("", ""),
            ("\u{0}\n", ""),
        ] {
            assert_eq!(normalise(name), label);
        }
        assert!(normalise(&"a ".repeat(1000)).len() <= MAX_LABEL);
    }
}
