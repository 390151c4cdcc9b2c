//! `nearq bench`: the experiments, each with its options.

use crate::{failed, nearq};
use clap::{Args, Subcommand};
use nearq_command::{Failure, output};
use nearq_experiments::{
    BlockingOptions, Common, DispatchOptions, HighpriOptions, HomeOptions, LockOptions,
    NumaOptions, ScopesOptions,
};
use nearq_report::{Error, HERE, Machine, Outputs, Progress, Report, Target};
use std::path::PathBuf;
use std::time::Duration;

const SCOPES_EXAMPLES: &str = "\
Issuers generate 32 KiB blocks, queue their encryption (AES-256-XTS), write them to a store, read them back, queue
their decryption, and verify them (SHA-512) themselves; an item is an encryption or a decryption. The table shows
throughput and CPU use for each scope, strict and not, beside the published figures. Configurations that are the
same thing on this machine are run once. On a simulated machine the same issuers and queues run in virtual time, their
work costs what public measurements say, and each run is a seed: the same seed gives the same figures.

Examples:
  nearq bench scopes
  nearq bench scopes --quick --json scopes.json --svg scopes.svg
  nearq bench scopes --on ryzen-3900x
  nearq bench scopes --file /mnt/disk/scratch --runs 10
  nearq bench scopes --issuers 4 --in-flight 16 --duration 5";

const DISPATCH_EXAMPLES: &str = "\
Items that do nothing, queued from outside of the pool, from inside, with and without waiting for the result, and
one at a time into an idle pool: time per item, and latency until the call returns and until the item starts, for
nearq, rayon, tokio, async-executor, threadpool and a crossbeam channel in the same run, in alternating order.
Then, for every scope, what the kernel's test_workqueue does: an issuer on each CPU queues an item, waits for it, and
queues the next.

On a simulated machine the same code runs in virtual time, without the other pools, which are Linux programs; for
grace-72 the figures that were published for the kernel stand beside ours.

Examples:
  nearq bench dispatch
  nearq bench dispatch --quick --json - | jq '.rows[] | select(.metric == \"ns_per_item\")'
  nearq bench dispatch --on grace-72 --svg grace.svg
  nearq bench dispatch --on \"l3:2 core:8 pu:2\" --items 500";

const BLOCKING_EXAMPLES: &str = "\
40,000 items that compute 50 us, of which one in 32 is blocked for 20 ms half-way: asleep, in a futex, in a pipe, in the read of a
disk. How long until all is done, on two CPUs, for nearq with and without nearq::blocking, rayon, tokio, async-executor,
threadpool and what tokio can be told of blocking, in the same run, in alternating order; and how long it would take if
nobody ever waited, to which every time is given as a ratio.

With --detection: how soon it is noticed that workers are blocked, beside 1, 16 and 64 of them, and what the watching costs.

On a simulated machine the same code runs in virtual time, without the other pools, which are Linux programs.

Examples:
  nearq bench blocking
  nearq bench blocking --quick --json - | jq '.rows[] | select(.metric == \"ratio_to_ideal\")'
  nearq bench blocking --way futex --ours --runs 9
  nearq bench blocking --folder /mnt/disk --way disk
  nearq bench blocking --detection
  nearq bench blocking --on ryzen-3900x --workers 12";

const HIGHPRI_EXAMPLES: &str = "\
One CPU has 3000 threads that sleep 1 ms in a loop; from another one an item is queued every 4 ms. The table shows how long it
waits until it starts: on a queue of ordinary priority, on a high-priority one with and without a short slice, on one delayed by a
timer, and on one whose privilege to be favoured is refused; beside the figures that were published for the kernel in 2012. A
plain thread, tokio and rayon on the same CPU, ordinary and favoured, stand beside them, and a real-time thread that only sleeps,
which shows what the machine itself adds. Nice values below zero need CAP_SYS_NICE or RLIMIT_NICE.

On a simulated machine the same threads and queues run in virtual time, without the other pools, which are Linux programs.

Examples:
  nearq bench highpri
  nearq bench highpri --quick --json - | jq '.parameters.ratios'
  nearq bench highpri --duration 300 --svg highpri.svg
  nearq bench highpri --threads 500 --interval 10
  nearq bench highpri --on opteron-2s";

const LOCK_EXAMPLES: &str = "\
Threads that are pinned to CPUs take one lock, do a little under it and give it back, for a fixed time: the kernel's locktorture, with 1
to 64 writers and short and long sections. For nearq's mutex (with one queue, always with a queue for each cache, and as it comes),
its optimistic spin queue, std, parking_lot, pthread's ordinary and adaptive mutex and an MCS lock, in the same run, in alternating order:
acquisitions a second, how much they vary over the runs, how evenly the writers had them, and how long they waited; what queues by
cache gain, beside the figures of the document of 2024.

--shape takes other patterns of locks, over structures in memory that are changed under the locks and checked at the end: `epoll`
(perf bench epoll), `shared-file` (fxmark's DWOM) and `shared-dir` (fxmark's MWRM and MWUM).

On a simulated machine nearq's locks run in virtual time, without the others, which are Linux programs.

Examples:
  nearq bench lock
  nearq bench lock --quick --json - | jq '.parameters.goals'
  nearq bench lock --writers 2,4 --section long --runs 21
  nearq bench lock --shape shared-dir --svg dir.svg
  nearq bench lock --on epyc-7551-2s --section short
  nearq bench lock --on kh-40000-2s --place spread --quick";

const HOME_EXAMPLES: &str = "\
Three scenarios, each without homes (the kernel alone), with homes (picked when a task starts, kept by its mask of CPUs), and with
dynamic homes, which follow the memory:
  numa-test  the test of the document of 2003: tasks that walk over memory at random, and after 3 s a hackbench of 800
             processes; half, once, twice and four times as many tasks as CPUs
  displace   from 4 s to 10 s two hogs for each CPU of one node; are the tasks home a second later?
  overload   a node is home of twice as many tasks as it has CPUs, half of them leave at 12 s; was every CPU used meanwhile, and
             do the others come home?
On this machine tasks are processes of this command; on a simulated one they run in virtual time, each run is a seed, and
`oracle` stands beside them: tasks pinned in turn to the CPUs of all nodes, with their memory there. There `--scheduler home` gives the
simulated kernel the node affine scheduler, which knows homes itself: the row `home scheduler`. On this machine it has nearq-scx, beside nearq
or in PATH, load it for that row, as root.

Columns:
  AverageUserTime  CPU time of a task in user mode, mean; on a simulated machine all of its CPU time
  ElapsedTime      from the start of the first task to the end of the last
  TotalUserTime, TotalSysTime   of all tasks, without hackbench
  home %           CPU time on the node that has most of the task's memory
  crossings        how often a task went on on another node; each: for each time that it left its home
  gain %           by how much ElapsedTime is shorter than without homes
  of the gap %     which share that is of what the oracle gains
  nodeNN           share of a task's CPU time on that node
  iSched, MSched   node at the start, node of most time; * where they differ
  return (s)       from leaving home to being back, mean
  strays           tasks that are not at home in the end

Examples:
  nearq bench home
  nearq bench home --on tx7-itanium2 --quick --json - | jq '.parameters.goals'
  nearq bench home --on tx7-itanium2 --svg home.svg
  nearq bench home --on tx7-itanium2 --scheduler both
  nearq bench home --on epyc-7551-2s --tasks 64,128 --runs 3
  nearq bench home --on \"numa:2 core:4\" --scenario overload
  nearq bench home --scenario displace --runs 3
  sudo nearq bench home --scheduler home";

const NUMA_EXAMPLES: &str = "\
A job of many compilations (C files that are made up; programs of this machine are compressed where there is no compiler): how long until
all is done. Each is an item of an unbound queue, of scope `system` and of scope `numa`, as the document of 2013 compared them for a
kernel build, and of scope `numa` with a home for each; and the same job as a tree of processes under `nearq run --tree`, without
and with homes. Five runs each, in alternating order; means, deviations, and whether a difference exceeds them.

On a simulated machine the items' work and memory are declared, and the processes are left out.

Examples:
  nearq bench numa
  nearq bench numa --quick --json - | jq '.parameters.differences'
  nearq bench numa --kind compress --folder /mnt/disk
  nearq bench numa --on opteron-2s --runs 10";

/// The experiments that there are.
#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Encrypt, store and verify blocks under every affinity scope: throughput and CPU use
    #[command(after_help = SCOPES_EXAMPLES)]
    Scopes(Scopes),
    /// Queue items that do nothing: time per item and latency, beside other pools
    #[command(after_help = DISPATCH_EXAMPLES)]
    Dispatch(Dispatch),
    /// Items that compute and items that sleep: how long until all is done, beside other pools
    #[command(after_help = BLOCKING_EXAMPLES)]
    Blocking(Blocking),
    /// Queue an item where 3000 threads want the CPU: how long a normal and a high-priority one wait
    #[command(after_help = HIGHPRI_EXAMPLES)]
    Highpri(Highpri),
    /// One lock that many threads want: throughput, fairness and waits, beside other locks
    #[command(after_help = LOCK_EXAMPLES)]
    Lock(Lock),
    /// Tasks that walk over memory, with and without home nodes: how long, and where they run
    #[command(after_help = HOME_EXAMPLES)]
    Home(Home),
    /// A process of `home` on this machine, started by that alone
    #[command(hide = true)]
    HomeChild(HomeChild),
    /// Draw the picture of a run once more, from its JSON
    #[command(hide = true)]
    Redraw(Redraw),
    /// A job of many compilations as items and as processes: scope system against numa, without and with homes
    #[command(after_help = NUMA_EXAMPLES)]
    Numa(Numa),
}

/// What every experiment can be told.
#[derive(Args, Debug)]
pub(crate) struct Shared {
    /// The machine: `here`, a simulated one by name, an hwloc XML file, `sysfs:DIR`, or a synthetic description; --help says more
    #[arg(long, value_name = "MACHINE", default_value = HERE, long_help = Machine::help())]
    on: String,

    /// A short run, of some 30 seconds on an idle machine; its figures say less
    #[arg(long)]
    quick: bool,

    /// Also show the goals of the nearq project, and whether this run reached them, if it is large enough to tell
    #[arg(long)]
    goals: bool,

    /// How often everything is run, 1 to 1000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    runs: Option<usize>,

    /// How long a run lasts, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,

    /// Write the numbers as JSON into a file; `-` is standard output, and the table goes to standard error then
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,

    /// Draw a picture into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What `nearq bench scopes` can be told.
#[derive(Args, Debug)]
pub(crate) struct Scopes {
    #[command(flatten)]
    shared: Shared,

    /// Store blocks here instead of in memory: a new or empty file, or a block device, WHICH IS OVERWRITTEN
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// One load with so many issuers, 1 to 4096, instead of the published three
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    issuers: Option<usize>,

    /// Blocks in flight for each issuer, 1 to 4096
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    in_flight: Option<usize>,

    /// On a simulated machine: what a block's items cost, in percent of its issuer's work, 1 to 100000; 400 if not given
    #[arg(long, value_name = "PERCENT", value_parser = number, allow_negative_numbers = true)]
    item_work: Option<usize>,

    /// On a simulated machine: a woken thread looks for an idle CPU under its last-level cache alone, not in its node
    #[arg(long)]
    wake_within_cache: bool,
}

/// What `nearq bench dispatch` can be told.
#[derive(Args, Debug)]
pub(crate) struct Dispatch {
    #[command(flatten)]
    shared: Shared,

    /// Single items of each idle round, 1 to 100000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    idle_samples: Option<usize>,

    /// Items of each issuer where there is one on each CPU, 1 to 1000000; the kernel's test_workqueue has 50000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    items: Option<usize>,
}

/// What `nearq bench blocking` can be told.
#[derive(Args, Debug)]
pub(crate) struct Blocking {
    #[command(flatten)]
    shared: Shared,

    /// Items of a run, 1 to 10000000; 40000 if not given. With --detection: blocks of a round
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    items: Option<usize>,

    /// Microseconds that an item computes, 1 to 1000000; 50 if not given
    #[arg(long, value_name = "US", value_parser = number, allow_negative_numbers = true)]
    item_us: Option<usize>,

    /// One item in so many is blocked; 32 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    every: Option<usize>,

    /// How long it is blocked, in milliseconds, 1 to 10000; 20 if not given
    #[arg(long, value_name = "MS", value_parser = number, allow_negative_numbers = true)]
    sleep_ms: Option<usize>,

    /// Workers, and CPUs, of every pool, 1 to the CPUs of the machine; 2 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    workers: Option<usize>,

    /// Only one way to be blocked: `sleep`, `futex`, `pipe` or `disk`
    #[arg(long, value_name = "WAY")]
    way: Option<String>,

    /// Where the file of 64 MiB is made that is read; the folder for temporary files if not given
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,

    /// Leave the other pools out
    #[arg(long)]
    ours: bool,

    /// How soon a blocked worker is noticed and what that costs, instead
    #[arg(long, conflicts_with_all = ["duration", "item_us", "every", "sleep_ms", "workers", "way", "folder", "ours"])]
    detection: bool,
}

/// What `nearq bench highpri` can be told.
#[derive(Args, Debug)]
pub(crate) struct Highpri {
    #[command(flatten)]
    shared: Shared,

    /// Threads that sleep 1 ms in a loop, 1 to 1000000; the document's 3000 if not given, 1000 with --quick
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    threads: Option<usize>,

    /// How often the item is queued, in milliseconds, 0.1 to 10000; 4 if not given, a jiffy at 250 Hz
    #[arg(long, value_name = "MS", value_parser = milliseconds, allow_negative_numbers = true)]
    interval: Option<Duration>,
}

/// What `nearq bench lock` can be told.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    #[command(flatten)]
    shared: Shared,

    /// Threads that want the lock, 1 to 4096, several numbers with commas between them; 1,2,4,8,16,32,48,64 if not given
    #[arg(long, value_name = "N,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    writers: Option<Vec<usize>>,

    /// How long they hold it: `short`, `long` or `both`; both if not given, short with --quick. For torture only
    #[arg(long, value_name = "SECTION")]
    section: Option<String>,

    /// Where they are pinned: `compact` fills one cache after the other, `spread` goes round them; compact if not given
    #[arg(long, value_name = "PLACE")]
    place: Option<String>,

    /// What they do: `torture`, `epoll`, `shared-file` or `shared-dir`; torture if not given
    #[arg(long, value_name = "SHAPE")]
    shape: Option<String>,

    /// Nanoseconds that each computes between two acquisitions, 0 to 1000000; 100 if not given
    #[arg(long, value_name = "NS", value_parser = number, allow_negative_numbers = true)]
    outside: Option<usize>,
}

/// What `nearq bench home` can be told.
#[derive(Args, Debug)]
pub(crate) struct Home {
    #[command(flatten)]
    shared: Shared,

    /// One scenario alone: `numa-test`, `displace` or `overload`
    #[arg(long, value_name = "SCENARIO")]
    scenario: Option<String>,

    /// Tasks of numa-test, 1 to 4096, several numbers with commas between them; half, once, twice and four times the CPUs if not given
    #[arg(long, value_name = "N,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    tasks: Option<Vec<usize>>,

    /// Elements of a task of numa-test, of 20 bytes each, 1000 to 1000000000; the document's 2000000, or four times a core's share of the
    /// last-level cache, if that is more, but half of the free memory at most
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    problem_size: Option<usize>,

    /// Passes of a task of numa-test, 1 to 1000000; 100 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    passes: Option<usize>,

    /// Scheduler of the kernel: `stock`, its own; `home`, the node affine one of nearq-scx, beside its own without homes; `both`
    /// for all rows. stock if not given
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: Option<String>,
}

/// What `nearq bench home` tells its processes.
#[derive(Args, Debug)]
pub(crate) struct HomeChild {
    what: String,
}

/// What is drawn once more.
#[derive(Args, Debug)]
pub(crate) struct Redraw {
    /// What --json wrote
    json: PathBuf,

    /// Where the picture goes
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,

    /// As when it ran
    #[arg(long)]
    goals: bool,
}

/// What `nearq bench numa` can be told.
#[derive(Args, Debug)]
pub(crate) struct Numa {
    #[command(flatten)]
    shared: Shared,

    /// Files of the job, 1 to 100000; 12 for each CPU if not given, 3 or fewer with --quick
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    files: Option<usize>,

    /// Files at a time, 1 to 4096; 20 for 12 CPUs if not given, as in the document
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    jobs: Option<usize>,

    /// What is done with each: `compile` or `compress`; compile if not given and there is a C compiler
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,

    /// Where a folder for the files is made; the folder for temporary files if not given
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Carries it out.
pub(crate) fn run(experiment: &Experiment) -> Result<(), Failure> {
    match experiment {
        Experiment::Scopes(options) => {
            let given = ScopesOptions {
                common: options.shared.common(),
                file: options.file.clone(),
                issuers: options.issuers,
                in_flight: options.in_flight,
                item_percent: options.item_work,
                wake_within_cache: options.wake_within_cache,
            };
            options.shared.run(|progress| nearq_experiments::scopes(&given, progress))
        }
        Experiment::Dispatch(options) => {
            let given = DispatchOptions {
                common: options.shared.common(),
                idle_samples: options.idle_samples,
                items: options.items,
            };
            options.shared.run(|progress| nearq_experiments::dispatch(&given, progress))
        }
        Experiment::Blocking(options) => {
            let reads = options.way.as_ref().is_none_or(|way| way == "disk");
            means_something("--folder", options.folder.is_some(), reads, "--way disk")?;
            let given = BlockingOptions {
                common: options.shared.common(),
                items: options.items,
                item_us: options.item_us,
                every: options.every,
                sleep_ms: options.sleep_ms,
                workers: options.workers,
                way: options.way.clone(),
                folder: options.folder.clone(),
                ours: options.ours,
                detection: options.detection,
            };
            options.shared.run(|progress| nearq_experiments::blocking(&given, progress))
        }
        Experiment::Highpri(options) => {
            let given = HighpriOptions {
                common: options.shared.common(),
                threads: options.threads,
                interval: options.interval,
            };
            options.shared.run(|progress| nearq_experiments::highpri(&given, progress))
        }
        Experiment::Lock(options) => {
            let given = LockOptions {
                common: options.shared.common(),
                writers: options.writers.clone(),
                section: options.section.clone(),
                place: options.place.clone(),
                shape: options.shape.clone(),
                outside_ns: options.outside,
            };
            options.shared.run(|progress| nearq_experiments::lock(&given, progress))
        }
        Experiment::Home(options) => {
            let walks = options.scenario.as_ref().is_none_or(|scenario| scenario == "numa-test");
            for (option, is_given) in [
                ("--tasks", options.tasks.is_some()),
                ("--problem-size", options.problem_size.is_some()),
                ("--passes", options.passes.is_some()),
            ] {
                means_something(option, is_given, walks, "--scenario numa-test")?;
            }
            let given = HomeOptions {
                common: options.shared.common(),
                scenario: options.scenario.clone(),
                tasks: options.tasks.clone(),
                problem_size: options.problem_size,
                passes: options.passes,
                scheduler: options.scheduler.clone(),
                program: None,
            };
            options.shared.run(|progress| nearq_experiments::home(&given, progress))
        }
        Experiment::HomeChild(child) => {
            output::print(&nearq_experiments::home::Child::run(&child.what).map_err(failed)?)
        }
        Experiment::Redraw(options) => options.run(),
        Experiment::Numa(options) => {
            let given = NumaOptions {
                common: options.shared.common(),
                files: options.files,
                jobs: options.jobs,
                kind: options.kind.clone(),
                folder: options.folder.clone(),
                command: nearq::program(),
            };
            options.shared.run(|progress| nearq_experiments::numa(&given, progress))
        }
    }
}

impl Redraw {
    fn run(&self) -> Result<(), Failure> {
        let wrong = |error| failed(Error::input(format!("{}: {error}", self.json.display())));
        let text = std::fs::read_to_string(&self.json).map_err(|error| {
            wrong(format!("cannot be read: {error}; give a file that --json wrote"))
        })?;
        let mut report = Report::from_json(&text).map_err(|error| wrong(error.to_string()))?;
        let outputs = Outputs::open(None, Some(&self.svg)).map_err(failed)?;
        report.svg = nearq_experiments::redraw(&report, self.goals).map_err(failed)?;
        outputs.write(&report).map_err(failed)
    }
}

impl Shared {
    fn common(&self) -> Common {
        Common {
            machine: self.on.clone(),
            quick: self.quick,
            goals: self.goals,
            runs: self.runs,
            duration: self.duration,
        }
    }

    /// Runs an experiment, with its outputs opened first: what cannot be written is refused before the wait.
    fn run(
        &self,
        experiment: impl FnOnce(&Progress) -> Result<Report, Error>,
    ) -> Result<(), Failure> {
        let json = self.json.as_ref().map(|path| match path.as_os_str().to_str() {
            Some("-") => Target::Stdout,
            _ => Target::File(path.clone()),
        });
        let outputs = Outputs::open(json.as_ref(), self.svg.as_deref()).map_err(failed)?;
        let report = experiment(&Progress::stderr()).map_err(failed)?;
        outputs.write(&report).map_err(failed)
    }
}

/// Refuses an option that would do nothing beside another one.
fn means_something(
    option: &str,
    is_given: bool,
    is_used: bool,
    needed: &str,
) -> Result<(), Failure> {
    if is_given && !is_used {
        return Err(Failure::input(format!(
            "{option}: only {needed} uses it; leave one of the two out"
        )));
    }
    Ok(())
}

/// A number; the experiment knows the limits.
fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "give a whole number, 1 or more".into())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "give a number of seconds, 0.01 to 3600".into())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    let milliseconds: Option<f64> = text.parse().ok();
    milliseconds
        .and_then(|number| Duration::try_from_secs_f64(number / 1000.0).ok())
        .ok_or_else(|| "give a number of milliseconds, 0.1 to 10000".into())
}
