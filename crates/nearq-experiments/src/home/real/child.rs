//! The processes of a run: the argument of each, and its body.

use super::super::plan::Storm;
use super::super::task::TaskReport;
use super::super::task::{Memory, Until, work};
use super::storm;
use crate::Error;
use crate::harness::failed;
use nearq_platform::{Linux, LockPlatform as _, MemoryPolicy, Placement as _, Threads as _};
use nearq_topology::CpuSet;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Duration;

/// Pages whose node is asked for.
const SAMPLES: usize = 2048;

/// A process of an experiment with homes, as its argument describes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Child(Part);

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Part {
    Task(Task),
    Storm { at: u64, every: Option<u64>, groups: usize, pairs: usize, messages: usize },
    Hog(Hog),
}

/// A task. Times are of the system's monotonic clock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) elements: usize,
    pub(super) until: Until,
    /// CPUs from the start, and those from the time when its memory is touched.
    pub(super) cpus: Option<String>,
    pub(super) then: Option<String>,
    /// The system's number of the node that memory must come from.
    pub(super) memory: Option<usize>,
    /// The nodes: the system's number, and the CPUs.
    pub(super) nodes: Vec<(usize, String)>,
    pub(super) origin: u64,
    /// The seed of the random indices.
    pub(super) seed: u64,
}

/// A process that computes for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hog {
    pub(super) cpus: String,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Child {
    pub(super) fn task(task: Task) -> Self {
        Child(Part::Task(task))
    }

    pub(super) fn hog(hog: Hog) -> Self {
        Child(Part::Hog(hog))
    }

    /// A storm whose times refer to a run that began at `origin`. One that begins again and again ends when its standard input is closed.
    pub(super) fn storm(storm: Storm, origin: u64) -> Self {
        let at = origin + storm.after.as_nanos() as u64;
        let every = storm.every.map(|every| every.as_nanos() as u64);
        let Storm { groups, pairs, messages, .. } = storm;
        Child(Part::Storm { at, every, groups, pairs, messages })
    }

    pub(super) fn is_storm(&self) -> bool {
        matches!(self.0, Part::Storm { .. })
    }

    /// A name for messages.
    pub(super) fn name(&self) -> &'static str {
        match self.0 {
            Part::Task(_) => "task",
            Part::Storm { .. } => "storm of processes",
            Part::Hog(_) => "hog",
        }
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers and texts")
    }

    /// Does what an argument says, in a process of its own. Returns the result, for standard output.
    pub fn run(argument: &str) -> Result<String, Error> {
        let Child(part) = serde_json::from_str(argument).map_err(|error| {
            Error::input(format!("home-child is only for `nearq bench home` itself: {error}"))
        })?;
        end_with_parent();
        match part {
            Part::Task(task) => {
                let report = task.run()?;
                Ok(serde_json::to_string(&report).expect("numbers"))
            }
            Part::Storm { at, every, groups, pairs, messages } => {
                let mut next = Some(at);
                while let Some(begin) = next {
                    if every.is_none() {
                        sleep_until(begin);
                    } else if is_closed_by(begin) {
                        break;
                    }
                    storm::run(groups, pairs, messages)?;
                    next = every.map(|every| begin + every);
                }
                Ok(String::new())
            }
            Part::Hog(hog) => {
                go_to(&hog.cpus)?;
                sleep_until(hog.from);
                while Linux::now().as_nanos() < hog.to {
                    for round in 0..10_000_u64 {
                        black_box(round);
                    }
                }
                Ok(String::new())
            }
        }
    }
}

/// Makes the kernel kill this process when the thread that started it is gone.
pub(super) fn end_with_parent() {
    // SAFETY: sets an attribute of the calling process, by integers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn sleep_until(time: u64) {
    let left = time.saturating_sub(Linux::now().as_nanos());
    std::thread::sleep(Duration::from_nanos(left));
}

/// Waits until a time, unless standard input is closed by then. Returns whether it is.
fn is_closed_by(time: u64) -> bool {
    let left = time.saturating_sub(Linux::now().as_nanos()).div_ceil(1_000_000);
    let mut input = libc::pollfd { fd: 0, events: 0, revents: 0 };
    // SAFETY: one descriptor, in a place of ours.
    unsafe { libc::poll(&raw mut input, 1, left.min(i32::MAX as u64) as libc::c_int) };
    input.revents != 0
}

fn go_to(list: &str) -> Result<(), Error> {
    let cpus =
        CpuSet::parse_list(list).map_err(|error| Error::input(format!("{list}: {error}")))?;
    Linux::set_affinity(Linux::current_thread(), &cpus).map_err(failed)
}

// ---- tasks ---------------------------------------------------------------------------------------------

impl Task {
    fn run(&self) -> Result<TaskReport, Error> {
        if let Some(cpus) = &self.cpus {
            go_to(cpus)?;
        }
        let refused = self
            .memory
            .and_then(|node| Linux::set_memory_policy(&MemoryPolicy::Preferred(node)).err());
        let mut memory = WalkedMemory::new(self)?;
        let mut settled = Ok(());
        let report = work(&mut memory, self.nodes.len(), self.elements, self.until, || {
            if let Some(cpus) = &self.then {
                settled = go_to(cpus);
            }
        });
        settled?;
        black_box(&memory.a);
        Ok(TaskReport { refused: refused.map(|refused| refused.to_string()), ..report })
    }
}

/// The memory of a real task.
struct WalkedMemory {
    a: Vec<f64>,
    b: Vec<f64>,
    ix: Vec<u32>,
    elements: usize,
    seed: u64,
    origin: u64,
    /// By CPU, the index of its node.
    node_of: Vec<usize>,
    /// The system's numbers.
    ids: Vec<usize>,
}

impl WalkedMemory {
    fn new(task: &Task) -> Result<Self, Error> {
        let mut node_of = Vec::new();
        for (index, (_, list)) in task.nodes.iter().enumerate() {
            let cpus = CpuSet::parse_list(list)
                .map_err(|error| Error::input(format!("{list}: {error}")))?;
            for cpu in &cpus {
                node_of.resize(node_of.len().max(cpu + 1), 0);
                node_of[cpu] = index;
            }
        }
        let ids = task.nodes.iter().map(|(id, _)| *id).collect();
        let (elements, seed, origin) = (task.elements, task.seed, task.origin);
        let (a, b, ix) = (Vec::new(), Vec::new(), Vec::new());
        Ok(WalkedMemory { a, b, ix, elements, seed, origin, node_of, ids })
    }
}

/// A random number below `bound` (xorshift64*, S. Vigna, 2014).
fn random(state: &mut u64, bound: usize) -> u32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    let drawn = state.wrapping_mul(0x2545_F491_4F6C_DD1D);
    ((u128::from(drawn) * bound as u128) >> 64) as u32
}

impl Memory for WalkedMemory {
    fn touch(&mut self) {
        self.a = vec![0.0; self.elements];
        // A page that is read before it is written is a shared page of zeros.
        self.a.fill(black_box(0.0));
        self.b = (0..self.elements).map(|index| index as f64).collect();
        let mut state = self.seed;
        self.ix = (0..self.elements).map(|_| random(&mut state, self.elements)).collect();
    }

    fn update(&mut self, from: usize, to: usize) {
        for (index, value) in self.ix[from..to].iter().zip(&self.b[from..to]) {
            self.a[*index as usize] += value;
        }
    }

    fn copy(&mut self) {
        self.b.copy_from_slice(&self.a);
    }

    fn pages(&self) -> Vec<u64> {
        let mut pages = vec![0; self.ids.len()];
        for part in [bytes_of(&self.a), bytes_of(&self.b)] {
            if let Ok(residency) = Linux::residency(part, SAMPLES) {
                for (count, id) in pages.iter_mut().zip(&self.ids) {
                    *count += residency.pages.get(*id).copied().unwrap_or(0) as u64;
                }
            }
        }
        pages
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(Linux::now().as_nanos().saturating_sub(self.origin))
    }

    fn cpu_time(&self) -> Duration {
        Linux::cpu_time(Linux::current_thread()).unwrap_or_default()
    }

    fn node(&self) -> usize {
        self.node_of.get(Linux::current_cpu()).copied().unwrap_or(0)
    }

    fn user_and_system(&self) -> (Duration, Duration) {
        nearq_report::usage::user_and_system()
    }
}

fn bytes_of(values: &[f64]) -> &[u8] {
    // SAFETY: the memory of the values may be read as bytes; the slice is as long as that memory, and borrowed as the values are.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
