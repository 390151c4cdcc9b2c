//! Homes for the processes of a pool: each takes the least loaded one when it begins.
//!
//! The process that starts the pool makes a table, which is that of `nearq run --tree` (`nearq_processes::tree`). A worker process finds it
//! by a text, which is passed to it with its initialiser, and takes a home there. That process alone moves: its threads get the home's
//! CPUs, and the calling thread, with all that it starts, gets its memory from the home's node.
//!
//! A home is **hard**: there is no supervisor here that would let a process out while other CPUs are idle.

use std::sync::Mutex;

use nearq_home::Nodes;
use nearq_platform::{Linux, LockPlatform, MemoryPolicy, OsError, Placement, Threads};
use nearq_processes::proc;
use nearq_processes::tree::{self, JoinedTable, Table, View};
use nearq_topology::{CpuSet, LOCAL_DISTANCE};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::topology::{machine, numbers};
use crate::{errors, lock};

/// What a process had before it took its first home.
struct Before {
    pid: u32,
    cpus: CpuSet,
    memory: Option<MemoryPolicy>,
}

static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

enum Homes {
    /// Made by this process, or by one that it was forked from.
    Made { table: Table, value: String },
    /// Made by another process.
    Joined(JoinedTable),
    /// There is one place: everything is at home.
    One,
}

/// A table of homes.
#[pyclass(frozen, module = "nearq._nearq")]
pub(crate) struct HomeTable {
    homes: Homes,
    places: Vec<Place>,
}

/// Where a process can be at home.
#[derive(Clone)]
struct Place {
    id: usize,
    memory: usize,
    cpus: CpuSet,
}

#[pymethods]
impl HomeTable {
    /// Makes a table for the nodes (`numa`) or last-level caches (`cache`) that this process may use, without isolated
    /// CPUs if there are others. `pretended` replaces them in tests: for each place the node of its memory, and its CPUs.
    #[new]
    #[pyo3(signature = (scope, memory, pretended))]
    fn new(
        py: Python<'_>,
        scope: &str,
        memory: bool,
        pretended: Option<Vec<(usize, Vec<usize>)>>,
    ) -> PyResult<Self> {
        let by_cache = match scope {
            "numa" => false,
            "cache" => true,
            _ => {
                let text = format!("{scope:?}: no scope of homes; give one of numa, cache");
                return Err(PyValueError::new_err(text));
            }
        };
        let nodes = match pretended {
            Some(places) => pretend(places),
            None => {
                let machine = machine(py)?;
                let allowed = machine.limits.housekeeping();
                let of = if by_cache { Nodes::by_cache } else { Nodes::of };
                of(&machine.topology, &allowed)
            }
        };
        let places = nodes.iter().map(|node| Place {
            id: node.id,
            memory: node.memory,
            cpus: node.cpus.clone(),
        });
        let places = places.collect();
        if nodes.is_single() {
            return Ok(Self { homes: Homes::One, places });
        }
        let table = Table::create(&nodes, &nodes.cpus(), memory)?;
        let value = table.value(&nodes.cpus());
        Ok(Self { homes: Homes::Made { table, value }, places })
    }

    /// The table that `text` names, made by another process; a table without homes if there is no text.
    #[staticmethod]
    #[pyo3(signature = (text))]
    fn join(py: Python<'_>, text: Option<&str>) -> PyResult<Self> {
        let Some(text) = text else { return Ok(Self { homes: Homes::One, places: Vec::new() }) };
        let joined = py.detach(|| JoinedTable::open(text))?;
        let view = joined.view();
        let place = |home: usize| {
            let words: Vec<u64> =
                (0..view.layout().mask_words()).map(|word| view.mask_word(home, word)).collect();
            let (id, memory) = (view.id(home) as usize, view.memory(home) as usize);
            Place { id, memory, cpus: CpuSet::from_words(&words) }
        };
        let places = (0..view.layout().homes()).map(place).collect();
        Ok(Self { homes: Homes::Joined(joined), places })
    }

    /// The text by which other processes find the table, while this process lives; nothing if there is one place.
    fn text(&self) -> PyResult<Option<&str>> {
        match &self.homes {
            Homes::Made { value, .. } => Ok(Some(value)),
            Homes::One => Ok(None),
            Homes::Joined(_) => Err(PyRuntimeError::new_err(
                "homes that another process has made are passed on by that process alone",
            )),
        }
    }

    /// The places: number, CPUs, node of the memory, and how many processes are at home there.
    fn places(&self, py: Python<'_>) -> Vec<(usize, Vec<usize>, usize, u32)> {
        let view = self.view();
        if let Some(view) = &view {
            py.detach(|| tree::release_ended(view));
        }
        let given = |home: usize| view.as_ref().map_or(0, |view| view.given(home));
        let places = self.places.iter().enumerate();
        places
            .map(|(home, place)| (place.id, numbers(&place.cpus), place.memory, given(home)))
            .collect()
    }

    /// This process takes the least loaded home and moves there. Returns its number and CPUs, and the node that it has its memory from if
    /// that was set; then what the system has refused, if anything. `None` if there is one place.
    fn take(&self) -> PyResult<Option<Taken>> {
        let Some(view) = self.view() else { return Ok(None) };
        self.take_in(&view).map(Some)
    }

    /// This process gives its home back, and has the CPUs and the memory policy that it had before.
    fn leave(&self) {
        if let Some(view) = self.view() {
            tree::leave(&view, std::process::id());
        }
        // A child of a fork that has taken no home itself has what its parent had.
        if let Some(before) = lock(&BEFORE).take() {
            // Refused if all of them were taken away meanwhile; then the system has given the process what there is.
            let _ = set_cpus(&before.cpus);
            if let Some(policy) = &before.memory {
                let _ = Linux::set_memory_policy(policy);
            }
            Linux::set_home_hint(Linux::current_thread(), None);
        }
    }
}

/// Number of the home, its CPUs, the node of the memory, and what was refused.
type Taken = (usize, Vec<usize>, Option<usize>, Option<String>);

impl HomeTable {
    fn view(&self) -> Option<View<'_>> {
        match &self.homes {
            Homes::Made { table, .. } => Some(table.view()),
            Homes::Joined(table) => Some(table.view()),
            Homes::One => None,
        }
    }

    fn take_in(&self, view: &View<'_>) -> PyResult<Taken> {
        if !proc::is_of_this_namespace() {
            return Err(PyOSError::new_err(
                "/proc belongs to another PID namespace: processes cannot be told apart",
            ));
        }
        let pid = std::process::id();
        // From outside of its home it must not look as if it were near it: the first home decides nothing for the second.
        let before = Self::before(pid)?;
        let Some(home) = tree::take(view, pid, Some(Linux::current_cpu())) else {
            return Err(PyRuntimeError::new_err(
                "the table of homes is full: too many processes have one",
            ));
        };
        let place = &self.places[home];
        let cpus = place.cpus.intersection(&before);
        if cpus.is_empty() {
            tree::leave(view, pid);
            let text = format!(
                "the process may use none of the CPUs of home {} ({})",
                place.id, place.cpus
            );
            return Err(PyValueError::new_err(text));
        }
        if let Err(refused) = set_cpus(&cpus) {
            tree::leave(view, pid);
            return Err(errors::of_system(&refused));
        }
        Linux::set_home_hint(Linux::current_thread(), Some(place.memory));
        if !tree::sets_memory(view) {
            return Ok((place.id, numbers(&cpus), None, None));
        }
        // A refused memory policy leaves the process with its CPUs.
        Ok(match Linux::set_memory_policy(&MemoryPolicy::Preferred(place.memory)) {
            Ok(()) => (place.id, numbers(&cpus), Some(place.memory), None),
            Err(refused) => (place.id, numbers(&cpus), None, Some(refused.to_string())),
        })
    }

    /// The CPUs that the process had before its first home.
    fn before(pid: u32) -> PyResult<CpuSet> {
        let mut before = lock(&BEFORE);
        if let Some(known) = before.as_ref().filter(|known| known.pid == pid) {
            return Ok(known.cpus.clone());
        }
        // A child of a fork begins with the home of its parent: it may have any of the CPUs that the parent had before.
        let inherited = before.take().map(|known| (known.cpus, known.memory));
        let (cpus, memory) = match inherited {
            Some(inherited) => inherited,
            None => {
                let cpus = Linux::affinity(Linux::current_thread())
                    .map_err(|refused| errors::of_system(&refused))?;
                (cpus, Linux::memory_policy().ok())
            }
        };
        *before = Some(Before { pid, cpus: cpus.clone(), memory });
        Ok(cpus)
    }
}

/// Restricts all threads of this process; those that end meanwhile do not matter.
fn set_cpus(cpus: &CpuSet) -> Result<(), OsError> {
    Linux::set_affinity(Linux::current_thread(), cpus)?;
    for thread in proc::threads(std::process::id()) {
        let _ = Linux::set_affinity_of(thread, cpus);
    }
    Ok(())
}

/// Places for tests, of which each two are at the same distance.
fn pretend(places: Vec<(usize, Vec<usize>)>) -> Nodes {
    let row = |at: usize| -> Vec<u32> {
        let other = |to: usize| if to == at { LOCAL_DISTANCE } else { LOCAL_DISTANCE + 1 };
        (0..places.len()).map(other).collect()
    };
    let distances: Vec<_> = (0..places.len()).map(row).collect();
    let places: Vec<_> =
        places.iter().map(|(memory, cpus)| (*memory, cpus.iter().copied().collect())).collect();
    Nodes::pretended(&places, &distances)
}
