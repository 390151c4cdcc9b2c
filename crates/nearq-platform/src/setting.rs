//! Reads settings from outside the program: [`read_setting`], and [`parse_switch`] for those that are on or off.
//!
//! A program must not end because of a wrong letter in its environment. So a value that is not understood causes one warning, and the
//! caller goes on without it.

use crate::LockPlatform;

/// What a switch may be, in words.
pub const SWITCH: &str = "0, off, no or false, or 1, on, yes or true";

/// The maximum number of characters of a value, and of what is allowed, that a warning shows.
const MOST_OF_A_VALUE: usize = 80;
const MOST_OF_WHAT_IS_ALLOWED: usize = 500;

/// Whether a switch is on; none if the text is no switch. Capital letters and white space around it make no difference.
pub fn parse_switch(text: &str) -> Option<bool> {
    let text = text.trim();
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(["1", "on", "yes", "true"]) {
        Some(true)
    } else if is_one_of(["0", "off", "no", "false"]) {
        Some(false)
    } else {
        None
    }
}

/// A value that was not understood. The warning has been printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnderstood;

/// Reads the setting `name`. An empty one counts as not set.
///
/// `parse` gets the text without white space around it and in small letters. If it cannot be understood, `parse` returns what is
/// allowed; the warning says that, and `instead`, which is what the caller does now.
///
/// # Errors
/// The value was not understood.
pub fn read_setting<P: LockPlatform, T>(
    name: &str,
    instead: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, NotUnderstood> {
    let Some(value) = P::setting(name) else { return Ok(None) };
    let value = value.trim();
    if value.is_empty() {
        return Ok(None);
    }
    match parse(&value.to_ascii_lowercase()) {
        Ok(parsed) => Ok(Some(parsed)),
        Err(allowed) => {
            let (value, allowed) =
                (shown(value, MOST_OF_A_VALUE), shown(&allowed, MOST_OF_WHAT_IS_ALLOWED));
            let line = format!("{name} is `{value}`; it must be {allowed}. {instead}");
            P::warn_once(name, &line);
            Err(NotUnderstood)
        }
    }
}

/// A text as a warning shows it: without control characters, and at most `most` characters long.
fn shown(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (index, letter) in text.chars().enumerate() {
        if index == most {
            shown.push_str("...");
            break;
        }
        match letter {
            '\'' | '"' | '\\' => shown.push(letter),
            _ => shown.extend(letter.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_accepts_eight_words() {
        for text in ["1", "on", "yes", "true", "ON", "Yes", " true\n"] {
            assert_eq!(parse_switch(text), Some(true), "{text:?}");
        }
        for text in ["0", "off", "no", "false", "OFF", "No", "\tFALSE "] {
            assert_eq!(parse_switch(text), Some(false), "{text:?}");
        }
        for text in ["", "2", "-1", "00", "o n", "offf", "y", "enable"] {
            assert_eq!(parse_switch(text), None, "{text:?}");
        }
        let words = SWITCH.split([',', ' ']).filter(|word| !["", "or"].contains(word));
        assert_eq!(words.filter_map(parse_switch).count(), 8);
    }

    #[test]
    fn warnings_contain_no_terminal_control_sequences() {
        let text = shown("a\u{1b}[2J\u{7f}\u{9b}\u{202e}b'\n", 80);
        assert_eq!(text, "a\\u{1b}[2J\\u{7f}\\u{9b}\\u{202e}b'\\n");
        assert!(shown(&"x".repeat(1 << 20), 80).len() < 90);
    }
}
