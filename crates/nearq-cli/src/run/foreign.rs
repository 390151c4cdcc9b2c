//! Options of xargs and GNU parallel that `nearq run` does not support. The refusal of each option says what to do instead.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::arguments::PLACEHOLDERS;
use crate::output::Failure;

/// Their names, and what to do instead.
const FOREIGN: &[(&[&str], &str)] = &[
    (&["-i", "--replace", "-J"], "write {} in the command where the input belongs"),
    (&["--rpl", "--parens", "--plus"], PLACEHOLDERS),
    (
        &["-L", "-l", "--max-lines"],
        "each line is an input, and -n N gives each job N of them; blanks do not separate inputs",
    ),
    (
        &["-m", "-X", "--xargs", "-s", "--max-chars"],
        "give -n N with a large N: a job gets N inputs, or as many as fit into a command",
    ),
    (
        &["-x", "--exit"],
        "leave it out: a job whose inputs do not fit into a command fails with a message",
    ),
    (
        &["--show-limits", "--max-line-length-allowed"],
        "`getconf ARG_MAX` prints the most bytes that a command may have; nearq never exceeds it",
    ),
    (
        &["-E", "-e", "--eof", "--eof-str"],
        "all inputs are read; put `sed '/^END$/,$d'` before `nearq run` to end them at a line END",
    ),
    (&["-p", "--interactive"], "use --dry-run to see what would be run"),
    (
        &["--process-slot-var", "--slotreplace", "--seqreplace"],
        "write {%} for the job's slot and {#} for its number",
    ),
    (&["--ctag", "--ctagstring"], "give --tag or --tagstring TEXT: nearq prints no colours"),
    (
        &["--termseq"],
        "leave it out: a job that is ended gets SIGTERM, and two seconds later SIGKILL",
    ),
    (&["--nice"], "put it before nearq, as in `nice -n 10 nearq run COMMAND`; jobs inherit it"),
    (
        &["--trim", "--trc"],
        "remove blanks beforehand: put `sed 's/^ *//; s/ *$//'` before `nearq run`",
    ),
    (
        &["-C", "--colsep", "--header"],
        "give each column as a separate input: with `tr , '\\n'` before `nearq run -n 2`, two columns become {1} and {2}",
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
        "jobs get no standard input from nearq: split it into files (`split`), and give those, as in \
         `nearq run --shell 'COMMAND < {}' ::: part.*`",
    ),
    (&["--link", "--xapply"], "give the inputs as alternating lines, and pair them with -n 2"),
    (&["--line-buffer", "--linebuffer", "--lb"], "use --ungroup: jobs then print directly"),
    (&["--eta", "--progress", "--bar"], "leave it out: on a terminal there is a bar"),
    (
        &["--group", "-q", "--quote", "--env", "--st", "--silent"],
        "leave it out: nearq always does this",
    ),
    (
        &["--will-cite", "--citation", "--bibtex", "--no-notice", "--plain", "--profile"],
        "leave it out: nearq has nothing of the kind",
    ),
    (
        &["--tmpdir", "--tempdir", "--compress", "--compress-program", "--decompress-program"],
        "leave it out: outputs are kept in memory, and not in files",
    ),
    (
        &["--files", "--files0", "--outputasfiles"],
        "give --results DIR: it stores the outputs in files whose names follow from the inputs",
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
    (
        &["--workdir", "--wd"],
        "change the folder beforehand, or put `env -C FOLDER` before the command",
    ),
    (
        &["--load", "--memfree", "--memsuspend", "--noswap", "--limit"],
        "limit the number of jobs with --jobs; nearq balances the load of the nodes itself",
    ),
    (&["--shuf"], "put `shuf` before `nearq run`"),
    (&["--skip-first-line"], "put `tail -n +2` before `nearq run`"),
    (
        &["--number-of-cpus", "--number-of-cores", "--number-of-threads", "--number-of-sockets"],
        "`nearq topo` shows them",
    ),
    (
        &["--semaphore", "--sem", "--id", "--fg", "--bg", "--wait"],
        "use `flock` to run one command at a time",
    ),
    (
        &["--arg-sep", "--arg-file-sep"],
        "give inputs after `:::`, in a file with --input FILE, or on standard input",
    ),
    (&["--tmux", "--tmuxpane"], "--tty gives jobs the terminal, one at a time"),
    (&["-V", "--version"], "`nearq --version` prints it"),
];

/// The answer to an argument that `nearq run` does not know; `None` if something else is wrong, or for another command.
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
        return format!("`{}` is not supported here: {instead}", name(argument));
    }
    let similar = similar.map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
    format!(
        "'{argument}' is not an option of `nearq run`{similar}; `nearq run --help` lists them; write options of COMMAND after its name"
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
    fn foreign_options_are_unique_and_not_our_own() {
        let command = crate::Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let mut own_options = Vec::new();
        for argument in run.get_arguments() {
            let shorts = argument.get_short_and_visible_aliases().unwrap_or_default();
            own_options.extend(shorts.iter().map(|short| format!("-{short}")));
            let longs = argument.get_long_and_visible_aliases().unwrap_or_default();
            own_options.extend(longs.iter().map(|long| format!("--{long}")));
        }
        assert!(own_options.len() > 20, "{own_options:?}");
        let mut names: Vec<&str> = FOREIGN.iter().flat_map(|(names, _)| *names).copied().collect();
        let known: Vec<_> =
            own_options.iter().filter(|name| names.contains(&name.as_str())).collect();
        assert!(known.is_empty(), "{known:?}");
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_foreign_option_is_recognized_with_its_value() {
        assert!(instead_of("--trim=lr").is_some() && instead_of("-L1").is_some());
        assert!(instead_of("--trimx").is_none());
        assert!(refusal("--jbs", Some("--jobs")).contains("did you mean --jobs?"));
    }
}
