//! Reading and changing the settings of a runtime and its queues: the steps that all keys have in common. Each key, with its own
//! step, is in [`settings_table`](crate::settings_table).

use std::collections::BTreeMap;
use std::time::Duration;

use nearq_core::{
    Attributes, CpuSet, Error, Runtime,
    home::{Home, HomeChoice, MemoryPolicy, Weights},
    inspect::QueueView,
};

use crate::locks;
use crate::protocol::{ProcessSettings, QueueSettings, Refusal};
use crate::settings_table::{self, Owner, PROCESS, QUEUE, SettingDesc};
use crate::values;

/// A value as it was set, and what is in effect.
type Value = (String, String);

/// How a setting of a queue is shown and set.
pub(crate) struct QueueAccessors {
    pub(crate) kinds: Kinds,
    pub(crate) show: fn(&ShownQueue<'_>) -> Value,
    pub(crate) set: SetQueue,
}

/// A step of a change of a queue; it reads the value and refuses an impossible one.
pub(crate) enum SetQueue {
    /// Sets an attribute. The result depends only on the value, so it is tried before it takes effect.
    Attribute(fn(&mut Attributes, &str) -> Result<(), String>),
    /// Notes a change that is made besides the attributes.
    Other(fn(&mut QueueChanges<'_>, &str) -> Result<(), String>),
}

/// How a setting of the process is shown, and how a change of it is added to the pending changes.
pub(crate) struct ProcessAccessors {
    pub(crate) show: fn(&Runtime) -> Value,
    pub(crate) set: fn(&mut ProcessChanges, &str) -> Result<(), String>,
}

/// The kinds of queues for which something can be set.
#[derive(Clone, Copy)]
pub(crate) enum Kinds {
    Any,
    NotPerCpu,
    NotOrdered,
    Unbound,
}

impl Kinds {
    /// Why the setting cannot be changed for this queue.
    fn unfit(self, queue: &QueueView) -> Option<&'static str> {
        match self {
            Kinds::NotPerCpu | Kinds::Unbound if queue.is_per_cpu() => Some(
                "this is a per-CPU queue, for which only nice, sched_idle, time_slice_us and max_active can be set",
            ),
            Kinds::NotOrdered | Kinds::Unbound if queue.is_ordered() => Some(
                "this is an ordered queue, which runs one item at a time; its other settings can be set",
            ),
            _ => None,
        }
    }
}

/// Why a property that was fixed when the queue was made cannot be changed.
pub(crate) const WHEN_MADE: &str = "it is fixed when the queue is created";

/// A queue whose settings are shown.
pub(crate) struct ShownQueue<'a> {
    pub(crate) handle: &'a QueueView,
    /// The configured values.
    pub(crate) set: Attributes,
    /// Whether its scope has an effect.
    pub(crate) affine: bool,
}

impl ShownQueue<'_> {
    pub(crate) fn scope(&self) -> Value {
        let set = self.set.affinity_scope.map_or("default".to_owned(), |scope| scope.to_string());
        (set, self.handle.affinity_scope_in_words())
    }

    pub(crate) fn helping(&self) -> Value {
        let effective = self.affine && self.set.helping && !self.set.affinity_strict;
        (digit(self.set.helping), digit(effective))
    }

    /// The node, `auto` if it is still to be chosen, or `none`; and, as what is in effect, why.
    pub(crate) fn home(&self) -> Value {
        let Some(home) = self.handle.home() else { return plain("none") };
        let node = home.node().map_or_else(|| "auto".to_owned(), |node| node.to_string());
        (node, home.explain())
    }
}

pub(crate) fn digit(on: bool) -> String {
    u8::from(on).to_string()
}

/// A value that is in effect exactly as it was set.
pub(crate) fn plain(value: impl ToString) -> Value {
    (value.to_string(), value.to_string())
}

pub(crate) fn cpus(set: Option<&CpuSet>, effective: &CpuSet) -> Value {
    (set.map(CpuSet::to_list).unwrap_or_default(), values::show_cpus(effective))
}

pub(crate) fn weight(runtime: &Runtime, name: &str) -> Value {
    plain(runtime.home_weights().get(name).unwrap_or_default())
}

pub(super) fn of_queue(runtime: &Runtime, queue: &QueueView) -> QueueSettings {
    let set = queue.attributes();
    let pods = !queue.is_per_cpu() && !queue.is_ordered();
    let affine = pods && set.affinity_enabled && runtime.is_affinity_enabled();
    let seen = ShownQueue { handle: queue, set, affine };
    let setting = |(desc, accessors): &(SettingDesc, QueueAccessors)| {
        desc.setting(
            (accessors.show)(&seen),
            desc.writable && accessors.kinds.unfit(queue).is_none(),
        )
    };
    QueueSettings {
        id: queue.id().into(),
        name: queue.name().to_owned(),
        settings: QUEUE.iter().map(setting).collect(),
    }
}

pub(super) fn of_process(runtime: &Runtime) -> ProcessSettings {
    let process_settings = PROCESS
        .iter()
        .map(|(desc, accessors)| desc.setting((accessors.show)(runtime), desc.writable));
    ProcessSettings { settings: process_settings.chain(locks::settings()).collect() }
}

/// The pending changes of a queue besides its attributes, collected before any of them is made.
pub(crate) struct QueueChanges<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) max_active: Option<usize>,
    pub(crate) min_active: Option<usize>,
    #[expect(clippy::option_option, reason = "it may be left alone, or be nowhere")]
    pub(crate) home: Option<Option<Home>>,
    pub(crate) memory: Option<MemoryPolicy>,
}

/// Notes a value if it could be parsed.
pub(crate) fn keep<T>(place: &mut Option<T>, read: Result<T, String>) -> Result<(), String> {
    *place = Some(read?);
    Ok(())
}

/// A home: a node's number, `auto`, or `none`.
pub(crate) fn parse_home(runtime: &Runtime, value: &str) -> Result<Option<Home>, String> {
    match value.trim() {
        "none" => Ok(None),
        "auto" => Ok(Some(Home::pick_in(runtime))),
        text => {
            let node = text.parse().map_err(|_| {
                let nodes: Vec<_> =
                    runtime.home_nodes().iter().map(|row| row.node.to_string()).collect();
                format!("not a home; give a node ({}), auto or none", nodes.join(", "))
            })?;
            Home::on_in(runtime, node).map(Some).map_err(|error| error.to_string())
        }
    }
}

pub(crate) fn parse_items(text: &str) -> Result<usize, String> {
    values::parse_number(text, 0..=2048, "items").map(|items| items as usize)
}

pub(crate) fn parse_slice(text: &str) -> Result<Option<Duration>, String> {
    let slice = parse_micros(text, 100_000)?;
    Ok(Some(slice).filter(|slice| !slice.is_zero()))
}

pub(crate) fn parse_micros(text: &str, most: u64) -> Result<Duration, String> {
    values::parse_number(text, 0..=most, "microseconds").map(Duration::from_micros)
}

pub(crate) fn parse_spins(text: &str) -> Result<u32, String> {
    values::parse_number(text, 0..=1_000_000, "looks").map(|spins| spins as u32)
}

pub(crate) fn parse_stalls(text: &str) -> Result<u32, String> {
    values::parse_number(text, 0..=u32::MAX.into(), "stalls").map(|stalls| stalls as u32)
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.trim().parse().ok();
    let period = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    // The value in nanoseconds must fit into 64 bits.
    let period = period.filter(|period| u64::try_from(period.as_nanos()).is_ok());
    period.ok_or_else(|| {
        "not a time; give a number of seconds, at most 18446744073, or 0 for never".to_owned()
    })
}

pub(crate) fn parse_memory(text: &str) -> Result<MemoryPolicy, String> {
    let names: Vec<_> = MemoryPolicy::ALL.iter().map(|memory| memory.name()).collect();
    values::parse_word(text, &names).map(|place| MemoryPolicy::ALL[place])
}

pub(crate) fn parse_choice(text: &str) -> Result<HomeChoice, String> {
    let names: Vec<_> = HomeChoice::ALL.iter().map(|choice| choice.name()).collect();
    values::parse_word(text, &names).map(|place| HomeChoice::ALL[place])
}

fn bad_value(key: &str, value: &str, why: impl ToString) -> Refusal {
    Refusal::BadValue { key: key.to_owned(), value: value.to_owned(), why: why.to_string() }
}

/// The key that an error of the runtime is about.
fn key_of(error: &Error) -> &'static str {
    match error {
        Error::EmptyMask | Error::NoSuchCpu { .. } | Error::MaskNotAllowed { .. } => "cpumask",
        Error::NiceOutOfRange(_) => "nice",
        Error::TimeSliceOutOfRange(_) => "time_slice_us",
        Error::MinActive { .. } => "min_active",
        _ => "",
    }
}

fn refusal(error: &Error, changes: &BTreeMap<String, String>) -> Refusal {
    match changes.get_key_value(key_of(error)) {
        Some((key, value)) => bad_value(key, value, error),
        None => Refusal::NotHere { why: error.to_string() },
    }
}

fn no_such_key(owner: Owner, key: &str) -> Refusal {
    let keys =
        settings_table::of(owner).filter(|desc| desc.writable).map(|desc| desc.key.to_owned());
    Refusal::NoSuchKey { key: key.to_owned(), keys: keys.collect() }
}

pub(super) fn set_queue(
    runtime: &Runtime,
    queue: &QueueView,
    changes: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let mut attributes = Vec::new();
    let mut all =
        QueueChanges { runtime, max_active: None, min_active: None, home: None, memory: None };
    for (key, value) in changes {
        let (_, accessors) =
            settings_table::row(QUEUE, key).ok_or_else(|| no_such_key(Owner::Queue, key))?;
        if let Some(why) = accessors.kinds.unfit(queue) {
            return Err(bad_value(key, value, why));
        }
        let read = match accessors.set {
            SetQueue::Attribute(set) => {
                attributes.push((set, value));
                set(&mut Attributes::default(), value)
            }
            SetQueue::Other(set) => set(&mut all, value),
        };
        read.map_err(|why| bad_value(key, value, why))?;
    }
    let QueueChanges { max_active, min_active, home, memory, .. } = all;
    if let (Some(max_active), Some(asked)) = (max_active, min_active) {
        // 0 is the default.
        let max_active = if max_active == 0 { Attributes::new().max_active } else { max_active };
        if asked > max_active {
            // Otherwise the lower limit would lower the minimum that was set in the same call.
            return Err(refusal(&Error::MinActive { asked, max_active }, changes));
        }
    }
    let change = |now: &mut Attributes| {
        for (set, value) in attributes {
            let read = set(now, value);
            debug_assert!(read.is_ok(), "it could be set when it was tried");
        }
        now.max_active = max_active.unwrap_or(now.max_active);
        now.min_active = min_active.unwrap_or(now.min_active);
        now.memory = memory.unwrap_or(now.memory);
    };
    queue.change(change).map_err(|error| refusal(&error, changes))?;
    // Refused only by per-CPU queues, which has been checked, and by a queue that has ended.
    if let Some(home) = home {
        queue.set_home(home.as_ref()).map_err(|error| refusal(&error, changes))?;
    }
    Ok(())
}

/// A change of the process that can no longer fail.
type ProcessChange = Box<dyn FnOnce(&Runtime)>;

/// The pending changes of the process, collected before any of them is made.
#[derive(Default)]
pub(crate) struct ProcessChanges {
    other: Vec<ProcessChange>,
    #[expect(clippy::option_option, reason = "it may be left alone, or be all CPUs")]
    pub(crate) mask: Option<Option<CpuSet>>,
}

impl ProcessChanges {
    /// Adds a change to a value if it could be parsed.
    pub(crate) fn put<T: 'static>(
        &mut self,
        read: Result<T, String>,
        put: impl FnOnce(&Runtime, T) + 'static,
    ) -> Result<(), String> {
        let value = read?;
        self.other.push(Box::new(move |runtime| put(runtime, value)));
        Ok(())
    }

    /// Adds a change of the scope that is the default.
    pub(crate) fn put_scope(&mut self, text: &str) -> Result<(), String> {
        let scope = values::parse_scope(text, false);
        self.put(scope, |runtime, scope| {
            if let Some(scope) = scope {
                runtime.set_default_affinity_scope(scope);
            }
        })
    }

    /// Adds a change of that home weight.
    pub(crate) fn put_weight(&mut self, name: &'static str, text: &str) -> Result<(), String> {
        let (least, most) = Weights::bounds(name).unwrap_or_default();
        let read = values::parse_number(text, least.into()..=most.into(), "");
        self.put(read, move |runtime, number| {
            // The value is within its bounds, so it is not refused.
            let _ = runtime.set_home_weight(name, number as u32);
        })
    }
}

pub(super) fn set_process(
    runtime: &Runtime,
    changes: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let (mut all, mut of_locks) = (ProcessChanges::default(), locks::Changes::default());
    for (key, value) in changes {
        if let Some(added) = of_locks.add(key, value) {
            added?;
            continue;
        }
        let (_, accessors) =
            settings_table::row(PROCESS, key).ok_or_else(|| no_such_key(Owner::Process, key))?;
        (accessors.set)(&mut all, value).map_err(|why| bad_value(key, value, why))?;
    }
    // The change that the machine may refuse comes first; the other changes cannot fail.
    if let Some(mask) = all.mask {
        runtime.set_cpumask(mask).map_err(|error| refusal(&error, changes))?;
    }
    for change in all.other {
        change(runtime);
    }
    of_locks.apply();
    Ok(())
}
