//! The process that keeps the table of a tree: finds its members, removes those that have ended, keeps the others at home, and publishes
//! the load of each node.
//!
//! A *member* is a process with an entry. A process that a member has started is kept with the member until it executes a program and so
//! gets an entry of its own. An entry is believed if the process is alive, is not younger than the entry, and has this table in its
//! environment. Everything else that members write is numbers, which can cause nothing worse than a bad choice.
//!
//! Once a second all descendants are checked: a process without an entry whose parent no longer has one is given an entry, with the home to
//! which its CPUs belong. If homes are chosen lazily, descendants are checked more often, and a process that has used [`ENOUGH`] CPU time
//! gets the least loaded home.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nearq_home::{Nodes, Weights};
use nearq_platform::Linux;
use nearq_topology::CpuSet;

use super::layout::{Entry, How, State};
use super::relatives::{self, Membership};
use super::table::{Counts, Table, now};
use super::variable::Inherited;
use super::{Choose, member};
use crate::proc::{self, TICK};
use crate::system;
use crate::{Account, Event, Rebalancer};

/// The pause between two checks if the rebalancer has nothing to do.
const USUAL_PERIOD: Duration = Duration::from_millis(100);
/// How often all descendants are checked.
const ROUND: Duration = Duration::from_secs(1);
/// The CPU time after which a process that chooses lazily gets a home: a process that ends earlier would not have gained from one.
pub const ENOUGH: Duration = Duration::from_millis(50);
/// The number of descriptors that are kept free of members.
const FOR_FILES: u64 = 64;
/// The library's name, as it appears in `/proc/PID/maps`.
const LIBRARY: &[u8] = b"libnearq_tree";

/// What happened in a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The counts that members have made.
    pub counts: Counts,
    /// Processes that were given a home lazily.
    pub used: u64,
    /// Processes that were left behind by their parents, and keep the home that they inherited.
    pub inherited: u64,
    /// How often a process was let out of its home.
    pub let_out: u64,
    /// How often a process was brought back.
    pub brought_home: u64,
    /// Programs without the library because they are statically linked.
    pub statically_linked: u64,
    /// Programs without the library because they have more rights than their caller, or belong to another user.
    pub more_rights: u64,
    /// Entries of processes that did not have the table in their environment.
    pub strangers: u64,
    /// For each home, CPU time of the processes that live there, as far as it was measured: on the home's CPUs, and elsewhere.
    pub cpu_time: Vec<(Duration, Duration)>,
    /// Threads that could not be given all CPUs back at the end.
    pub still_narrow: usize,
}

/// A process with an entry.
#[derive(Debug)]
struct Member {
    id: u64,
    slot: usize,
    entry: Entry,
    since: u64,
    /// A descriptor that is readable when the process has ended. `None` if there are no more descriptors.
    process: Option<OwnedFd>,
}

impl Member {
    /// Reports the home of the process to the node affine scheduler of the whole machine, if that is loaded.
    fn send_home_hint(&self, node: Option<usize>) {
        // Without a descriptor it is not known whether the number is still its own.
        let lives = |process: &OwnedFd| {
            !system::wait_any(&[process.as_fd()], Some(Duration::ZERO)).contains(&true)
        };
        if self.process.as_ref().is_some_and(lives) {
            Linux::set_home_hint_of(self.entry.pid, node);
        }
    }
}

/// The settings that the starter of a tree may change.
#[derive(Clone, Debug)]
pub(crate) struct TreeOptions {
    pub(crate) strict: bool,
    pub(crate) choose: Choose,
}

pub(crate) struct Supervisor<'a> {
    table: Table,
    widest: CpuSet,
    options: TreeOptions,
    rebalancer: Rebalancer,
    members: BTreeMap<u32, Member>,
    last_id: u64,
    /// Descriptors of members are below this number, so that some are left for reading files.
    descriptors: u64,
    next_full_check: Instant,
    /// Processes that were seen in the last round, by number and start, and whether they have been identified.
    seen: BTreeMap<(u32, u64), bool>,
    /// Processes that seem not to have the table in their environment, by number and time of their entry.
    doubted: BTreeSet<(u32, u64)>,
    summary: Summary,
    reported: BTreeSet<&'static str>,
    notice: &'a dyn Fn(&str),
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        table: Table,
        nodes: Nodes,
        widest: CpuSet,
        weights: Weights,
        options: TreeOptions,
        notice: &'a dyn Fn(&str),
    ) -> Self {
        let cpu_time = vec![(Duration::ZERO, Duration::ZERO); nodes.len()];
        Supervisor {
            table,
            widest,
            options,
            rebalancer: Rebalancer::new(nodes, weights),
            members: BTreeMap::new(),
            last_id: 0,
            descriptors: system::raise_descriptors().saturating_sub(FOR_FILES),
            next_full_check: Instant::now() + ROUND,
            seen: BTreeMap::new(),
            doubted: BTreeSet::new(),
            summary: Summary { cpu_time, ..Summary::default() },
            reported: BTreeSet::new(),
            notice,
        }
    }

    /// Checks members, keeps them at home, and publishes loads. Returns the time until the next call.
    pub(crate) fn step(&mut self) -> Duration {
        self.take_out();
        self.take_in();
        let lazy = self.options.choose == Choose::Lazy;
        if lazy || Instant::now() >= self.next_full_check {
            self.check_descendants(lazy);
            self.next_full_check = Instant::now() + ROUND;
        }
        for event in self.rebalancer.step() {
            self.note(&event);
        }
        self.table.publish(&self.rebalancer.loads());
        let counts = self.table.counts();
        if counts.full > 0 {
            self.report_once(
                "the table of processes is full: programs run without a home until others end",
            );
        }
        if counts.memory_refused > 0 {
            self.report_once("memory policies are refused here (a container's filter, or no such node): programs get only the CPUs of their home");
        }
        self.rebalancer.period().unwrap_or(USUAL_PERIOD)
    }

    /// Gives each notice once.
    fn report_once(&mut self, text: &'static str) {
        if self.reported.insert(text) {
            (self.notice)(text);
        }
    }

    /// Removes entries of processes that have ended.
    fn take_out(&mut self) {
        let with_file: Vec<(u32, &OwnedFd)> = self
            .members
            .iter()
            .filter_map(|(pid, member)| Some((*pid, member.process.as_ref()?)))
            .collect();
        let files: Vec<_> = with_file.iter().map(|(_, file)| file.as_fd()).collect();
        let ended = system::wait_any(&files, Some(Duration::ZERO));
        let mut gone: Vec<u32> = with_file
            .iter()
            .zip(ended)
            .filter(|(_, ended)| *ended)
            .map(|((pid, _), _)| *pid)
            .collect();
        let without = self.members.iter().filter(|(_, member)| member.process.is_none());
        gone.extend(without.map(|(pid, _)| *pid).filter(|pid| started(*pid).is_none()));
        for pid in gone {
            self.forget(pid);
            self.table.release(pid);
        }
    }

    fn forget(&mut self, pid: u32) {
        let Some(member) = self.members.remove(&pid) else { return };
        if let Some(account) = self.rebalancer.remove(member.id) {
            self.count(&account);
        }
    }

    fn count(&mut self, account: &Account) {
        for (node, ran) in account.cpu_time.iter().enumerate() {
            let (home, away) = &mut self.summary.cpu_time[account.home];
            if node == account.home {
                *home += *ran;
            } else {
                *away += *ran;
            }
        }
    }

    /// Handles new entries, entries of processes that have a home again, and members whose entry is gone.
    fn take_in(&mut self) {
        let mut latest: BTreeMap<u32, (usize, Entry, u64)> = BTreeMap::new();
        let mut doubles = Vec::new();
        for (slot, entry, since) in self.table.view().entries() {
            if let Some(before) = latest.insert(entry.pid, (slot, entry, since)) {
                let (older, newer) = if before.2 <= since {
                    (before.0, (slot, entry, since))
                } else {
                    (slot, before)
                };
                doubles.push((older, entry.pid));
                latest.insert(entry.pid, newer);
            }
        }
        for (slot, pid) in doubles {
            member::release(&self.table.view(), slot, pid);
        }
        let gone: Vec<u32> =
            self.members.keys().copied().filter(|pid| !latest.contains_key(pid)).collect();
        for pid in gone {
            // The process may continue without a home.
            self.members[&pid].send_home_hint(None);
            self.forget(pid);
        }
        for (pid, (slot, entry, since)) in latest {
            let same = self.members.get(&pid).is_some_and(|member| {
                member.slot == slot && member.since == since && member.entry.home == entry.home
            });
            if !same {
                self.forget(pid);
                self.add(slot, entry, since);
            }
        }
    }

    /// Believes an entry, or removes it.
    fn add(&mut self, slot: usize, entry: Entry, since: u64) {
        // The descriptor is opened first, so that all further steps are about this very process.
        let process = system::open_process(entry.pid).ok();
        let process = process.filter(|process| (process.as_raw_fd() as u64) < self.descriptors);
        if !is_made_by(entry.pid, since) {
            member::release(&self.table.view(), slot, entry.pid);
            return;
        }
        // If the environment of a process may not be read, its end can be seen, but it cannot be changed.
        let chose_itself = matches!(entry.how, How::Exec | How::Fork);
        if chose_itself
            && relatives::membership_of(entry.pid, self.table.token()) == Membership::Nothing
        {
            // A process that is about to end has only a part of its environment, so it is checked twice.
            if !self.doubted.insert((entry.pid, since)) {
                self.summary.strangers += 1;
                member::release(&self.table.view(), slot, entry.pid);
            }
            return;
        }
        self.last_id += 1;
        let kept = !self.options.strict && entry.state != State::Own;
        self.rebalancer.add(self.last_id, entry.pid, entry.home, kept);
        let member = Member { id: self.last_id, slot, entry, since, process };
        self.members.insert(entry.pid, member);
    }

    fn note(&mut self, event: &Event) {
        let (Event::LetOut { id, .. }
        | Event::BroughtHome { id }
        | Event::Moved { id, .. }
        | Event::LeftAlone { id }) = event;
        let state = match event {
            Event::LetOut { .. } => {
                self.summary.let_out += 1;
                State::Out
            }
            Event::BroughtHome { .. } => {
                self.summary.brought_home += 1;
                State::Home
            }
            Event::Moved { .. } => State::Home,
            Event::LeftAlone { .. } => State::Own,
        };
        let Some(member) = self.members.values_mut().find(|member| member.id == *id) else {
            return;
        };
        let hint = match event {
            Event::Moved { to, .. } => Some(Some(self.rebalancer.nodes().get(*to).memory)),
            Event::LeftAlone { .. } => Some(None),
            Event::LetOut { .. } | Event::BroughtHome { .. } => None,
        };
        if let Some(node) = hint {
            member.send_home_hint(node);
        }
        // The process may have executed another program by now, which has its own entry.
        if self.table.set_state(member.slot, member.entry, state) {
            member.entry.state = state;
        }
    }

    /// Checks all descendants; see the top of the file.
    fn check_descendants(&mut self, lazy: bool) {
        let mut now_seen = BTreeMap::new();
        let mut covered: BTreeSet<u32> = BTreeSet::new();
        for (pid, _) in proc::descendants(std::process::id()) {
            let Some(stat) = proc::stat(pid).filter(|stat| !stat.has_ended()) else { continue };
            if self.members.contains_key(&pid) {
                covered.insert(pid);
                continue;
            }
            let key = (pid, stat.started);
            let known = self.seen.get(&key).copied();
            // A program that has just begun may not have reached its library yet.
            let is_known = known == Some(true) || known.is_some() && self.check_program(pid);
            now_seen.insert(key, is_known);
            if covered.contains(&stat.parent) {
                covered.insert(pid);
            }
            if lazy {
                if stat.cpu_time() >= ENOUGH {
                    self.give(pid);
                }
            } else if known.is_some() && !covered.contains(&pid) {
                self.adopt(pid);
            }
        }
        self.seen = now_seen;
        self.doubted.clear();
    }

    /// Whether a process without an entry could have one; gives a notice, once, if not.
    fn check_program(&mut self, pid: u32) -> bool {
        let why = match proc::read_bytes(format!("/proc/{pid}/maps"), proc::LONGEST_MAPS) {
            // A program that is about to end has no mappings.
            Ok(maps) if maps.is_empty() => return false,
            Ok(maps) if contains(&maps, LIBRARY) => return true,
            Ok(_) if relatives::membership_of(pid, self.table.token()) == Membership::Nothing => {
                return true;
            }
            Ok(_) => {
                self.summary.statically_linked += 1;
                "statically linked"
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                self.summary.more_rights += 1;
                "more privileges than its caller"
            }
            Err(_) => return false,
        };
        let is_first = self.summary.statically_linked + self.summary.more_rights == 1;
        if is_first {
            let name = proc::read(format!("/proc/{pid}/comm"), proc::LONGEST).unwrap_or_default();
            (self.notice)(&format!(
                "{} (process {pid}) chooses no home: {why}; it stays where it was started, and so do other programs of that kind",
                name.trim_end()
            ));
        }
        true
    }

    /// A process whose parent has gone keeps the home that it inherited.
    fn adopt(&mut self, pid: u32) {
        let Ok(mask) = Linux::affinity_of(pid) else { return };
        let Some(homes) = relatives::homes_of(&mask, self.rebalancer.nodes()) else { return };
        if let [home] = *homes.as_slice()
            && mask != self.widest
            && relatives::membership_of(pid, self.table.token())
                != Membership::Member(Inherited::Own)
            && self.table.claim(pid, home, How::Inherited)
        {
            self.summary.inherited += 1;
        }
    }

    /// A process that has run for some time gets the least loaded home.
    fn give(&mut self, pid: u32) {
        let is_free = Linux::affinity_of(pid).is_ok_and(|mask| mask == self.widest);
        if !is_free
            || relatives::membership_of(pid, self.table.token())
                == Membership::Member(Inherited::Own)
        {
            return;
        }
        let from = proc::stat(pid).and_then(|stat| self.rebalancer.nodes().of_cpu(stat.cpu));
        let view = self.table.view();
        let Some(claim) = member::choose(&view, pid, How::Used, now(), from) else { return };
        let cpus = self.rebalancer.nodes().get(claim.home).cpus.clone();
        let mut any = false;
        for thread in proc::threads(pid) {
            let is_free = Linux::affinity_of(thread).is_ok_and(|mask| mask == self.widest);
            any |= is_free && Linux::set_affinity_of(thread, &cpus).is_ok();
        }
        if any {
            self.summary.used += 1;
            Linux::set_home_hint_of(pid, Some(self.rebalancer.nodes().get(claim.home).memory));
        } else {
            member::release(&view, claim.slot, pid);
        }
    }

    /// Gives up the tree: changes to its processes are undone.
    pub(crate) fn end(mut self) -> Summary {
        for pid in self.members.keys().copied().collect::<Vec<_>>() {
            self.members[&pid].send_home_hint(None);
            self.forget(pid);
        }
        self.summary.counts = self.table.counts();
        let (nodes, token) = (self.rebalancer.nodes().clone(), self.table.token());
        // The table is closed first, so that no process chooses a home while others lose theirs.
        drop(self.table);
        self.summary.still_narrow =
            relatives::undo(std::process::id(), &nodes, &self.widest, token);
        self.summary
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// Whether the process that has this number now is the one that made an entry at `since`: it runs, and is not younger than the entry. The
/// time is zero while an entry is new; then the process may be any that runs.
pub(super) fn is_made_by(pid: u32, since: u64) -> bool {
    started(pid).is_some_and(|begun| since == 0 || begun <= since + TICK.as_nanos() as u64)
}

/// When a live process was started, in nanoseconds of the table's clock.
fn started(pid: u32) -> Option<u64> {
    let stat = proc::stat(pid).filter(|stat| !stat.has_ended())?;
    Some(stat.started.saturating_mul(TICK.as_nanos() as u64))
}
