//! Options of xargs and GNU parallel that `nearq run` has not: each is refused with what to do instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::arguments::PLACEHOLDERS;
use crate::output::Failure;

/// Their names, and what to do instead.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["-i", "--replace", "-J"], "write {} in the command where the input shall stand"),
    (&["--rpl", "--parens", "--plus"], PLACEHOLDERS),
    (
        &["-L", "-l", "--max-lines"],
        "each line is an input, and -n N gives each job N of them; blanks do not part inputs",
    ),
    (
        &["-m", "-X", "--xargs", "-s", "--max-chars"],
        "give -n N with a large N: a job gets so many inputs, or as many as fit into a command",
    ),
    (
        &["-x", "--exit"],
        "leave it out: a job whose inputs do not fit into a command fails, and says so",
    ),
    (
        &["--show-limits", "--max-line-length-allowed"],
        "`getconf ARG_MAX` prints the most bytes that a command may have; nearq gives no job more",
    ),
    (
        &["-E", "-e", "--eof", "--eof-str"],
        "all inputs are read; `sed '/^END$/,$d'` before `nearq run` leaves out what follows a line END",
    ),
    (&["-p", "--interactive"], "look with --dry-run at what would be run"),
    (
        &["--process-slot-var", "--slotreplace", "--seqreplace"],
        "write {%} for the job's place and {#} for its number",
    ),
    (
        &["--tag", "--tagstring", "--ctag", "--ctagstring"],
        "let the job print its input first, as in `nearq run --shell 'echo {}; COMMAND {}'`: what it prints stays together",
    ),
    (
        &["--retries"],
        "let the job try again, as in `nearq run --shell 'COMMAND {} || COMMAND {}'`, or see --joblog for what failed",
    ),
    (
        &["--resume", "--resume-failed", "--retry-failed"],
        "write a job log with --joblog FILE; `parallel --retry-failed --joblog FILE` reads it",
    ),
    (&["--timeout"], "put it before the command, as in `nearq run timeout 10 COMMAND`"),
    (&["--delay"], "let each job wait, as in `nearq run --shell 'sleep 1; COMMAND {}'`"),
    (&["--nice"], "put it before nearq, as in `nice -n 10 nearq run COMMAND`; jobs inherit it"),
    (&["--trim", "--trc"], "take blanks off before: `sed 's/^ *//; s/ *$//'` before `nearq run`"),
    (
        &["-C", "--colsep", "--header"],
        "give each column as an input of its own: `tr , '\\n'` before `nearq run -n 2` makes {1} and {2} of two columns",
    ),
    (
        &[
            "--pipe",
            "--pipepart",
            "--pipe-part",
            "--spreadstdin",
            "--block",
            "--block-size",
            "--recstart",
            "--recend",
            "--roundrobin",
            "--round-robin",
            "--rr",
            "--cat",
            "--fifo",
            "--tee",
            "--bin",
            "--shard",
            "--groupby",
        ],
        "jobs have no standard input from nearq: cut it into files (`split`), and give those, as in \
         `nearq run --shell 'COMMAND < {}' ::: part.*`",
    ),
    (&["--link", "--xapply"], "give the inputs as lines and let -n 2 make pairs of them"),
    (&["--line-buffer", "--linebuffer", "--lb"], "use --ungroup: jobs print themselves as they go"),
    (&["--eta", "--progress", "--bar"], "leave it out: on a terminal there is a bar"),
    (&["--group", "-q", "--quote", "--env", "--st", "--silent"], "leave it out: so it is anyway"),
    (
        &["--will-cite", "--citation", "--bibtex", "--no-notice", "--plain", "--profile"],
        "leave it out: there is nothing of that here",
    ),
    (
        &["--tmpdir", "--tempdir", "--compress", "--compress-program", "--decompress-program"],
        "leave it out: outputs are kept in memory, and not in files",
    ),
    (
        &["--files", "--files0", "--results", "--res", "--outputasfiles"],
        "let the shell write files, as in `nearq run --shell 'COMMAND {} > {#}.out'`; --json FILE and --joblog FILE hold the rest",
    ),
    (
        &[
            "-S",
            "--sshlogin",
            "--sshloginfile",
            "--slf",
            "--transfer",
            "--transferfile",
            "--tf",
            "--return",
            "--cleanup",
            "--basefile",
            "--bf",
            "--controlmaster",
            "-M",
            "--onall",
            "--nonall",
            "--filter-hosts",
        ],
        "jobs run on this machine; a job may be an `ssh`",
    ),
    (&["--workdir", "--wd"], "change the folder before, or put `env -C FOLDER` before the command"),
    (
        &["--load", "--memfree", "--memsuspend", "--noswap", "--limit"],
        "say with --jobs how many run at a time; nearq looks after each node's load itself",
    ),
    (&["--shuf"], "put `shuf` before `nearq run`"),
    (&["--skip-first-line"], "put `tail -n +2` before `nearq run`"),
    (
        &["--number-of-cpus", "--number-of-cores", "--number-of-threads", "--number-of-sockets"],
        "`nearq topo` shows them",
    ),
    (
        &["--semaphore", "--sem", "--id", "--fg", "--bg", "--wait"],
        "`flock` has one command run at a time",
    ),
    (
        &["--arg-sep", "--arg-file-sep"],
        "inputs come after `:::`, in a file with --input FILE, or on standard input",
    ),
    (&["--tmux", "--tmuxpane"], "--tty gives jobs the terminal, one at a time"),
    (&["-V", "--version"], "`nearq --version` prints it"),
];

/// What is said to an argument that `nearq run` does not know; `None` where something else is wrong, or another command is meant.
pub(crate) fn refused(error: &clap::Error) -> Option<Failure> {
    let is_run = std::env::args_os().nth(1).is_some_and(|command| command == "run");
    if !is_run || error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    let similar = text(ContextKind::SuggestedArg);
    Some(Failure::input(refusal(argument, similar)))
}

fn refusal(argument: &str, similar: Option<&str>) -> String {
    if let Some(instead) = instead_of(argument) {
        return format!("`{}` is not known here: {instead}", name(argument));
    }
    let similar = similar.map(|similar| format!("; there is {similar}")).unwrap_or_default();
    format!(
        "'{argument}' is not an option of `nearq run`{similar}; `nearq run --help` lists them; options of the command go after its name"
    )
}

fn instead_of(argument: &str) -> Option<&'static str> {
    let name = name(argument);
    let (_, instead) = FOREIGN.iter().find(|(names, _)| names.contains(&name))?;
    Some(instead)
}

/// The option without its value.
fn name(argument: &str) -> &str {
    if argument.starts_with("--") {
        return argument.split_once('=').map_or(argument, |(name, _)| name);
    }
    argument.char_indices().nth(2).map_or(argument, |(end, _)| &argument[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn no_option_of_ours_is_in_the_table_and_none_is_there_twice() {
        let command = crate::Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let mut ours = Vec::new();
        for argument in run.get_arguments() {
            let shorts = argument.get_short_and_visible_aliases().unwrap_or_default();
            ours.extend(shorts.iter().map(|short| format!("-{short}")));
            let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
            ours.extend(longs.iter().map(|long| format!("--{long}")));
        }
        assert!(ours.len() > 20, "{ours:?}");
        let mut names: Vec<&str> = FOREIGN.iter().flat_map(|(names, _)| *names).copied().collect();
        let known: Vec<_> = ours.iter().filter(|name| names.contains(&name.as_str())).collect();
        assert!(known.is_empty(), "{known:?}");
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn an_option_with_its_value_is_known_too() {
        assert!(instead_of("--retries=3").is_some() && instead_of("-L1").is_some());
        assert!(instead_of("--retriesx").is_none());
        assert!(refusal("--jbs", Some("--jobs")).contains("there is --jobs"));
    }
}
