//! All that can be set, each with its name in the kernel, in the environment, in the API and for `set`: one table, from which
//! the server, the command and `docs/knobs.md` take what they say.

/// Whose a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// One queue's.
    Queue,
    /// The process's.
    Process,
}

/// Something that can be set, or looked at.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The key for `get` and `set`.
    pub key: &'static str,
    /// Whose it is.
    pub owner: Owner,
    /// Whether it can be set while the process runs.
    pub writable: bool,
    /// The values it may have, in words.
    pub values: &'static str,
    /// What it does, in a sentence.
    pub what: &'static str,
    /// The kernel's file or parameter; empty where the kernel has none.
    pub kernel: &'static str,
    /// The variable of the environment; empty where there is none.
    pub environment: &'static str,
    /// The call of the API.
    pub api: &'static str,
}

const YES_NO: &str = "0 or 1";
const CPUS: &str = "a list of CPUs (0-3,8), a mask (0xff or 000000ff,ffffffff), or nothing for all";

const fn queue(
    key: &'static str,
    values: &'static str,
    what: &'static str,
    kernel: &'static str,
    api: &'static str,
) -> Knob {
    Knob { key, owner: Owner::Queue, writable: true, values, what, kernel, environment: "", api }
}

const fn process(
    key: &'static str,
    values: &'static str,
    what: &'static str,
    [kernel, environment, api]: [&'static str; 3],
) -> Knob {
    Knob { key, owner: Owner::Process, writable: true, values, what, kernel, environment, api }
}

const fn fixed(knob: Knob) -> Knob {
    Knob { writable: false, ..knob }
}

/// What the keys of homes' weights begin with; the rest is the weight's name.
#[cfg(feature = "runtime")]
pub(crate) const WEIGHT: &str = "home_";

/// The table: what is one queue's, then what is the process's.
pub const KNOBS: &[Knob] = &[
    fixed(queue(
        "per_cpu",
        YES_NO,
        "Whether an item runs on the CPU that queued it and nowhere else; decided when the queue is made",
        "/sys/devices/virtual/workqueue/NAME/per_cpu",
        "WorkqueueBuilder::per_cpu",
    )),
    fixed(queue(
        "ordered",
        YES_NO,
        "Whether items run one at a time, in the order in which they were queued; decided when the queue is made",
        "alloc_ordered_workqueue()",
        "WorkqueueBuilder::ordered",
    )),
    queue(
        "affinity",
        YES_NO,
        "Whether the scope is heeded; 0 is one pod of all CPUs",
        "/sys/devices/virtual/workqueue/NAME/numa (removed in Linux 6.6)",
        "Workqueue::set_affinity",
    ),
    queue(
        "affinity_scope",
        "default, cpu, smt, cache, cache_shard, numa or system",
        "How CPUs are grouped into pods",
        "/sys/devices/virtual/workqueue/NAME/affinity_scope",
        "Workqueue::set_scope",
    ),
    queue(
        "affinity_strict",
        YES_NO,
        "Whether workers never leave their pod",
        "/sys/devices/virtual/workqueue/NAME/affinity_strict",
        "Workqueue::set_strict",
    ),
    queue(
        "localize",
        YES_NO,
        "Whether an item runs on the CPU that queued it, where a worker can",
        "",
        "Workqueue::set_localize",
    ),
    queue(
        "helping",
        YES_NO,
        "Whether idle workers of other pods take items; no effect with affinity_strict",
        "",
        "Workqueue::set_helping",
    ),
    queue(
        "cpumask",
        CPUS,
        "The CPUs that items may run on",
        "/sys/devices/virtual/workqueue/NAME/cpumask",
        "Workqueue::set_cpumask",
    ),
    queue(
        "nice",
        "-20 (most favoured) to 19",
        "The nice value of the workers",
        "/sys/devices/virtual/workqueue/NAME/nice",
        "Workqueue::set_nice",
    ),
    queue(
        "idle",
        YES_NO,
        "Whether workers run only when nothing else wants the CPU",
        "",
        "Workqueue::set_idle",
    ),
    queue(
        "slice_us",
        "100 to 100000 microseconds; 0 for the system's own",
        "How long a worker runs in one go while others want its CPU",
        "",
        "Workqueue::set_slice",
    ),
    queue(
        "max_active",
        "1 to 2048; 0 for 1024",
        "Items that may be on pools or running at once; 1 of an ordered queue",
        "/sys/devices/virtual/workqueue/NAME/max_active",
        "Workqueue::set_max_active",
    ),
    queue(
        "min_active",
        "0 to max_active",
        "Items that may be active on each node, whatever its share of max_active is",
        "workqueue_set_min_active()",
        "Workqueue::set_min_active",
    ),
    queue(
        "home",
        "a node's number; auto for the least loaded; none",
        "The node where items are at home that have no home of their own",
        "",
        "Workqueue::set_home",
    ),
    queue(
        "memory",
        "home, interleave or untouched",
        "Where the memory comes from that items touch first: their home, all nodes in turn, or wherever the program has it from",
        "",
        "Workqueue::set_memory",
    ),
    process(
        "default_affinity_scope",
        "cpu, smt, cache, cache_shard, numa or system",
        "The scope of queues whose affinity_scope is default",
        [
            "/sys/module/workqueue/parameters/default_affinity_scope",
            "NEARQ_DEFAULT_SCOPE",
            "Runtime::set_default_scope",
        ],
    ),
    process(
        "affinity",
        YES_NO,
        "Whether scopes are heeded at all",
        [
            "workqueue.disable_numa (removed in Linux 6.6)",
            "NEARQ_AFFINITY",
            "Runtime::set_affinity",
        ],
    ),
    process(
        "cpumask",
        CPUS,
        "The CPUs that queues may use, within what the process may",
        ["/sys/devices/virtual/workqueue/cpumask", "", "Runtime::set_cpumask"],
    ),
    process(
        "cpu_intensive_thresh_us",
        "microseconds; 0 for never",
        "From when on an item of a per-CPU queue does not count as running",
        [
            "/sys/module/workqueue/parameters/cpu_intensive_thresh_us",
            "",
            "Runtime::set_cpu_intensive_after",
        ],
    ),
    process(
        "watchdog_thresh",
        "seconds; 0 for never",
        "Where work waits and nothing starts for so long, that is reported",
        [
            "/sys/module/workqueue/parameters/watchdog_thresh",
            "NEARQ_STALL_AFTER",
            "Runtime::set_stall_after",
        ],
    ),
    process(
        "spin",
        "0 to 1000000 looks; 512 are some 15 us",
        "How long a worker looks for work before it sleeps; pools are shared by queues, so it is the process's",
        ["", "", "Runtime::set_spin"],
    ),
    process(
        "home_choice",
        "now or first-run",
        "When the node of a home is chosen that may be anywhere: when it is made, or when it is needed first",
        ["", "NEARQ_HOME_CHOICE", "Runtime::set_home_choice"],
    ),
    process(
        "home_inherit",
        YES_NO,
        "Whether what an item with a home queues is at home there too",
        ["", "NEARQ_HOME_INHERIT", "Runtime::set_inherits_homes"],
    ),
    process(
        "home_item_imbalance",
        "1 to 1000000 thousandths",
        "So many items must wait for each CPU of a home before an idle worker of a node at distance 10 takes one",
        ["", "", "Runtime::set_home_weight"],
    ),
    process(
        "home_item_imbalance_step",
        "0 to 1000000 thousandths",
        "So many more for each further 10 of distance",
        ["", "", "Runtime::set_home_weight"],
    ),
    process(
        "home_move_time",
        "0 to 10000 thousandths",
        "Of a dynamic home: what all of the CPU time is worth beside all of the memory",
        ["", "", "Runtime::set_home_weight"],
    ),
    process(
        "home_move_margin",
        "1 to 10000 thousandths",
        "Of a dynamic home: how much better another node must be",
        ["", "", "Runtime::set_home_weight"],
    ),
    process(
        "home_move_interval_ms",
        "1 to 3600000 milliseconds",
        "Of a dynamic home: how long it stays where it is at least",
        ["", "", "Runtime::set_home_weight"],
    ),
    process(
        "lock_mode",
        "off, auto, plain or numa; 1 for auto, 0 for plain",
        "How mutexes treat those who wait",
        ["/proc/zx_numa_lock/dynamic_enable", "NEARQ_LOCK", "nearq_lock::Settings::mode"],
    ),
    process(
        "lock_hand_overs",
        "16 to 2048",
        "After so many hand-overs it is asked whether queues by cache are worth it",
        ["/proc/zx_numa_lock/osq_keep_times", "", "nearq_lock::Settings::hand_overs"],
    ),
    process(
        "lock_remote_percent",
        "1 to 100",
        "They are if so many of those went to another cache",
        ["", "", "nearq_lock::Settings::remote_percent"],
    ),
    process(
        "lock_batch",
        "5 to 2048",
        "After so many hand-overs within a cache it is another one's turn",
        ["/proc/zx_numa_lock/osq_node_max", "", "nearq_lock::Settings::batch"],
    ),
    process(
        "lock_patience_us",
        "10 to 1000000 microseconds",
        "For how long hand-overs stay within a cache while others wait",
        ["", "", "nearq_lock::Settings::patience"],
    ),
    process(
        "lock_quiet",
        "1 to 127",
        "So often the last waiter must have left alone until there is one queue again",
        ["", "", "nearq_lock::Settings::quiet"],
    ),
    process(
        "lock_yields",
        "0 to 7",
        "So often a thread lets others run before it queues up",
        ["", "", "nearq_lock::Settings::yields"],
    ),
    process(
        "lock_count",
        YES_NO,
        "Whether it is counted what happens at mutexes",
        ["", "", "nearq_lock::Settings::count"],
    ),
];

/// The knobs of an owner, in the table's order.
pub fn of(owner: Owner) -> impl Iterator<Item = &'static Knob> {
    KNOBS.iter().filter(move |knob| knob.owner == owner)
}

/// The knob of an owner with that key.
pub fn named(owner: Owner, key: &str) -> Option<&'static Knob> {
    of(owner).find(|knob| knob.key == key)
}

/// The key of the same owner whose value another one's change may take along: a lower limit lowers what each node has at least.
pub fn taken_along(key: &str) -> Option<&'static str> {
    (key == "max_active").then_some("min_active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words_and_stand_once_for_each_owner() {
        for knob in KNOBS {
            assert_eq!(of(knob.owner).filter(|other| other.key == knob.key).count(), 1);
            assert!(knob.key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert!(!knob.what.is_empty() && !knob.api.is_empty() && !knob.values.is_empty());
        }
    }
}
