//! The options of `nearq run`, and its help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use nearq_processes::jobs::{Halt, Timeout};

use super::arguments::{self, Home, Retries, Weight, Width};
use super::near::Wanted;
use super::queue::QueueOptions;

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
--ack-wait may still run a job that another one runs by then. Jobs have NEARQ_JOB, which
is the stream and the job's sequence there, and NEARQ_JOB_TRIES in their environment. The
first SIGTERM, SIGINT, SIGHUP or SIGQUIT lets running jobs finish and takes no more; the
second one ends them and gives them back at once. The exit status is the number of jobs
that this worker turned into dead letters (101 for more than 100).

With --tree there are no jobs: COMMAND runs once, and a small library in its
programs chooses their homes; nearq ends with its exit status or signal. docs/tree.md says more.

Exit status: 0; the number of jobs that failed, up to 100, and 101 for more;
125 if nearq itself could not continue (an output or a log cannot be written,
inputs cannot be read, or a limit lets no job start); 126 if COMMAND cannot be
executed; 127 if it is not found; also 2 for invalid arguments: then nothing has
run. On SIGINT, SIGTERM, SIGHUP or SIGQUIT, nearq (without --from) ends its jobs, says
what did not run, and then ends by that signal.";

/// What homes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Scope {
    /// NUMA nodes
    Numa,
    /// Last-level caches; memory comes from the cache's node
    Cache,
}

/// When programs choose their home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Choose {
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
    /// 100%; with --near gpu, the number of GPUs]
    #[arg(
        short,
        long,
        visible_short_alias = 'P',
        visible_alias = "max-procs",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub(super) jobs: Option<Width>,

    /// What a home is: the CPUs of a NUMA node, or those of a last-level cache
    #[arg(long, value_name = "numa|cache", default_value = "numa", hide_possible_values = true)]
    pub(super) scope: Scope,

    /// Bind jobs to their home: they are never let out, and get no memory from elsewhere
    #[arg(long)]
    pub(super) strict: bool,

    /// The home of all jobs: a node's number; auto for the node that is least loaded when the job starts; none to let the kernel place jobs
    #[arg(long, value_name = "auto|NODE", default_value = "auto")]
    pub(super) home: Home,

    /// Run near a device, on the node that it belongs to: gpu:0, pci:0000:41:00.0, netdev:eth0, block:nvme0n1, file:/data/x or ip:10.0.0.1; or
    /// gpu for one process for each GPU. May be repeated. Standard input has inputs only with --input -, -0 or -d; without inputs, COMMAND
    /// runs once
    #[arg(long, value_name = "DEVICE", conflicts_with = "home")]
    pub(super) near: Vec<Wanted>,

    /// Where inputs come from: a file, or - for standard input
    #[arg(short = 'a', long, visible_alias = "arg-file", value_name = "FILE|-")]
    pub(super) input: Option<PathBuf>,

    /// Inputs end with a zero byte instead of a newline, as from `find -print0`
    #[arg(short = '0', long)]
    pub(super) null: bool,

    /// Inputs end with this byte, given as itself or as \n, \t or \xHH; empty inputs count too
    #[arg(short, long, value_name = "BYTE", value_parser = arguments::delimiter, conflicts_with = "null")]
    pub(super) delimiter: Option<u8>,

    /// Run nothing if there are no inputs; this is always so
    #[arg(short = 'r', long, hide = true)]
    pub(super) no_run_if_empty: bool,

    /// Make {} the placeholder; this is always so
    #[arg(short = 'I', value_name = "{}", hide = true, value_parser = arguments::placeholder, conflicts_with = "max_args")]
    pub(super) replace: Option<()>,

    /// Run COMMAND once, with the terminal and without inputs; each program that it and its descendants execute chooses its own home
    #[arg(long, conflicts_with_all = ["input", "null", "delimiter", "no_run_if_empty", "replace", "max_args", "shell", "tty", "keep_order", "ungroup", "joblog", "dry_run", "jobs", "halt", "resume", "resume_failed", "retry_failed", "retries", "timeout", "delay", "tag", "tagstring", "results"])]
    pub(super) tree: bool,

    /// With --tree: programs choose their home when they are executed (exec), also when they fork (fork), or only after 50 ms of CPU time
    /// (lazy)
    #[arg(
        long,
        value_name = "exec|fork|lazy",
        requires = "tree",
        default_value = "exec",
        hide_possible_values = true
    )]
    pub(super) choose: Choose,

    /// How many inputs each job gets, at most as many as fit into a command
    #[arg(short = 'n', long, visible_short_alias = 'N', alias = "max-replace-args", value_name = "N", default_value_t = 1, value_parser = arguments::max_args)]
    pub(super) max_args: usize,

    /// Have /bin/sh run the command as one line; inputs are passed to the shell as arguments
    #[arg(long)]
    pub(super) shell: bool,

    /// Give jobs the terminal as their standard input, one at a time: for programs that ask for a password, and for editors
    #[arg(
        long,
        visible_short_alias = 'o',
        visible_alias = "open-tty",
        conflicts_with = "keep_order"
    )]
    pub(super) tty: bool,

    /// Print outputs in the order of inputs
    #[arg(short, long, conflicts_with = "ungroup")]
    pub(super) keep_order: bool,

    /// Let jobs write their output directly, as it comes; otherwise each job's output is kept in memory and printed as a whole
    #[arg(short, long)]
    pub(super) ungroup: bool,

    /// When a job fails: continue (never), start no more jobs (soon), or end the running ones as well (now)
    #[arg(long, alias = "halt-on-error", value_name = "now|soon|never", default_value = "never")]
    pub(super) halt: Halt,

    /// Write a line to this file for each job that ends
    #[arg(long, value_name = "FILE")]
    pub(super) joblog: Option<PathBuf>,

    /// With --joblog: leave out the jobs whose number is in the job log, and continue the log
    #[arg(long)]
    pub(super) resume: bool,

    /// With --joblog: the same, but run jobs again that have not succeeded
    #[arg(long)]
    pub(super) resume_failed: bool,

    /// With --joblog, and without a command and inputs: run the jobs again that have not succeeded, by the commands in the job log
    #[arg(long, conflicts_with_all = ["resume", "resume_failed", "input", "null", "delimiter", "replace", "max_args", "shell", "results"])]
    pub(super) retry_failed: bool,

    /// Run a job that fails again, up to N times in all; 0 for as many times as it takes
    #[arg(long, value_name = "N", default_value = "1", hide_default_value = true, value_parser = arguments::retries, allow_negative_numbers = true)]
    pub(super) retries: Retries,

    /// End a job that runs longer than this: seconds, or 10s, 5m, 2h, 1d; 200% for twice the median time of the jobs that succeeded
    #[arg(long, value_name = "TIME", value_parser = arguments::timeout, allow_negative_numbers = true)]
    pub(super) timeout: Option<Timeout>,

    /// The least time between the starts of two jobs: seconds, or 10s, 5m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = arguments::delay, allow_negative_numbers = true)]
    pub(super) delay: Duration,

    /// Begin each line of a job's output with the job's inputs and a tab
    #[arg(long)]
    pub(super) tag: bool,

    /// Begin each line with this text and a tab; placeholders are replaced
    #[arg(long, alias = "tag-string", value_name = "TEXT")]
    pub(super) tagstring: Option<OsString>,

    /// Store each job's output in DIR/1/INPUT/stdout and stderr, and print nothing; placeholders in DIR are replaced
    #[arg(long, alias = "res", value_name = "DIR")]
    pub(super) results: Option<OsString>,

    /// Write everything known about the jobs at the end; `-` writes it to standard output, and jobs then print to standard error
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,

    /// Print a table of the jobs to standard error at the end
    #[arg(long)]
    pub(super) summary: bool,

    /// Print the available homes, and each command as it starts, to standard error
    #[arg(short, long, visible_short_alias = 't')]
    pub(super) verbose: bool,

    /// Print the commands and their homes; run nothing
    #[arg(long, alias = "dryrun")]
    pub(super) dry_run: bool,

    /// How reluctantly jobs are let out of their home; --weight help lists the names
    #[arg(long, value_name = "NAME=N")]
    pub(super) weight: Vec<Weight>,

    /// The command with its arguments, and after ::: the inputs
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = false)]
    pub(super) command: Vec<OsString>,

    #[command(flatten)]
    pub(super) queue: QueueOptions,
}
