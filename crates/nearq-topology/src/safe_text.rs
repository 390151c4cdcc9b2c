//! Text from untrusted sources, made safe to show: names, command lines, the contents of files.
//!
//! Such a text may hold characters that control a terminal (controls), reorder their neighbours (bidirectional overrides), begin a line
//! (U+2028), or are invisible. The programs of the project show such text only through one of these functions.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces a character that must not be shown.
const INSTEAD: char = '\u{fffd}';

/// Whether a character controls the terminal, changes how its neighbours are read, or is invisible.
///
/// Joiners (U+200C, U+200D) are not among them: scripts and emoji need them.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text as a part of a line.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// assert_eq!(nearq::topology::safe_text::plain("a\x1b[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
/// ```
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if is_unsafe(c) { INSTEAD } else { c }).collect()
}

/// The beginning of a text: at most so many bytes, of whole characters.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// assert_eq!(nearq::topology::safe_text::beginning("größe", 3), "gr");
/// ```
pub fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The text of a page: line breaks and tabs stay.
pub fn page(text: &str) -> Cow<'_, str> {
    let hidden = |c: char| is_unsafe(c) && c != '\n' && c != '\t';
    if text.chars().any(hidden) {
        Cow::Owned(text.chars().map(|c| if hidden(c) { INSTEAD } else { c }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The JSON with each of these characters written as `\uXXXX`, which does not change its meaning.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// assert_eq!(nearq::topology::safe_text::escaped_json("[\"\u{9b}é\"]"), "[\"\\u009bé\"]");
/// ```
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    // Between strings, JSON has no controls except line breaks and tabs; within them, line breaks and tabs are escaped already.
    let escaped = |c: char| is_unsafe(c) && !matches!(c, '\n' | '\r' | '\t');
    if !json.chars().any(escaped) {
        return Cow::Borrowed(json);
    }
    let mut text = String::new();
    for c in json.chars() {
        if escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One character of each kind.
    const UNSAFE: [char; 13] = [
        '\u{0}',
        '\u{1b}',
        '\u{7f}',
        '\u{85}',
        '\u{9b}',
        '\u{61c}',
        '\u{200f}',
        '\u{202e}',
        '\u{2028}',
        '\u{2066}',
        '\u{feff}',
        '\u{fffa}',
        '\u{e0041}',
    ];

    #[test]
    fn control_and_disguising_characters_are_removed() {
        for c in UNSAFE {
            let text = format!("a{c}b");
            assert_eq!(plain(&text), "a\u{fffd}b", "{c:?}");
            assert_eq!(page(&text), "a\u{fffd}b", "{c:?}");
        }
        assert_eq!(plain("a\n\tb"), "a\u{fffd}\u{fffd}b");
        assert_eq!(page("a\n\tb\r"), "a\n\tb\u{fffd}");
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        let text = "naïve 日本語 עברית می\u{200c}خواهم 👩\u{200d}💻 \\\"";
        assert_eq!(plain(text), text);
        assert!(matches!(page(text), Cow::Borrowed(_)));
        assert!(matches!(escaped_json(text), Cow::Borrowed(_)));
    }

    #[test]
    fn json_is_escaped() {
        assert_eq!(
            escaped_json("[\n\t\"\u{7f}\u{9b}é\u{2028}\u{202e}\"]"),
            "[\n\t\"\\u007f\\u009bé\\u2028\\u202e\"]"
        );
        assert_eq!(escaped_json("\"\u{e0041}\""), "\"\\udb40\\udc41\"");
    }
}
