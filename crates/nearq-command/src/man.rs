//! Manual pages, made from what the commands say as help: one for the command, and one for each of its subcommands.

use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::{Failure, file};

/// The first argument of a command that is asked for its pages by another one; the second is the folder.
pub const ASKED: &str = "__man";

/// The folder, if this process is asked for its pages.
pub fn asked() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? == ASKED { words.next().map(PathBuf::from) } else { None }
}

/// The arguments of `man`.
#[derive(Args, Debug)]
pub struct Options {
    /// The folder, which must exist; for `man` to find the pages, such as ~/.local/share/man/man1
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}

/// Writes the pages of a command into a folder. `others` are subcommands whose pages another program writes.
///
/// # Errors
/// A page cannot be written.
pub fn run(name: &str, command: Command, folder: &Path, others: &[&str]) -> Result<(), Failure> {
    let command = built(name, command);
    write(&command, name, folder)?;
    pages_of(&command, name, folder, others)
}

/// Writes the pages of the subcommands alone: for a program that another one calls.
///
/// # Errors
/// A page cannot be written.
pub fn run_inner(name: &str, command: Command, folder: &Path) -> Result<(), Failure> {
    pages_of(&built(name, command), name, folder, &[])
}

fn built(name: &str, command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true).bin_name(name);
    command.build();
    command
}

/// Writes the pages of the subcommands: `nearq-bench-scopes.1`.
fn pages_of(command: &Command, name: &str, folder: &Path, others: &[&str]) -> Result<(), Failure> {
    let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    for inner in visible.filter(|inner| !others.contains(&inner.get_name())) {
        let name = format!("{name}-{}", inner.get_name());
        write(inner, &name, folder)?;
        pages_of(inner, &name, folder, &[])?;
    }
    Ok(())
}

fn write(command: &Command, name: &str, folder: &Path) -> Result<(), Failure> {
    let page = page(command, name)
        .map_err(|error| Failure::run(format!("the page of {name}: {error}")))?;
    let path = folder.join(format!("{name}.1"));
    file::write(&path, &page).map_err(|error| {
        let path = path.display();
        Failure::input(format!(
            "{path} cannot be written: {error}; give a folder that exists and that you may write to"
        ))
    })
}

/// A page. The legend keeps its lines: it has tables and examples.
fn page(command: &Command, name: &str) -> std::io::Result<Vec<u8>> {
    let legend = command.get_after_help().map(ToString::to_string);
    let command = command.clone().after_help("").display_name(name.to_owned());
    let man = Man::new(command.clone())
        .title(name)
        // An empty word: without it, the other two would be taken for the date and the source.
        .date("\"\"")
        .source(format!("nearq {}", env!("CARGO_PKG_VERSION")))
        .manual("nearq");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut text)?;
    }
    if command.get_subcommands().any(|inner| !inner.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(legend) = legend.filter(|legend| !legend.is_empty()) {
        let mut roff = Roff::new();
        roff.control("SH", ["NOTES"]);
        roff.control("nf", []);
        for line in legend.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut text)?;
    }
    Ok(text)
}
