//! A program of the soak in words, as `nearq sim soak --seed N --trace` begins with it.

use std::fmt;
use std::time::Duration;

use nearq_sim::Faults;

use super::plan::{
    Allowance, Body, Change, FuturePlan, Handle, Hardships, Member, Op, Plan, RuntimePlan, Step,
    To, Tree,
};

/// The form of a wait.
fn as_future(polled: bool) -> &'static str {
    if polled { ", first as a future" } else { "" }
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            To::Here => Ok(()),
            To::Cpu(cpu) => write!(f, " for CPU {cpu}"),
            To::Node(node) => write!(f, " for node {node}"),
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handle::Join => " and join it",
            Handle::Poll => ", poll it once, then join it",
            Handle::Keep => ", join it at the end",
            Handle::Drop => ", drop the handle",
            Handle::Cancel => ", cancel it, then join it",
        })
    }
}

impl fmt::Display for FuturePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        for (time, pause) in &self.pauses {
            write!(f, "{time:?}, {pause:?}; ")?;
        }
        f.write_str(if self.panics { "panic>" } else { ">" })
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{ ")?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if at == 0 { "" } else { "; " })?;
        }
        f.write_str(if self.panics { "; panic }" } else { " }" })
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Leaf(body) => write!(f, "{body}"),
            Tree::Fork(a, b) => write!(f, "({a} | {b})"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Compute(time) => write!(f, "compute {time:?}"),
            Step::Sleep(time) => write!(f, "sleep {time:?}"),
            Step::Block(time) => write!(f, "block for {time:?}"),
            Step::Yield => f.write_str("yield"),
            Step::Queue { item, queue, to } => write!(f, "queue item {item} on queue-{queue}{to}"),
            Step::Spawn { queue, body, handle } => {
                write!(f, "spawn {body} on queue-{queue}{handle}")
            }
            Step::Scope { queue, bodies } => {
                write!(f, "scope of {} closures on queue-{queue}:", bodies.len())?;
                bodies.iter().try_for_each(|body| write!(f, " {body}"))
            }
            Step::Fork { queue, tree, bare } => {
                write!(f, "{} {tree} on queue-{queue}", if *bare { "fork" } else { "install" })
            }
            Step::Flush { queue, polled } => write!(f, "flush queue-{queue}{}", as_future(*polled)),
            Step::Drain { queue, polled } => write!(f, "drain queue-{queue}{}", as_future(*polled)),
            Step::Delay { item, queue, cpu, time, modify } => {
                let (how, to) =
                    (if *modify { "move" } else { "queue" }, cpu.map_or(To::Here, To::Cpu));
                write!(f, "{how} item {item} to queue-{queue}{to} in {time:?}")
            }
            Step::Cancel { item, sync } => {
                write!(f, "cancel item {item}{}", if *sync { " and wait" } else { "" })
            }
            Step::FlushItem { item, polled, early } => {
                let early = if *early { " before its time" } else { "" };
                write!(f, "flush item {item}{early}{}", as_future(*polled))
            }
            Step::Disable { item, sync, queue, time, queue_after } => write!(
                f,
                "disable item {item}{}, try queue-{queue}, wait {time:?}, enable it{}",
                if *sync { " and wait" } else { "" },
                if *queue_after { " and queue it" } else { "" }
            ),
            Step::Future { queue, plan, handle } => {
                write!(f, "spawn future {plan} on queue-{queue}{handle}")
            }
            Step::Set { queue, members, joined, end } => {
                write!(f, "set on queue-{queue}:")?;
                for member in members {
                    match member {
                        Member::Closure(body) => write!(f, " {body}")?,
                        Member::Future(plan) => write!(f, " {plan}")?,
                    }
                }
                write!(f, "; join {joined}, then {end:?}")
            }
            Step::DropQueue { queue } => write!(f, "drop queue-{queue}"),
            Step::DropItem { item } => write!(f, "drop the handle of item {item}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::AffinityScope(Some(scope)) => write!(f, "scope {scope}"),
            Change::AffinityScope(None) => f.write_str("scope default"),
            Change::Strict(on) => write!(f, "strict {on}"),
            Change::Localize(on) => write!(f, "localize {on}"),
            Change::Helping(on) => write!(f, "helping {on}"),
            Change::Affinity(on) => write!(f, "affinity {on}"),
            Change::Mask(Some(mask)) => write!(f, "cpumask {mask}"),
            Change::Mask(None) => f.write_str("cpumask all"),
            Change::Nice(nice) => write!(f, "nice {nice}"),
            Change::Idle(on) => write!(f, "idle {on}"),
            Change::Slice(Some(slice)) => write!(f, "slice {slice:?}"),
            Change::Slice(None) => f.write_str("slice default"),
            Change::MaxActive(items) => write!(f, "max_active {items}"),
            Change::MinActive(items) => write!(f, "min_active {items}"),
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cpus {
            Some(cpus) => write!(f, "CPUs {cpus}")?,
            None => f.write_str("all CPUs")?,
        }
        match self.quota {
            Some(tenths) => write!(f, ", a quota of {}.{} CPUs", tenths / 10, tenths % 10),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Step(step) => write!(f, "{step}"),
            Op::Await { queue } => write!(f, "await queue-{queue}"),
            Op::Change { queue, change } => write!(f, "set queue-{queue} {change}"),
            Op::Restless { queue, times } => {
                write!(f, "set the slice of queue-{queue} {times} times")
            }
            Op::DefaultScope(scope) => write!(f, "set the default scope {scope}"),
            Op::RuntimeAffinity(on) => write!(f, "set the runtime's affinity {on}"),
            Op::Spin(looks) => write!(f, "set spin {looks}"),
            Op::Freeze(time) => write!(f, "freeze for {time:?}"),
            Op::Refresh => f.write_str("refresh the runtime"),
            Op::Limits(allowance) => write!(f, "limit the process to {allowance}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "machine: {}; the process has {}", self.machine, self.allowance)?;
        writeln!(f, "schedule: {:?}", self.schedule)?;
        writeln!(f, "faults: {}", faults_in_words(&self.faults))?;
        writeln!(f, "hardships: {}", self.hardships)?;
        let RuntimePlan { default_affinity_scope, affinity, shard_size, spin, idle_timeout } =
            &self.runtime;
        writeln!(
            f,
            "runtime: default scope {default_affinity_scope}, affinity {affinity}, {shard_size} cores a shard, {spin} looks, \
             workers end after {idle_timeout:?}"
        )?;
        for (number, queue) in self.queues.iter().enumerate() {
            let attributes = &queue.attributes;
            write!(f, "queue-{number}:")?;
            for change in [
                Change::AffinityScope(attributes.affinity_scope),
                Change::Strict(attributes.affinity_strict),
                Change::Localize(attributes.localize),
                Change::Helping(attributes.helping),
                Change::Affinity(attributes.affinity_enabled),
                Change::Mask(attributes.cpumask.clone()),
                Change::Nice(attributes.nice),
                Change::Idle(attributes.sched_idle),
                Change::Slice(attributes.time_slice),
                Change::MaxActive(queue.max_active),
            ] {
                write!(f, " {change},")?;
            }
            let kept = if queue.dropped_early { "may be dropped early" } else { "kept" };
            let freezable = if queue.freezable { ", freezable" } else { "" };
            let rescuer = if queue.rescuer { ", with a rescuer" } else { "" };
            let intensive = if queue.cpu_intensive { ", CPU intensive" } else { "" };
            writeln!(f, " {kept}, {:?}{freezable}{rescuer}{intensive}", queue.kind)?;
        }
        for (number, item) in self.items.iter().enumerate() {
            write!(f, "item {number}: on queues {:?}, {}", item.queues, item.body)?;
            if item.panics_every != 0 {
                write!(f, ", panics at every {}. execution", item.panics_every)?;
            }
            writeln!(f, ", bodies queue it at most {} times", item.budget)?;
        }
        for (number, issuer) in self.issuers.iter().enumerate() {
            match issuer.pinned {
                Some(cpu) => writeln!(f, "issuer-{number} on CPU {cpu}:")?,
                None => writeln!(f, "issuer-{number}:")?,
            }
            for (at, op) in issuer.ops.iter().enumerate() {
                writeln!(f, "  {at:>3}. {op}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Hardships {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hardships { hooks, hooks_panic, threads, refused, drops_panic, restless } = self;
        let mut words = Vec::new();
        words.extend(hooks.map(|time| format!("hooks that take {time:?}")));
        words.extend(hooks_panic.then(|| "hooks that panic".to_owned()));
        words.extend(threads.map(|threads| format!("{threads} threads at most")));
        words.extend(
            refused.map(|(after, time)| format!("threads refused for {time:?} after {after:?}")),
        );
        words.extend(drops_panic.then(|| "drops that panic".to_owned()));
        words.extend(restless.map(|(queue, times, _)| format!("{times} changes of queue-{queue}")));
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join(", ")) }
    }
}

/// The faults that are on.
fn faults_in_words(faults: &Faults) -> String {
    let mut words = Vec::new();
    let mut chance = |one_in: u64, what: String| {
        if one_in != 0 {
            words.push(format!("{what} one in {one_in}"));
        }
    };
    chance(faults.spawn_refused_one_in, "threads refused".into());
    chance(faults.spurious_wake_one_in, "waits that end for no reason".into());
    chance(faults.late_timer_one_in, format!("timers late by up to {:?}", faults.late_timer));
    chance(faults.preempted_one_in, format!("threads preempted for up to {:?}", faults.preemption));
    let mut every = |time: Duration, what: &str| {
        if !time.is_zero() {
            words.push(format!("{what} every {time:?}"));
        }
    };
    every(faults.offline_every, "a CPU offline");
    every(faults.limits_every, "other limits");
    if faults.states_hidden {
        words.push("what threads do is not told".into());
    }
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
