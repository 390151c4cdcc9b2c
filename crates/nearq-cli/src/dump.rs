//! `nearq dump`: prints the whole state of a process once, in the layout of the kernel's `wq_dump`.

mod homes;
mod items;
mod runs;
mod text;

use std::cell::Cell;

use clap::Args;
use nearq_command::screen;
use nearq_control::protocol::{Dump, GetDump};

use crate::attach;
use crate::output::{self, Failure};

const LEGEND: &str = "\
Sections, as the kernel's wq_dump has them:
  Affinity Scopes
    allowed_cpus  the CPUs that queues may use (wq_unbound_cpumask in the kernel)
    pod_cpus      [pod]=its CPUs
    pod_node      [pod]=the node that contains all of it, or -1
    cpu_pod       [CPU]=its pod
  Worker Pools
    ref           queues that use the pool for at least one CPU
    nice          the nice value that was requested for the workers
    idle/workers  workers that sleep, and all workers
    cpu           the CPU, if the pool serves per-CPU queues
    cpus          the CPUs that workers may run on
    pod_cpus      the CPUs that they start on
    strict        workers never leave pod_cpus
    ready         items that workers have fetched but not started; the kernel has neither
                  this nor sched_idle, slice and no_helping
  Workqueue CPU -> pool
    type          percpu, unbound, unbound,S (strict) or ordered; after it, for
                  each CPU, the pool that items queued on that CPU go to, or -1
  Workqueue -> rescuer
    pid           the rescuer's thread, for queues that have a rescuer; - if it has no
                  thread now
  Unbound workqueue -> node_nr/max_active
    active/limit  for each node; dfl: for pods that span several nodes, or an ordered
                  queue
    inactive      items that the limit holds back
Sections that wq_dump does not have:
  Homes
    homes         homes assigned to each node; others: workers there whose item is not at
                  home there
    weights       the thresholds above which other nodes take items from there, and by which
                  dynamic homes move; see docs/home.md
    a queue's     its home node; how many of its items with a home ran there and
                  elsewhere; where their memory comes from; why its home is there
  Running
    at most       the time since the worker took the batch that contains the item
  Waiting (with --items)
    oldest        the longest wait among timed items; - if none is timed
  Mutexes (with --locks)
    slots         how many mutexes can have queues by cache at once
    slot[N]       the mutex that uses it: held or free, and the caches in which threads
                  wait

CPUs are printed as lists. Neighbouring entries are combined: [0-3]=7 means 7 for
each of the four, [0-3]=7..10 means 7, 8, 9 and 10, [0-7..24-31]=4..7 means the
same for groups of eight, and pool[00-03] cpu=0..3 means four pools that differ
only in their CPU. `as NAME` means the same values as NAME. Unlike the kernel,
nearq has no flags and no bh pools.

Examples:
  nearq dump 4711
  nearq dump 4711 --items --locks
  nearq dump 4711 --json | jq '.running[].function'";

/// The arguments of `nearq dump`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Also print the mutexes: their mode, and those that now have queues by cache
    #[arg(long)]
    locks: bool,

    /// Also print the functions of waiting items. This may delay workers for some microseconds
    #[arg(long)]
    items: bool,

    /// Print CPUs as the kernel's masks: hexadecimal, in groups of 8 digits
    #[arg(long, conflicts_with = "json")]
    masks: bool,

    /// Print everything as one JSON object
    #[arg(long)]
    json: bool,
}

/// How a dump is laid out.
#[derive(Debug)]
struct View {
    /// Columns.
    width: usize,
    /// CPUs as masks.
    masks: bool,
    /// The size of the masks so far: their bytes, and `FOR_EACH_MASK` more for each.
    mask_bytes: Cell<usize>,
    /// Whether waiting items were asked for.
    items: bool,
}

/// The most bytes of masks that are printed: a short list may become a mask of thousands of digits. Each mask counts as `FOR_EACH_MASK`
/// bytes more, for the time that it takes to lay out.
const MOST_OF_MASKS: usize = 64 << 20;
const FOR_EACH_MASK: usize = 512;

/// The most cells in the table of limits: one for each queue on each node. The process reports a queue with the nodes that it is used on.
const MOST_PLACES: usize = 16 << 20;

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let wanted = GetDump { items: options.items, locks: options.locks };
    let reply = attach::connect(options.pid)?.call(&wanted).map_err(attach::failure)?;
    if options.json {
        return output::json(&reply.dump);
    }
    show(&reply.dump, &View::new(screen::width(), options.masks, options.items))
}

fn show(dump: &Dump, view: &View) -> Result<(), Failure> {
    let (queues, nodes) = (dump.queues.len(), dump.nodes.len());
    if queues * nodes > MOST_PLACES {
        return Err(Failure::run(format!(
            "the process reports {queues} queues and {nodes} nodes, too many for a table; use --json to print them all"
        )));
    }
    let text = lay_out(dump, view);
    if view.mask_bytes.get() >= MOST_OF_MASKS {
        return Err(Failure::run(
            "the masks take more than 64 MiB; leave out --masks: lists are shorter",
        ));
    }
    output::print_text(&text)
}

impl View {
    fn new(width: usize, masks: bool, items: bool) -> Self {
        Self { width, masks, mask_bytes: Cell::new(0), items }
    }
}

/// The whole text. A process without a runtime has no scopes: only its mutexes are shown.
fn lay_out(dump: &Dump, view: &View) -> String {
    let mut sections = Vec::new();
    if dump.scopes.is_empty() {
        sections.push("no runtime in this process\n".to_owned());
    } else {
        sections.extend([
            text::scopes(dump, view),
            text::pools(dump, view),
            text::queues(dump, view),
            text::rescuers(dump, view),
            text::limits(dump, view),
            homes::homes(dump, view),
            items::running(dump, view),
        ]);
        sections.extend(view.items.then(|| items::waiting(dump, view)));
    }
    sections.extend(dump.locks.as_ref().map(items::mutexes));
    sections.join("\n")
}

#[cfg(test)]
mod tests;
