//! `nearq run`: a command for each of many inputs, so many at a time, each at home on a node.
//!
//! | file | holds |
//! |---|---|
//! | `arguments` | what is said on the command line: inputs, widths, weights |
//! | `foreign` | options of xargs and parallel that there are not, and what to do instead |
//! | `audience` | what is shown and written while jobs run: bar, job log, notices |
//! | `account` | what is told afterwards: table, JSON |
//! | `tree` | `--tree`: one command, and each program that it executes chooses its home |
//!
//! What runs them is `nearq_processes::jobs`.

mod account;
mod arguments;
mod audience;
mod foreign;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use nearq_command::Patient;
use nearq_command::screen::plain;
use nearq_home::{Nodes, Weights};
use nearq_platform::{Linux, Machine, Placement as _};
use nearq_processes::jobs::{self, Each, Halt, Homes, Inputs, Order, Plan, Separator, Template};
use nearq_processes::tree::Choose as TreeChoose;

use crate::output::{self, Failure};
use arguments::{Home, Weight, Width, Words};
use audience::Shown;
pub(crate) use foreign::refused;

/// The exit status where the run itself went wrong, as of `timeout` and `env`: below it is the number of jobs that failed, above it
/// there is no command.
const OWN: u8 = 125;

const MORE: &str = "\
COMMAND is run once for each input, without a shell; --shell has /bin/sh run it
as one line. These placeholders in it are replaced, as in GNU parallel:
  {}    the input               {#}   the job's number, from 1
  {.}   without its extension   {%}   the place that it runs in, 1 to N
  {/}   without its folders     {1}   the first of the job's inputs, {2} the
  {//}  its folder                    second, ...; also {1.} {1/} {1//} {1/.}
  {/.}  its name without extension
Without any of these the input is appended. Inputs are lines of standard input
or of --input, or the words after `:::`; several lists `::: a b ::: 1 2` give a
job for each combination. Standard input of jobs is empty. A job has no more
inputs than fit into a command, whatever -n says. With --shell an input is never
read as a command: placeholders stand outside of quotes, elsewhere they are
refused.

Each job has a home: the node with the least load when it starts. Its CPUs and
its memory are that node's; where the home is crowded while CPUs idle elsewhere,
it is let out, and brought back later. On a machine of one node nothing is set.
A job that ends leaves no account of its memory, so what --summary, --joblog
and --json say of nodes is what was seen while it ran: 10 times a second, the
memory twice a second. `-` is what was never seen.

The columns of --summary, and the names in --json:
  JOB     number           its number, in the order of inputs
  HOME    home             its home node
  MOST    most             the node of which it used most CPU time
  LAST    last             the node where it was seen last
  USER    user_s           CPU time in programs, in seconds
  SYSTEM  system_s         CPU time in the kernel
  TIME    elapsed_s        how long it took
  RSS     max_rss_kib      the most memory that one of its processes had
  MEMORY  memory_bytes     its memory on each node, as seen last
  MOVES   migrations       how often it was seen on another node than before
  OUT     let_out          how often it was let out of its home
  BACK    brought_home     how often it was brought back
  END     exit, signal     exit status, or the signal's name; `stopped` where
                           the whole was ended
RSS is never less than what nearq itself uses, a few MiB: the kernel counts that too.
The job log has GNU parallel's nine columns, then these behind a `#`, so that
`parallel --retry-failed` still reads it.

Examples:
  nearq run gzip -9 ::: *.log
  find . -name '*.wav' -print0 | nearq run -0 lame {} {.}.mp3
  nearq run -j 8 --keep-order --shell 'sort {} | uniq -c > {.}.n' ::: *.txt
  nearq run --home 1 --strict --summary ./simulate --seed ::: 1 2 3 4
  nearq run --joblog log --halt soon make -C {} ::: */
  nearq run --dry-run --input hosts.txt ping -c 1
  nearq run --tree -- make -j20

With --tree there are no jobs: COMMAND runs once, and a small library in its
programs chooses their homes; nearq ends as it ends. docs/tree.md says more.

Exit status: 0; the number of jobs that failed, up to 100, and 101 for more;
125 if nearq itself could not go on (outputs or a log that cannot be written,
inputs that cannot be read, a limit under which no job starts); 126 if COMMAND
cannot be executed, 127 if it is not found; 2 also for arguments that cannot be
used: then nothing has run. Ended by SIGINT, SIGTERM, SIGHUP or SIGQUIT, it ends
its jobs, says what did not run, and then ends by that signal.";

/// What homes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scope {
    /// NUMA nodes
    Numa,
    /// Last-level caches; memory comes from the cache's node
    Cache,
}

/// When programs choose their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choose {
    /// When they are executed
    Exec,
    /// Also when they fork
    Fork,
    /// After some CPU time
    Lazy,
}

/// What `nearq run` can be told.
#[derive(Args, Debug)]
#[command(after_help = MORE, override_usage = "nearq run [OPTIONS] [--] COMMAND [WORDS] [::: INPUTS]...")]
pub(crate) struct Options {
    /// How many jobs run at a time: N; +N or -N more or fewer than usable CPUs; N% of them; 0 for as many as possible [default: 100%]
    #[arg(
        short,
        long,
        visible_short_alias = 'P',
        visible_alias = "max-procs",
        value_name = "N",
        allow_negative_numbers = true
    )]
    jobs: Option<Width>,

    /// What a home is: the CPUs of a NUMA node, or those of a last-level cache
    #[arg(long, value_name = "numa|cache", default_value = "numa", hide_possible_values = true)]
    scope: Scope,

    /// Bind jobs to their home: they are never let out, and have no memory from elsewhere
    #[arg(long)]
    strict: bool,

    /// The home of all jobs: a node's number; or auto, the least loaded when each starts; or none, jobs run wherever the kernel puts them
    #[arg(long, value_name = "auto|NODE", default_value = "auto")]
    home: Home,

    /// Where inputs come from: a file, or - for standard input
    #[arg(short = 'a', long, visible_alias = "arg-file", value_name = "FILE|-")]
    input: Option<PathBuf>,

    /// Inputs end with a zero byte instead of a line's end, as from `find -print0`
    #[arg(short = '0', long)]
    null: bool,

    /// Inputs end with this byte, or with \n, \t or \xHH; each counts, also an empty one
    #[arg(short, long, value_name = "BYTE", value_parser = arguments::delimiter, conflicts_with = "null")]
    delimiter: Option<u8>,

    /// Nothing runs without inputs; so it is anyway
    #[arg(short = 'r', long, hide = true)]
    no_run_if_empty: bool,

    /// The placeholder is {}; so it is anyway
    #[arg(short = 'I', value_name = "{}", hide = true, value_parser = arguments::placeholder, conflicts_with = "max_args")]
    replace: Option<()>,

    /// Run COMMAND once, with the terminal and without inputs; each program that it and its descendants execute chooses its own home
    #[arg(long, conflicts_with_all = ["input", "null", "delimiter", "no_run_if_empty", "replace", "max_args", "shell", "tty", "keep_order", "ungroup", "joblog", "dry_run", "jobs", "halt"])]
    tree: bool,

    /// With --tree: programs choose when they are executed; also when they fork; or only after 50 ms of CPU time
    #[arg(
        long,
        value_name = "exec|fork|lazy",
        requires = "tree",
        default_value = "exec",
        hide_possible_values = true
    )]
    choose: Choose,

    /// How many inputs each job gets, or as many as fit into a command
    #[arg(short = 'n', long, visible_short_alias = 'N', alias = "max-replace-args", value_name = "N", default_value_t = 1, value_parser = arguments::max_args)]
    max_args: usize,

    /// Have /bin/sh run the words as one line; inputs are passed to it as arguments
    #[arg(long)]
    shell: bool,

    /// Give jobs the terminal as their standard input, one at a time: for programs that ask for a password, and for editors
    #[arg(
        long,
        visible_short_alias = 'o',
        visible_alias = "open-tty",
        conflicts_with = "keep_order"
    )]
    tty: bool,

    /// Print outputs in the order of inputs
    #[arg(short, long, conflicts_with = "ungroup")]
    keep_order: bool,

    /// Let jobs write their output themselves, as it comes; otherwise each job's is kept in memory and printed whole
    #[arg(short, long)]
    ungroup: bool,

    /// When a job fails: go on (never), start no more jobs (soon), or end the running ones as well (now)
    #[arg(long, alias = "halt-on-error", value_name = "now|soon|never", default_value = "never")]
    halt: Halt,

    /// Write a line into this file for each job that ends
    #[arg(long, value_name = "FILE")]
    joblog: Option<PathBuf>,

    /// Write everything known about the jobs at the end; with - on standard output, and jobs print on standard error
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// Print a table of the jobs on standard error at the end
    #[arg(long)]
    summary: bool,

    /// Print what homes there are, and each command as it starts, on standard error
    #[arg(short, long, visible_short_alias = 't')]
    verbose: bool,

    /// Print the commands and their homes; run nothing
    #[arg(long, alias = "dryrun")]
    dry_run: bool,

    /// How reluctantly jobs are let out of their home; --weight help lists the names
    #[arg(long, value_name = "NAME=N")]
    weight: Vec<Weight>,

    /// The command with its arguments, and after ::: the inputs
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = false)]
    command: Vec<OsString>,
}

/// Carries it out.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let machine = Linux::machine().map_err(Failure::run)?;
    let weights = options.weights()?;
    let Some(weights) = weights else {
        return output::print(&arguments::weights_help()).map(|()| ExitCode::SUCCESS);
    };
    let homes = options.homes(&machine, weights)?;
    if !options.dry_run {
        // The outputs of jobs and programs go there: that would show only afterwards, or nowhere, as they would get /dev/null.
        output::open().map_err(|failure| Failure::with_status(OWN, failure))?;
    }
    if options.tree {
        return tree::run(&options.tree(&machine, homes)?);
    }
    let words = Words::of(&options.command).map_err(Failure::input)?;
    let width = options.width(machine.limits.parallelism())?;
    let count = words.inputs_of_each(options.max_args).map_err(Failure::input)?;
    let template = Template::new(&words.command, count, options.shell).map_err(Failure::input)?;
    if options.replace.is_some() && !Template::has_placeholder(&words.command) {
        return Err(Failure::input(
            "-I{}: there is no {} in the command; write it where the input shall stand, or leave -I{} out: then the input is appended",
        ));
    }
    let each = Each { inputs: options.max_args, room: template.room() };
    let inputs = options.inputs(words, each)?;
    if options.dry_run {
        return preview(&template, inputs, width, &homes);
    }
    let nodes = homes.nodes.clone();
    let to_error = options.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let mut shown = Shown::new(options, &nodes)?;
    if options.verbose {
        shown.say(&about(&homes, options.home));
    }
    let plan = Plan {
        template,
        inputs,
        width,
        halt: options.halt,
        order: options.order(),
        tty: options.tty,
        to_error,
        around: shown.around(),
        homes,
    };
    let outcome = jobs::run(plan, &mut shown).map_err(|error| match error {
        jobs::Error::Program(error) => Failure::with_status(error.exit_status(), error),
        error @ jobs::Error::System(_) => Failure::with_status(OWN, error),
    })?;
    let finished = shown.finish(options, &outcome);
    if let Some(signal) = outcome.signal {
        if let Err(failure) = finished {
            failure.report("nearq");
        }
        jobs::die_by(signal);
    }
    finished.map(|()| ExitCode::from(jobs::exit_status(outcome.failed)))
}

/// Why there are no homes, with this `--home` on these nodes; `None` where there are.
fn why_none(home: Home, nodes: &Nodes) -> Option<&'static str> {
    match home {
        Home::None => Some("none are asked for (--home none)"),
        _ if nodes.is_single() => {
            Some("none are needed, all CPUs that may be used are of one node")
        }
        _ => None,
    }
}

/// What homes there are, in one line.
fn about(homes: &Homes, home: Home) -> String {
    if let Some(why) = why_none(home, &homes.nodes) {
        return format!("homes: {why}; neither CPUs nor memory of jobs are set");
    }
    let all: Vec<String> =
        homes.nodes.iter().map(|node| format!("{} (CPUs {})", node.id, node.cpus)).collect();
    let which = match homes.fixed {
        Some(home) => format!("node {} for all jobs, of", homes.nodes.get(home).id),
        None => "the least loaded of".to_owned(),
    };
    let how = if homes.strict { "strict" } else { "soft" };
    format!("homes: {which} {}; {how}", all.join(", "))
}

fn preview(
    template: &Template,
    inputs: Inputs,
    width: usize,
    homes: &Homes,
) -> Result<ExitCode, Failure> {
    let single = homes.nodes.is_single();
    let stdout = io::stdout();
    let to_terminal = stdout.is_terminal();
    let refused = |error: io::Error| {
        Failure::with_status(OWN, format!("standard output cannot be written: {error}"))
    };
    let mut out = BufWriter::new(Patient::stdout().map_err(refused)?);
    let mut printed = Ok(());
    let read = jobs::preview(template, inputs, width, homes, |home, command| {
        let mut line = Vec::new();
        if !single {
            line.extend_from_slice(format!("{}\t", homes.nodes.get(home).id).as_bytes());
        }
        if to_terminal {
            line.extend_from_slice(plain(&String::from_utf8_lossy(&command)).as_bytes());
        } else {
            line.extend_from_slice(&command);
        }
        line.push(b'\n');
        printed = out.write_all(&line);
        // No more of it is read, or it cannot be written.
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match printed.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(refused(error)),
        _ => {}
    }
    read.map_err(|error| {
        Failure::with_status(OWN, format!("the inputs cannot be read to their end: {error}"))
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn order(&self) -> Order {
        match (self.keep_order, self.ungroup) {
            (true, _) => Order::Input,
            (_, true) => Order::None,
            _ if self.tty => Order::None,
            _ => Order::End,
        }
    }

    /// How many jobs run at a time, where so many CPUs may be used.
    fn width(&self, cpus: usize) -> Result<usize, Failure> {
        if !self.tty {
            return Ok(self.jobs.unwrap_or(Width::Percent(100)).of(cpus));
        }
        if self.jobs.is_some_and(|jobs| jobs != Width::Number(1)) {
            return Err(Failure::input(
                "--tty and --jobs: jobs have the terminal one at a time; leave one of the two out",
            ));
        }
        if let Err(error) = File::open("/dev/tty") {
            return Err(Failure::input(format!(
                "--tty: there is no terminal ({error}); leave it out, or run it from one"
            )));
        }
        Ok(1)
    }

    /// `None` where the list of them is asked for.
    fn weights(&self) -> Result<Option<Weights>, Failure> {
        let mut weights = Weights::default();
        for weight in &self.weight {
            let Weight::Set(name, value) = weight else { return Ok(None) };
            weights
                .set(name, *value)
                .map_err(|error| Failure::input(format!("--weight: {error}")))?;
        }
        Ok(Some(weights))
    }

    fn homes(&self, machine: &Machine, weights: Weights) -> Result<Homes, Failure> {
        if self.strict && self.home == Home::None {
            return Err(Failure::input(
                "--strict: with --home none there is no home to be kept in; leave out one of the two",
            ));
        }
        let allowed = machine.limits.effective();
        let nodes = match self.scope {
            Scope::Numa => Nodes::of(&machine.topology, &allowed),
            Scope::Cache => Nodes::by_cache(&machine.topology, &allowed),
        };
        let fixed = match self.home {
            Home::Auto | Home::None => None,
            Home::Node(id) => {
                let index = nodes.index_of(id);
                Some(index.map_err(|error| Failure::input(format!("--home {id}: {error}")))?)
            }
        };
        let nodes = if self.home == Home::None { nodes.joined() } else { nodes };
        Ok(Homes { nodes, fixed, strict: self.strict, weights })
    }

    fn tree(&self, machine: &Machine, homes: Homes) -> Result<tree::Tree, Failure> {
        if self.command.is_empty() {
            return Err(Failure::input(
                "no command: give one, as in `nearq run --tree -- make -j20`",
            ));
        }
        if self.command.iter().any(|word| word == ":::") {
            return Err(Failure::input(
                "--tree runs one command and has no inputs: leave out the ::: and what follows it, or leave out --tree",
            ));
        }
        Ok(tree::Tree {
            command: self.command.clone(),
            without: why_none(self.home, &homes.nodes),
            nodes: homes.nodes,
            fixed: homes.fixed,
            widest: machine.limits.effective(),
            weights: homes.weights,
            choose: match self.choose {
                Choose::Exec => TreeChoose::Exec,
                Choose::Fork => TreeChoose::Fork,
                Choose::Lazy => TreeChoose::Lazy,
            },
            strict: homes.strict,
            verbose: self.verbose,
            summary: self.summary,
            json: self.json.clone(),
        })
    }

    fn inputs(&self, words: Words, each: Each) -> Result<Inputs, Failure> {
        let separator = match self.delimiter {
            Some(byte) => Separator { byte, keeps_empty: true },
            None if self.null => Separator::NULL,
            None => Separator::LINE,
        };
        if !words.lists.is_empty() {
            if let Some(input) = &self.input {
                return Err(Failure::input(format!(
                    "--input {} and `:::`: there is one source of inputs; give one of the two",
                    input.display()
                )));
            }
            return Ok(words.inputs(each));
        }
        let path = match &self.input {
            Some(path) if path.as_os_str() != "-" => path,
            None if io::stdin().is_terminal() => {
                return Err(Failure::input(
                    "no inputs: give them after `:::`, in a file with --input FILE, or on standard input (--input - to type them)",
                ));
            }
            Some(_) | None => return standard_input(separator, each),
        };
        let refused = |error: io::Error| {
            Failure::input(format!(
                "--input {}: cannot be read: {error}; give a file with an input on each line",
                path.display()
            ))
        };
        let file = File::open(path).map_err(refused)?;
        if file.metadata().map_err(refused)?.is_dir() {
            return Err(refused(io::ErrorKind::IsADirectory.into()));
        }
        Ok(Inputs::stream(file, separator, each))
    }
}

fn standard_input(separator: Separator, each: Each) -> Result<Inputs, Failure> {
    let file = io::stdin().as_fd().try_clone_to_owned();
    let file = file.map_err(|error| {
        Failure::input(format!(
            "standard input is closed: {error}; give inputs after `:::` or with --input FILE"
        ))
    })?;
    Ok(Inputs::stream(file.into(), separator, each))
}

/// Bytes of an argument.
fn bytes(word: &OsString) -> Vec<u8> {
    word.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    #[test]
    fn why_there_are_no_homes_is_what_was_asked_for_or_the_machine() {
        let machine = |text: &str| {
            let machine = Topology::from_synthetic(text).unwrap();
            Nodes::of(&machine, machine.online())
        };
        let (one, several) = (machine("core:4"), machine("numa:2 core:2"));
        for home in [Home::Auto, Home::Node(0)] {
            assert!(why_none(home, &one).unwrap().contains("of one node"));
            assert_eq!(why_none(home, &several), None);
        }
        // Who wants no homes has all nodes as one.
        for nodes in [one, several.joined(), several] {
            let why = why_none(Home::None, &nodes).unwrap();
            assert!(why.contains("--home none") && !why.contains("one node"), "{why}");
            let homes = Homes { nodes, fixed: None, strict: false, weights: Weights::default() };
            assert!(about(&homes, Home::None).contains(why));
        }
    }
}
