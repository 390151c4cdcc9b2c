//! Dynamic homes: once a second, where the memory is of processes that use CPUs, and what is done where that is not their home.
//!
//! Under a loaded scheduler the kernel does not balance memory between nodes; this stands in for it. What is worth a look is told by the
//! scheduler's own account of each process. [`nearq_home::Mover`] says when memory is elsewhere for long enough, [`Remedy`] what is
//! done then; a process whose home somebody has told is left alone, and so is one that has outgrown its node, as its threads have
//! several homes.
//!
//! Looking may take a hundredth of a CPU: what is spent beyond is saved in the seconds after. Pages are moved by a thread of its
//! own, one process at a time, as that may take seconds.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use nearq_home::{Evidence, Mover, Nodes, Verdict, Weights};
use nearq_scx_policy::layout::{NODES, Nq, Process, Task, Told, UNIT};
use nearq_topology::Topology;
use rustix::time::{ClockId, clock_gettime};

use crate::decisions::{self, Decision, Log};
use crate::remedy::{Place, Remedy, Situation};
use crate::residency::{self, Residency};
use crate::state::{node_id, node_index};

/// Who used less of a CPU in the last period, in thousandths, is not looked at.
const LEAST_USE: u64 = 50;
/// What looking may take of the time that passes, in thousandths, and how much of it may be saved up.
const BUDGET: u64 = 10;
const MOST_SAVED: Duration = Duration::from_millis(50);
/// For how long a home that was told because of memory stays told: by then all threads have heard it that run at all, and a program
/// that the process begins later shall choose anew.
const TOLD_FOR: Duration = Duration::from_secs(3);
/// What moving a mebibyte is expected to take until it was measured: 256 pages of 6 microseconds.
const FOR_MEBIBYTE: Duration = Duration::from_micros(1_500);
/// Policy's numbers of why a home is where it is.
const WHY_TOLD: u8 = 4;
pub(crate) const WHY_MEMORY: u32 = 5;
/// How often the file is written though nothing was decided.
const WRITE_EACH: Duration = Duration::from_secs(10);

/// What the part in the kernel knows and is told.
pub(crate) trait Kernel {
    /// All processes that it knows, by number.
    fn processes(&self) -> Vec<(u32, Process)>;
    /// A process's first thread.
    fn task(&self, pid: u32) -> Option<Task>;
    fn tell(&self, pid: u32, told: Told);
    fn forget(&self, pid: u32);
}

/// Looks, and decides.
#[derive(Debug)]
pub(crate) struct Memory {
    nodes: Nodes,
    weights: Weights,
    followed: HashMap<u32, Followed>,
    began: Instant,
    looked: Instant,
    /// Nanoseconds that looking may take; below zero after one that took long.
    saved: i64,
    seed: u64,
    for_mebibyte: Duration,
    mover: Option<Pages>,
    log: Log,
    written: Option<Instant>,
}

/// What is known of a process from one look to the next.
#[derive(Debug)]
struct Followed {
    mover: Mover,
    ran: [u64; NODES],
    /// When its memory was looked at.
    sampled: Option<Instant>,
    /// Since when a home is told to it.
    told: Option<Instant>,
    /// The last thing that was decided, so that the same is not said each second.
    last: Option<(Remedy, u32)>,
}

/// A process that used CPUs in the last period.
struct Busy {
    pid: u32,
    process: Process,
    ran: [u64; NODES],
    sampled: Option<Instant>,
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
            looked: now,
            saved: 0,
            seed: std::process::id().into(),
            for_mebibyte: FOR_MEBIBYTE,
            mover: None,
            log: Log::default(),
            written: None,
        }
    }

    /// The scheduler begins, on this machine.
    pub(crate) fn begin(&mut self, machine: &Topology) {
        self.nodes = Nodes::of(machine, machine.online());
        self.followed.clear();
        self.looked = Instant::now();
    }

    /// Looks once. What was decided, as lines.
    pub(crate) fn look(&mut self, nq: &Nq, kernel: &impl Kernel) -> Vec<String> {
        let begun = cpu_time();
        let now = Instant::now();
        let elapsed = now - std::mem::replace(&mut self.looked, now);
        let mut said: Vec<Decision> = self.moved().into_iter().collect();
        if !self.nodes.is_single() {
            self.saved += (elapsed.as_nanos() as u64 * BUDGET / 1000) as i64;
            self.saved = self.saved.min(MOST_SAVED.as_nanos() as i64);
            said.extend(self.consider_all(nq, kernel, now, elapsed, begun));
        }
        self.log.cpu_ns += cpu_time().saturating_sub(begun).as_nanos() as u64;
        self.log.elapsed_ns = self.began.elapsed().as_nanos() as u64;
        let lines = said.iter().map(|one| format!("{} ({}): {}", one.name, one.pid, one.what));
        let lines: Vec<String> = lines.collect();
        for one in said {
            self.log.add(one);
        }
        if !lines.is_empty() || self.written.is_none_or(|at| now - at > WRITE_EACH) {
            self.written = Some(now);
            // It is for those who look; where it cannot be written they see nothing.
            let _ = self.log.write(&decisions::path());
        }
        lines
    }

    fn consider_all(
        &mut self,
        nq: &Nq,
        kernel: &impl Kernel,
        now: Instant,
        elapsed: Duration,
        begun: Duration,
    ) -> Vec<Decision> {
        let mut said = Vec::new();
        let (mut busy, mut places) = self.follow(nq, kernel, now, elapsed);
        // Who was not looked at for longest is first, and of those who has used most.
        busy.sort_by_key(|one| (one.sampled, std::cmp::Reverse(one.nanos())));
        let mut spent = Duration::ZERO;
        for one in busy {
            if self.saved <= spent.as_nanos() as i64 {
                break;
            }
            self.log.looks += 1;
            self.seed = self.seed.wrapping_add(1);
            let found = Residency::of(one.pid, self.seed);
            if let Some(known) = self.followed.get_mut(&one.pid) {
                known.sampled = Some(now);
            }
            if let Some(found) = found {
                let elapsed = elapsed.as_nanos() as u64;
                said.extend(self.consider(nq, kernel, now, &one, &found, elapsed, &mut places));
            }
            spent = cpu_time().saturating_sub(begun);
        }
        self.saved -= spent.as_nanos() as i64;
        said
    }

    /// Who used CPUs since the last look, and how much those used who are at home on each node.
    fn follow(
        &mut self,
        nq: &Nq,
        kernel: &impl Kernel,
        now: Instant,
        elapsed: Duration,
    ) -> (Vec<Busy>, Vec<Place>) {
        let mut places: Vec<Place> = (0..nq.nodes.min(NODES as u32))
            .map(|index| {
                let on = &nq.on_node[index as usize];
                let capacity = u64::from(on.capacity) * 1000 / u64::from(UNIT);
                let node = node_id(nq, index).unwrap_or_default();
                Place { node, used: 0, capacity, load: on.load.into() }
            })
            .collect();
        let elapsed_ns = (elapsed.as_nanos() as u64).max(1);
        let at = now - self.began;
        let mut busy = Vec::new();
        let mut gone = std::mem::take(&mut self.followed);
        for (pid, process) in kernel.processes() {
            let Some(home) = self.index(nq, process.home) else { continue };
            let new = || Followed {
                // Its first home was no choice by memory: it may be left at once.
                mover: Mover::new(home, Duration::ZERO),
                ran: process.ran,
                sampled: None,
                told: None,
                last: None,
            };
            let mut known = gone.remove(&pid).unwrap_or_else(new);
            let mut ran = [0; NODES];
            for (since, (now, before)) in ran.iter_mut().zip(process.ran.iter().zip(known.ran)) {
                // Below what it was: another process of the same number.
                *since = now.saturating_sub(before);
            }
            known.ran = process.ran;
            if known.mover.home() != home {
                known.mover.set(home, at);
            }
            if known.told.is_some_and(|told| now - told > TOLD_FOR) {
                known.told = None;
                kernel.forget(pid);
            }
            let one = Busy { pid, process, ran, sampled: known.sampled };
            let uses = one.nanos() * 1000 / elapsed_ns;
            if let Some(place) = places.get_mut(process.home as usize) {
                place.used += uses;
            }
            if uses >= LEAST_USE {
                busy.push(one);
            }
            self.followed.insert(pid, known);
        }
        (busy, places)
    }

    /// The index of a node among those that can be homes here, by the policy's.
    fn index(&self, nq: &Nq, node: u32) -> Option<usize> {
        self.nodes.index_of(node_id(nq, node)? as usize).ok()
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the caller's loop")]
    fn consider(
        &mut self,
        nq: &Nq,
        kernel: &impl Kernel,
        now: Instant,
        one: &Busy,
        found: &Residency,
        elapsed: u64,
        places: &mut [Place],
    ) -> Option<Decision> {
        let (pid, process) = (one.pid, &one.process);
        let home = process.home as usize;
        // Its threads have several homes.
        if process.at_home.get(home)? * 10 < process.threads * 9 {
            return None;
        }
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
        let at = now - self.began;
        let own = self.index(nq, process.home)?;
        let (may_move, for_mebibyte) = (self.is_free(), self.for_mebibyte);
        let known = self.followed.get_mut(&pid)?;
        let Verdict::Move { to, why } =
            known.mover.consider(at, &evidence, &self.nodes, &self.weights)
        else {
            return None;
        };
        // It stays there until the kernel says that its home is another, if it comes to be.
        known.mover.set(own, at);
        let task = kernel.task(pid)?;
        if task.why == WHY_TOLD {
            return None;
        }
        let there = node_index(nq, self.nodes.get(to).id as u32)? as usize;
        let pages: u64 = evidence.pages.iter().sum();
        let part = (pages - evidence.pages[own]) * 1000 / pages.max(1);
        let uses = one.nanos() * 1000 / elapsed.max(1);
        let situation = Situation {
            home: *places.get(home)?,
            there: *places.get(there)?,
            distance: self.nodes.distance(own, to),
            bytes: found.bytes / 1000 * part,
            part,
            uses,
            ran: Duration::from_nanos(process.ran.iter().sum()),
            may_go: may_run(nq, &task, there),
            may_move,
            for_mebibyte,
        };
        let choice = Remedy::choose(&situation);
        let (home_id, there_id) = (situation.home.node, situation.there.node);
        let what = match choice.remedy {
            Remedy::Go => {
                kernel.tell(pid, Told { node: there_id, why: WHY_MEMORY });
                known.told = Some(now);
                places[there].used += uses;
                places[home].used = places[home].used.saturating_sub(uses);
                places[there].load += 1000;
                places[home].load = places[home].load.saturating_sub(1000);
                format!("{why}; {choice}")
            }
            Remedy::MovePages => {
                self.bring(pid, home_id, situation.bytes);
                format!("its memory is brought to its home, node {home_id}: {choice}")
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
}

/// Whether a task may run on any CPU of a node that is online.
fn may_run(nq: &Nq, task: &Task, node: usize) -> bool {
    let words = nq.node[node].cpus.iter().zip(&task.allowed).zip(&nq.online);
    words.into_iter().any(|((cpus, allowed), online)| cpus & allowed & online != 0)
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn name(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    text.trim_end().to_owned()
}

// ---- moving pages ---------------------------------------------------------------------------------------------------------

/// The thread that moves pages, and what is asked of it.
#[derive(Debug)]
struct Pages {
    sender: SyncSender<Order>,
    receiver: Receiver<Moved>,
    is_busy: bool,
}

#[derive(Debug)]
struct Order {
    pid: u32,
    from: Vec<u32>,
    to: u32,
    bytes: u64,
}

#[derive(Debug)]
struct Moved {
    order: Order,
    took: Duration,
    /// Pages that stayed, or why none were moved.
    stayed: Result<u64, String>,
}

impl Pages {
    fn new() -> Option<Self> {
        let (sender, orders) = mpsc::sync_channel::<Order>(1);
        let (done, receiver) = mpsc::sync_channel(1);
        let work = move || {
            for order in orders {
                let begun = Instant::now();
                let stayed = residency::bring(order.pid, &order.from, order.to);
                let stayed = stayed.map_err(|error| error.to_string());
                if done.send(Moved { took: begun.elapsed(), order, stayed }).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("pages".into()).spawn(work).ok()?;
        Some(Pages { sender, receiver, is_busy: false })
    }
}

impl Memory {
    /// Whether pages could be moved now.
    fn is_free(&self) -> bool {
        self.mover.as_ref().is_none_or(|mover| !mover.is_busy)
    }

    /// Has a process's pages moved to a node.
    fn bring(&mut self, pid: u32, to: u32, bytes: u64) {
        let from = self.nodes.iter().map(|node| node.id as u32).collect();
        if self.mover.is_none() {
            self.mover = Pages::new();
        }
        if let Some(mover) = &mut self.mover {
            mover.is_busy = mover.sender.try_send(Order { pid, from, to, bytes }).is_ok();
        }
    }

    /// What has become of an order.
    fn moved(&mut self) -> Option<Decision> {
        let mover = self.mover.as_mut()?;
        let Moved { order, took, stayed } = mover.receiver.try_recv().ok()?;
        mover.is_busy = false;
        let what = match stayed {
            Ok(stayed) => {
                let mebibytes = (order.bytes >> 20) as u32;
                // What takes next to nothing tells next to nothing.
                if stayed == 0 && mebibytes >= 4 {
                    self.for_mebibyte = (self.for_mebibyte + took / mebibytes) / 2;
                }
                let took = crate::output::time(took.as_nanos() as u64);
                let left =
                    if stayed == 0 { String::new() } else { format!(", but for {stayed} pages") };
                format!("its memory was brought to node {} in {took}{left}", order.to)
            }
            Err(error) => format!("its memory could not be brought to node {}: {error}", order.to),
        };
        Some(Decision { pid: order.pid, name: name(order.pid), what })
    }
}

#[cfg(test)]
mod tests;
