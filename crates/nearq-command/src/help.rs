//! Wraps help to the width of the terminal. Lines that belong together in the source are joined first.
//!
//! A legend consists of items; a blank line ends an item:
//! - a line without indentation begins a paragraph, and further such lines continue it;
//! - an indented line with a gap of two blanks or more is a row: a name and its description; lines that begin below the description, and
//!   have no gap, continue it;
//! - any other indented line is kept as it is.

use clap::Command;
use unicode_width::UnicodeWidthStr as _;

use crate::screen::{last_gap, wrapped};

/// The least width of a description, however far to the right it begins.
const LEAST: usize = 30;
/// The indentation that clap uses for an option's help if that is below the option.
const OPTION_INDENT: usize = 10;
/// The width without a terminal and without COLUMNS.
const ELSEWHERE: usize = 100;

/// The command and all its subcommands, with legends wrapped for the terminal.
#[must_use]
pub fn laid_out(command: Command) -> Command {
    let size = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0);
    for_width(command, size.or_else(columns).unwrap_or(ELSEWHERE))
}

/// The command and all its subcommands, with legends wrapped to `width` columns.
#[must_use]
pub fn for_width(command: Command, width: usize) -> Command {
    let mut command = command.term_width(width);
    if let Some(legend) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(flowed(&legend, width));
    }
    let within = width.saturating_sub(OPTION_INDENT);
    let command =
        command.mut_args(|argument| match argument.get_long_help().map(ToString::to_string) {
            Some(help) => argument.long_help(flowed(&help, within)),
            None => argument,
        });
    command.mut_subcommands(|inner| for_width(inner, width))
}

/// A part of a legend.
struct Item {
    /// The text before the words, in the first line.
    head: String,
    words: Vec<String>,
    /// The column at which a continuation line begins; none if there are no continuation lines.
    goes_on: Option<usize>,
}

impl Item {
    fn of(line: &str) -> Self {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let head = match last_gap(text) {
            Some(end) => &line[..indent + end],
            None => &line[..indent],
        };
        let begins = head.width();
        let goes_on = (begins == 0 || begins > indent).then_some(begins);
        let mut item = Self { head: head.to_owned(), words: Vec::new(), goes_on };
        item.add(&line[head.len()..]);
        item
    }

    fn add(&mut self, text: &str) {
        self.words.extend(text.split_whitespace().map(String::from));
    }

    /// Whether the line continues this part.
    fn takes(&self, line: &str) -> bool {
        let text = line.trim_start();
        self.goes_on == Some(line.len() - text.len()) && last_gap(text).is_none()
    }

    fn lines(&self, width: usize) -> String {
        let indent = self.head.len() - self.head.trim_start().len();
        if self.head.width() + LEAST <= width {
            return wrapped(&self.head, &self.words, width);
        }
        // The terminal is so narrow that the description goes below the name.
        let name = self.head.trim_end();
        if name.is_empty() {
            return wrapped(&self.head, &self.words, width);
        }
        format!("{name}\n{}", wrapped(&" ".repeat(indent + 4), &self.words, width))
    }
}

/// The legend in lines of at most `width` columns.
fn flowed(legend: &str, width: usize) -> String {
    let mut text = String::new();
    let mut open: Option<Item> = None;
    for line in legend.lines() {
        match &mut open {
            Some(item) if !line.is_empty() && item.takes(line) => {
                item.add(line);
            }
            _ => {
                text.extend(open.take().map(|item| item.lines(width)));
                if line.trim().is_empty() {
                    text.push('\n');
                } else {
                    open = Some(Item::of(line));
                }
            }
        }
    }
    text.extend(open.map(|item| item.lines(width)));
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGEND: &str = "\
A paragraph that is
written over lines.

Columns:
  PID      the process, for the
           other commands
           own    a row within
           a row
  kind     a  b
Examples:
  nearq top
  nearq top --once";

    #[test]
    fn related_words_share_a_line_if_they_fit() {
        assert_eq!(
            flowed(LEGEND, 80),
            "\
A paragraph that is written over lines.

Columns:
  PID      the process, for the other commands
           own    a row within
           a row
  kind     a  b
Examples:
  nearq top
  nearq top --once"
        );
    }

    #[test]
    fn wrapped_lines_are_indented_below_their_text() {
        assert_eq!(
            flowed("  PID      the process, for the\n           other commands of it", 41),
            "  PID      the process, for the other\n           commands of it"
        );
        assert_eq!(
            flowed("  a-long-name-of-it      the process, for the other commands", 40),
            "  a-long-name-of-it\n      the process, for the other\n      commands"
        );
    }

    #[test]
    fn a_command_is_laid_out_with_its_subcommands() {
        let inner = Command::new("inner").after_help("One\ntwo three.");
        let command = for_width(Command::new("outer").subcommand(inner), 40);
        let inner = command.find_subcommand("inner").unwrap();
        assert_eq!(inner.get_after_help().unwrap().to_string(), "One two three.");
    }
}
