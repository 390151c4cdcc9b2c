//! The queue of an executor. It runs Python calls on workers, at most `max_workers` at the same time.
//!
//! nearq counts `max_active` for each NUMA node, and rounds the nodes' shares up. An executor promises a number for all of them. So calls
//! pass a gate as well: one that would be too many is put aside, and the next call that ends continues with it. On a machine with one node
//! this never happens.
//!
//! Calls own the queue: it exists until the last one has run. So the drop of an executor waits for nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use nearq::home::Home;
use nearq::{AffinityScope, Workqueue};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::names::{self, Shown};
use crate::{errors, lock, runtime};

/// A call that was queued.
struct Call {
    function: Py<PyAny>,
    description: Option<String>,
}

/// The calls that run, and those put aside.
struct Gate {
    most: usize,
    running: usize,
    aside: VecDeque<Call>,
}

impl Gate {
    /// The call, if it may run; otherwise it is put aside.
    fn enter(&mut self, call: Call) -> Option<Call> {
        if self.running < self.most {
            self.running += 1;
            return Some(call);
        }
        self.aside.push_back(call);
        None
    }

    /// A call has ended: the one that runs in its place.
    fn leave(&mut self) -> Option<Call> {
        let next = self.aside.pop_front();
        if next.is_none() {
            // In the child of a fork, a call of the parent's may end that is not counted any more.
            self.running = self.running.saturating_sub(1);
        }
        next
    }
}

struct Shared {
    queue: Workqueue,
    gate: Mutex<Gate>,
}

impl Shared {
    /// An item: runs its call.
    fn run(&self, call: Call) {
        runtime::enter(move |py| {
            let mut next = lock(&self.gate).enter(call);
            while let Some(call) = next {
                if let Some(description) = &call.description {
                    nearq::set_description(description);
                }
                if let Err(error) = call.function.call0(py) {
                    // The executor's calls catch everything; this is for an interpreter that has no memory left.
                    error.write_unraisable(py, None);
                }
                // Before the next one begins, which may take long.
                drop(call);
                next = lock(&self.gate).leave();
            }
        });
    }
}

/// A queue of calls.
#[pyclass(frozen, module = "nearq._nearq")]
pub(crate) struct Queue {
    /// `None` when the object is being freed.
    shared: Option<Arc<Shared>>,
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (name, max_workers, scope, strict, home))]
    fn new(
        py: Python<'_>,
        name: String,
        max_workers: usize,
        scope: Option<&str>,
        strict: bool,
        home: Option<HomeChoice>,
    ) -> PyResult<Self> {
        let scope = scope.map(scope_of).transpose()?;
        // It reads files of the system when it is first called.
        let built = py.detach(|| {
            let runtime = runtime::runtime()?;
            let mut builder = runtime
                .workqueue_builder(name)
                .max_active(max_workers)
                .min_active(1)
                .affinity_strict(strict)
                .affinity_scope(scope);
            let home = match home {
                None => None,
                Some(HomeChoice::Node(node)) => Some(Home::on_in(runtime, node)?),
                Some(HomeChoice::LeastLoaded) => Some(Home::pick_in(runtime)),
            };
            if let Some(home) = &home {
                builder = builder.home(home);
            }
            builder.build()
        });
        let queue = built.map_err(|error| errors::of(&error))?;
        let gate = Gate { most: max_workers, running: 0, aside: VecDeque::new() };
        Ok(Self { shared: Some(Arc::new(Shared { queue, gate: Mutex::new(gate) })) })
    }

    /// Queues a call of `function` without arguments, which is shown as a call of `named`.
    fn spawn(&self, function: Py<PyAny>, named: &Bound<'_, PyAny>) -> PyResult<()> {
        let Shown { name, description } = names::of(named);
        let call = Call { function, description };
        let shared = self.shared();
        let own = Arc::clone(shared);
        let item = move || {
            own.run(call);
            // Outside of the interpreter. If this is the queue's last owner, its end does not wait, as this is its own item.
            drop(own);
        };
        let spawned = shared.queue.task().named(name).try_spawn(item);
        match spawned {
            Ok(_) => Ok(()),
            Err(refused) => Err(PyRuntimeError::new_err(refused.error().to_string())),
        }
    }

    /// The home node of the calls, if they have one.
    fn home(&self) -> Option<usize> {
        self.shared().queue.home().and_then(|home| home.node())
    }

    /// The process is the child of a fork: no call runs, and those put aside are the parent's.
    fn after_fork_in_child(&self) {
        let mut gate = lock(&self.shared().gate);
        gate.running = 0;
        // Not freed: the parent's threads may have been changing them.
        std::mem::forget(std::mem::take(&mut gate.aside));
    }
}

impl Queue {
    fn shared(&self) -> &Arc<Shared> {
        self.shared.as_ref().expect("the object exists")
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let shared = self.shared.take();
        // The end of a queue waits for its last item, which has left the interpreter, or is about to.
        Python::attach(|py| py.detach(|| drop(shared)));
    }
}

/// On which node calls are at home.
enum HomeChoice {
    Node(usize),
    LeastLoaded,
}

impl FromPyObject<'_, '_> for HomeChoice {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.extract::<String>() {
            return match text.as_str() {
                "auto" => Ok(Self::LeastLoaded),
                _ => Err(PyValueError::new_err(format!(
                    "{text:?}: no such home; give the number of a node, \"auto\" or None"
                ))),
            };
        }
        object.extract().map(Self::Node)
    }
}

/// The scope of that name.
pub(crate) fn scope_of(name: &str) -> PyResult<AffinityScope> {
    name.parse()
        .map_err(|error: nearq::topology::ParseError| PyValueError::new_err(error.to_string()))
}
