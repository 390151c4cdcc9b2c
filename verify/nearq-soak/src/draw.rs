//! Draws a program from a seed. The rules that keep a program from waiting for itself are in `plan`.

use std::sync::Arc;
use std::time::Duration;

use nearq::{AffinityScope, Attributes, CpuSet};
use nearq_sim::{Faults, Schedule};
use nearq_topology::Topology;

use super::dice::Dice;
use super::plan::{
    Allowance, Body, Change, FuturePlan, Handle, Hardships, IssuerPlan, ItemPlan, Kind, Member, Op,
    Pause, Plan, QueuePlan, RuntimePlan, SetEnd, Step, To,
};

mod forks;

/// The machines, from few CPUs to many: with every kind of pod, with and without SMT.
const MACHINES: [&str; 12] = [
    "core:1",
    "core:2",
    "l3:2 core:1",
    "core:2 pu:2",
    "l3:2 core:2",
    "pack:2 l3:1 core:2 pu:2",
    "numa:2 l3:2 core:2",
    "l3:4 core:3",
    "pack:2 numa:2 l3:2 core:1 pu:2",
    "core:12 pu:2",
    "pack:2 l3:4 core:4",
    "pack:2 numa:2 l3:2 core:4 pu:2",
];

/// The smallest limit on threads, unless one worker is enough. No program has more items than this waiting for other items at the same
/// time.
const FEWEST_THREADS: u32 = 32;

/// The program of a seed.
pub(crate) fn draw(seed: u64) -> Plan {
    let mut dice = Dice::new(seed);
    let machine = (*dice.pick(&MACHINES)).to_owned();
    let topology = Topology::from_synthetic(&machine).expect("the list is well formed");
    let queue_count = dice.within(1..=4);
    let drawer = &mut Drawer {
        possible: topology.possible().clone(),
        nodes: topology.nodes().len(),
        queues: Vec::new(),
        items: Vec::new(),
        dice,
    };
    let allowance = if drawer.dice.one_in(4) { drawer.allowance() } else { Allowance::default() };
    let faults = drawer.faults();
    let schedule = drawer.schedule();
    let runtime = RuntimePlan {
        default_affinity_scope: drawer.scope(),
        affinity: !drawer.dice.one_in(16),
        shard_size: drawer.dice.within(1..=8),
        spin: *drawer.dice.pick(&[0, 64, 512]),
        idle_timeout: *drawer.dice.pick(&[
            Duration::from_micros(200),
            Duration::from_millis(2),
            Duration::from_mins(5),
        ]),
    };
    for queue in 0..queue_count {
        let plan = drawer.queue(queue, queue + 1 == queue_count);
        drawer.queues.push(plan);
    }
    let item_count = drawer.dice.within(1..=6);
    for item in 0..item_count {
        let plan = drawer.item(item, item_count);
        drawer.items.push(plan);
    }
    for item in 0..item_count {
        drawer.let_queue_another(item);
        drawer.let_change_another(item);
    }
    let issuer_count = drawer.dice.within(1..=5);
    let issuers = (0..issuer_count).map(|issuer| drawer.issuer(issuer, issuer_count)).collect();
    let Drawer { queues, items, .. } = drawer;
    let (queues, items) = (std::mem::take(queues), std::mem::take(items));
    let hardships = Hardships::default();
    let mut plan = Plan {
        seed,
        machine,
        allowance,
        schedule,
        faults,
        hardships,
        runtime,
        queues,
        items,
        issuers,
    };
    forks::add(&mut plan, &topology);
    make_harder(&mut plan, topology.cpus().len());
    plan
}

/// Adds hardships to half of the programs.
fn make_harder(plan: &mut Plan, cpus: usize) {
    let dice = &mut Dice::new(plan.seed ^ 0x6861_7264_7368_6970);
    if dice.one_in(2) {
        return;
    }
    plan.faults.states_hidden = dice.one_in(4);
    // At worst, each change leaves records of a pool for each CPU; if threads are preempted for long, thousands of them would take
    // minutes.
    let many = plan.faults.preempted_one_in == 0 && cpus <= 8;
    let most = if many { 3000 } else { 300 };
    let restless = dice.one_in(16).then(|| {
        let queue = dice.below(plan.queues.len());
        (queue, *dice.pick(&[10, 100, most]), dice.below(8))
    });
    let refused = dice.one_in(4).then(|| (dice.micros(0..=5000), dice.micros(1000..=1_000_000)));
    plan.hardships = Hardships {
        hooks: dice.one_in(3).then(|| dice.micros(0..=20_000)),
        threads: dice
            .one_in(6)
            .then(|| {
                let (fewest, more) =
                    if plan.needs_one_worker() { (1, 4) } else { (FEWEST_THREADS, 64) };
                fewest + dice.below(more) as u32
            })
            .filter(|_| !plan.has_leaves_that_wait()),
        refused,
        drops_panic: dice.one_in(3),
        restless,
        hooks_panic: dice.one_in(6),
    };
    if let Some((queue, times, at)) = restless {
        let owner = queue % plan.issuers.len();
        let ops = &mut plan.issuers[owner].ops;
        ops.insert(at.min(ops.len()), Op::Restless { queue, times });
    }
}

struct Drawer {
    dice: Dice,
    possible: CpuSet,
    nodes: usize,
    queues: Vec<QueuePlan>,
    items: Vec<ItemPlan>,
}

impl Drawer {
    // ---- the machine -------------------------------------------------------------------------------------

    fn cpus(&mut self) -> CpuSet {
        let mut cpus: CpuSet = CpuSet::new();
        for cpu in &self.possible.clone() {
            if self.dice.one_in(2) {
                cpus.insert(cpu);
            }
        }
        cpus.insert(self.dice.below(self.possible.len()));
        cpus
    }

    fn allowance(&mut self) -> Allowance {
        let cpus = self.dice.one_in(2).then(|| self.cpus());
        let most = self.possible.len() * 10;
        let quota = self.dice.one_in(2).then(|| self.dice.within(5..=most.max(5)));
        Allowance { cpus, quota }
    }

    /// Most programs meet some faults; one in four meets all, one in four none.
    fn faults(&mut self) -> Faults {
        let mut faults = Faults::ALL;
        // The chances are low enough that some threads get far, and high enough that faults also hit the worst places.
        faults.preempted_one_in = *self.dice.pick(&[50, 200, 1000]);
        faults.preemption = self.dice.micros(10..=5000);
        let keep = self.dice.below(4);
        let off = |dice: &mut Dice| keep == 0 || keep != 1 && dice.one_in(2);
        if off(&mut self.dice) {
            faults.spawn_refused_one_in = 0;
        }
        if off(&mut self.dice) {
            faults.spurious_wake_one_in = 0;
        }
        if off(&mut self.dice) {
            faults.late_timer_one_in = 0;
        }
        if off(&mut self.dice) {
            faults.preempted_one_in = 0;
        }
        if off(&mut self.dice) || self.dice.one_in(2) {
            faults.offline_every = Duration::ZERO;
        }
        if off(&mut self.dice) || self.dice.one_in(2) {
            faults.limits_every = Duration::ZERO;
        }
        faults
    }

    fn schedule(&mut self) -> Schedule {
        let depth = self.dice.within(1..=4) as u32;
        *self.dice.pick(&[Schedule::Fair, Schedule::Random, Schedule::Pct { depth }])
    }

    // ---- queues ------------------------------------------------------------------------------------------

    fn scope(&mut self) -> AffinityScope {
        *self.dice.pick(AffinityScope::ALL)
    }

    fn max_active(&mut self) -> usize {
        *self.dice.pick(&[1, 1, 2, 3, 8, 0])
    }

    fn queue(&mut self, number: usize, last: bool) -> QueuePlan {
        let kind = match self.dice.below(6) {
            0 => Kind::Ordered,
            1 => Kind::PerCpu,
            _ => Kind::Unbound,
        };
        let mask = self.dice.one_in(4).then(|| self.cpus());
        let nice = *self.dice.pick(&[0, 0, 0, 10, -10]);
        let idle = self.dice.one_in(8);
        let slice = self.dice.one_in(8).then_some(Duration::from_micros(100));
        let mut attributes = Attributes::new();
        (attributes.nice, attributes.sched_idle, attributes.time_slice) = (nice, idle, slice);
        if kind != Kind::PerCpu {
            attributes.affinity_scope = (!self.dice.one_in(4)).then(|| self.scope());
            attributes.affinity_strict = self.dice.one_in(3);
            attributes.localize = self.dice.one_in(4);
            attributes.helping = !self.dice.one_in(4);
            attributes.affinity_enabled = !self.dice.one_in(8);
            attributes.cpumask = mask;
        }
        let dropped_early = number != 0 && self.dice.one_in(3);
        let max_active = if kind == Kind::Ordered { 1 } else { self.max_active() };
        let freezable = last && self.dice.one_in(2);
        let rescuer = self.dice.one_in(4);
        let cpu_intensive = kind == Kind::PerCpu && self.dice.one_in(3);
        QueuePlan { attributes, max_active, dropped_early, kind, freezable, rescuer, cpu_intensive }
    }

    fn change(&mut self) -> Change {
        match self.dice.below(12) {
            10 => Change::Idle(self.dice.one_in(2)),
            11 => Change::Slice(*self.dice.pick(&[
                None,
                Some(Duration::from_micros(100)),
                Some(Duration::from_millis(5)),
                // Refused.
                Some(Duration::from_micros(99)),
            ])),
            0 => Change::AffinityScope((!self.dice.one_in(4)).then(|| self.scope())),
            1 => Change::Strict(self.dice.one_in(2)),
            2 => Change::Localize(self.dice.one_in(2)),
            3 => Change::Helping(self.dice.one_in(2)),
            4 => Change::Affinity(!self.dice.one_in(3)),
            5 => Change::Mask(match self.dice.below(8) {
                0..=2 => None,
                // Refused, and nothing changes.
                3 => Some(CpuSet::new()),
                4 => Some(CpuSet::single(self.possible.len())),
                _ => Some(self.cpus()),
            }),
            6 => Change::Nice(*self.dice.pick(&[0, 5, -5, 19, -20, 20, -21])),
            7 => Change::MinActive(*self.dice.pick(&[0, 1, 2, 8, 1024])),
            _ => Change::MaxActive(self.max_active()),
        }
    }

    // ---- items and closures --------------------------------------------------------------------------------

    fn item(&mut self, number: usize, count: usize) -> ItemPlan {
        let kept: Vec<usize> =
            (0..self.queues.len()).filter(|queue| !self.queues[*queue].dropped_early).collect();
        let queues = if self.dice.one_in(3) {
            vec![self.dice.below(self.queues.len())]
        } else {
            let some: Vec<usize> = kept.iter().copied().filter(|_| self.dice.one_in(2)).collect();
            if some.is_empty() { vec![kept[0]] } else { some }
        };
        let highest = *queues.last().expect("at least one");
        let mut body = self.body(highest, 2, false);
        if self.dice.one_in(2) {
            let to = self.to();
            body.steps.push(Step::Queue { item: number, queue: *self.dice.pick(&queues), to });
        }
        if queues.len() == 1 && self.queues[highest].dropped_early && self.dice.one_in(6) {
            body.steps.push(Step::DropQueue { queue: highest });
        }
        if self.dice.one_in(12) {
            body.steps.push(Step::DropItem { item: self.dice.below(count) });
        }
        let panics_every = if self.dice.one_in(4) { self.dice.within(1..=4) as u64 } else { 0 };
        ItemPlan { queues, body, panics_every, budget: self.dice.within(0..=12) as u64 }
    }

    /// Lets an item's body cancel, disable or delay another item, or itself.
    fn let_change_another(&mut self, item: usize) {
        if !self.dice.one_in(3) {
            return;
        }
        let other = self.dice.below(self.items.len());
        let step = match self.dice.below(3) {
            // `sync` is drawn only for the item itself, where waiting is refused: the program handles that.
            0 => Step::Cancel { item: other, sync: other == item && self.dice.one_in(2) },
            1 => {
                let Step::Disable { item, queue, time, queue_after, .. } = self.disable(other)
                else {
                    unreachable!("asked for")
                };
                Step::Disable { item, sync: false, queue, time: time / 10, queue_after }
            }
            _ => self.delay(other),
        };
        let may_use = |queue: usize| !self.queues[queue].dropped_early;
        let uses = match step {
            Step::Disable { queue, .. } | Step::Delay { queue, .. } => may_use(queue),
            _ => true,
        };
        if uses {
            let at = self.dice.below(self.items[item].body.steps.len() + 1);
            self.items[item].body.steps.insert(at, step);
        }
    }

    /// Lets an item's body queue another item, on one of that item's queues that is kept.
    fn let_queue_another(&mut self, item: usize) {
        let other = self.dice.below(self.items.len());
        let queue = *self.dice.pick(&self.items[other].queues.clone());
        if self.dice.one_in(3) && !self.queues[queue].dropped_early {
            let to = self.to();
            self.items[item].body.steps.push(Step::Queue { item: other, queue, to });
        }
    }

    /// What a body on any of the queues up to `queue` does; what it waits for is on higher queues.
    fn body(&mut self, queue: usize, depth: usize, may_panic: bool) -> Body {
        let mut steps = Vec::new();
        for _ in 0..self.dice.within(0..=2) {
            steps.push(self.pause());
        }
        let above = self.queues.len().saturating_sub(queue + 1);
        if depth > 0 && above > 0 && self.dice.one_in(3) {
            let target = queue + 1 + self.dice.below(above);
            steps.push(match self.dice.below(8) {
                0..=1 => self.future(target, true),
                2 => self.set(target, depth - 1),
                _ => self.closures(target, depth - 1, true),
            });
            steps.push(self.pause());
        }
        if above > 0 && self.dice.one_in(16) {
            let queue = queue + 1 + self.dice.below(above);
            let polled = self.dice.one_in(3);
            steps.push(if self.dice.one_in(3) {
                Step::Drain { queue, polled }
            } else {
                Step::Flush { queue, polled }
            });
        }
        if above > 0 && self.dice.one_in(24) {
            let target = queue + 1 + self.dice.below(above);
            if self.queues[target].dropped_early {
                steps.push(Step::DropQueue { queue: target });
            }
        }
        Body { steps, panics: may_panic && self.dice.one_in(8) }
    }

    fn closures(&mut self, queue: usize, depth: usize, in_body: bool) -> Step {
        if self.dice.one_in(4) {
            let count = self.dice.within(0..=4);
            let bodies = (0..count).map(|_| Arc::new(self.body(queue, depth, true))).collect();
            return Step::Scope { queue, bodies };
        }
        let handles: &[Handle] = if in_body {
            &[Handle::Join, Handle::Poll, Handle::Drop, Handle::Cancel]
        } else {
            &[Handle::Join, Handle::Poll, Handle::Keep, Handle::Keep, Handle::Drop, Handle::Cancel]
        };
        let handle = *self.dice.pick(handles);
        Step::Spawn { queue, body: Arc::new(self.body(queue, depth, true)), handle }
    }

    // ---- what is cancelled, delayed, waited for ------------------------------------------------------------

    fn queue_of(&mut self, item: usize) -> usize {
        *self.dice.pick(&self.items[item].queues.clone())
    }

    fn delay(&mut self, item: usize) -> Step {
        let cpu = self.dice.one_in(3).then(|| self.dice.below(self.possible.len()));
        let modify = self.dice.one_in(2);
        let time = match self.dice.below(6) {
            0 => Duration::ZERO,
            1 => self.dice.micros(1000..=20_000),
            _ => self.dice.micros(1..=1000),
        };
        Step::Delay { item, queue: self.queue_of(item), cpu: cpu.filter(|_| !modify), time, modify }
    }

    fn disable(&mut self, item: usize) -> Step {
        let (sync, queue_after) = (self.dice.one_in(2), self.dice.one_in(2));
        let (queue, time) = (self.queue_of(item), self.dice.micros(0..=300));
        Step::Disable { item, sync, queue, time, queue_after }
    }

    /// What an issuer does with an item in addition to queueing it.
    fn with_item(&mut self) -> Step {
        let item = self.dice.below(self.items.len());
        match self.dice.below(12) {
            0..=2 => Step::Cancel { item, sync: false },
            3..=4 => Step::Cancel { item, sync: true },
            5 => self.disable(item),
            6..=7 => {
                Step::FlushItem { item, polled: self.dice.one_in(3), early: self.dice.one_in(3) }
            }
            _ => self.delay(item),
        }
    }

    /// A future on a queue: what wakes it is on that queue or a higher one.
    fn future_plan(&mut self, queue: usize) -> Arc<FuturePlan> {
        let above = self.queues.len() - queue;
        let pauses = (0..self.dice.within(0..=4))
            .map(|_| {
                let pause = match self.dice.below(3) {
                    0 => Pause::Own(self.dice.within(1..=2)),
                    1 => Pause::Closure { queue: queue + self.dice.below(above) },
                    _ => Pause::Outside { twice: self.dice.one_in(3) },
                };
                (self.dice.micros(0..=10), pause)
            })
            .collect();
        Arc::new(FuturePlan { pauses, panics: self.dice.one_in(8) })
    }

    fn future(&mut self, queue: usize, in_body: bool) -> Step {
        let plan = self.future_plan(queue);
        let handles = [Handle::Join, Handle::Poll, Handle::Drop, Handle::Cancel, Handle::Keep];
        let handle = *self.dice.pick(&handles[..if in_body { 4 } else { 5 }]);
        Step::Future { queue, plan, handle }
    }

    fn set(&mut self, queue: usize, depth: usize) -> Step {
        let members: Vec<_> = (0..self.dice.within(0..=5))
            .map(|_| {
                if self.dice.one_in(2) {
                    Member::Future(self.future_plan(queue))
                } else {
                    Member::Closure(Arc::new(self.body(queue, depth, true)))
                }
            })
            .collect();
        let joined = self.dice.within(0..=members.len());
        let end = *self.dice.pick(&[SetEnd::Join, SetEnd::Cancel, SetEnd::Drop]);
        Step::Set { queue, members, joined, end }
    }

    fn pause(&mut self) -> Step {
        match self.dice.below(8) {
            0 if self.dice.one_in(3) => Step::Block(self.dice.micros(1..=3000)),
            0 => Step::Sleep(self.dice.micros(1..=3000)),
            1 => Step::Yield,
            2 => Step::Compute(self.dice.micros(50..=400)),
            _ => Step::Compute(self.dice.micros(0..=10)),
        }
    }

    fn to(&mut self) -> To {
        match self.dice.below(4) {
            0 => To::Cpu(self.dice.below(self.possible.len())),
            1 => To::Node(self.dice.below(self.nodes)),
            _ => To::Here,
        }
    }

    // ---- issuers -------------------------------------------------------------------------------------------

    fn issuer(&mut self, number: usize, count: usize) -> IssuerPlan {
        let pinned = self.dice.one_in(2).then(|| self.dice.below(self.possible.len()));
        let len = self.dice.within(4..=60);
        // Some issuers queue one thing at a time and wait for it, so that the last step counts.
        let hasty = self.dice.one_in(3);
        let mut ops = Vec::new();
        for _ in 0..len {
            let op = self.op(number, count);
            let queue = match &op {
                Op::Step(Step::Queue { queue, .. } | Step::Spawn { queue, .. }) => Some(*queue),
                _ => None,
            };
            ops.push(op);
            if let Some(queue) = queue.filter(|_| hasty || self.dice.one_in(8)) {
                ops.push(Op::Await { queue });
            }
        }
        IssuerPlan { pinned, ops }
    }

    fn op(&mut self, issuer: usize, issuers: usize) -> Op {
        let queue = self.dice.below(self.queues.len());
        match self.dice.below(50) {
            40..=45 => Op::Step(self.with_item()),
            46..=47 => Op::Step(self.future(queue, false)),
            48 => Op::Step(self.set(queue, 1)),
            0..=13 => {
                let item = self.dice.below(self.items.len());
                let queue = *self.dice.pick(&self.items[item].queues.clone());
                Op::Step(Step::Queue { item, queue, to: self.to() })
            }
            14..=23 => Op::Step(self.closures(queue, 2, false)),
            24 => Op::Step(Step::Flush { queue, polled: self.dice.one_in(3) }),
            25 if self.dice.one_in(2) => {
                Op::Step(Step::Drain { queue, polled: self.dice.one_in(3) })
            }
            29..=30 => Op::Await { queue },
            31..=35 => {
                let own: Vec<usize> =
                    (0..self.queues.len()).filter(|queue| queue % issuers == issuer).collect();
                if own.is_empty() {
                    return Op::Step(Step::Yield);
                }
                Op::Change { queue: *self.dice.pick(&own), change: self.change() }
            }
            36 if self.queues[queue].dropped_early => Op::Step(Step::DropQueue { queue }),
            37 if self.dice.one_in(4) => {
                Op::Step(Step::DropItem { item: self.dice.below(self.items.len()) })
            }
            38 | 39 if issuer == 0 => match self.dice.below(8) {
                0 => Op::DefaultScope(self.scope()),
                1 => Op::RuntimeAffinity(!self.dice.one_in(3)),
                2 => Op::Spin(*self.dice.pick(&[0, 64, 512])),
                3 => Op::Limits(self.allowance()),
                4..=6 => Op::Freeze(self.dice.micros(0..=500)),
                _ => Op::Refresh,
            },
            _ => Op::Step(self.pause()),
        }
    }
}

#[cfg(test)]
mod tests;
