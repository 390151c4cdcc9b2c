//! What is set of a runtime and its queues, and setting it.

use std::collections::BTreeMap;
use std::time::Duration;

use nearq_core::{
    Attributes, CpuSet, Error, Home, HomeChoice, QueueHandle, QueueMemory, Runtime, Weights,
};

use crate::knobs::{self, Owner, WEIGHT};
use crate::locks;
use crate::protocol::{ProcessSettings, QueueSettings, Refusal, Setting};
use crate::values;

/// Of per-CPU queues nothing else can be set.
const OF_PER_CPU: [&str; 4] = ["nice", "idle", "slice_us", "max_active"];

fn digit(on: bool) -> String {
    u8::from(on).to_string()
}

fn list(cpus: Option<&CpuSet>) -> String {
    cpus.map(CpuSet::to_list).unwrap_or_default()
}

fn micros(time: Duration) -> String {
    time.as_micros().to_string()
}

/// A value that is in effect as it was set.
fn plain(value: impl ToString) -> (String, String) {
    (value.to_string(), value.to_string())
}

/// The node, `auto` where it is still to be chosen, or `none`; and in effect, why.
fn home_of(queue: &QueueHandle) -> (String, String) {
    let Some(home) = queue.home() else { return plain("none") };
    let node = home.node().map_or_else(|| "auto".to_owned(), |node| node.to_string());
    (node, home.explain())
}

pub(super) fn of_queue(runtime: &Runtime, queue: &QueueHandle) -> QueueSettings {
    let attributes = queue.attributes();
    let pods = !queue.is_per_cpu() && !queue.is_ordered();
    let affine = pods && attributes.affinity && runtime.affinity();
    let value = |key: &str| -> (String, String) {
        match key {
            "per_cpu" => (String::new(), digit(queue.is_per_cpu())),
            "ordered" => (String::new(), digit(queue.is_ordered())),
            "affinity" => (digit(attributes.affinity), digit(affine)),
            "affinity_scope" => {
                let set = attributes.scope.map_or("default".to_owned(), |scope| scope.to_string());
                (set, queue.scope_in_words())
            }
            "affinity_strict" => (digit(attributes.strict), digit(affine && attributes.strict)),
            "localize" => plain(u8::from(attributes.localize)),
            "helping" => {
                let effective = affine && attributes.helping && !attributes.strict;
                (digit(attributes.helping), digit(effective))
            }
            "cpumask" => {
                let effective = values::show_cpus(&queue.effective_cpumask());
                (list(attributes.cpumask.as_ref()), effective)
            }
            "nice" => (attributes.nice.to_string(), queue.effective_nice().to_string()),
            "idle" => plain(u8::from(attributes.idle)),
            "slice_us" => plain(micros(attributes.slice.unwrap_or_default())),
            "max_active" => plain(queue.max_active()),
            "min_active" => plain(queue.min_active()),
            "home" => home_of(queue),
            "memory" => plain(queue.memory().name()),
            other => unreachable!("{other} is in the table and has no value"),
        }
    };
    let setting = |knob: &knobs::Knob| {
        let (configured, effective) = value(knob.key);
        let writable = knob.writable && unfit(queue, knob.key).is_none();
        Setting { key: knob.key.to_owned(), configured, effective, writable }
    };
    QueueSettings {
        id: queue.id(),
        name: queue.name().to_owned(),
        settings: knobs::of(Owner::Queue).map(setting).collect(),
    }
}

pub(super) fn of_process(runtime: &Runtime) -> ProcessSettings {
    let weights = runtime.home_weights();
    let value = |key: &str| -> Option<(String, String)> {
        Some(match key {
            "default_affinity_scope" => plain(runtime.default_scope()),
            "affinity" => plain(u8::from(runtime.affinity())),
            "cpumask" => (list(runtime.cpumask().as_ref()), values::show_cpus(&runtime.allowed())),
            "cpu_intensive_thresh_us" => plain(micros(runtime.cpu_intensive_after())),
            "watchdog_thresh" => plain(runtime.stall_after().as_secs_f64()),
            "spin" => plain(runtime.spin()),
            "home_choice" => plain(runtime.home_choice().name()),
            "home_inherit" => plain(u8::from(runtime.inherits_homes())),
            key => return key.strip_prefix(WEIGHT).and_then(|name| weights.get(name)).map(plain),
        })
    };
    let own = knobs::of(Owner::Process).filter_map(|knob| {
        let (configured, effective) = value(knob.key)?;
        let (key, writable) = (knob.key.to_owned(), knob.writable);
        Some(Setting { key, configured, effective, writable })
    });
    ProcessSettings { settings: own.chain(locks::settings()).collect() }
}

/// Why a key cannot be set for that kind of queue.
fn unfit(queue: &QueueHandle, key: &str) -> Option<String> {
    if queue.is_per_cpu() && !OF_PER_CPU.contains(&key) {
        return Some(
            "this is a per-CPU queue, of which nice, idle, slice_us and max_active can be set"
                .into(),
        );
    }
    let limit = key == "max_active" || key == "min_active";
    (queue.is_ordered() && limit).then(|| {
        "this is an ordered queue, which runs one item at a time; the rest can be set".into()
    })
}

fn bad_value(key: &str, value: &str, why: impl ToString) -> Refusal {
    Refusal::BadValue { key: key.to_owned(), value: value.to_owned(), why: why.to_string() }
}

/// A change of a queue's attributes.
type AttributeChange = Box<dyn FnOnce(&mut Attributes)>;

/// What of a queue is to be changed, before any of it is.
#[derive(Default)]
struct QueueChanges {
    attributes: Vec<AttributeChange>,
    max_active: Option<usize>,
    min_active: Option<usize>,
    home: Option<NewHome>,
    memory: Option<QueueMemory>,
}

impl QueueChanges {
    fn set(&mut self, change: impl FnOnce(&mut Attributes) + 'static) {
        self.attributes.push(Box::new(change));
    }

    fn add(&mut self, runtime: &Runtime, key: &str, value: &str) -> Result<(), String> {
        match key {
            "home" => self.home = Some(parse_home(runtime, value)?),
            "memory" => {
                let all = [QueueMemory::Home, QueueMemory::Interleave, QueueMemory::Untouched];
                let place = values::parse_word(value, &all.map(QueueMemory::name))?;
                self.memory = Some(all[place]);
            }
            "affinity" => {
                let on = values::parse_switch(value)?;
                self.set(move |attributes| attributes.affinity = on);
            }
            "affinity_scope" => {
                let scope = values::parse_scope(value, true)?;
                self.set(move |attributes| attributes.scope = scope);
            }
            "affinity_strict" => {
                let on = values::parse_switch(value)?;
                self.set(move |attributes| attributes.strict = on);
            }
            "localize" => {
                let on = values::parse_switch(value)?;
                self.set(move |attributes| attributes.localize = on);
            }
            "helping" => {
                let on = values::parse_switch(value)?;
                self.set(move |attributes| attributes.helping = on);
            }
            "cpumask" => {
                let cpus = values::parse_cpus(value)?;
                self.set(move |attributes| attributes.cpumask = cpus);
            }
            "nice" => {
                let nice = values::parse_nice(value)?;
                self.set(move |attributes| attributes.nice = nice);
            }
            "idle" => {
                let on = values::parse_switch(value)?;
                self.set(move |attributes| attributes.idle = on);
            }
            "slice_us" => {
                let slice = Some(values::parse_number(value, 0..=100_000, "microseconds")?)
                    .filter(|slice| *slice != 0)
                    .map(Duration::from_micros);
                self.set(move |attributes| attributes.slice = slice);
            }
            "max_active" => {
                self.max_active = Some(values::parse_number(value, 0..=2048, "items")? as usize);
            }
            "min_active" => {
                self.min_active = Some(values::parse_number(value, 0..=2048, "items")? as usize);
            }
            other => unreachable!("{other} is in the table and cannot be set"),
        }
        Ok(())
    }
}

/// What a queue's home is to be.
enum NewHome {
    Nowhere,
    There(Home),
}

/// A home: a node's number, `auto`, or `none`.
fn parse_home(runtime: &Runtime, value: &str) -> Result<NewHome, String> {
    match value.trim() {
        "none" => Ok(NewHome::Nowhere),
        "auto" => Ok(NewHome::There(Home::pick_in(runtime))),
        text => {
            let node = text.parse().map_err(|_| {
                let nodes: Vec<_> =
                    runtime.homes().iter().map(|row| row.node.to_string()).collect();
                format!("no home; give a node ({}), auto or none", nodes.join(", "))
            })?;
            Home::on_in(runtime, node).map(NewHome::There).map_err(|error| error.to_string())
        }
    }
}

/// The key that an error of the runtime is about.
fn key_of(error: &Error) -> &'static str {
    match error {
        Error::EmptyMask | Error::NoSuchCpu { .. } | Error::MaskNotAllowed { .. } => "cpumask",
        Error::NiceOutOfRange(_) => "nice",
        Error::SliceOutOfRange(_) => "slice_us",
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
    let keys = knobs::of(owner).filter(|knob| knob.writable).map(|knob| knob.key.to_owned());
    Refusal::NoSuchKey { key: key.to_owned(), keys: keys.collect() }
}

pub(super) fn set_queue(
    runtime: &Runtime,
    queue: &QueueHandle,
    changes: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let mut all = QueueChanges::default();
    for (key, value) in changes {
        let knob = knobs::named(Owner::Queue, key).ok_or_else(|| no_such_key(Owner::Queue, key))?;
        if !knob.writable {
            return Err(bad_value(key, value, "it is decided when the queue is made"));
        }
        if let Some(why) = unfit(queue, key) {
            return Err(bad_value(key, value, why));
        }
        all.add(runtime, key, value).map_err(|why| bad_value(key, value, why))?;
    }
    let QueueChanges { attributes, max_active, min_active, home, memory } = all;
    let change = |all: &mut Attributes| attributes.into_iter().for_each(|change| change(all));
    queue
        .change_with_limits(change, max_active, min_active)
        .map_err(|error| refusal(&error, changes))?;
    // These are refused by per-CPU queues alone, which has been looked at.
    if let Some(home) = home {
        let home = match &home {
            NewHome::Nowhere => None,
            NewHome::There(home) => Some(home),
        };
        queue.set_home(home).map_err(|error| refusal(&error, changes))?;
    }
    if let Some(memory) = memory {
        queue.set_memory(memory).map_err(|error| refusal(&error, changes))?;
    }
    Ok(())
}

/// A change of the process, after all were understood.
type ProcessChange = Box<dyn FnOnce(&Runtime)>;

fn process_change(key: &str, value: &str) -> Result<ProcessChange, String> {
    Ok(match key {
        "default_affinity_scope" => {
            let scope = values::parse_scope(value, false)?;
            Box::new(move |runtime| {
                if let Some(scope) = scope {
                    runtime.set_default_scope(scope);
                }
            })
        }
        "affinity" => {
            let on = values::parse_switch(value)?;
            Box::new(move |runtime| runtime.set_affinity(on))
        }
        "cpu_intensive_thresh_us" => {
            let micros = values::parse_number(value, 0..=u64::MAX / 1000, "microseconds")?;
            Box::new(move |runtime| runtime.set_cpu_intensive_after(Duration::from_micros(micros)))
        }
        "watchdog_thresh" => {
            let seconds = value.trim().parse().ok();
            let period = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            // In nanoseconds it has 64 bits.
            let period = period.filter(|period| u64::try_from(period.as_nanos()).is_ok());
            let period = period
                .ok_or("no time; give a number of seconds, 18446744073 at most, or 0 for never")?;
            Box::new(move |runtime| runtime.set_stall_after(period))
        }
        "spin" => {
            let looks = values::parse_number(value, 0..=1_000_000, "looks")? as u32;
            Box::new(move |runtime| runtime.set_spin(looks))
        }
        "home_choice" => {
            let all = [HomeChoice::Now, HomeChoice::FirstRun];
            let choice = all[values::parse_word(value, &all.map(HomeChoice::name))?];
            Box::new(move |runtime| runtime.set_home_choice(choice))
        }
        "home_inherit" => {
            let on = values::parse_switch(value)?;
            Box::new(move |runtime| runtime.set_inherits_homes(on))
        }
        key => {
            let name = key.strip_prefix(WEIGHT).filter(|name| Weights::bounds(name).is_some());
            let Some(name) = name else { unreachable!("{key} is in the table and cannot be set") };
            let (least, most) = Weights::bounds(name).unwrap_or_default();
            let number = values::parse_number(value, least.into()..=most.into(), "")? as u32;
            let name = name.to_owned();
            Box::new(move |runtime| {
                // Within its bounds, so it is not refused.
                let _ = runtime.set_home_weight(&name, number);
            })
        }
    })
}

pub(super) fn set_process(
    runtime: &Runtime,
    changes: &BTreeMap<String, String>,
) -> Result<(), Refusal> {
    let (mut own, mut of_locks) = (Vec::new(), locks::Changes::default());
    let mut mask = None;
    for (key, value) in changes {
        if knobs::named(Owner::Process, key).is_none() {
            return Err(no_such_key(Owner::Process, key));
        }
        if let Some(added) = of_locks.add(key, value) {
            added?;
        } else if key == "cpumask" {
            mask = Some(values::parse_cpus(value).map_err(|why| bad_value(key, value, why))?);
        } else {
            own.push(process_change(key, value).map_err(|why| bad_value(key, value, why))?);
        }
    }
    // The one that the machine may refuse comes first; the others cannot fail any more.
    if let Some(mask) = mask {
        runtime.set_cpumask(mask).map_err(|error| refusal(&error, changes))?;
    }
    for change in own {
        change(runtime);
    }
    of_locks.apply();
    Ok(())
}
