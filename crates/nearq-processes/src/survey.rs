//! Lists which processes are at home on which node now: processes with homes, of all trees and runs on this machine, and processes that are
//! otherwise bound to a node.
//!
//! Homes are found in tables that processes have open (`/proc/PID/fd`), which are only read: a supervisor of `nearq` has one, and so has a
//! program that gives homes to its own processes, as the Python package does. A table's homes may be caches, or nodes of a pretended
//! machine; here each home counts as the node to which its CPUs belong. Processes that come and go meanwhile may be missing.
//!
//! A thread is at home where its process is, unless it has been given a mask of its own that lies in one node: then that node is its home. So
//! a process has several homes if it pins its threads by node. A mask is the thread's own if it differs from that of the process's first
//! thread: all threads of a process that is let out have the same mask.
//!
//! The processes whose names are those of supervisors are searched first, because only so many files of a user are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use nearq_home::{NodeLoad, Nodes};
use nearq_platform::Linux;
use nearq_topology::CpuSet;

use crate::observe::Observer;
use crate::proc;
use crate::tree::{FILE, How, SUPERVISOR, State, TableCopy, View};

/// Open files of a process that are checked. A supervisor's table is opened early, and has a low number.
const MOST_FILES: usize = 4096;
/// Open files of all processes of a user that are checked, and tables among them.
const MOST_FILES_OF_USER: usize = 1 << 16;
const MOST_TABLES_OF_USER: usize = 256;
/// Threads of a process whose homes are counted.
const MOST_THREADS: usize = 4096;

/// How a process is bound to the node that is its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residence {
    /// The process has an entry in a table.
    Home(How, State),
    /// The process may run only on CPUs of this node, whatever restricted it.
    Bound,
    /// The process has no home, but some of its threads do: each of these may run only on CPUs of one node.
    Threads,
    /// The process has no home.
    Free,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Its number.
    pub pid: u32,
    /// Its command line, or its name if there is none.
    pub command: String,
    /// The index of its home's node; `None` if only threads of it have homes.
    pub home: Option<usize>,
    /// How many of its threads are at home on each node, by index.
    pub threads: Vec<usize>,
    /// The index of the node where it last ran.
    pub now: Option<usize>,
    /// How it is bound to that node.
    pub residence: Residence,
    /// The process that keeps its home: the supervisor of its tree, or the program that made the table.
    pub supervisor: Option<u32>,
    /// Bytes of its memory by index of the nodes; `None` if they may not be read or were not asked for.
    pub bytes: Option<Vec<u64>>,
}

/// A node, with its processes and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSurvey {
    /// The load of its CPUs.
    pub load: NodeLoad,
    /// Processes that are at home here, or have threads that are.
    pub residents: usize,
    /// How many of these processes last ran on a node where none of their threads is at home.
    pub away: usize,
    /// The memory of these processes that is on this node.
    pub bytes_home: u64,
    /// The memory of these processes that is on other nodes.
    pub bytes_away: u64,
}

/// The result of the survey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// The nodes, by index.
    pub nodes: Vec<NodeSurvey>,
    /// Processes, by number.
    pub residents: Vec<Resident>,
    /// The processes that keep homes now: supervisors, and programs that made a table.
    pub supervisors: Vec<u32>,
    /// Processes of other users, about which nothing is reported.
    pub hidden: usize,
}

/// Which processes are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Also processes without a home.
    pub all: bool,
}

/// A home as recorded in a table.
struct Entry {
    supervisor: u32,
    home: Option<usize>,
    how: How,
    state: State,
}

/// Takes the survey; CPUs are watched for `sample`.
pub fn take(nodes: &Nodes, which: Which, sample: Duration) -> Survey {
    let mut observer = Observer::new(nodes.clone());
    thread::sleep(sample);
    let loads = observer.nodes_loads();
    let mut survey = Survey {
        nodes: loads.into_iter().map(|load| NodeSurvey { load, ..NodeSurvey::default() }).collect(),
        residents: Vec::new(),
        supervisors: Vec::new(),
        hidden: 0,
    };
    let user = rustix::process::geteuid().as_raw();
    let mut users = BTreeMap::new();
    for pid in proc::all() {
        match proc::user(pid) {
            Some(owner) if user == 0 || owner == user => drop(users.insert(pid, owner)),
            Some(_) => survey.hidden += 1,
            None => {}
        }
    }
    let (named, others): (Vec<u32>, Vec<u32>) = users.keys().partition(|pid| is_named(**pid));
    let (mut holders, mut budgets) = (Holders::new(), BTreeMap::<u32, Budget>::new());
    for pid in named.into_iter().chain(others) {
        tables(pid, budgets.entry(users[&pid]).or_default(), &mut holders);
    }
    let mut entries = BTreeMap::new();
    for ((its_user, ..), holders) in holders {
        let Some(copy) = holders.iter().find_map(|(_, path)| TableCopy::of(path)) else { continue };
        let Some(view) = copy.view() else { continue };
        let keeper = keeper(&view, &holders);
        // The process that made a table may have written any number into it, and may have given it to processes of other users.
        let may_keep =
            |other| users.get(&other).is_some_and(|user| its_user == 0 || *user == its_user);
        read(keeper, &view, nodes, may_keep, &mut entries);
        survey.supervisors.push(keeper);
    }
    survey.supervisors.sort_unstable();
    survey.supervisors.dedup();
    for pid in users.into_keys() {
        if let Some(resident) = resident(pid, &entries, nodes, which) {
            survey.count(&resident);
            survey.residents.push(resident);
        }
    }
    survey
}

impl Survey {
    fn count(&mut self, resident: &Resident) {
        let is_away = resident.now.is_some_and(|now| !resident.is_home(now));
        for node in resident.homes() {
            self.nodes[node].residents += 1;
            self.nodes[node].away += usize::from(is_away);
        }
        let Some(most) = resident.main_home() else { return };
        for (node, bytes) in resident.bytes.iter().flatten().enumerate() {
            if resident.is_home(node) {
                self.nodes[node].bytes_home += bytes;
            } else {
                self.nodes[most].bytes_away += bytes;
            }
        }
    }
}

impl Resident {
    /// The indices of the nodes where the process or some of its threads are at home.
    pub fn homes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.threads.len()).filter(|node| self.is_home(*node))
    }

    /// The bytes of its memory that are on one of its homes; `None` if it has no home or its memory is not known.
    pub fn bytes_home(&self) -> Option<u64> {
        self.main_home()?;
        let bytes = self.bytes.as_ref()?;
        Some(self.homes().map(|node| bytes[node]).sum())
    }

    fn is_home(&self, node: usize) -> bool {
        self.home == Some(node) || self.threads[node] > 0
    }

    /// The process's own home, or else the one that most of its threads have.
    fn main_home(&self) -> Option<usize> {
        self.home.or_else(|| self.homes().max_by_key(|node| self.threads[*node]))
    }
}

fn name(pid: u32) -> Option<String> {
    let name = proc::read(format!("/proc/{pid}/comm"), proc::LONGEST)?;
    Some(name.trim_end().to_owned())
}

/// Whether a process has the name of a supervisor.
fn is_named(pid: u32) -> bool {
    name(pid).is_some_and(|name| name == SUPERVISOR || name.starts_with("nearq"))
}

/// The files of tables by the user that made them, device and inode, each with the processes that have it open and the path where they do.
type Holders = BTreeMap<(u32, u64, u64), Vec<(u32, PathBuf)>>;

/// The process that keeps the homes of a table: one that has it open and no home in it. A child that was forked from it has the table open
/// too.
fn keeper(view: &View<'_>, holders: &[(u32, PathBuf)]) -> u32 {
    let members: BTreeSet<u32> = view.entries().map(|(_, entry, _)| entry.pid).collect();
    let keeper = holders.iter().find(|(pid, _)| !members.contains(pid));
    keeper.unwrap_or(&holders[0]).0
}

/// How much of a user's processes may still be checked.
struct Budget {
    files: usize,
    tables: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { files: MOST_FILES_OF_USER, tables: MOST_TABLES_OF_USER }
    }
}

/// Adds the tables that a process has open.
fn tables(pid: u32, left: &mut Budget, holders: &mut Holders) {
    use std::os::unix::ffi::OsStrExt as _;
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
    for path in files.take(MOST_FILES).filter_map(|file| Some(file.ok()?.path())) {
        if left.files == 0 || left.tables == 0 {
            return;
        }
        left.files -= 1;
        if !fs::read_link(&path).is_ok_and(|file| file.as_os_str().as_bytes().starts_with(FILE)) {
            continue;
        }
        left.tables -= 1;
        let Ok(data) = fs::metadata(&path) else { continue };
        let of_table = holders.entry((data.uid(), data.dev(), data.ino())).or_default();
        // A process may have it open several times.
        if of_table.last().is_none_or(|(last, _)| *last != pid) {
            of_table.push((pid, path));
        }
    }
}

/// The entries of a table, by process, for the processes about which the table is believed.
fn read(
    supervisor: u32,
    view: &View<'_>,
    nodes: &Nodes,
    may_keep: impl Fn(u32) -> bool,
    entries: &mut BTreeMap<u32, Entry>,
) {
    let node_of = |home: usize| {
        let words: Vec<u64> =
            (0..view.layout().mask_words()).map(|word| view.mask_word(home, word)).collect();
        CpuSet::from_words(&words).first().and_then(|cpu| nodes.of_cpu(cpu))
    };
    let homes: Vec<_> = (0..view.layout().homes()).map(node_of).collect();
    for (_, entry, _) in view.entries().filter(|(_, entry, _)| may_keep(entry.pid)) {
        let home = homes.get(entry.home).copied().flatten();
        entries.insert(entry.pid, Entry { supervisor, home, how: entry.how, state: entry.state });
    }
}

fn resident(
    pid: u32,
    entries: &BTreeMap<u32, Entry>,
    nodes: &Nodes,
    which: Which,
) -> Option<Resident> {
    let stat = proc::stat(pid).filter(|stat| !stat.has_ended() && !stat.is_kernel)?;
    let (home, residence, supervisor) = match entries.get(&pid) {
        Some(entry) => {
            (entry.home, Residence::Home(entry.how, entry.state), Some(entry.supervisor))
        }
        None => match bound_to(pid, nodes) {
            Some(home) => (Some(home), Residence::Bound, None),
            None => (None, Residence::Free, None),
        },
    };
    let threads = homes_of_threads(pid, home, nodes);
    let residence = match residence {
        Residence::Free if threads.iter().any(|count| *count > 0) => Residence::Threads,
        Residence::Free if !which.all => return None,
        residence => residence,
    };
    let bytes = proc::resident(pid).map(|resident| {
        let mut bytes = vec![0; nodes.len()];
        for (memory, some) in resident {
            if let Some(at) = nodes.of_memory(memory, None) {
                bytes[at] += some;
            }
        }
        bytes
    });
    let now = nodes.of_cpu(stat.cpu);
    Some(Resident { pid, command: command(pid), home, threads, now, residence, supervisor, bytes })
}

/// How many threads of a process are at home on each node, by index, if the process's own home is `home`.
fn homes_of_threads(pid: u32, home: Option<usize>, nodes: &Nodes) -> Vec<usize> {
    let mut counts = vec![0; nodes.len()];
    let of_process = Linux::affinity_of(pid).ok();
    for thread in proc::threads(pid).into_iter().take(MOST_THREADS) {
        let own = Linux::affinity_of(thread).ok().filter(|own| Some(own) != of_process.as_ref());
        let own = own.and_then(|own| node_of(&own, nodes));
        if let Some(node) = own.or(home) {
            counts[node] += 1;
        }
    }
    counts
}

/// The node to which all CPUs on which a process may run belong; `None` if the machine has only one node.
fn bound_to(pid: u32, nodes: &Nodes) -> Option<usize> {
    node_of(&Linux::affinity_of(pid).ok()?, nodes)
}

/// The node to which all CPUs of a mask belong; `None` if the machine has only one node.
fn node_of(mask: &CpuSet, nodes: &Nodes) -> Option<usize> {
    if nodes.is_single() {
        return None;
    }
    let node = nodes.of_cpu(mask.first()?)?;
    mask.is_subset(&nodes.get(node).cpus).then_some(node)
}

fn command(pid: u32) -> String {
    let line = format!("/proc/{pid}/cmdline");
    let line = proc::read_bytes(line, proc::LONGEST_COMMAND).unwrap_or_default();
    let line = line.strip_suffix(b"\0").unwrap_or(&line);
    if line.is_empty() {
        return name(pid).unwrap_or_default();
    }
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;
    use crate::tree::Table;
    use nearq_platform::{Placement as _, Threads as _};
    use std::process::{Child, Command};
    use std::sync::Barrier;
    use std::time::Instant;

    /// A child that ends with the test, however that ends.
    struct Started(Child);

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn the_survey_finds_processes_and_their_homes() {
        let cpus = Linux::affinity_of(std::process::id()).unwrap();
        let nodes = Nodes::pretended(&[(0, cpus.clone())], &[vec![10]]);
        let child = Started(Command::new("sleep").arg("1000").spawn().unwrap());
        let child = &child.0;
        // A process gets its new name a moment before its new arguments.
        let begin = Instant::now();
        while command(child.id()) != "sleep 1000" {
            assert!(begin.elapsed() < Duration::from_secs(50), "{}", command(child.id()));
            thread::yield_now();
        }
        let table = Table::create(&nodes, &cpus, true).unwrap();
        assert!(table.claim_for(child.id(), 0));
        let again = fs::read_dir("/proc/self/fd").unwrap().flatten().find_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            target.to_str()?.starts_with("/memfd:nearq-tree").then(|| fs::File::open(file.path()))
        });
        let again = again.unwrap().unwrap();
        let mut holders = Holders::new();
        tables(std::process::id(), &mut Budget::default(), &mut holders);
        assert!(holders.values().all(|holders| holders.len() == 1));
        let mut little = Budget { files: 1000, tables: 2 };
        // Other tests may have tables too.
        tables(std::process::id(), &mut little, &mut Holders::new());
        assert!(little.tables == 0 && little.files < 1000);
        let mut none = Holders::new();
        tables(std::process::id(), &mut little, &mut none);
        assert!(none.is_empty());
        drop(again);
        let mut entries = BTreeMap::new();
        for holders in holders.values() {
            let Some(copy) = TableCopy::of(&holders[0].1) else { continue };
            let (view, all) = (copy.view().unwrap(), |_| true);
            read(keeper(&view, holders), &view, &nodes, all, &mut entries);
        }
        let resident = resident(child.id(), &entries, &nodes, Which::default()).unwrap();
        assert_eq!((resident.home, resident.supervisor), (Some(0), Some(std::process::id())));
        assert_eq!(resident.residence, Residence::Home(How::Given, State::Home));
        assert_eq!(resident.command, "sleep 1000");
    }

    #[test]
    fn threads_with_masks_of_their_own_have_homes_of_their_own() {
        let me = std::process::id();
        let cpus: Vec<usize> = Linux::affinity_of(me).unwrap().iter().collect();
        let [first, second, ..] = cpus[..] else {
            return skipped("threads with homes", "there is one CPU", "allow two CPUs");
        };
        let rest = cpus[1..].iter().copied().collect();
        let places = [(0, CpuSet::single(first)), (1, rest)];
        let nodes = Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]);
        // The masks of other tests' threads do not matter: they are the process's.
        let before = resident(me, &BTreeMap::new(), &nodes, Which { all: true }).unwrap();
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for cpu in [first, second, second] {
                let barrier = &barrier;
                scope.spawn(move || {
                    Linux::set_affinity(Linux::current_thread(), &CpuSet::single(cpu)).unwrap();
                    barrier.wait();
                    barrier.wait();
                });
            }
            barrier.wait();
            let found = resident(me, &BTreeMap::new(), &nodes, Which::default());
            // A process whose home is known: its other threads are at home with it.
            let (how, state) = (How::Exec, State::Home);
            let entry = Entry { supervisor: 1, home: Some(0), how, state };
            let at_home = resident(me, &BTreeMap::from([(me, entry)]), &nodes, Which::default());
            barrier.wait();
            let found = found.expect("it has threads with homes");
            assert_eq!((found.residence, found.home), (Residence::Threads, None));
            assert_eq!(found.threads, [before.threads[0] + 1, before.threads[1] + 2]);
            assert_eq!(found.homes().collect::<Vec<_>>(), [0, 1]);
            assert_eq!(found.bytes_home(), found.bytes.as_ref().map(|bytes| bytes.iter().sum()));
            let at_home = at_home.expect("it has a home");
            assert_eq!((at_home.home, at_home.threads[1]), (Some(0), 2));
            assert!(at_home.threads[0] >= 2, "{at_home:?}");
        });
    }

    #[test]
    fn a_process_counts_on_each_node_where_threads_of_it_are_at_home() {
        let resident = |now| Resident {
            pid: 1,
            command: String::new(),
            home: None,
            threads: vec![1, 3, 0],
            now: Some(now),
            residence: Residence::Threads,
            supervisor: None,
            bytes: Some(vec![10, 20, 5]),
        };
        let mut survey = Survey {
            nodes: vec![NodeSurvey::default(); 3],
            residents: vec![],
            supervisors: vec![],
            hidden: 0,
        };
        survey.count(&resident(0));
        survey.count(&resident(2));
        let of = |node: &NodeSurvey| (node.residents, node.away, node.bytes_home, node.bytes_away);
        let counts: Vec<_> = survey.nodes.iter().map(of).collect();
        assert_eq!(counts, [(2, 1, 20, 0), (2, 1, 40, 10), (0, 0, 0, 0)]);
        assert_eq!(resident(0).bytes_home(), Some(30));
    }

    #[test]
    fn a_table_is_kept_by_a_process_without_a_home_in_it() {
        let cpus = Linux::affinity_of(std::process::id()).unwrap();
        let nodes = Nodes::pretended(&[(0, cpus.clone())], &[vec![10]]);
        let table = Table::create(&nodes, &cpus, true).unwrap();
        let holders = [11, 12, 13].map(|pid| (pid, PathBuf::new()));
        assert_eq!(keeper(&table.view(), &holders), 11);
        // The forked child is found first.
        table.claim_for(11, 0);
        assert_eq!(keeper(&table.view(), &holders), 12);
        // It has made the table and taken a home.
        table.claim_for(12, 0);
        table.claim_for(13, 0);
        assert_eq!(keeper(&table.view(), &holders), 11);
    }

    #[test]
    fn programs_that_keep_homes_are_found_whatever_their_names_are() {
        // The name of this test's program begins as a supervisor's does.
        fs::write(format!("/proc/{}/comm", std::process::id()), "python3").unwrap();
        let cpus = Linux::affinity_of(std::process::id()).unwrap();
        let nodes = Nodes::pretended(&[(0, cpus.clone())], &[vec![10]]);
        let table = Table::create(&nodes, &cpus, true).unwrap();
        let child = Started(Command::new("sleep").arg("1000").spawn().unwrap());
        assert!(table.claim_for(child.0.id(), 0));
        let survey = take(&nodes, Which::default(), Duration::from_millis(1));
        let resident = survey.residents.iter().find(|found| found.pid == child.0.id()).unwrap();
        assert_eq!(resident.supervisor, Some(std::process::id()));
        assert!(survey.supervisors.contains(&std::process::id()));
    }

    #[test]
    fn all_processes_of_this_machine_can_be_surveyed() {
        let cpus = Linux::affinity_of(std::process::id()).unwrap();
        let nodes = Nodes::pretended(&[(0, cpus)], &[vec![10]]);
        let survey = take(&nodes, Which { all: true }, Duration::from_millis(20));
        let resident =
            survey.residents.iter().find(|found| found.pid == std::process::id()).unwrap();
        assert!(matches!(resident.residence, Residence::Free | Residence::Home(..)));
        assert_eq!(survey.nodes.len(), 1);
    }
}
