//! Arguments, parsed by clap, with help that fits the terminal. Invalid ones are refused in one line that says what is allowed.

use std::time::Duration;

use clap::error::ErrorKind;

use crate::{Failure, laid_out, output};

/// The arguments of this process.
///
/// # Errors
/// The arguments are invalid, or ask for help; pass the error to [`refused`].
pub fn parsed<T: clap::CommandFactory + clap::FromArgMatches>() -> Result<T, clap::Error> {
    let matches = laid_out(T::command()).try_get_matches()?;
    T::from_arg_matches(&matches)
}

/// Prints help and version; everything else becomes a refusal in one line. `commands` lists the commands, for an unknown one; `otherwise`
/// completes a line that does not say what is allowed.
///
/// # Errors
/// The refusal.
pub fn refused(
    error: &clap::Error,
    commands: impl FnOnce() -> String,
    otherwise: impl FnOnce(ErrorKind, String) -> String,
) -> Result<(), Failure> {
    let text = error.render().to_string();
    Err(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return output::print(&text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::input(text.trim_end()).whole()
        }
        ErrorKind::InvalidSubcommand => {
            Failure::input(format!("{}; there are {}", one_line(&text), commands()))
        }
        // The message already says what is allowed.
        ErrorKind::ValueValidation => Failure::input(one_line(&text)),
        kind => Failure::input(otherwise(kind, one_line(&text))),
    })
}

/// [`refused`] for a command with subcommands: the line lists them, or ends with the command whose `--help` says what is allowed.
///
/// # Errors
/// The refusal.
pub fn refused_by(command: &clap::Command, error: &clap::Error) -> Result<(), Failure> {
    refused(
        error,
        || commands_of(command),
        |kind, line| {
            if kind == ErrorKind::InvalidUtf8 {
                return format!("{}: arguments must be UTF-8", not_utf8());
            }
            let named = named_by(command, std::env::args().skip(1));
            format!("{line}; `{named} --help` says what is allowed")
        },
    )
}

/// The first argument that is not UTF-8, in quotes.
fn not_utf8() -> String {
    let argument = std::env::args_os().find(|argument| argument.to_str().is_none());
    format!("\"{}\"", argument.unwrap_or_default().as_encoded_bytes().escape_ascii())
}

/// Parses a number of seconds within bounds, as an argument.
///
/// # Errors
/// The text is not a number, or the number is out of bounds.
pub fn seconds(text: &str, [least, most]: [f64; 2]) -> Result<Duration, String> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("give a number of seconds from {least} to {most}"))
}

/// The command that the arguments name, up to the last word that names a command: `nearq bench scopes`.
fn named_by(command: &clap::Command, arguments: impl IntoIterator<Item = String>) -> String {
    let mut command = command;
    let mut words = vec![command.get_name().to_owned()];
    for argument in arguments {
        let Some(inner) = command.find_subcommand(&argument) else { break };
        command = inner;
        words.push(argument);
    }
    words.join(" ")
}

/// `` `topo`, `bench scopes`, `bench dispatch` ``: the list of commands.
pub fn commands_of(command: &clap::Command) -> String {
    let mut names = Vec::new();
    for command in command.get_subcommands() {
        let inner: Vec<String> = command
            .get_subcommands()
            .filter(|inner| !inner.is_hide_set())
            .map(|inner| format!("`{} {}`", command.get_name(), inner.get_name()))
            .collect();
        if inner.is_empty() {
            names.push(format!("`{}`", command.get_name()));
        }
        names.extend(inner);
    }
    names.join(", ")
}

/// clap's message without its label, its usage and its pointer to `--help`, which would make it five lines.
fn one_line(text: &str) -> String {
    let marks = ["\n\nUsage:", "\n\nFor more information"];
    let end = marks.into_iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let parts = text[..end].trim().trim_start_matches("error:").lines().map(str::trim);
    let mut line = String::new();
    // Clap's tip to write `--` before an option would turn the option's name into a value, and with `run` into a program.
    for part in parts.filter(|part| !part.is_empty() && !part.starts_with("tip: to pass ")) {
        if !line.is_empty() {
            line.push_str(if line.ends_with(':') { " " } else { "; " });
        }
        line.push_str(part);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command, value_parser};

    /// The answer to arguments.
    fn outcome(line: &str) -> Result<(), Failure> {
        let count = Arg::new("count").long("count").value_parser(value_parser!(u8).range(1..=4));
        let file = Arg::new("file").long("file").requires("count");
        let command = Command::new("some")
            .arg_required_else_help(true)
            .args([count, file])
            .subcommand(Command::new("one"));
        let error = command.try_get_matches_from(line.split(' ')).unwrap_err();
        refused(&error, || "`one`".into(), |kind, line| format!("{line} ({kind:?})"))
    }

    fn refusal(line: &str) -> String {
        outcome(line).unwrap_err().to_string()
    }

    #[test]
    fn errors_of_clap_become_one_line() {
        let text = "error: unexpected argument '--fil' found\n\n  tip: a similar argument exists: '--file'\n\n\
                    Usage: nearq bench scopes\n\nFor more information, try '--help'.\n";
        assert_eq!(
            one_line(text),
            "unexpected argument '--fil' found; tip: a similar argument exists: '--file'"
        );
        let text = "error: unexpected argument '-I' found\n\n  tip: to pass '-I' as a value, use '-- -I'\n\nUsage: nearq run\n";
        assert_eq!(one_line(text), "unexpected argument '-I' found");
        let text = "error: the following required arguments were not provided:\n  <FILE>\n\nUsage: nearq topo [OPTIONS] <FILE>\n";
        assert_eq!(one_line(text), "the following required arguments were not provided: <FILE>");
    }

    #[test]
    fn every_refusal_states_what_is_allowed() {
        assert_eq!(refusal("some two"), "unrecognized subcommand 'two'; there are `one`");
        assert_eq!(
            refusal("some --count 5"),
            "invalid value '5' for '--count <count>': 5 is not in 1..=4"
        );
        assert_eq!(
            refusal("some --file x"),
            "the following required arguments were not provided: --count <count> (MissingRequiredArgument)"
        );
    }

    fn with_inner() -> Command {
        let bench = Command::new("bench").subcommands([
            Command::new("scopes"),
            Command::new("dispatch"),
            Command::new("child").hide(true),
        ]);
        Command::new("nearq").subcommands([Command::new("topo"), bench])
    }

    #[test]
    fn the_subcommand_is_found_from_the_arguments() {
        let named = |line: &str| named_by(&with_inner(), line.split(' ').map(String::from));
        assert_eq!(named("bench scopes --runs"), "nearq bench scopes");
        assert_eq!(named("topo topo"), "nearq topo");
        assert_eq!(named("--colour topo"), "nearq");
    }

    #[test]
    fn all_commands_except_hidden_ones_are_listed() {
        assert_eq!(commands_of(&with_inner()), "`topo`, `bench scopes`, `bench dispatch`");
    }

    #[test]
    fn requested_help_succeeds_and_missing_arguments_fail_with_help() {
        assert_eq!(outcome("some --help"), Ok(()));
        let page = outcome("some").unwrap_err();
        assert!(page.to_string().lines().count() > 3, "{page}");
        assert_eq!(page, Failure::input(page.to_string()).whole());
    }
}
