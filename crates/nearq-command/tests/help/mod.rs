//! Checks help at several widths, for the tests of every command: lines are broken once, and only where necessary.

use clap::Command;
use nearq_command::for_width;

/// The widths at which help is checked.
const WIDTHS: [usize; 4] = [60, 80, 100, 200];
/// No line is this long: a line break at this width comes from the source.
const ENDLESS: usize = 10_000;

/// Checks the help of a command and of all its subcommands.
pub(crate) fn check(command: &Command) {
    let endless = rendered(command, ENDLESS, "");
    let wrong = broken_in_the_source(&endless);
    assert!(wrong.is_empty(), "{}: lines that belong together: {wrong:#?}", command.get_name());
    for width in WIDTHS {
        check_breaks(&rendered(command, width, ""), &endless, width);
    }
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).for_each(check);
}

fn rendered(command: &Command, width: usize, prefix: &str) -> String {
    for_width(command.clone(), width).bin_name(prefix).render_long_help().to_string()
}

/// Pairs of lines of which the second continues the first.
fn broken_in_the_source(text: &str) -> Vec<[&str; 2]> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().collect();
    let goes_on = |pair: &[&str]| {
        let [first, second] = [pair[0], pair[1]];
        let begins = second.trim_start().chars().next();
        let words_only = |line: &str| !line.trim_start().contains("  ");
        first.trim().len() >= 45
            && begins.is_some_and(|c| c.is_lowercase() || c == '(')
            && (indent(second) == indent(first) || !first.ends_with(':'))
            && indent(second) >= indent(first)
            && words_only(second)
            && ![first, second].iter().any(|line| line.trim_start().starts_with("nearq"))
    };
    lines.windows(2).filter(|pair| goes_on(pair)).map(|pair| [pair[0], pair[1]]).collect()
}

/// Checks that each line of `endless` is in `text`, broken only where the next word does not fit.
fn check_breaks(text: &str, endless: &str, width: usize) {
    let mut lines = text.lines();
    let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
    for whole in endless.lines() {
        let wanted = words(whole);
        let mut found: Vec<String> = Vec::new();
        let mut before = "";
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("{whole} is missing at {width}"));
            let line_words = words(line);
            // clap does not break the usage line.
            let may_be_wide = line_words.len() == 1 || line.starts_with("Usage:");
            assert!(line.chars().count() <= width || may_be_wide, "wider than {width}: {line}");
            if let Some(first) = line_words.first().filter(|_| !found.is_empty()) {
                let available = width.saturating_sub(before.chars().count());
                // At a small width a name is alone in its line, with its description below.
                let is_name = whole.contains(&format!("{before}  "));
                assert!(
                    available <= first.chars().count() || is_name,
                    "broken too early at {width}:\n{before}\n{line}"
                );
            }
            found.extend(line_words);
            before = line;
            if found.len() >= wanted.len() {
                break;
            }
        }
        assert_eq!(found, wanted, "at {width}");
    }
}
