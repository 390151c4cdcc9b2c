//! The table of settings: those of a queue, of the process, and of its mutexes.

use nearq_lock::Threshold;

use super::{Owner, SettingDesc};
use crate::locks::Key;
#[cfg(feature = "runtime")]
use nearq_core::Runtime;

#[cfg(feature = "runtime")]
use crate::runtime::settings::{
    Kinds, ProcessAccessors, QueueAccessors, SetQueue, WHEN_MADE, cpus, digit, keep, parse_choice,
    parse_home, parse_items, parse_memory, parse_micros, parse_seconds, parse_slice, parse_spins,
    parse_stalls, plain, weight,
};
#[cfg(feature = "runtime")]
use crate::values;

/// How a setting is shown and set. For a queue, this follows the kinds of queues that have the setting; for the process, it stands alone. A
/// setting is set as an attribute or by a function of the runtime (`name = parser`), as a part of the changes (`keep name = parser`), or by
/// a closure. A program without a runtime has only the texts of the table.
#[cfg(feature = "runtime")]
macro_rules! accessors {
    ($kinds:ident, $show:expr, $attribute:ident = $parse:expr) => {
        accessors! { $kinds, $show, Attribute |set, text| { set.$attribute = ($parse)(text)?; Ok(()) } }
    };
    ($kinds:ident, $show:expr, keep $part:ident = $parse:expr) => {
        accessors! { $kinds, $show, Other |all, text| keep(&mut all.$part, ($parse)(text)) }
    };
    ($kinds:ident, $show:expr, $variant:ident $set:expr) => {
        QueueAccessors { kinds: Kinds::$kinds, show: $show, set: SetQueue::$variant($set) }
    };
    ($show:expr, $function:ident = $parse:expr) => {
        accessors! { $show, |all, text| all.put(($parse)(text), Runtime::$function) }
    };
    ($show:expr, keep $part:ident = $parse:expr) => {
        accessors! { $show, |all, text| keep(&mut all.$part, ($parse)(text)) }
    };
    ($show:expr, $set:expr) => {
        ProcessAccessors { show: $show, set: $set }
    };
}
#[cfg(not(feature = "runtime"))]
macro_rules! accessors {
    ($($accessors:tt)*) => {
        ()
    };
}
#[cfg(not(feature = "runtime"))]
type QueueAccessors = ();
#[cfg(not(feature = "runtime"))]
type ProcessAccessors = ();

const YES_NO: &str = "0 or 1";
const CPUS: &str = "a list of CPUs (0-3,8), a mask (0xff or 000000ff,ffffffff), or nothing for all";
const CPUS_OF_PROCESS: &str = "a list of CPUs (0-3,8), a mask (0xff or 000000ff,ffffffff), or nothing for the default; the variable takes a list";

const fn queue(
    key: &'static str,
    values: &'static str,
    what: &'static str,
    kernel: &'static str,
    api: &'static str,
    accessors: QueueAccessors,
) -> (SettingDesc, QueueAccessors) {
    let (desc, accessors) = process(key, values, what, [kernel, "", api], accessors);
    (SettingDesc { owner: Owner::Queue, ..desc }, accessors)
}

const fn process<W>(
    key: &'static str,
    values: &'static str,
    what: &'static str,
    [kernel, environment, api]: [&'static str; 3],
    accessors: W,
) -> (SettingDesc, W) {
    (
        SettingDesc {
            key,
            owner: Owner::Process,
            writable: true,
            values,
            what,
            kernel,
            environment,
            api,
        },
        accessors,
    )
}

const fn fixed((desc, accessors): (SettingDesc, QueueAccessors)) -> (SettingDesc, QueueAccessors) {
    (SettingDesc { writable: false, ..desc }, accessors)
}

/// The settings of a queue.
pub(crate) const QUEUE: &[(SettingDesc, QueueAccessors)] = &[
    fixed(queue(
        "per_cpu",
        YES_NO,
        "Whether an item runs only on the CPU that queued it; fixed when the queue is created",
        "/sys/devices/virtual/workqueue/NAME/per_cpu",
        "WorkqueueBuilder::per_cpu",
        accessors! { Any, |queue| (String::new(), digit(queue.handle.is_per_cpu())), Other |_, _| Err(WHEN_MADE.into()) },
    )),
    fixed(queue(
        "ordered",
        YES_NO,
        "Whether items run one at a time, in the order in which they were queued; fixed when the queue is created",
        "alloc_ordered_workqueue()",
        "WorkqueueBuilder::ordered",
        accessors! { Any, |queue| (String::new(), digit(queue.handle.is_ordered())), Other |_, _| Err(WHEN_MADE.into()) },
    )),
    queue(
        "affinity",
        YES_NO,
        "Whether the scope is used; 0 means one pod of all CPUs",
        "/sys/devices/virtual/workqueue/NAME/numa (removed in Linux 6.6)",
        "Workqueue::set_affinity_enabled",
        accessors! { NotPerCpu, |queue| (digit(queue.set.affinity_enabled), digit(queue.affine)), affinity_enabled = values::parse_switch },
    ),
    queue(
        "affinity_scope",
        "default, cpu, smt, cache, cache_shard, numa or system",
        "How CPUs are grouped into pods",
        "/sys/devices/virtual/workqueue/NAME/affinity_scope",
        "Workqueue::set_affinity_scope",
        accessors! { NotPerCpu, |queue| queue.scope(), affinity_scope = |text| values::parse_scope(text, true) },
    ),
    queue(
        "affinity_strict",
        YES_NO,
        "Whether workers never leave their pod",
        "/sys/devices/virtual/workqueue/NAME/affinity_strict",
        "Workqueue::set_affinity_strict",
        accessors! { NotPerCpu, |queue| (digit(queue.set.affinity_strict), digit(queue.affine && queue.set.affinity_strict)), affinity_strict = values::parse_switch },
    ),
    queue(
        "localize",
        YES_NO,
        "Whether a worker runs an item on the CPU that queued it, if it can; near it, if a scheduler takes hints",
        "",
        "Workqueue::set_localize",
        accessors! { NotPerCpu, |queue| plain(digit(queue.set.localize)), localize = values::parse_switch },
    ),
    queue(
        "helping",
        YES_NO,
        "Whether idle workers of other pods may take items; no effect with affinity_strict",
        "",
        "Workqueue::set_helping",
        accessors! { NotPerCpu, |queue| queue.helping(), helping = values::parse_switch },
    ),
    queue(
        "cpumask",
        CPUS,
        "The CPUs that items may run on",
        "/sys/devices/virtual/workqueue/NAME/cpumask",
        "Workqueue::set_cpumask",
        accessors! { NotPerCpu, |queue| cpus(queue.set.cpumask.as_ref(), &queue.handle.effective_cpumask()), cpumask = values::parse_cpus },
    ),
    queue(
        "nice",
        "-20 (most favoured) to 19",
        "The nice value of the workers",
        "/sys/devices/virtual/workqueue/NAME/nice",
        "Workqueue::set_nice",
        accessors! { Any, |queue| (queue.set.nice.to_string(), queue.handle.effective_nice().to_string()), nice = values::parse_nice },
    ),
    queue(
        "sched_idle",
        YES_NO,
        "Whether workers run only when nothing else wants the CPU",
        "",
        "Workqueue::set_sched_idle",
        accessors! { Any, |queue| plain(digit(queue.set.sched_idle)), sched_idle = values::parse_switch },
    ),
    queue(
        "time_slice_us",
        "100 to 100000 microseconds; 0 for the system's default",
        "How long a worker runs without a break while other threads want its CPU",
        "",
        "Workqueue::set_time_slice",
        accessors! { Any, |queue| plain(queue.set.time_slice.unwrap_or_default().as_micros()), time_slice = parse_slice },
    ),
    queue(
        "max_active",
        "1 to 2048; 0 for 1024",
        "How many items may be on pools or running at once; 1 for an ordered queue",
        "/sys/devices/virtual/workqueue/NAME/max_active",
        "Workqueue::set_max_active",
        accessors! { NotOrdered, |queue| plain(queue.handle.max_active()), keep max_active = parse_items },
    ),
    queue(
        "min_active",
        "0 to max_active",
        "How many items may be active on each node, even if its share of max_active is smaller",
        "workqueue_set_min_active()",
        "Workqueue::set_min_active",
        accessors! { Unbound, |queue| plain(queue.handle.min_active()), keep min_active = parse_items },
    ),
    queue(
        "home",
        "a node's number; auto for the least loaded; none",
        "The home node of items that have no home of their own",
        "",
        "Workqueue::set_home",
        accessors! { NotPerCpu, |queue| queue.home(), Other |all, text| keep(&mut all.home, parse_home(all.runtime, text)) },
    ),
    queue(
        "memory",
        "home, interleave or untouched",
        "Where new memory of items comes from: their home node, all nodes in turn, or as the program has set it",
        "",
        "Workqueue::set_memory",
        accessors! { NotPerCpu, |queue| plain(queue.handle.memory().name()), keep memory = parse_memory },
    ),
];

/// The settings of the process.
pub(crate) const PROCESS: &[(SettingDesc, ProcessAccessors)] = &[
    process(
        "default_affinity_scope",
        "cpu, smt, cache, cache_shard, numa or system",
        "The scope of queues whose affinity_scope is default",
        [
            "/sys/module/workqueue/parameters/default_affinity_scope",
            "NEARQ_DEFAULT_SCOPE",
            "Runtime::set_default_affinity_scope",
        ],
        accessors! { |runtime| plain(runtime.default_affinity_scope()), |all, text| all.put_scope(text) },
    ),
    process(
        "affinity",
        YES_NO,
        "Whether scopes are used at all",
        [
            "workqueue.disable_numa (removed in Linux 6.6)",
            "NEARQ_AFFINITY",
            "Runtime::set_affinity_enabled",
        ],
        accessors! { |runtime| plain(digit(runtime.is_affinity_enabled())), set_affinity_enabled = values::parse_switch },
    ),
    process(
        "cpumask",
        CPUS_OF_PROCESS,
        "The CPUs that queues may use, among those that the process may use; without it, all of these that are not isolated",
        ["/sys/devices/virtual/workqueue/cpumask", "NEARQ_CPUMASK", "Runtime::set_cpumask"],
        accessors! { |runtime| cpus(runtime.cpumask().as_ref(), &runtime.allowed_cpus()), keep mask = values::parse_cpus },
    ),
    process(
        "cpu_intensive_thresh_us",
        "microseconds; 0 for never",
        "After this much CPU time, an item of a per-CPU queue no longer counts as running",
        [
            "/sys/module/workqueue/parameters/cpu_intensive_thresh_us",
            "",
            "Runtime::set_cpu_intensive_after",
        ],
        accessors! { |runtime| plain(runtime.cpu_intensive_after().as_micros()), set_cpu_intensive_after = |text| parse_micros(text, u64::MAX / 1000) },
    ),
    process(
        "watchdog_thresh",
        "seconds; 0 for never",
        "A stall is reported if work waits and nothing has started for this long",
        [
            "/sys/module/workqueue/parameters/watchdog_thresh",
            "NEARQ_STALL_AFTER",
            "Runtime::set_stall_after",
        ],
        accessors! { |runtime| plain(runtime.stall_after().as_secs_f64()), set_stall_after = parse_seconds },
    ),
    process(
        "panic_on_stall",
        "0 to 4294967295; 0 for never",
        "At which stall that is reported the process is aborted; reports are then also on standard error",
        [
            "/sys/module/workqueue/parameters/panic_on_stall",
            "NEARQ_ABORT_ON_STALL",
            "Runtime::set_abort_on_stall",
        ],
        accessors! { |runtime| plain(runtime.abort_on_stall()), set_abort_on_stall = parse_stalls },
    ),
    process(
        "spin",
        "0 to 1000000 checks; 512 take some 15 us",
        "How often a worker checks for work before it sleeps; one value per process, since queues share pools",
        ["", "", "Runtime::set_spin"],
        accessors! { |runtime| plain(runtime.spin()), set_spin = parse_spins },
    ),
    process(
        "home_choice",
        "now or first-run",
        "When the node of an automatic home is chosen: when the home is created, or when it is first needed",
        ["", "NEARQ_HOME_CHOICE", "Runtime::set_home_choice"],
        accessors! { |runtime| plain(runtime.home_choice().name()), set_home_choice = parse_choice },
    ),
    process(
        "home_inherit",
        YES_NO,
        "Whether items that are queued by an item with a home get the same home",
        ["", "NEARQ_HOME_INHERIT", "Runtime::set_inherits_homes"],
        accessors! { |runtime| plain(digit(runtime.inherits_homes())), set_inherits_homes = values::parse_switch },
    ),
    process(
        "home_item_imbalance",
        "1 to 1000000 thousandths",
        "How many items must wait per CPU of a home before an idle worker of a node at distance 10 takes one",
        ["", "", "Runtime::set_home_weight"],
        accessors! { |runtime| weight(runtime, "item_imbalance"), |all, text| all.put_weight("item_imbalance", text) },
    ),
    process(
        "home_item_imbalance_step",
        "0 to 1000000 thousandths",
        "How many more items must wait for each further 10 of distance",
        ["", "", "Runtime::set_home_weight"],
        accessors! { |runtime| weight(runtime, "item_imbalance_step"), |all, text| all.put_weight("item_imbalance_step", text) },
    ),
    process(
        "home_move_time",
        "0 to 10000 thousandths",
        "For dynamic homes: the weight of all CPU time, compared with the weight of all memory",
        ["", "", "Runtime::set_home_weight"],
        accessors! { |runtime| weight(runtime, "move_time"), |all, text| all.put_weight("move_time", text) },
    ),
    process(
        "home_move_margin",
        "1 to 10000 thousandths",
        "For dynamic homes: how much better another node must be before the home moves",
        ["", "", "Runtime::set_home_weight"],
        accessors! { |runtime| weight(runtime, "move_margin"), |all, text| all.put_weight("move_margin", text) },
    ),
    process(
        "home_move_interval_ms",
        "1 to 3600000 milliseconds",
        "For dynamic homes: the least time between two moves",
        ["", "", "Runtime::set_home_weight"],
        accessors! { |runtime| weight(runtime, "move_interval_ms"), |all, text| all.put_weight("move_interval_ms", text) },
    ),
];

/// The settings of the process's mutexes.
pub(crate) const LOCKS: &[(SettingDesc, Key)] = &[
    process(
        "lock_mode",
        "off, auto, plain or numa; 1 for auto, 0 for plain",
        "How mutexes treat threads that wait",
        ["/proc/zx_numa_lock/dynamic_enable", "NEARQ_LOCK", "nearq_lock::Settings::mode"],
        Key::Mode,
    ),
    process(
        "lock_hand_overs",
        "16 to 2048",
        "After this many hand-overs, a mutex decides whether to use queues by cache",
        ["/proc/zx_numa_lock/osq_keep_times", "", "nearq_lock::Settings::hand_overs"],
        Key::Threshold(Threshold::HandOvers),
    ),
    process(
        "lock_remote_percent",
        "1 to 100",
        "It uses them if at least this many percent of those hand-overs went to another cache",
        ["", "", "nearq_lock::Settings::remote_percent"],
        Key::Threshold(Threshold::RemotePercent),
    ),
    process(
        "lock_depth",
        "0 to 32",
        "If not 0: it uses them if more than this many threads wait after those hand-overs, wherever they went",
        ["/proc/zx_numa_lock/osq_lock_depth", "", "nearq_lock::Settings::depth"],
        Key::Threshold(Threshold::Depth),
    ),
    process(
        "lock_batch",
        "5 to 2048",
        "After this many hand-overs within a cache, another cache has its turn",
        ["/proc/zx_numa_lock/osq_node_max", "", "nearq_lock::Settings::batch"],
        Key::Threshold(Threshold::Batch),
    ),
    process(
        "lock_patience_us",
        "10 to 1000000 microseconds",
        "How long hand-overs may stay within a cache while threads of others wait",
        ["", "", "nearq_lock::Settings::patience"],
        Key::Threshold(Threshold::Patience),
    ),
    process(
        "lock_quiet",
        "1 to 127",
        "How often the last waiter must leave while no other cache waits, before the mutex returns to one queue",
        ["", "", "nearq_lock::Settings::quiet"],
        Key::Threshold(Threshold::Quiet),
    ),
    process(
        "lock_yields",
        "0 to 7",
        "How often a thread yields its CPU before it queues up",
        ["", "", "nearq_lock::Settings::yields"],
        Key::Threshold(Threshold::Yields),
    ),
    process(
        "lock_count",
        YES_NO,
        "Whether events at mutexes are counted",
        ["", "", "nearq_lock::Settings::count"],
        Key::Count,
    ),
];
