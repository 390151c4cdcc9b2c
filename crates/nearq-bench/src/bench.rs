//! `nearq bench`: the experiments, each with its options.

use crate::{failed, nearq};
use clap::{Args, Subcommand};
use nearq_command::{Failure, output};
use nearq_experiments::{
    BlockingOptions, DispatchOptions, HighpriOptions, HomeOptions, JoinOptions, LockOptions,
    NumaOptions, RwlockOptions, ScopesOptions, blocking, home, lock,
};
use nearq_report::{Error, Outputs, Progress, Report};
use std::path::PathBuf;

const SCOPES_EXAMPLES: &str = "\
Threads (issuers) generate 32 KiB blocks, queue their encryption (AES-256-XTS), write them to a store, read them back, queue their
decryption, and verify them (SHA-512) themselves; an item is an encryption or a decryption. The table shows throughput and CPU use for
each scope, strict and not, beside the published figures. Configurations that are equivalent on this machine are run once. On a simulated
machine, the same issuers and queues run in virtual time, and their work costs what public measurements say. Each run has a seed: the same
seed gives the same figures.

Examples:
  nearq bench scopes
  nearq bench scopes --quick --json scopes.json --svg scopes.svg
  nearq bench scopes --on ryzen-3900x
  nearq bench scopes --file /mnt/disk/scratch --runs 10
  nearq bench scopes --issuers 4 --in-flight 16 --duration 5";

const DISPATCH_EXAMPLES: &str = "\
Items that do nothing are queued from outside the pool and from inside, with and without waiting for the result, from 64 threads at once,
and one at a time into an idle pool. The table shows the time per item, and the latency until the call returns and until the item starts,
for nearq, rayon, tokio, async-executor, threadpool and a crossbeam channel in the same run, in alternating order. The second part does,
for every scope, what the kernel's test_workqueue does: a thread on each CPU queues an item, waits for it, and queues the next.

On a simulated machine the same code runs in virtual time, without the other pools, which are Linux programs; for
grace-72 the figures published for the kernel are shown beside ours.

Examples:
  nearq bench dispatch
  nearq bench dispatch --quick --json - | jq '.rows[] | select(.metric == \"ns_per_item\")'
  nearq bench dispatch --on grace-72 --svg grace.svg
  nearq bench dispatch --on \"l3:2 core:8 pu:2\" --items 500";

const BLOCKING_EXAMPLES: &str = "\
40,000 items compute 50 us each; one in 32 blocks for 20 ms half-way: in a sleep, a futex, a pipe, or a read from disk. The table shows how
long it takes until all items are done, on two CPUs, for nearq with and without nearq::block_in_place, rayon, tokio with and without its calls for
blocking code, async-executor and threadpool, in the same run, in alternating order. Every time is also given as a ratio to the time that it
would take if no item ever blocked.

With --detection: how soon blocked workers are noticed, among 1, 16 and 64 of them, and what the monitoring costs.

On a simulated machine the same code runs in virtual time, without the other pools, which are Linux programs.

Examples:
  nearq bench blocking
  nearq bench blocking --quick --json - | jq '.rows[] | select(.metric == \"ratio_to_ideal\")'
  nearq bench blocking --way futex --ours --runs 9
  nearq bench blocking --folder /mnt/disk --way disk
  nearq bench blocking --detection
  nearq bench blocking --on ryzen-3900x --workers 12";

const JOIN_EXAMPLES: &str = "\
Recursive programs, each written once, run in nearq, rayon and chili, and sequentially, in the same run, in alternating order. Four
programs have no cut-off, so they show what a join costs: fib, tree-sum, n-queens and uts (the unbalanced tree search). Six have a grain, as
programs usually do: merge-sort, quick-sort, matmul, nbody, sieve and map-reduce. small-tree shows how soon an idle pool helps. Every result
is verified.

On a simulated machine there is one program, whose parts fit into a cache: with the scopes cache and system, beside a plain pool that steals
at random. The other pools are Linux programs.

Examples:
  nearq bench join
  nearq bench join --quick --json - | jq '.rows[] | select(.metric == \"per_join_ns\")'
  nearq bench join --scenario fib --threads 4 --runs 15
  nearq bench join --on ryzen-3900x --svg join.svg";

const HIGHPRI_EXAMPLES: &str = "\
One CPU has 3000 threads that sleep 1 ms in a loop; from another CPU an item is queued for it every 4 ms. The table shows how long the item
waits until it starts: on a queue of ordinary priority, on a high-priority queue with and without a short slice, on one with a timer, and on
one that was refused its nice value. The figures published for the kernel in 2012 are shown beside them. For comparison there are a plain
thread, tokio and rayon on the same CPU, at ordinary and at high priority, and a real-time thread that only sleeps, which shows what the
machine itself adds. Nice values below zero need CAP_SYS_NICE or RLIMIT_NICE.

On a simulated machine the same threads and queues run in virtual time, without the other pools, which are Linux programs.

Examples:
  nearq bench highpri
  nearq bench highpri --quick --json - | jq '.parameters.ratios'
  nearq bench highpri --duration 300 --svg highpri.svg
  nearq bench highpri --threads 500 --interval 10
  nearq bench highpri --on opteron-2s";

const LOCK_EXAMPLES: &str = "\
Threads that are pinned to CPUs lock one mutex, do a little work and unlock it, for a fixed time, like the kernel's locktorture, with 1 to
64 writers and short and long critical sections. Compared are nearq's mutex (with one queue, always with a queue for each cache, and in its
default mode), its optimistic spin queue, std, parking_lot, pthread's ordinary and adaptive mutex and an MCS lock, and locks after those of
the kernel and of its mailing list, which spin: qspinlock, CNA, HQ-spinlock, and the mutex over the osq lock with a tail of four bytes, of
two, and with the document's change. All take turns in the same run, in alternating order. The tables show acquisitions per second, how much
they vary over the runs, how evenly the writers shared them, how long writers waited, and what each lock gains over the one that it changes.
On the machines of the published figures these stand beside them, with the error factor.

--shape selects other lock patterns, with structures in memory that are changed under the locks and checked at the end: `epoll`
(perf bench epoll), `shared-file` (fxmark's DWOM) and `shared-dir` (fxmark's MWRM and MWUM).

On a simulated machine nearq's locks and the kernel's run in virtual time, without the others, which are Linux programs.
With --surface: what queues by cache gain over one queue there, for many numbers of writers and times between two acquisitions.

Examples:
  nearq bench lock
  nearq bench lock --quick --json - | jq '.parameters.goals'
  nearq bench lock --writers 2,4 --section long --runs 21
  nearq bench lock --shape shared-dir --svg dir.svg
  nearq bench lock --on epyc-7551-2s --section short
  nearq bench lock --on kh-40000-2s --place spread --quick
  nearq bench lock --on epyc-9654-2s --surface --svg surface.svg";

const RWLOCK_EXAMPLES: &str = "\
Threads that are pinned to CPUs take one reader-writer lock, as readers or as writers, compute for a moment and release it, for a fixed time.
Compared are nearq's lock, the same without counting readers by cache, nearq's mutex, which readers take too, std, parking_lot, both kinds of
the C library's lock and crossbeam's ShardedLock, in the same run, in alternating order. The tables show how often each class gets the lock
and how long it waits, for each mix of reads and writes and each number of threads. Each lock is checked: readers must find what one writer
has left.

On a simulated machine nearq's locks run in virtual time, beside two other designs written for it: the kernel's rw_semaphore, and BRAVO.

Examples:
  nearq bench rwlock
  nearq bench rwlock --quick --json - | jq '.parameters.goals'
  nearq bench rwlock --writes 1,5 --threads 2,4 --inside 500
  nearq bench rwlock --on epyc-9654-2s --svg rwlock.svg
  nearq bench rwlock --on kh-40000-2s --place compact --quick";

const HOME_EXAMPLES: &str = "\
Three scenarios, each without homes (the kernel alone), with homes (chosen when a task starts, enforced by its CPU mask), and with dynamic
homes, which follow the memory:
  numa-test  the test of the document of 2003: tasks that walk over memory at random, and after 3 s a hackbench of 800
             processes; half, once, twice and four times as many tasks as CPUs
  displace   from 4 s to 10 s two hogs run for each CPU of one node; are the tasks home a second later?
  overload   a node is home to twice as many tasks as it has CPUs, and half of them leave at 12 s; was every CPU used meanwhile, and
             do the others come home?
On this machine, tasks are processes of this command. On a simulated machine they run in virtual time, each run has a seed, and a row
`oracle` is added: tasks pinned in turn to the CPUs of all nodes, with their memory there. With `--scheduler home`, the simulated kernel
gets the node affine scheduler, which handles homes itself: the row `home scheduler`. In the row `2003's rule`, its CPUs take tasks of other
nodes as in 2003 (the weight own_bonus=1000). On this machine, that option loads it for these rows with nearq-scx, which must be beside
nearq or in PATH, and needs root.

Columns:
  AverageUserTime  CPU time of a task in user mode, mean; on a simulated machine all of its CPU time
  ElapsedTime      from the start of the first task to the end of the last
  TotalUserTime, TotalSysTime   of all tasks, without hackbench
  home %           CPU time on the node that has most of the task's memory
  crossings        how often a task moved to another node; each: per time that it left its home
  gain %           by how much ElapsedTime is shorter than without homes
  of the gap %     how large that is as a share of the oracle's gain
  nodeNN           share of a task's CPU time on that node
  iSched, MSched   node at the start, node of most time; * where they differ
  return (s)       mean time from leaving home to being back
  strays           tasks that are not at home at the end

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
A job of many compilations of generated C files; without a C compiler, programs of this machine are compressed instead. The table shows how
long it takes until all are done. Each file is an item of an unbound queue: with scope `system` and with scope `numa`, as the document of
2013 compared them for a kernel build, and with scope `numa` and a home for each item. The same job is also run as a tree of processes under
`nearq run --tree`, without and with homes. Five runs each, in alternating order; the table has means, deviations, and whether a difference
exceeds them.

On a simulated machine the items' work and memory are declared, and the processes are left out.

Examples:
  nearq bench numa
  nearq bench numa --quick --json - | jq '.parameters.differences'
  nearq bench numa --kind compress --folder /mnt/disk
  nearq bench numa --on opteron-2s --runs 10";

/// The experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Experiment {
    /// Encrypt, store and verify blocks under every affinity scope: throughput and CPU use
    #[command(after_help = SCOPES_EXAMPLES)]
    Scopes(ScopesOptions),
    /// Queue items that do nothing: time per item and latency, beside other pools
    #[command(after_help = DISPATCH_EXAMPLES)]
    Dispatch(DispatchOptions),
    /// Items that compute and items that block: how long until all are done, beside other pools
    #[command(after_help = BLOCKING_EXAMPLES)]
    Blocking(BlockingOptions),
    /// Recursive programs that fork and join: time per join and in all, beside other pools
    #[command(after_help = JOIN_EXAMPLES)]
    Join(JoinOptions),
    /// Queue an item while 3000 threads want the CPU: how long a normal and a high-priority item wait
    #[command(after_help = HIGHPRI_EXAMPLES)]
    Highpri(HighpriOptions),
    /// One lock that many threads want: throughput, fairness and waits, beside other locks
    #[command(after_help = LOCK_EXAMPLES)]
    Lock(LockOptions),
    /// One reader-writer lock that many threads want: how often each class gets it and how long it waits, beside other locks
    #[command(after_help = RWLOCK_EXAMPLES)]
    Rwlock(RwlockOptions),
    /// Tasks that walk over memory, with and without home nodes: how long, and where they run
    #[command(after_help = HOME_EXAMPLES)]
    Home(HomeOptions),
    /// A process of `home` on this machine, started by that alone
    #[command(hide = true)]
    HomeChild(HomeChild),
    /// Draw the picture of a run again, from its JSON
    #[command(hide = true)]
    Redraw(Redraw),
    /// A job of many compilations as items and as processes: scope system against numa, without and with homes
    #[command(after_help = NUMA_EXAMPLES)]
    Numa(NumaOptions),
}

/// The arguments that `nearq bench home` passes to the processes that it starts.
#[derive(Args, Debug)]
pub(crate) struct HomeChild {
    what: String,
}

/// What to draw again.
#[derive(Args, Debug)]
pub(crate) struct Redraw {
    /// The file written by --json
    json: PathBuf,

    /// The file for the picture
    #[arg(long, value_name = "FILE")]
    svg: PathBuf,

    /// As when it ran
    #[arg(long)]
    goals: bool,
}

/// Runs the command.
pub(crate) fn run(experiment: &Experiment) -> Result<(), Failure> {
    match experiment {
        Experiment::Scopes(options) => report(options),
        Experiment::Dispatch(options) => report(options),
        Experiment::Blocking(options) if options.detection => {
            written(&options.common.outputs, |progress| blocking(options, progress))
        }
        Experiment::Blocking(options) => report(options),
        Experiment::Join(options) => report(options),
        Experiment::Highpri(options) => report(options),
        Experiment::Lock(options) if options.surface => {
            written(&options.common.outputs, |progress| lock(options, progress))
        }
        Experiment::Lock(options) => report(options),
        Experiment::Rwlock(options) => report(options),
        Experiment::Home(options) => report(options),
        Experiment::HomeChild(child) => {
            output::print(&home::Child::run(&child.what).map_err(failed)?)
        }
        Experiment::Redraw(options) => options.run(),
        Experiment::Numa(options) => {
            report(&NumaOptions { command: nearq::program(), ..options.clone() })
        }
    }
}

impl Redraw {
    fn run(&self) -> Result<(), Failure> {
        let wrong = |error| failed(Error::input(format!("{}: {error}", self.json.display())));
        let text = std::fs::read_to_string(&self.json).map_err(|error| {
            wrong(format!("cannot be read: {error}; give a file written by --json"))
        })?;
        let mut report = Report::from_json(&text).map_err(|error| wrong(error.to_string()))?;
        let outputs = Outputs { json: None, svg: Some(self.svg.clone()) };
        outputs.check().map_err(failed)?;
        report.svg = nearq_experiments::redraw(&report, self.goals).map_err(failed)?;
        outputs.write(&report).map_err(failed)
    }
}

/// Runs an experiment and writes its report, or a comparison with a simulated machine.
fn report(options: &impl nearq_experiments::Experiment) -> Result<(), Failure> {
    if options.common().beside_simulated.is_some() {
        let outputs = &options.common().outputs;
        outputs.check().map_err(failed)?;
        let comparison = nearq_experiments::beside(options, &Progress::stderr()).map_err(failed)?;
        return outputs
            .write_texts(&comparison.text(), || comparison.to_json(), "")
            .map_err(failed);
    }
    written(&options.common().outputs, |progress| nearq_experiments::run(options, progress))
}

/// Makes a report and writes it. An output that cannot be written is refused before the measurement begins.
pub(crate) fn written(
    outputs: &Outputs,
    make: impl FnOnce(&Progress) -> Result<Report, Error>,
) -> Result<(), Failure> {
    outputs.check().map_err(failed)?;
    let report = make(&Progress::stderr()).map_err(failed)?;
    outputs.write(&report).map_err(failed)
}
