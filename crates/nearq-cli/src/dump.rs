//! `nearq dump`: everything that there is to see of a process, once, laid out as the kernel's `wq_dump` does.

mod items;
mod runs;
mod text;

use clap::Args;
use nearq_control::protocol::{Dump, GetDump};

use crate::attach;
use crate::output::{self, Failure};
use crate::screen;

const LEGEND: &str = "\
Sections, as the kernel's wq_dump has them:
  Affinity Scopes           allowed_cpus: what queues may use (wq_unbound_cpumask). For each scope its pods:
                            [pod]=CPUs, [pod]=node (-1: inside none), [CPU]=pod
  Worker Pools              ref: links of queues that lead there; nice; idle/workers: threads that sleep, all;
                            cpu: of a per-CPU pool; cpus: where workers may go; pod_cpus: where they start;
                            strict: they stay there. Ours: sched_idle, slice, no_helping, ready (items fetched
                            by workers and not begun)
  Workqueue CPU -> pool     type: percpu, unbound, unbound,S (strict), ordered; the pool of items queued on a CPU;
                            -1: the machine has no such CPU
  Workqueue -> rescuer      of queues that have one; pid `-`: no thread now
  Unbound workqueue ->      active/limit on each node, and (dfl) for pods inside no node; of an ordered queue, for
    node_nr/max_active      all. inactive: items that the limit holds back
And besides:
  Running                   at most: since the worker took the batch that the item is of
  Waiting    (--items)      by function; oldest: of those that are timed, `-` where none is
  Mutexes    (--locks)      slots: places for queues by cache, and the mutexes that have one now: held or free, the
                            caches in which threads wait for it, own_settings if it does not follow the process's

CPUs are lists. Neighbours are put together: [0-3]=7 is 7 for all four, [0-3]=7..10 counts along,
[0-7..24-31]=4..7 does so in groups of eight, and pool[00-03] cpu=0..3 are four pools that are alike. `as NAME`:
the same as said there. There are no flags and no bh pools here.

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

    /// Also the functions of items that wait. Workers may have to wait for some microseconds meanwhile
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
    /// What waits was asked for.
    items: bool,
}

/// Carries it out.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let wanted = GetDump { items: options.items, locks: options.locks };
    let reply = attach::connect(options.pid)?.call(&wanted).map_err(attach::failure)?;
    if options.json {
        return output::json(&reply.dump);
    }
    let view = View { width: screen::width(), masks: options.masks, items: options.items };
    output::print(&lay_out(&reply.dump, &view))
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
            items::running(dump),
        ]);
        sections.extend(view.items.then(|| items::waiting(dump)));
    }
    sections.extend(dump.locks.as_ref().map(items::mutexes));
    sections.join("\n")
}

#[cfg(test)]
mod tests;
