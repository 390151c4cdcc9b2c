//! `nearq run`: runs a command for each of many inputs, several at a time, each at home on a node.
//!
//! | file | holds |
//! |---|---|
//! | `arguments` | parsing of the command line: inputs, widths, weights |
//! | `foreign` | options of xargs and parallel that are not supported, and what to do instead |
//! | `queue` | `--from`: jobs from a queue on a server |
//! | `source` | where jobs come from, which of them run, and where their outputs go |
//! | `audience` | output while jobs run: bar, notices |
//! | `joblog` | the job log, and what it says about an earlier run |
//! | `account` | output afterwards: table, JSON |
//! | `near` | `--near`: the nodes of devices, and a GPU for each process |
//! | `tree` | `--tree`: one command, and each program that it executes chooses its home |
//!
//! `nearq_processes::jobs` runs the jobs.

mod account;
mod arguments;
mod audience;
mod foreign;
mod joblog;
mod near;
mod queue;
mod source;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nearq_command::Patient;
use nearq_command::screen::plain;
use nearq_home::{Nodes, Weights};
use nearq_platform::{Linux, Machine, Placement as _};
use nearq_processes::jobs::{self, Halt, Homes, Inputs, Order, Plan, Source, Template, Timeout};
use nearq_processes::tree::Choose as TreeChoose;
use nearq_topology::CpuSet;

use crate::output::{self, Failure};
pub(crate) use arguments::delay;
use arguments::{Home, Retries, Weight, Width};
use audience::RunDisplay;
pub(crate) use foreign::refused;
use near::{Near, Wanted};
use queue::QueueOptions;
use source::Jobs;

/// The exit status if the run itself failed, as in `timeout` and `env`. Lower ones are the number of failed jobs; higher ones mean that the
/// command cannot be executed.
const OWN_FAILURE: u8 = 125;

const MORE: &str = "\
COMMAND runs once for each input, without a shell; with --shell, /bin/sh runs it as
one line. These placeholders in it are replaced, as in GNU parallel:
  {}    the input               {#}   the job's number, from 1
  {.}   without its extension   {%}   its job slot, 1 to N
  {/}   without its folders     {1}   the job's first input, {2} the
  {//}  its folder                    second, ...; also {1.} {1/} {1//} {1/.}
  {/.}  its name without extension
Without any of these, the input is appended. Inputs are the lines of standard input
or of the file --input, or the words after `:::`. Several lists, as in
`::: a b ::: 1 2`, give a job for each combination. The standard input of jobs is
empty. A job never gets more inputs than fit into a command, whatever -n says. With
--shell, an input is never interpreted as shell code; therefore placeholders inside
quotes are refused.

Each job has a home: the node with the least load when it starts. It runs on that
node's CPUs and gets that node's memory. If its home is crowded while CPUs are idle
elsewhere, it is let out, and brought back later. Isolated CPUs belong to no home, and
are not counted by --jobs. On a machine with one node, jobs are not placed. When a job
has ended, the kernel no longer says which nodes it used.
So what --summary, --joblog and --json report about nodes was sampled while it ran:
10 times a second, its memory twice a second. `-` means that no sample was taken.

Columns of --summary, and their names in --json:
  JOB     number           its number, in the order of inputs
  HOME    home             its home node
  MOST    most             the node on which it used the most CPU time
  LAST    last             the node where it was last seen
  USER    user_s           CPU time in user mode, in seconds
  SYSTEM  system_s         CPU time in the kernel
  TIME    elapsed_s        how long it took
  RSS     max_rss_kib      the largest memory of any one of its processes
  MEMORY  memory_bytes     its memory on each node, as last seen
  MOVES   migrations       how often it was seen on another node than before
  OUT     let_out          how often it was let out of its home
  BACK    brought_home     how often it was brought back
  END     exit, signal     exit status, or the signal's name; `stopped` if it was
                           ended because nearq ended early
RSS is never less than what nearq itself uses, a few MiB: the kernel counts that too.
The job log has GNU parallel's nine columns, then these after a `#`, so that
`parallel --retry-failed` can still read it.

Examples:
  nearq run gzip -9 ::: *.log
  find . -name '*.wav' -print0 | nearq run -0 lame {} {.}.mp3
  nearq run -j 8 --keep-order --shell 'sort {} | uniq -c > {.}.n' ::: *.txt
  nearq run --home 1 --strict --summary ./simulate --seed ::: 1 2 3 4
  nearq run --joblog log --halt soon make -C {} ::: */
  nearq run --dry-run --input hosts.txt ping -c 1
  nearq run --tree -- make -j20
  nearq run --from nats://q:4222 --stream JOBS --consumer encode -- encode {}

With --from, jobs come from a queue on a server, and this command is one of its workers. A
message is an input, or an object with its own command (`nearq submit --help`). A job runs
at least once, and may run twice: a worker that cannot reach the server for the time
--ack-wait may still run a job that another one has got. Jobs have NEARQ_JOB, which is the
stream and the job's sequence there, and NEARQ_JOB_TRIES in their environment. The first
SIGTERM or SIGINT lets running jobs finish and takes no more; the second one ends them and
gives them back at once. The exit status is the number of jobs that were given up.

With --tree there are no jobs: COMMAND runs once, and a small library in its
programs chooses their homes; nearq ends with its exit status or signal. docs/tree.md says more.

Exit status: 0; the number of jobs that failed, up to 100, and 101 for more;
125 if nearq itself could not continue (an output or a log cannot be written,
inputs cannot be read, or a limit lets no job start); 126 if COMMAND cannot be
executed; 127 if it is not found; also 2 for invalid arguments: then nothing has
run. On SIGINT, SIGTERM, SIGHUP or SIGQUIT, nearq ends its jobs, says what did not
run, and then ends by that signal.";

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

/// The arguments of `nearq run`.
#[derive(Args, Debug)]
#[command(after_help = MORE, override_usage = "nearq run [OPTIONS] [--] COMMAND [WORDS] [::: INPUTS]...")]
pub(crate) struct Options {
    /// How many jobs run at a time: N; +N or -N for more or fewer than the usable CPUs; N% of them; 0 for as many as possible [default:
    /// 100%]
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

    /// Bind jobs to their home: they are never let out, and get no memory from elsewhere
    #[arg(long)]
    strict: bool,

    /// The home of all jobs: a node's number; auto for the node that is least loaded when the job starts; none to let the kernel place jobs
    #[arg(long, value_name = "auto|NODE", default_value = "auto")]
    home: Home,

    /// Run near a device, on the node that it belongs to: gpu:0, pci:0000:41:00.0, netdev:eth0, block:nvme0n1, file:/data/x or ip:10.0.0.1; or
    /// gpu for one process for each GPU. May be repeated; without inputs, COMMAND runs once
    #[arg(long, value_name = "DEVICE", conflicts_with = "home")]
    near: Vec<Wanted>,

    /// Where inputs come from: a file, or - for standard input
    #[arg(short = 'a', long, visible_alias = "arg-file", value_name = "FILE|-")]
    input: Option<PathBuf>,

    /// Inputs end with a zero byte instead of a newline, as from `find -print0`
    #[arg(short = '0', long)]
    null: bool,

    /// Inputs end with this byte, given as itself or as \n, \t or \xHH; empty inputs count too
    #[arg(short, long, value_name = "BYTE", value_parser = arguments::delimiter, conflicts_with = "null")]
    delimiter: Option<u8>,

    /// Run nothing if there are no inputs; this is always so
    #[arg(short = 'r', long, hide = true)]
    no_run_if_empty: bool,

    /// Make {} the placeholder; this is always so
    #[arg(short = 'I', value_name = "{}", hide = true, value_parser = arguments::placeholder, conflicts_with = "max_args")]
    replace: Option<()>,

    /// Run COMMAND once, with the terminal and without inputs; each program that it and its descendants execute chooses its own home
    #[arg(long, conflicts_with_all = ["input", "null", "delimiter", "no_run_if_empty", "replace", "max_args", "shell", "tty", "keep_order", "ungroup", "joblog", "dry_run", "jobs", "halt", "resume", "resume_failed", "retry_failed", "retries", "timeout", "delay", "tag", "tagstring", "results"])]
    tree: bool,

    /// With --tree: programs choose their home when they are executed (exec), also when they fork (fork), or only after 50 ms of CPU time
    /// (lazy)
    #[arg(
        long,
        value_name = "exec|fork|lazy",
        requires = "tree",
        default_value = "exec",
        hide_possible_values = true
    )]
    choose: Choose,

    /// How many inputs each job gets, at most as many as fit into a command
    #[arg(short = 'n', long, visible_short_alias = 'N', alias = "max-replace-args", value_name = "N", default_value_t = 1, value_parser = arguments::max_args)]
    max_args: usize,

    /// Have /bin/sh run the command as one line; inputs are passed to the shell as arguments
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

    /// Let jobs write their output directly, as it comes; otherwise each job's output is kept in memory and printed as a whole
    #[arg(short, long)]
    ungroup: bool,

    /// When a job fails: continue (never), start no more jobs (soon), or end the running ones as well (now)
    #[arg(long, alias = "halt-on-error", value_name = "now|soon|never", default_value = "never")]
    halt: Halt,

    /// Write a line to this file for each job that ends
    #[arg(long, value_name = "FILE")]
    joblog: Option<PathBuf>,

    /// With --joblog: leave out the jobs whose number is in the job log, and continue the log
    #[arg(long)]
    resume: bool,

    /// With --joblog: the same, but run jobs again that have not succeeded
    #[arg(long)]
    resume_failed: bool,

    /// With --joblog, and without a command and inputs: run the jobs again that have not succeeded, by the commands in the job log
    #[arg(long, conflicts_with_all = ["resume", "resume_failed", "input", "null", "delimiter", "replace", "max_args", "shell", "results"])]
    retry_failed: bool,

    /// Run a job that fails again, up to N times in all; 0 for as many times as it takes
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = arguments::retries, allow_negative_numbers = true)]
    retries: Retries,

    /// End a job that runs longer than this: seconds, or 10s, 5m, 2h, 1d; 200% for twice the median time of the jobs that succeeded
    #[arg(long, value_name = "TIME", value_parser = arguments::timeout, allow_negative_numbers = true)]
    timeout: Option<Timeout>,

    /// The least time between the starts of two jobs: seconds, or 10s, 5m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = arguments::delay, allow_negative_numbers = true)]
    delay: Duration,

    /// Begin each line of a job's output with the job's inputs and a tab
    #[arg(long)]
    tag: bool,

    /// Begin each line with this text and a tab; placeholders are replaced
    #[arg(long, alias = "tag-string", value_name = "TEXT")]
    tagstring: Option<OsString>,

    /// Store each job's output in DIR/1/INPUT/stdout and stderr, and print nothing; placeholders in DIR are replaced
    #[arg(long, alias = "res", value_name = "DIR")]
    results: Option<OsString>,

    /// Write everything known about the jobs at the end; `-` writes it to standard output, and jobs then print to standard error
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// Print a table of the jobs to standard error at the end
    #[arg(long)]
    summary: bool,

    /// Print the available homes, and each command as it starts, to standard error
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

    #[command(flatten)]
    queue: QueueOptions,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let machine = Linux::machine().map_err(Failure::run)?;
    let weights = options.weights()?;
    let Some(weights) = weights else {
        return output::print(&arguments::weights_help()).map(|()| ExitCode::SUCCESS);
    };
    let near = Near::of(&options.near, &machine)?;
    let homes = options.homes(&machine, weights, near.as_ref())?;
    if !options.dry_run {
        // The outputs of jobs and programs go to standard output. If it is closed, that would show only afterwards, or never: they would
        // write to /dev/null.
        output::open().map_err(|failure| Failure::with_status(OWN_FAILURE, failure))?;
    }
    if let Some(near) = &near {
        near.print(options.verbose || options.dry_run, &homes.nodes);
        if options.becomes_command(near, &homes)? {
            return near.become_command(options, &homes);
        }
    }
    if options.tree {
        return tree::run(&options.tree(&machine, homes, near.as_ref())?);
    }
    let cpus = machine.limits.parallelism().min(machine.limits.housekeeping().len()).max(1);
    let width = options.width(cpus, near.as_ref())?;
    let queue = options.queue(width)?;
    let jobs = options.jobs(near.as_ref())?;
    let tag = options.tag(jobs.count)?;
    let results = options.results(&jobs)?;
    let Jobs { template, inputs, earlier, .. } = jobs;
    if options.dry_run {
        return preview(&template, inputs, width, &homes);
    }
    let (source, dead): (Box<dyn Source>, _) = match queue {
        Some(queue) => (queue.source, Some(queue.dead)),
        None => (Box::new(inputs), None),
    };
    let has_command = options.retry_failed || !options.command.is_empty();
    let nodes = homes.nodes.clone();
    let to_error = options.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let mut display = RunDisplay::new(options, &nodes, earlier)?;
    if options.verbose {
        display.print_line(&about(&homes, options.home));
    }
    let plan = Plan {
        template: has_command.then_some(template),
        source,
        width,
        halt: options.halt,
        order: options.order(),
        tty: options.tty,
        to_error,
        tag,
        results,
        retries: options.retries.0,
        timeout: options.timeout,
        delay: options.delay,
        around: display.around(),
        homes,
    };
    let outcome = jobs::run(plan, &mut display).map_err(|error| match error {
        jobs::Error::Program(error) => Failure::with_status(error.exit_status(), error),
        error @ (jobs::Error::Source(_) | jobs::Error::System(_)) => {
            Failure::with_status(OWN_FAILURE, error)
        }
    })?;
    let finished = display.finish(options, &outcome);
    if let Some(signal) = outcome.signal {
        if let Err(failure) = finished {
            failure.report("nearq");
        }
        jobs::die_by(signal);
    }
    // A job of a queue that has failed runs again, here or elsewhere, unless it was given up.
    let failed = dead.map_or(outcome.failed, |dead| dead());
    finished.map(|()| ExitCode::from(jobs::exit_status(failed)))
}

/// Why there are no homes, with this `--home` on these nodes; `None` if there are some.
fn why_none(home: Home, nodes: &Nodes) -> Option<&'static str> {
    match home {
        Home::None => Some("none were requested (--home none)"),
        _ if nodes.is_all() => Some("none are needed, because all usable CPUs belong to one node"),
        _ => None,
    }
}

/// The available homes, in one line.
fn about(homes: &Homes, home: Home) -> String {
    if let Some(why) = why_none(home, &homes.nodes) {
        return format!("homes: {why}; the CPUs and memory of jobs are left alone");
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
    let single = homes.nodes.is_all();
    let stdout = io::stdout();
    let to_terminal = stdout.is_terminal();
    let refused = |error: io::Error| {
        Failure::with_status(OWN_FAILURE, format!("standard output cannot be written: {error}"))
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
        // Stop if standard output has no reader any more, or cannot be written.
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    match printed.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(refused(error)),
        _ => {}
    }
    read.map_err(|error| {
        Failure::with_status(
            OWN_FAILURE,
            format!("the inputs could not be read to their end: {error}"),
        )
    })?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn order(&self) -> Order {
        match (self.keep_order, self.ungroup) {
            (true, _) => Order::Input,
            (_, true) => Order::None,
            _ if self.tty => Order::None,
            // Programs near devices often run for long.
            _ if self.repeats()
                && !(self.tag || self.tagstring.is_some() || self.results.is_some()) =>
            {
                Order::None
            }
            _ => Order::End,
        }
    }

    /// How many jobs run at a time if `cpus` CPUs may be used.
    fn width(&self, cpus: usize, near: Option<&Near>) -> Result<usize, Failure> {
        if !self.tty {
            let usual = near.and_then(Near::width).map_or(Width::Percent(100), Width::Number);
            return Ok(self.jobs.unwrap_or(usual).of(cpus));
        }
        if self.jobs.is_some_and(|jobs| jobs != Width::Number(1)) {
            return Err(Failure::input(
                "--tty and --jobs: jobs have the terminal one at a time; leave out one of the two",
            ));
        }
        if let Err(error) = File::open("/dev/tty") {
            return Err(Failure::input(format!(
                "--tty: there is no terminal ({error}); leave out --tty, or run the command from a terminal"
            )));
        }
        Ok(1)
    }

    /// `None` if the list of weights is asked for.
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

    /// The homes. Isolated CPUs belong to none, unless a node is named, by `--home` or `--near`, that has no others.
    fn homes(
        &self,
        machine: &Machine,
        weights: Weights,
        near: Option<&Near>,
    ) -> Result<Homes, Failure> {
        let among = |cpus| self.homes_among(&cpus, machine, weights.clone(), near);
        let limits = &machine.limits;
        among(limits.housekeeping()).or_else(|_| among(limits.effective()))
    }

    fn homes_among(
        &self,
        allowed: &CpuSet,
        machine: &Machine,
        weights: Weights,
        near: Option<&Near>,
    ) -> Result<Homes, Failure> {
        if self.strict && self.home == Home::None {
            return Err(Failure::input(
                "--strict: with --home none there is no home to bind jobs to; leave out one of the two",
            ));
        }
        let nodes = match self.scope {
            Scope::Numa => Nodes::of(&machine.topology, allowed),
            Scope::Cache => Nodes::by_cache(&machine.topology, allowed),
        };
        let fixed = match self.home {
            Home::Auto | Home::None => None,
            Home::Node(id) => {
                let index = nodes.index_of(id);
                Some(index.map_err(|error| Failure::input(format!("--home {id}: {error}")))?)
            }
        };
        let nodes = if self.home == Home::None { nodes.joined() } else { nodes };
        let homes = Homes { nodes, fixed, strict: self.strict, weights, slots: Vec::new() };
        near.map_or(Ok(homes.clone()), |near| near.homes(homes))
    }

    fn tree(
        &self,
        machine: &Machine,
        homes: Homes,
        near: Option<&Near>,
    ) -> Result<tree::Tree, Failure> {
        if self.command.is_empty() {
            return Err(Failure::input(
                "no command: give one, as in `nearq run --tree -- make -j20`",
            ));
        }
        if self.command.iter().any(|word| word == ":::") {
            return Err(Failure::input(
                "--tree runs one command and has no inputs: leave out the ::: and everything after it, or leave out --tree",
            ));
        }
        Ok(tree::Tree {
            command: self.command.clone(),
            without: why_none(self.home, &homes.nodes),
            widest: near.map_or_else(|| machine.limits.effective(), |_| homes.nodes.cpus()),
            variables: near.map_or_else(Vec::new, |near| near.variables().to_vec()),
            nodes: homes.nodes,
            fixed: homes.fixed,
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
}

/// The bytes of an argument.
fn bytes(word: &OsString) -> Vec<u8> {
    word.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    #[test]
    fn the_option_or_the_machine_explains_missing_homes() {
        let machine = |text: &str| {
            let machine = Topology::from_synthetic(text).unwrap();
            Nodes::of(&machine, machine.online())
        };
        let (one, several) = (machine("core:4"), machine("numa:2 core:2"));
        for home in [Home::Auto, Home::Node(0)] {
            assert!(why_none(home, &one).unwrap().contains("belong to one node"));
            assert_eq!(why_none(home, &several), None);
        }
        // With `--home none`, all nodes are joined into one.
        for nodes in [one, several.joined(), several] {
            let why = why_none(Home::None, &nodes).unwrap();
            assert!(why.contains("--home none") && !why.contains("one node"), "{why}");
            let weights = Weights::default();
            let homes = Homes { nodes, fixed: None, strict: false, weights, slots: Vec::new() };
            assert!(about(&homes, Home::None).contains(why));
        }
    }
}
