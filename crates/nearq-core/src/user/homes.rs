//! How a [`Home`] is made: picked by load, on a given node, or near memory.

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::homes::{Home, HomeChoice, most_of};
use crate::queue::runtime::Runtime;

impl Home<Linux> {
    /// Makes a home on the least loaded node that the process may use. The load is the homes given out there and the work that runs there
    /// without a home; if two nodes are equal, the nearer to the caller is chosen. With [`HomeChoice::FirstRun`], the node is chosen when
    /// it is first needed.
    ///
    /// # Errors
    /// The process-wide runtime cannot be made ([`Error::Machine`]).
    pub fn pick() -> Result<Self, Error> {
        Ok(Self::pick_in(Runtime::try_global()?))
    }

    /// Makes a home on the node with that number.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use ([`Error::NoHome`], which names the usable nodes). Or the
    /// process-wide runtime cannot be made.
    pub fn on(node: usize) -> Result<Self, Error> {
        Self::on_in(Runtime::try_global()?, node)
    }

    /// Makes a home on the node that has most of the pages of `memory`. At most 256 pages are checked, which takes some 0.1 ms. If none of
    /// them is on a node yet, or the system does not say, the node is chosen as by [`pick`](Self::pick).
    ///
    /// # Errors
    /// The process-wide runtime cannot be made ([`Error::Machine`]).
    pub fn near(memory: &[u8]) -> Result<Self, Error> {
        Ok(Self::near_in(Runtime::try_global()?, memory))
    }
}

impl<P: Platform> Home<P> {
    /// Makes a home as [`pick`](Home::pick) does, for the queues of `runtime`.
    pub fn pick_in(runtime: &Runtime<P>) -> Self {
        Self::pick_when(runtime, runtime.home_choice())
    }

    /// Makes a home as [`pick_in`](Self::pick_in) does, but chooses the node at the time that `choice` names, whatever [the runtime's
    /// setting](Runtime::set_home_choice) is.
    pub fn pick_when(runtime: &Runtime<P>, choice: HomeChoice) -> Self {
        let homes = runtime.homes_of();
        if choice == HomeChoice::FirstRun && homes.has_several() {
            let why = "its node is chosen when it is first needed".to_owned();
            return Self::make(homes, None, why);
        }
        let nodes = homes.nodes();
        let (index, why) = homes.pick(&nodes, P::current_cpu());
        Self::make(homes, Some(nodes.get(index).id as u32), why)
    }

    /// Makes a home as [`on`](Home::on) does, for the queues of `runtime`.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use ([`Error::NoHome`], which names the usable nodes).
    pub fn on_in(runtime: &Runtime<P>, node: usize) -> Result<Self, Error> {
        let homes = runtime.homes_of();
        homes.nodes().index_of(node).map_err(Error::NoHome)?;
        let why = format!("node {node} was requested");
        Ok(Self::make(homes, Some(node as u32), why))
    }

    /// Makes a home as [`near`](Home::near) does, for the queues of `runtime`.
    pub fn near_in(runtime: &Runtime<P>, memory: &[u8]) -> Self {
        let homes = runtime.homes_of();
        let nodes = homes.nodes();
        match most_of::<P>(&nodes, memory.as_ptr().addr(), memory.len()) {
            Some((node, why)) => Self::make(homes, Some(node), why),
            None => Self::pick_when(runtime, HomeChoice::Now),
        }
    }
}
