//! How a [`Home`] is made: picked by load, on a given node, or near memory.

use nearq_platform::{Linux, Platform};

use crate::base::error::Error;
use crate::homes::{Home, HomeChoice, most_of};
use crate::queue::runtime::Runtime;

impl Home<Linux> {
    /// A home on the least loaded node that the process may use, judged by the homes given out there and the work that runs there and has
    /// no home; the nearest to the caller on a tie. With [`HomeChoice::FirstRun`], the node is chosen when it is first needed.
    ///
    /// # Errors
    /// The process-wide runtime cannot be made.
    pub fn pick() -> Result<Self, Error> {
        Ok(Self::pick_in(Runtime::try_global()?))
    }

    /// A home on the node of that number.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use; the error says which nodes there are. Or the
    /// process-wide runtime cannot be made.
    pub fn on(node: usize) -> Result<Self, Error> {
        Self::on_in(Runtime::try_global()?, node)
    }

    /// A home on the node that has most of a range's pages, judged by 256 of them at most; as [`pick`](Self::pick) if none exists yet or
    /// that cannot be known.
    ///
    /// # Errors
    /// The process-wide runtime cannot be made.
    pub fn near(memory: &[u8]) -> Result<Self, Error> {
        Ok(Self::near_in(Runtime::try_global()?, memory))
    }
}

impl<P: Platform> Home<P> {
    /// As [`pick`](Home::pick), for the queues of a runtime.
    pub fn pick_in(runtime: &Runtime<P>) -> Self {
        Self::pick_when(runtime, runtime.home_choice())
    }

    /// As [`pick_in`](Self::pick_in), but chosen at the time that `choice` says, whatever [is set](Runtime::set_home_choice).
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

    /// As [`on`](Home::on), for the queues of a runtime.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use; the error says which nodes there are.
    pub fn on_in(runtime: &Runtime<P>, node: usize) -> Result<Self, Error> {
        let homes = runtime.homes_of();
        homes.nodes().index_of(node).map_err(Error::NoHome)?;
        let why = format!("node {node} was requested");
        Ok(Self::make(homes, Some(node as u32), why))
    }

    /// As [`near`](Home::near), for the queues of a runtime.
    pub fn near_in(runtime: &Runtime<P>, memory: &[u8]) -> Self {
        let homes = runtime.homes_of();
        let nodes = homes.nodes();
        match most_of::<P>(&nodes, memory.as_ptr().addr(), memory.len()) {
            Some((node, why)) => Self::make(homes, Some(node), why),
            None => Self::pick_when(runtime, HomeChoice::Now),
        }
    }
}
