//! A document as the check reads it: one line of text, in which code is not searched for numbers.

use super::entries::Part;
use std::ops::Range;

/// A document. Positions refer to its text after each run of white space has been replaced by one space.
pub(super) struct Prose {
    /// Its path from the root of the workspace.
    pub(super) name: String,
    text: String,
    /// The line of each byte of `text`.
    lines: Vec<usize>,
    /// The position in the source that each byte of `text` comes from.
    sources: Vec<usize>,
    /// Whether a byte of `text` is code or the target of a link, where numbers do not count as figures.
    code: Vec<bool>,
}

impl Prose {
    pub(super) fn new(name: &str, source: &str) -> Prose {
        let code = code(source);
        let mut prose = Prose {
            name: name.into(),
            text: String::new(),
            lines: Vec::new(),
            sources: Vec::new(),
            code: Vec::new(),
        };
        let mut line = 1;
        for (at, character) in source.char_indices() {
            if character.is_whitespace() {
                if !prose.text.ends_with(' ') && !prose.text.is_empty() {
                    prose.push(' ', line, at, code[at]);
                }
                line += usize::from(character == '\n');
            } else {
                prose.push(character, line, at, code[at]);
            }
        }
        prose
    }

    fn push(&mut self, character: char, line: usize, source: usize, code: bool) {
        self.text.push(character);
        for byte in 0..character.len_utf8() {
            self.lines.push(line);
            self.sources.push(source + byte);
            self.code.push(code);
        }
    }

    pub(super) fn line(&self, at: usize) -> usize {
        self.lines[at]
    }

    pub(super) fn text(&self, range: &Range<usize>) -> &str {
        &self.text[range.clone()]
    }

    /// The position of a number in the source; a number has no white space in it.
    pub(super) fn source(&self, number: &Range<usize>) -> Range<usize> {
        let start = self.sources[number.start];
        start..start + number.len()
    }

    /// Some words on either side of a number.
    pub(super) fn around(&self, number: &Range<usize>) -> &str {
        let space = |at: &(usize, char)| at.1 == ' ';
        let start = self.text[..number.start]
            .char_indices()
            .rev()
            .filter(space)
            .nth(5)
            .map_or(0, |(at, _)| at + 1);
        let end = self.text[number.end..]
            .char_indices()
            .filter(space)
            .nth(5)
            .map_or(self.text.len(), |(at, _)| number.end + at);
        &self.text[start..end]
    }

    /// The places where these parts follow each other: for each place, the range of each part.
    pub(super) fn find(&self, parts: &[Part]) -> Vec<Vec<Range<usize>>> {
        let mut places = Vec::new();
        let Some(Part::Text(first)) = parts.first() else { return places };
        for (start, _) in self.text.match_indices(first.as_str()) {
            if let Some(ranges) = self.match_at(parts, start) {
                places.push(ranges);
            }
        }
        places
    }

    fn match_at(&self, parts: &[Part], start: usize) -> Option<Vec<Range<usize>>> {
        let mut at = start;
        let mut ranges = Vec::new();
        for part in parts {
            let end = match part {
                Part::Text(text) => {
                    self.text[at..].starts_with(text.as_str()).then(|| at + text.len())?
                }
                Part::Figure(_) => at + number(&self.text[at..])?,
                Part::Given(written) => {
                    let length = number(&self.text[at..])?;
                    (self.text[at..at + length] == **written).then_some(at + length)?
                }
            };
            ranges.push(at..end);
            at = end;
        }
        // "8 writers" is not in "48 writers" or "1.8 writers", nor "Linux 6" in "Linux 6.18".
        let digit =
            |character: Option<char>| character.is_some_and(|character| character.is_ascii_digit());
        let before = self.text[..start].trim_end_matches(['.', ',']);
        let after = self.text[at..].strip_prefix(['.', ',']).unwrap_or(&self.text[at..]);
        let cut = digit(self.text[start..].chars().next()) && digit(before.chars().next_back())
            || digit(self.text[..at].chars().next_back()) && digit(after.chars().next());
        (!cut).then_some(ranges)
    }

    /// The numbers that are not part of a word or of code.
    pub(super) fn numbers(&self) -> Vec<Range<usize>> {
        let mut numbers = Vec::new();
        let mut at = 0;
        while let Some(character) = self.text[at..].chars().next() {
            if let Some(length) = number(&self.text[at..]) {
                if !self.code[at] {
                    numbers.push(at..at + length);
                }
                at += length;
            } else if character.is_alphabetic() || character == '_' {
                at += word(&self.text[at..]);
            } else {
                at += character.len_utf8();
            }
        }
        numbers
    }
}

/// The length of the word that begins a text, with digits that belong to it: `p99.99`, `x86-64`, `epyc-7551`.
fn word(text: &str) -> usize {
    let mut at = 0;
    while let Some(character) = text[at..].chars().next() {
        let next = text[at + character.len_utf8()..].chars().next();
        let joins =
            matches!(character, '-' | '.') && next.is_some_and(|next| next.is_ascii_digit());
        if !character.is_alphanumeric() && character != '_' && !joins {
            break;
        }
        at += character.len_utf8();
    }
    at
}

/// The length of the number that begins a text, with its sign: `1,250`, `+0.5`, `-3`.
fn number(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digits =
        |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    if digits(at) == 0 {
        return None;
    }
    at += digits(at);
    while bytes.get(at) == Some(&b',') && digits(at + 1) == 3 {
        at += 4;
    }
    if bytes.get(at) == Some(&b'.') && digits(at + 1) > 0 {
        at += 1 + digits(at + 1);
    }
    Some(at)
}

/// The value of a number as it is written.
pub(super) fn value(written: &str) -> Option<f64> {
    written.replace(',', "").parse().ok()
}

/// A value in the format of another written number: with as many decimals, and with a `+` and separators if that number has them; rounded
/// to `unit`.
pub(super) fn written_as(written: &str, value: f64, unit: f64) -> String {
    let decimals = written.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let rounded = (value / unit).round() * unit;
    let digits = format!("{:.decimals$}", rounded.abs());
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let separate = written.contains(',');
    let mut text = String::new();
    for (at, digit) in whole.char_indices() {
        if separate && at != 0 && (whole.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    // A zero gets no sign, unless the other number is a zero with a sign.
    let is_zero = !digits.contains(|digit: char| ('1'..='9').contains(&digit));
    let sign = match (rounded < 0.0 && !is_zero, written.starts_with('+')) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    format!("{sign}{text}{rest}")
}

/// For each byte of a document, whether it is code (a code span or a code block) or the target of a link. Comments in blocks of shell
/// commands are prose.
fn code(source: &str) -> Vec<bool> {
    let mut code = vec![false; source.len()];
    let mut start = 0;
    let mut block = false;
    let mut spans_from = 0;
    for line in source.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            spans(&source[spans_from..start], &mut code[spans_from..start]);
            block = !block;
            code[start..start + line.len()].fill(true);
            spans_from = start + line.len();
        } else if block {
            let end = line
                .find("# ")
                .filter(|at| *at == 0 || line[..*at].ends_with(' '))
                .unwrap_or(line.len());
            code[start..start + end].fill(true);
            spans_from = start + line.len();
        }
        start += line.len();
    }
    if !block {
        spans(&source[spans_from..], &mut code[spans_from..]);
    }
    code
}

/// Marks spans of code and targets of links, in text without blocks of code.
fn spans(text: &str, code: &mut [bool]) {
    let mut mark = |from: usize, open: &str, close: char| {
        let start = from + text[from..].find(open)?;
        let end = start + open.len() + text[start + open.len()..].find(close)? + 1;
        code[start..end].fill(true);
        Some(end)
    };
    for (open, close) in [("`", '`'), ("](", ')')] {
        let mut from = 0;
        while let Some(end) = mark(from, open, close) {
            from = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(source: &str) -> Vec<String> {
        let prose = Prose::new("test", source);
        prose.numbers().iter().map(|range| prose.text(range).to_owned()).collect()
    }

    #[test]
    fn numbers_are_found_with_signs_and_separators() {
        assert_eq!(
            numbers("+0.5 % of 480,000, -3 or 1,5; 20-30"),
            ["+0.5", "480,000", "-3", "1", "5", "20", "-30"]
        );
    }

    #[test]
    fn a_value_is_written_as_the_number_before() {
        assert_eq!(written_as("480,000", 1_234_567.8, 1.0), "1,234,568");
        assert_eq!(written_as("+0.5", 0.26, 0.1), "+0.3");
        assert_eq!(written_as("+0.5", -0.26, 0.1), "-0.3");
        assert_eq!(written_as("-0.5", -0.04, 0.1), "0.0");
        assert_eq!(written_as("7", 1499.0, 1000.0), "1000");
    }

    #[test]
    fn a_number_is_found_in_the_source() {
        let source = "é  one\n\n2.5 x";
        let prose = Prose::new("test", source);
        let number = prose.numbers().remove(0);
        assert_eq!(&source[prose.source(&number)], "2.5");
    }

    #[test]
    fn names_and_code_have_none() {
        assert_eq!(numbers("L3, p99.99, x86-64, `--files 12` and [a 7](page-8.md)."), ["7"]);
        assert_eq!(numbers("2x the 3900X"), ["2", "3900"]);
    }

    #[test]
    fn comments_of_commands_are_prose() {
        assert_eq!(
            numbers("```sh\nrun -j8 # about 2 minutes\n# 3\nlet x = 4;\n```\n5 `6`"),
            ["2", "3", "5"]
        );
    }

    #[test]
    fn line_numbers_are_those_of_the_source() {
        let prose = Prose::new("test", "one\n\n2\n  three 4");
        let lines: Vec<usize> =
            prose.numbers().iter().map(|range| prose.line(range.start)).collect();
        assert_eq!(lines, [3, 4]);
    }
}
