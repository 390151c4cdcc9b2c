//! A home for the calling thread: it runs on the CPUs of a node, and its memory comes from there.
//!
//! What the thread had before is kept in a list of the thread, because only the thread itself can have it back, in the reverse order. At
//! the thread's end the list is forgotten: then nothing is to be undone.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::path::Path;

use nearq::Error;
use nearq::home::{AtHome, Home};
use nearq_topology::DeviceError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::{errors, runtime};

thread_local! {
    static ENTERED: RefCell<ManuallyDrop<Vec<(u64, AtHome)>>> = const { RefCell::new(ManuallyDrop::new(Vec::new())) };
    static NEXT: RefCell<u64> = const { RefCell::new(0) };
}

/// The calling thread enters a home on that node, or on the least loaded one. Returns what `leave_home` needs, the node, and the reason for
/// the choice.
#[pyfunction]
#[pyo3(signature = (node, device))]
pub(crate) fn enter_home(
    py: Python<'_>,
    node: Option<usize>,
    device: Option<&str>,
) -> PyResult<(u64, Option<usize>, String)> {
    let entered = py.detach(|| {
        let runtime = runtime::runtime()?;
        let home = match (node, device) {
            (Some(node), _) => Home::on_in(runtime, node)?,
            (None, Some(device)) => {
                let name =
                    device.parse().map_err(|error| Error::NoDevice(DeviceError::Name(error)))?;
                let near = runtime.topology().near_device(Path::new("/"), &name);
                Home::near_device_in(runtime, &near.map_err(Error::NoDevice)?)?
            }
            (None, None) => Home::pick_in(runtime),
        };
        // The guard belongs to this thread, which alone sees the list.
        let guard = home.enter()?;
        let number = NEXT.with_borrow_mut(|next| {
            *next += 1;
            *next
        });
        ENTERED.with_borrow_mut(|entered| entered.push((number, guard)));
        Ok((number, home.node(), home.explain()))
    });
    entered.map_err(|error| errors::of(&error))
}

/// The calling thread leaves the home that it has entered last.
#[pyfunction]
pub(crate) fn leave_home(number: u64) -> PyResult<()> {
    let left = ENTERED.with_borrow_mut(|entered| {
        let is_last = entered.last().is_some_and(|(last, _)| *last == number);
        if is_last { entered.pop() } else { None }
    });
    match left {
        Some(guard) => {
            drop(guard);
            Ok(())
        }
        None => Err(PyRuntimeError::new_err(
            "a home is left once, by the thread that entered it, and the one that was entered last is left first",
        )),
    }
}
