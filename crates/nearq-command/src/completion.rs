//! Completion of arguments in a shell. `completions SHELL` prints a script; the script asks the command itself for candidates, with
//! `NAME __complete -- WORDS`, of which the last word is the one to complete. So the candidates are always those of the command that is
//! installed, and may be values that exist only now, such as processes.
//!
//! The first line of the answer is `:values`, or `:files` if the shell is to complete the names of files. Each further line is a candidate:
//! the whole word, a tab, and what it is. A candidate that ends in `=` is continued without a blank.

use std::ffi::OsString;

use clap::builder::ValueHint;
use clap::{Arg, Args, Command, ValueEnum};

use crate::{Failure, output, screen};

/// The first argument of a command that is asked for candidates.
const ASKED: &str = "__complete";

/// A shell for which there is a script.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// Bash, 4.4 or later
    Bash,
    /// Zsh
    Zsh,
    /// fish
    Fish,
    /// Elvish
    Elvish,
}

/// The arguments of `completions`.
#[derive(Args, Clone, Copy, Debug)]
#[command(after_help = "\
Examples, for the command `nearq`:
  nearq completions bash > ~/.local/share/bash-completion/completions/nearq
  nearq completions zsh > ~/.zfunc/_nearq        with `fpath+=~/.zfunc` in ~/.zshrc, before `compinit`
  nearq completions fish > ~/.config/fish/completions/nearq.fish
  nearq completions elvish >> ~/.config/elvish/rc.elv

The script asks the command for candidates, so it need not be written again for a new version.")]
pub struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for a command.
///
/// # Errors
/// It cannot be printed.
pub fn run(name: &str, options: Options) -> Result<(), Failure> {
    output::print(&script(name, options.shell))
}

/// The script for a command of that name.
fn script(name: &str, shell: Shell) -> String {
    let template = match shell {
        Shell::Bash => include_str!("completion/bash"),
        Shell::Zsh => include_str!("completion/zsh"),
        Shell::Fish => include_str!("completion/fish"),
        Shell::Elvish => include_str!("completion/elvish"),
    };
    template.replace("FUNCTION", &name.replace('-', "_")).replace("NAME", name)
}

/// A word that may be meant, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The whole word.
    pub word: String,
    /// What it is; may be empty.
    pub what: String,
}

impl Candidate {
    /// A candidate.
    pub fn new(word: impl Into<String>, what: impl Into<String>) -> Self {
        Self { word: word.into(), what: what.into() }
    }
}

/// A value that is to be completed.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The subcommand, without the name of the command: `set`.
    pub command: &'a str,
    /// The argument's name in clap.
    pub argument: &'a str,
    /// The values of arguments by position before it, in the order of the words.
    pub before: &'a [String],
    /// What has been typed of it.
    pub typed: &'a str,
}

/// The words of the question, if this process is asked for candidates.
pub fn asked() -> Option<Vec<OsString>> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != ASKED {
        return None;
    }
    let words: Vec<OsString> = words.collect();
    let has_mark = words.first().is_some_and(|word| word == "--");
    Some(words.into_iter().skip(usize::from(has_mark)).collect())
}

/// Prints the candidates for the last of `words`. `values` may know values of an argument that clap does not know.
///
/// # Errors
/// They cannot be printed.
pub fn answer(
    command: Command,
    words: &[OsString],
    values: impl Fn(&Asked<'_>) -> Option<Vec<Candidate>>,
) -> Result<(), Failure> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut text = String::new();
    match candidates(command, &words, &values) {
        None => text.push_str(":files\n"),
        Some(candidates) => {
            text.push_str(":values\n");
            for Candidate { word, what } in candidates {
                text += &format!("{}\t{}\n", screen::plain(&word), screen::plain(&what));
            }
        }
    }
    output::print(&text)
}

/// The candidates; `None` if names of files are wanted.
fn candidates(
    mut command: Command,
    words: &[String],
    values: &impl Fn(&Asked<'_>) -> Option<Vec<Candidate>>,
) -> Option<Vec<Candidate>> {
    command.build();
    let (typed, before) =
        words.split_last().map_or(("", words), |(last, rest)| (last.as_str(), rest));
    let position = Position::after(&command, before);
    let of_value = |argument: &Arg, typed: &str| {
        let asked = Asked {
            command: &position.path,
            argument: argument.get_id().as_str(),
            before: &position.positional,
            typed,
        };
        values_of(argument, &asked, values)
    };
    let filtered = |candidates: Vec<Candidate>| -> Vec<Candidate> {
        candidates.into_iter().filter(|candidate| candidate.word.starts_with(typed)).collect()
    };
    if let Some(option) = position.pending {
        return of_value(option, typed).map(filtered);
    }
    if !position.only_positional && typed.starts_with('-') {
        if let Some((name, value)) = typed.split_once('=') {
            let option = long(position.command, name.trim_start_matches('-'))?;
            let with_name =
                |one: Candidate| Candidate::new(format!("{name}={}", one.word), one.what);
            return of_value(option, value)
                .map(|found| filtered(found.into_iter().map(with_name).collect()));
        }
        return Some(filtered(options(position.command)));
    }
    let mut found = Vec::new();
    if position.positional.is_empty() {
        let visible = position.command.get_subcommands().filter(|inner| !inner.is_hide_set());
        found.extend(visible.map(|inner| {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            Candidate::new(inner.get_name(), first_line(&about))
        }));
    }
    if let Some(argument) = positional(position.command, position.positional.len()) {
        match of_value(argument, typed) {
            Some(more) => found.extend(more),
            None if found.is_empty() => return None,
            None => {}
        }
    }
    Some(filtered(found))
}

/// What precedes the word to complete.
struct Position<'a> {
    command: &'a Command,
    /// The names of subcommands, with blanks.
    path: String,
    positional: Vec<String>,
    /// The option whose value the word is.
    pending: Option<&'a Arg>,
    /// There are no more options.
    only_positional: bool,
}

impl<'a> Position<'a> {
    fn after(command: &'a Command, words: &[String]) -> Self {
        let mut position = Position {
            command,
            path: String::new(),
            positional: Vec::new(),
            pending: None,
            only_positional: false,
        };
        for word in words {
            position.pass(word);
        }
        position
    }

    fn pass(&mut self, word: &str) {
        if self.pending.take().is_some() {
            return;
        }
        if !self.only_positional {
            if word == "--" {
                self.only_positional = true;
                return;
            }
            if let Some(name) = word.strip_prefix("--") {
                self.pending = long(self.command, name).filter(|option| takes_value(option));
                return;
            }
            if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                self.pending = last_of(self.command, letters);
                return;
            }
            if self.positional.is_empty()
                && let Some(inner) = self.command.find_subcommand(word)
            {
                self.command = inner;
                if !self.path.is_empty() {
                    self.path.push(' ');
                }
                self.path.push_str(inner.get_name());
                return;
            }
        }
        let argument = positional(self.command, self.positional.len());
        self.only_positional |= argument.is_some_and(Arg::is_trailing_var_arg_set);
        self.positional.push(word.to_owned());
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values() && !option.is_require_equals_set()
}

/// The option of that name; `None` if the word has its value, too.
fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| argument.get_long() == Some(name))
}

/// Of letters in one word, the option that the next word belongs to.
fn last_of<'a>(command: &'a Command, letters: &str) -> Option<&'a Arg> {
    for (at, letter) in letters.char_indices() {
        let option = command.get_arguments().find(|one| one.get_short() == Some(letter))?;
        if takes_value(option) {
            // What follows the letter is its value.
            return (at + letter.len_utf8() == letters.len()).then_some(option);
        }
    }
    None
}

/// The argument at that position; the last one may be repeated.
fn positional(command: &Command, index: usize) -> Option<&Arg> {
    let repeats = |one: &&Arg| {
        one.is_trailing_var_arg_set()
            || one.get_num_args().is_some_and(|many| many.max_values() > 1)
    };
    let all = || command.get_positionals();
    all().nth(index).or_else(|| all().last().filter(repeats))
}

fn options(command: &Command) -> Vec<Candidate> {
    let visible = command.get_opts().chain(
        command
            .get_arguments()
            .filter(|one| !one.is_positional() && !one.get_action().takes_values()),
    );
    let of_one = |one: &Arg| {
        let help = one.get_help().map(ToString::to_string).unwrap_or_default();
        let long = one.get_long().map(|name| format!("--{name}"));
        let word = long.or_else(|| one.get_short().map(|letter| format!("-{letter}")))?;
        Some(Candidate::new(word, first_line(&help)))
    };
    visible.filter(|one| !one.is_hide_set()).filter_map(of_one).collect()
}

fn values_of(
    argument: &Arg,
    asked: &Asked<'_>,
    values: &impl Fn(&Asked<'_>) -> Option<Vec<Candidate>>,
) -> Option<Vec<Candidate>> {
    if let Some(found) = values(asked) {
        return Some(found);
    }
    let is_path = !matches!(argument.get_value_hint(), ValueHint::Unknown | ValueHint::Other);
    if is_path || argument.is_trailing_var_arg_set() {
        return None;
    }
    let possible = argument.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    Some(
        possible
            .map(|value| {
                let help = value.get_help().map(ToString::to_string).unwrap_or_default();
                Candidate::new(value.get_name(), first_line(&help))
            })
            .collect(),
    )
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{ArgAction, value_parser};

    fn command() -> Command {
        let colour = Arg::new("colour").long("colour").short('c').value_parser(["red", "green"]);
        let quiet = Arg::new("quiet").long("quiet").short('q').action(ArgAction::SetTrue);
        let secret = Arg::new("secret").long("secret").hide(true);
        let file = Arg::new("file").long("file").value_parser(value_parser!(std::path::PathBuf));
        let pid = Arg::new("pid");
        let words = Arg::new("words").num_args(1..);
        let set = Command::new("set").about("Sets").args([colour, quiet, secret, file, pid, words]);
        let job = Arg::new("job").num_args(1..).trailing_var_arg(true);
        let run = Command::new("run").arg(job);
        Command::new("some").subcommands([set, run, Command::new("child").hide(true)])
    }

    /// The candidates for the last word of a line, without what they are.
    fn found(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        let values = |asked: &Asked<'_>| match asked.argument {
            "pid" => Some(vec![Candidate::new("41", ""), Candidate::new("52", "")]),
            "words" => Some(vec![Candidate::new(
                format!("after-{}=", asked.before.join("-")),
                asked.command,
            )]),
            _ => None,
        };
        let found = candidates(command(), &words, &values)?;
        Some(found.into_iter().map(|one| one.word).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn commands_options_and_values_are_candidates() {
        for (line, expected) in [
            ("", "set run help"),
            ("s", "set"),
            ("set ", "41 52"),
            ("set 5", "52"),
            ("set 41 ", "after-41="),
            ("set -q --colour red 41 crypt ", "after-41-crypt="),
            ("set -qc red 41 ", "after-41="),
            ("set -cred 41 ", "after-41="),
            ("set --colour ", "red green"),
            ("set --colour=g", "--colour=green"),
            ("set -c r", "red"),
            ("set --q", "--quiet"),
            ("set --secret x --s", ""),
            ("nonsense ", ""),
            ("help s", "set"),
        ] {
            assert_eq!(found(line).as_deref(), Some(expected), "{line}");
        }
        assert_eq!(found("set --").unwrap(), "--colour --file --quiet --help");
    }

    #[test]
    fn the_shell_completes_files_where_files_are_meant() {
        for line in ["set --file ", "set --file=x", "run ", "run gzip -", "run gzip --colour"] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn scripts_name_the_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
            let script = script("nearq-scx", shell);
            assert!(script.contains("__complete --") && script.contains("nearq-scx"), "{script}");
            assert!(!script.contains("NAME") && !script.contains("FUNCTION"), "{script}");
        }
    }
}
