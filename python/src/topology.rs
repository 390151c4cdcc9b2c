//! What the machine consists of, as far as this process may use it. Each call reads the machine again, because CPUs come and go.

use std::path::Path;

use nearq::AffinityScope;
use nearq::topology::DEFAULT_SHARD_SIZE;
use nearq_platform::{Linux, Machine, Placement};
use nearq_topology::{CpuSet, DeviceError, DeviceName};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

use crate::queue::scope_of;

/// The machine as it is now.
pub(crate) fn machine(py: Python<'_>) -> PyResult<Machine> {
    py.detach(Linux::machine).map_err(PyOSError::new_err)
}

/// CPUs by number.
pub(crate) fn numbers(cpus: &CpuSet) -> Vec<usize> {
    cpus.iter().collect()
}

/// The CPUs that this process may use, except isolated ones; all of them if it may use no others.
#[pyfunction]
pub(crate) fn cpus(py: Python<'_>) -> PyResult<Vec<usize>> {
    Ok(numbers(&machine(py)?.limits.housekeeping()))
}

/// The nodes that a device is near.
#[pyfunction]
pub(crate) fn nodes_near(py: Python<'_>, device: &str) -> PyResult<Vec<usize>> {
    let invalid = |error: DeviceError| PyValueError::new_err(error.to_string());
    let name = device.parse::<DeviceName>().map_err(|error| invalid(error.into()))?;
    let Machine { topology, .. } = machine(py)?;
    let near = py.detach(|| topology.near_device(Path::new("/"), &name));
    near.map(|near| near.nodes).map_err(invalid)
}

/// Number, CPUs, and bytes of memory if the system says how many.
type Node = (usize, Vec<usize>, Option<u64>);

/// The nodes that have CPUs of [`cpus`].
#[pyfunction]
pub(crate) fn nodes(py: Python<'_>) -> PyResult<Vec<Node>> {
    let Machine { topology, limits } = machine(py)?;
    let allowed = limits.housekeeping();
    let usable = topology.nodes().iter().filter_map(|node| {
        let cpus = node.cpus.intersection(&allowed);
        (!cpus.is_empty()).then(|| (node.id, numbers(&cpus), node.memory))
    });
    Ok(usable.collect())
}

/// The pods of a scope that have CPUs of [`cpus`]: CPUs, number of the node.
#[pyfunction]
pub(crate) fn pods(py: Python<'_>, scope: &str) -> PyResult<Vec<(Vec<usize>, Option<usize>)>> {
    let scope = scope_of(scope)?;
    let Machine { topology, limits } = machine(py)?;
    let pods = topology.pods_within(scope, DEFAULT_SHARD_SIZE, &limits.housekeeping());
    let node = |index: usize| topology.nodes()[index].id;
    Ok(pods.pods.iter().map(|pod| (numbers(&pod.cpus), pod.node_index.map(node))).collect())
}

/// The names of all scopes, from the finest to the coarsest.
#[pyfunction]
pub(crate) fn scopes() -> Vec<&'static str> {
    AffinityScope::ALL.iter().map(|scope| scope.name()).collect()
}
