//! `nearq dump`: everything that there is to see of a process, once, laid out as the kernel's `wq_dump` does.

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
    allowed_cpus  what queues may use (wq_unbound_cpumask in the kernel)
    pod_cpus      [pod]=its CPUs
    pod_node      [pod]=the node that it lies inside, -1 for none
    cpu_pod       [CPU]=its pod
  Worker Pools
    ref           queues with a CPU whose items go there
    nice          of the workers, as asked for
    idle/workers  threads that sleep, and all
    cpu           the CPU of a pool of per-CPU queues
    cpus          where workers may go
    pod_cpus      where they start
    strict        they stay there
    ready         items that workers have fetched and not begun; the kernel has
                  neither this nor sched_idle, slice and no_helping
  Workqueue CPU -> pool
    type          percpu, unbound, unbound,S (strict) or ordered; after it the
                  pool of items that are queued on each CPU, -1 where there is
                  none
  Workqueue -> rescuer
    pid           of the rescuer of a queue that has one; - where it has no
                  thread now
  Unbound workqueue -> node_nr/max_active
    active/limit  on each node; dfl: of pods that lie inside no node, or of an
                  ordered queue
    inactive      items that the limit holds back
And besides:
  Homes
    homes         given out on each node; others: workers that run something
                  which is not at home there
    weights       the numbers that others must exceed to take items from there,
                  and by which dynamic homes move; see docs/home.md
    a queue's     node, runs there and elsewhere of items with a home, where
                  their memory comes from, and why it is there
  Running
    at most       the time since the worker took the batch that the item is of
  Waiting (with --items)
    oldest        of those that are timed; - where none is
  Mutexes (with --locks)
    slots         places for queues by cache
    slot[N]       a mutex that has one: held or free; the caches in which
                  threads wait

CPUs are lists. Neighbours are put together: [0-3]=7 is 7 for all four,
[0-3]=7..10 counts along, [0-7..24-31]=4..7 does so in groups of eight, and
pool[00-03] cpu=0..3 are four pools that are alike. `as NAME`: the same as said
there. There are no flags and no bh pools here.

Examples:
  nearq dump 4711
  nearq dump 4711 --items --locks
  nearq dump 4711 --json | jq '.running[].function'";

/// What `nearq dump` can be told.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Also the mutexes: their mode, and those that have queues by cache now
    #[arg(long)]
    locks: bool,

    /// Also the functions of items that wait. This may delay workers for some microseconds
    #[arg(long)]
    items: bool,

    /// CPUs as the kernel's masks: hexadecimal, in groups of 8 digits
    #[arg(long, conflicts_with = "json")]
    masks: bool,

    /// Print all of it as one JSON object
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
    /// What the masks so far have taken: their bytes, and more for each.
    mask_bytes: Cell<usize>,
    /// What waits was asked for.
    items: bool,
}

/// The most bytes of masks: a short list may be a mask of thousands of digits. Each counts as this many more, for the time that it takes.
const MOST_OF_MASKS: usize = 64 << 20;
const FOR_EACH_MASK: usize = 512;

/// The most places for limits, one for each queue on each node. A queue is told of with the nodes that it is used on.
const MOST_PLACES: usize = 16 << 20;

/// Carries it out.
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
            "the process tells of {queues} queues and {nodes} nodes, more than are laid out; --json prints them all"
        )));
    }
    let text = lay_out(dump, view);
    if view.mask_bytes.get() >= MOST_OF_MASKS {
        return Err(Failure::run(
            "the masks take more than 64 MiB; leave out --masks: lists are short",
        ));
    }
    output::print(&text)
}

impl View {
    fn new(width: usize, masks: bool, items: bool) -> Self {
        Self { width, masks, mask_bytes: Cell::new(0), items }
    }
}

/// The whole text. A process without a runtime has no scopes, and nothing but mutexes to show.
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
            items::running(dump),
        ]);
        sections.extend(view.items.then(|| items::waiting(dump)));
    }
    sections.extend(dump.locks.as_ref().map(items::mutexes));
    sections.join("\n")
}

#[cfg(test)]
mod tests;
