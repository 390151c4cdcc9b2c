//! Dynamic homes: once a second, finds the nodes of the memory of processes that use CPUs, and acts if a process's memory is not at its
//! home.
//!
//! Under a loaded scheduler the kernel does not balance memory between nodes; this module does it instead. The scheduler's own account of
//! each process says which processes to sample. [`nearq_home::HomeMigration`] decides when memory has been elsewhere for long enough, and
//! [`Remedy`] decides what is done then. [`Crowds`] says which processes should get another home because their node has been crowded for
//! long. A process whose home was told is left alone, and so is one that has outgrown its node, because its threads have several homes.
//!
//! Sampling may take a hundredth of a CPU: time used beyond that is saved in the following seconds. So only processes that have run are
//! sampled, and those whose memory was found at home and has not grown since are sampled rarely. A separate thread moves pages, one process
//! at a time, because that may take seconds.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use nearq_home::{Evidence, Nodes, Verdict, VerdictReason, Weights};
use nearq_processes::proc;
use nearq_scx_policy::layout::{HomeHint, HomeReason, NODES, Nq, Process, Task, UNIT};
use nearq_topology::Topology;
use rustix::time::{ClockId, clock_gettime};

use crate::crowd::{Away, BetterHome, Crowds, Relocation};
use crate::decisions::{self, Decision, Log};
use crate::pages::{Moved, Order, Pages};
use crate::remedy::{self, NodeUse, Remedy, Situation};
use crate::residency::{self, Residency};
use crate::state::{node_id, node_index};

mod followed;

use followed::{Followed, SETTLED_BUT_FOR};

/// The least part of a CPU, in thousandths, that a process must have used in the last period to be sampled.
const LEAST_USE: u64 = 50;
/// The part of the elapsed time that sampling may take, in thousandths, and how much unused time may be saved up.
const BUDGET: u64 = 10;
const MOST_SAVED: Duration = Duration::from_millis(50);
/// For how long a hint because of memory stays in the map. By then all threads that run at all have taken it over, and a program
/// that the process executes later must choose again.
const HINT_LIFETIME: Duration = Duration::from_secs(3);
/// The expected time to move a mebibyte if it cannot be measured: 256 pages of 6 microseconds.
const FOR_MEBIBYTE: Duration = Duration::from_micros(1_500);
/// A process that got another home because its own was crowded keeps the new home for at least this long.
const REST: Duration = Duration::from_secs(30);
/// How often followed processes that have ended are dropped.
const PRUNE_EACH: Duration = Duration::from_secs(10);
/// How often the file of decisions is written even if nothing was decided.
const WRITE_EACH: Duration = Duration::from_secs(10);

/// Whether a home was set from outside, and not chosen by this module.
pub(crate) fn is_set_from_outside(hint: HomeHint) -> bool {
    ![HomeReason::Memory as u32, HomeReason::Room as u32].contains(&hint.why)
}

/// The interface to the kernel's part.
pub(crate) trait Kernel {
    /// All processes that the kernel's part knows, by number.
    fn processes(&self) -> Vec<(u32, Process)>;
    /// The processes that have run since the last call. `None` if they are too many to list: then the caller must go through all processes.
    fn ran(&self) -> Option<Vec<(u32, Process)>>;
    /// One process. `None` if it has ended.
    fn process(&self, pid: u32) -> Option<Process>;
    /// A process's first thread.
    fn task(&self, pid: u32) -> Option<Task>;
    fn set_home_hint(&self, pid: u32, hint: HomeHint);
    fn forget(&self, pid: u32);
}

/// Samples memory, and decides.
#[derive(Debug)]
pub(crate) struct Memory {
    nodes: Nodes,
    weights: Weights,
    followed: HashMap<u32, Followed>,
    began: Instant,
    last_round: Instant,
    /// When processes that had ended were last dropped.
    pruned: Instant,
    /// Nanoseconds that sampling may take; negative after a round that took long.
    saved: i64,
    seed: u64,
    for_mebibyte: Duration,
    crowds: Crowds,
    pages: Pages,
    log: Log,
    written: Option<Instant>,
}

/// One round over all processes.
struct Round<'a, K> {
    nq: &'a Nq,
    kernel: &'a K,
    now: Instant,
    /// The time since the round before.
    elapsed: Duration,
}

impl<K> Round<'_, K> {
    /// The CPUs that a process used if it ran for this many nanoseconds, in thousandths.
    fn thousandths(&self, nanos: u64) -> u64 {
        nanos * 1000 / (self.elapsed.as_nanos() as u64).max(1)
    }
}

/// The result of sampling one process.
#[derive(Debug)]
enum Considered {
    Decided(Decision),
    /// Whether it is one of the processes that should get another home.
    Crowded(Relocation),
}

/// A process that used CPUs in the last period.
struct Busy {
    pid: u32,
    process: Process,
    ran: [u64; NODES],
    sampled: Option<Instant>,
    /// The better home, if its own is crowded.
    better_home: Option<BetterHome>,
}

impl Busy {
    fn nanos(&self) -> u64 {
        self.ran.iter().sum()
    }
}

impl Memory {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Memory {
            nodes: Nodes::pretended(&[(0, nearq_topology::CpuSet::single(0))], &[vec![10]]),
            weights: Weights::default(),
            followed: HashMap::new(),
            began: now,
            last_round: now,
            pruned: now,
            // No process has been sampled yet, and most of the memory that will ever be on the wrong node is there already.
            saved: MOST_SAVED.as_nanos() as i64,
            seed: std::process::id().into(),
            for_mebibyte: FOR_MEBIBYTE,
            crowds: Crowds::default(),
            pages: Pages::default(),
            log: Log::default(),
            written: None,
        }
    }

    /// Begins again, for a scheduler that has just been loaded on this machine.
    pub(crate) fn begin(&mut self, machine: &Topology) {
        self.nodes = Nodes::of(machine, machine.online());
        if !self.nodes.is_single() {
            let [one, other] = [0, 1].map(|node| self.nodes.get(node).id as u32);
            if let Some(took) = residency::for_mebibyte(one, other) {
                self.for_mebibyte = took;
            }
        }
        self.followed.clear();
        self.crowds = Crowds::default();
        self.last_round = Instant::now();
        self.pruned = self.last_round;
    }

    /// Runs one round. Returns what was decided, as lines.
    pub(crate) fn run_round(&mut self, nq: &Nq, kernel: &impl Kernel) -> Vec<String> {
        let begun = cpu_time();
        let now = Instant::now();
        let elapsed = now - std::mem::replace(&mut self.last_round, now);
        let round = Round { nq, kernel, now, elapsed };
        let mut decisions: Vec<Decision> = self.moved().into_iter().collect();
        if !self.nodes.is_single() {
            self.saved += (elapsed.as_nanos() as u64 * BUDGET / 1000) as i64;
            self.saved = self.saved.min(MOST_SAVED.as_nanos() as i64);
            decisions.extend(self.consider_all(&round, begun));
        }
        self.log.cpu_ns += cpu_time().saturating_sub(begun).as_nanos() as u64;
        self.log.elapsed_ns = self.began.elapsed().as_nanos() as u64;
        let lines = decisions.iter().map(|one| format!("{} ({}): {}", one.name, one.pid, one.what));
        let lines: Vec<String> = lines.collect();
        for one in decisions {
            self.log.add(one);
        }
        if !lines.is_empty() || self.written.is_none_or(|at| now - at > WRITE_EACH) {
            self.written = Some(now);
            // The file is only for display: if it cannot be written, nothing is shown.
            let _ = self.log.write(&decisions::path());
        }
        lines
    }

    fn consider_all(&mut self, round: &Round<'_, impl Kernel>, begun: Duration) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let mut crowded: Option<Relocation> = None;
        let (mut busy, mut nodes_use) = self.follow(round);
        // Processes of a crowd come first, unless they are known to stay; then the processes whose last sample is the oldest, and among
        // equals the one that has used most.
        let would_go = |one: &Busy| {
            one.better_home.is_some()
                && self.followed.get(&one.pid).is_some_and(|known| !known.stays)
        };
        busy.retain(|one| would_go(one) || self.is_due(round, one));
        busy.sort_by_key(|one| (!would_go(one), one.sampled, Reverse(one.nanos())));
        let mut spent = Duration::ZERO;
        for one in busy {
            if self.saved <= spent.as_nanos() as i64 {
                break;
            }
            self.log.samples += 1;
            self.seed = self.seed.wrapping_add(1);
            let found = Residency::of(one.pid, self.seed);
            if let Some(known) = self.followed.get_mut(&one.pid) {
                known.sampled = Some(round.now);
                // If a process cannot be sampled now, the next attempt will fail too.
                known.stays |= found.is_none();
                known.settled = found.is_none().then_some(one.process.touched);
            }
            if let Some(found) = found {
                match self.consider(round, &one, &found, &mut nodes_use) {
                    Some(Considered::Decided(decision)) => decisions.push(decision),
                    Some(Considered::Crowded(other))
                        if crowded.is_none_or(|best| best.gain() < other.gain()) =>
                    {
                        crowded = Some(other);
                    }
                    _ => {}
                }
            }
            spent = cpu_time().saturating_sub(begun);
        }
        decisions.extend(crowded.and_then(|one| self.relocate(round, &one)));
        self.saved -= spent.as_nanos() as i64;
        decisions
    }

    /// The processes that used CPUs since the last round, and for each node how much the processes at home there used.
    fn follow(&mut self, round: &Round<'_, impl Kernel>) -> (Vec<Busy>, Vec<NodeUse>) {
        let Round { nq, kernel, now, .. } = *round;
        self.crowds.sample(nq);
        let mut nodes_use: Vec<NodeUse> = (0..nq.nodes.min(NODES as u32))
            .map(|index| {
                let on = &nq.on_node[index as usize];
                let capacity = u64::from(on.capacity) * 1000 / u64::from(UNIT);
                let node = node_id(nq, index).unwrap_or_default();
                NodeUse { node, used: 0, capacity, load: on.load.into() }
            })
            .collect();
        let mut busy = Vec::new();
        // Going through all processes takes as long as sampling several, so it is done only if the list is full.
        let listed = kernel.ran();
        let are_all = listed.is_none();
        for (pid, process) in listed.unwrap_or_else(|| kernel.processes()) {
            let Some(home) = self.index(nq, process.home) else { continue };
            let new = || Followed::new(home, now);
            let known = self.followed.entry(pid).or_insert_with(new);
            if process.ran.iter().zip(known.ran).any(|(now, before)| *now < before) {
                // This is another process of the same number.
                *known = new();
            }
            let mut ran = process.ran;
            ran.iter_mut().zip(known.ran).for_each(|(now, before)| *now -= before);
            (known.ran, known.seen) = (process.ran, now);
            if known.migration.home() != home {
                known.migration.set(home, now - self.began);
                (known.away, known.settled) = (Away::default(), None);
            }
            let mut one = Busy { pid, process, ran, sampled: known.sampled, better_home: None };
            let uses = round.thousandths(one.nanos());
            let at_home = ran.get(process.home as usize).copied().unwrap_or(0);
            let away = (one.nanos() - at_home) * 1000 / one.nanos().max(1);
            known.away.add((uses >= LEAST_USE).then_some(away));
            known.stays &= known.away.for_long().is_some();
            if let Some(node_use) = nodes_use.get_mut(process.home as usize) {
                node_use.used += uses;
            }
            if uses >= LEAST_USE {
                one.better_home = self.better_home(round, &one);
                busy.push(one);
            }
        }
        let prunes = now - self.pruned >= PRUNE_EACH;
        if prunes {
            self.pruned = now;
        }
        self.followed.retain(|pid, known| {
            if known.hinted.is_some_and(|hinted| now - hinted > HINT_LIFETIME) {
                known.hinted = None;
                kernel.forget(*pid);
            }
            if known.seen != now {
                known.rest();
            }
            known.seen == now || !are_all && (!prunes || kernel.process(*pid).is_some())
        });
        (busy, nodes_use)
    }

    /// The index of a node among those that can be homes, from the policy's index.
    fn index(&self, nq: &Nq, node: u32) -> Option<usize> {
        self.nodes.index_of(node_id(nq, node)? as usize).ok()
    }

    /// Whether a process's memory should be sampled.
    fn is_due(&self, round: &Round<'_, impl Kernel>, one: &Busy) -> bool {
        let is_settled = |known: &Followed| known.is_settled(&one.process, round.now);
        has_one_home(&one.process)
            && self.pages.moves() != Some(one.pid)
            && !self.followed.get(&one.pid).is_some_and(is_settled)
    }

    /// Considers one process, whose memory was sampled with the given result. `None` if nothing needs to be done.
    fn consider(
        &mut self,
        round: &Round<'_, impl Kernel>,
        one: &Busy,
        found: &Residency,
        nodes_use: &mut [NodeUse],
    ) -> Option<Considered> {
        let evidence = self.evidence(round.nq, one, found);
        let at = round.now - self.began;
        let own_index = self.index(round.nq, one.process.home)?;
        let pages: u64 = evidence.pages.iter().sum();
        let part = (pages - evidence.pages[own_index]) * 1000 / pages.max(1);
        let known = self.followed.get_mut(&one.pid)?;
        known.settled = (part <= SETTLED_BUT_FOR).then_some(one.process.touched);
        let verdict = known.migration.consider(at, &evidence, &self.nodes, &self.weights);
        let Verdict::Move { to, why } = verdict else {
            return self.crowded(round, one, found, &evidence).map(Considered::Crowded);
        };
        // `HomeMigration` keeps the old home until the kernel reports another one.
        known.migration.set(own_index, at);
        self.follow_memory(round, one, found.bytes / 1000 * part, part, to, &why, nodes_use)
            .map(Considered::Decided)
    }

    /// Where a process's memory is and where it ran, by index of the nodes that can be homes.
    fn evidence(&self, nq: &Nq, one: &Busy, found: &Residency) -> Evidence {
        let mut evidence = Evidence {
            pages: vec![0; self.nodes.len()],
            cpu_time: vec![Duration::ZERO; self.nodes.len()],
        };
        for (node, pages) in &found.nodes {
            if let Ok(index) = self.nodes.index_of(*node) {
                evidence.pages[index] += pages;
            }
        }
        for (node, nanos) in one.ran.iter().enumerate() {
            if let Some(index) = self.index(nq, node as u32) {
                evidence.cpu_time[index] += Duration::from_nanos(*nanos);
            }
        }
        evidence
    }

    /// Decides about a process most of whose memory is on another node: `bytes` of it, which is `part` of all its memory in thousandths.
    #[expect(clippy::too_many_arguments, reason = "one step of the caller's")]
    fn follow_memory(
        &mut self,
        round: &Round<'_, impl Kernel>,
        one: &Busy,
        bytes: u64,
        part: u64,
        to: usize,
        why: &VerdictReason,
        nodes_use: &mut [NodeUse],
    ) -> Option<Decision> {
        let (pid, process, nq) = (one.pid, &one.process, round.nq);
        let home = process.home as usize;
        let task = round.kernel.task(pid)?;
        if task.why == HomeReason::Told as u8 {
            return None;
        }
        let own_index = self.index(nq, process.home)?;
        let there = node_index(nq, self.nodes.get(to).id as u32)? as usize;
        let uses = round.thousandths(one.nanos());
        let situation = Situation {
            home: *nodes_use.get(home)?,
            there: *nodes_use.get(there)?,
            distance: self.nodes.distance(own_index, to),
            bytes,
            part,
            uses,
            ran: process_time(process),
            left_crowd: task.why == HomeReason::Room as u8,
            may_go: may_run(nq, &task, there),
            may_move: self.pages.moves().is_none(),
            for_mebibyte: self.for_mebibyte,
        };
        let choice = Remedy::choose(&situation);
        let (home_id, there_id) = (situation.home.node, situation.there.node);
        let what = match choice.remedy {
            Remedy::Go => {
                round.kernel.set_home_hint(
                    pid,
                    HomeHint { node: there_id, why: HomeReason::Memory as u32 },
                );
                self.followed.get_mut(&pid)?.hinted = Some(round.now);
                nodes_use[there].used += uses;
                nodes_use[home].used = nodes_use[home].used.saturating_sub(uses);
                nodes_use[there].load += 1000;
                nodes_use[home].load = nodes_use[home].load.saturating_sub(1000);
                self.crowds.goes(home, there, uses);
                format!("{why}; {choice}")
            }
            Remedy::MovePages => {
                self.bring(pid, home_id, bytes);
                format!("its memory is being moved to its home, node {home_id}: {choice}")
            }
            Remedy::Leave => {
                format!(
                    "stays on node {home_id}, with {} % of its memory away: {choice}",
                    part / 10
                )
            }
        };
        let known = self.followed.get_mut(&pid)?;
        let before = known.last.replace((choice.remedy, there_id));
        if choice.remedy == Remedy::Leave && before == known.last {
            return None;
        }
        Some(Decision { pid, name: name(pid), what })
    }

    /// The better home for a process whose own is crowded.
    fn better_home(&self, round: &Round<'_, impl Kernel>, one: &Busy) -> Option<BetterHome> {
        let known = self.followed.get(&one.pid)?;
        known.away.for_long()?;
        let rests = known.relocated.is_some_and(|at| round.now - at < REST);
        if known.cannot_leave
            || rests
            || !has_one_home(&one.process)
            || self.pages.moves().is_some()
        {
            return None;
        }
        let task = round.kernel.task(one.pid).filter(|task| task.why != HomeReason::Told as u8)?;
        let (home, uses) = (one.process.home as usize, round.thousandths(one.nanos()));
        self.crowds.better(round.nq, home, uses, |node| may_run(round.nq, &task, node))
    }

    /// What moving to the better home would cost, and what staying costs.
    fn crowded(
        &self,
        round: &Round<'_, impl Kernel>,
        one: &Busy,
        found: &Residency,
        evidence: &Evidence,
    ) -> Option<Relocation> {
        let better = one.better_home?;
        let away = self.followed.get(&one.pid)?.away.for_long()?;
        let (home, there) = (one.process.home, better.to as u32);
        let (from, to) = (self.index(round.nq, home)?, self.index(round.nq, there)?);
        let pages: u64 = evidence.pages.iter().sum();
        let bytes = found.bytes / 1000 * ((pages - evidence.pages[to]) * 1000 / pages.max(1));
        let distance = self.nodes.distance(from, to);
        Some(Relocation {
            pid: one.pid,
            better,
            home: node_id(round.nq, home)?,
            there: node_id(round.nq, there)?,
            uses: round.thousandths(one.nanos()),
            away,
            bytes,
            moving: remedy::moving(bytes, self.for_mebibyte),
            staying: remedy::staying(process_time(&one.process), distance, away),
        })
    }

    /// Gives a new home to the process that gains most from it.
    fn relocate(&mut self, round: &Round<'_, impl Kernel>, one: &Relocation) -> Option<Decision> {
        // Pages of another process may have begun to move since the sample.
        if self.pages.moves().is_some() {
            return None;
        }
        let known = self.followed.get_mut(&one.pid)?;
        if !one.gain().is_zero() {
            round
                .kernel
                .set_home_hint(one.pid, HomeHint { node: one.there, why: HomeReason::Room as u32 });
            (known.hinted, known.relocated) = (Some(round.now), Some(round.now));
            let home = node_index(round.nq, one.home)? as usize;
            self.crowds.goes(home, one.better.to, one.uses);
            self.bring(one.pid, one.there, one.bytes);
        } else if std::mem::replace(&mut known.stays, true) {
            return None;
        }
        Some(Decision { pid: one.pid, name: name(one.pid), what: one.to_string() })
    }
}

/// Whether a task may run on any CPU of a node that is online.
fn may_run(nq: &Nq, task: &Task, node: usize) -> bool {
    let words = nq.node[node].cpus.iter().zip(&task.allowed).zip(&nq.online);
    words.into_iter().any(|((cpus, allowed), online)| cpus & allowed & online != 0)
}

/// Whether all but a few of its threads are at home on its own home node. This is false for a process that has outgrown its node.
fn has_one_home(process: &Process) -> bool {
    let at_home = process.at_home.get(process.home as usize).copied().unwrap_or(0);
    u64::from(at_home) * 10 >= u64::from(process.threads) * 9
}

/// All CPU time that a process has used.
fn process_time(process: &Process) -> Duration {
    Duration::from_nanos(process.ran.iter().sum())
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn name(pid: u32) -> String {
    let text = proc::read(format!("/proc/{pid}/comm"), proc::LONGEST).unwrap_or_default();
    text.trim_end().to_owned()
}

// ---- moving pages ---------------------------------------------------------------------------------------------------------

impl Memory {
    /// Orders that a process's pages be moved to a node.
    fn bring(&mut self, pid: u32, to: u32, bytes: u64) {
        let from = self.nodes.iter().map(|node| node.id as u32).collect();
        self.pages.bring(Order { pid, from, to, bytes });
    }

    /// The result of an order.
    fn moved(&mut self) -> Option<Decision> {
        let Moved { order, took, stayed } = self.pages.moved()?;
        let what = match stayed {
            Ok(stayed) => {
                let mebibytes = (order.bytes >> 20) as u32;
                // A very short move is no useful measurement.
                if stayed == 0 && mebibytes >= 4 {
                    self.for_mebibyte = (self.for_mebibyte + took / mebibytes) / 2;
                }
                let took = crate::output::time(took.as_nanos() as u64);
                let left =
                    if stayed == 0 { String::new() } else { format!(", except {stayed} pages") };
                format!("its memory was moved to node {} in {took}{left}", order.to)
            }
            Err(error) => {
                if let Some(known) = self.followed.get_mut(&order.pid) {
                    known.cannot_leave = true;
                }
                format!("its memory could not be moved to node {}: {error}", order.to)
            }
        };
        Some(Decision { pid: order.pid, name: name(order.pid), what })
    }
}

#[cfg(test)]
mod tests;
