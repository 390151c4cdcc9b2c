//! [`Home`]: a node that items, threads and memory belong to.
//!
//! | file | what it holds |
//! |---|---|
//! | `choice` | when a node is chosen |
//! | `inside` | what all handles of a home share |
//! | `map`, `registry` | what the homes of a runtime have in common |
//! | `memory` | placing memory, and registering it |
//! | `following` | dynamic homes |
//!
//! For how homes are made, see `homes`; for threads that are not the runtime's, `at_home`; for a runtime's settings for homes, and what can
//! be read of them, `node_homes`; for where an item goes because of its home, `queue/homes`; for which workers take it, `pool/homes`; for
//! how it runs, `run/homes`.
//!
//! # The folder
//! Imports `base`. The folder owns the locks of `registry` (`nodes`, `weights`, `list`, `own`, `entered`; none is taken inside another,
//! except `nodes` and `weights` inside a home's `change`), and the words `used`, `several` and a home's `node`. A home and the registry own
//! each other, so `inside` and `registry` form a circle; the registry calls the runtime through a trait (`Host`).

mod choice;
mod following;
mod inside;
mod map;
mod memory;
mod registry;

use std::sync::Arc;

use nearq_home::Nodes;
use nearq_platform::{Linux, Platform};

use crate::base::error::Error;

pub use choice::HomeChoice;
pub(crate) use inside::Inside;
pub use memory::{MemoryPolicy, Registered};
pub(crate) use memory::{Wanted, WorkerMemory, most_of};
pub(crate) use registry::{Homes, Host, warn_of_memory};

/// A home: the node of the machine that something belongs to. Items with this home go to that node, run there while its CPUs can do the
/// work, and come back after they ran elsewhere. What they allocate lies there, and memory can be bound there.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Workqueue, home::Home};
///
/// let home = Home::pick()?;
/// let queue = Workqueue::builder("at home").home(&home).build()?;
/// let mut table = vec![0_u64; 1 << 16];
/// // The memory is where the queue's items run.
/// if let Err(refused) = home.bind_slice(&mut table) {
///     eprintln!("{refused}");
/// }
/// let sum = queue.spawn(move || table.iter().sum::<u64>()).join()?;
/// assert_eq!(sum, 0);
/// println!("{}", home.explain());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What can have a home
/// | what | how |
/// |---|---|
/// | the items of a queue | [`WorkqueueBuilder::home`](crate::WorkqueueBuilder::home) |
/// | the items of a queue that exists | [`QueueView::set_home`](crate::inspect::QueueView::set_home) |
/// | an item | [`Work::set_home`](crate::Work::set_home) |
/// | a closure, a future | [`TaskBuilder::home`](crate::TaskBuilder::home) |
/// | memory | [`bind`](Self::bind), [`bind_slice`](Self::bind_slice) |
/// | the calling thread | [`enter`](Self::enter) |
///
/// If several homes apply to an item, the first of these counts: its own, its queue's, that of the item that queues it
/// ([inheritance](crate::Runtime::inherits_homes)).
///
/// # A soft limit
/// An idle worker of another node takes an item whose home is elsewhere, as its last choice. It does so if so many more items wait there
/// that it is worth the distance, or if they have waited for long ([the weights](crate::Runtime::home_weights)). The item's next run is at
/// home again.
///
/// On a machine of one node, or if the process may use only one, everything is at home: nothing is counted, placed or moved.
///
/// # Clones
/// Clones are handles of the same home. A home counts on its node, for homes that are [picked](Self::pick) later, until its last handle is
/// dropped; items and queues with this home have handles. A home belongs to a runtime, and only the queues of that runtime use it.
pub struct Home<P: Platform = Linux> {
    inside: Arc<Inside<P>>,
}

impl<P: Platform> Home<P> {
    pub(crate) fn make(homes: &Arc<Homes<P>>, node: Option<u32>, why: String) -> Self {
        let home = Home::of(Inside::new(homes, node, why));
        homes.begin_use();
        home
    }

    /// Adds a handle of a home.
    pub(crate) fn of(inside: Arc<Inside<P>>) -> Self {
        inside.hold();
        Home { inside }
    }

    pub(crate) fn inside(&self) -> &Arc<Inside<P>> {
        &self.inside
    }

    /// The handle as a pointer, for [`from_raw`](Self::from_raw).
    pub(crate) fn into_raw(self) -> *const Inside<P> {
        let home = core::mem::ManuallyDrop::new(self);
        // SAFETY: the handle is not dropped, so its `Arc` is ours to take out; once.
        Arc::into_raw(unsafe { core::ptr::read(&raw const home.inside) })
    }

    /// The handle that was turned into that pointer.
    ///
    /// # Safety
    /// The pointer is from [`into_raw`](Self::into_raw), and this is called once for it.
    pub(crate) unsafe fn from_raw(raw: *const Inside<P>) -> Self {
        // SAFETY: as the caller says.
        Home { inside: unsafe { Arc::from_raw(raw) } }
    }

    /// Returns the number of its node; `None` if the node is chosen when it is first needed, and has not been chosen yet.
    pub fn node(&self) -> Option<usize> {
        self.inside.known_node().map(|node| node as usize)
    }

    /// Moves the home to the node with that number, in effect from the next queueing on. Items that run go on where they are, and what is
    /// queued already runs where it was queued. Memory that was bound is not moved.
    ///
    /// # Errors
    /// As [`on`](Home::on).
    pub fn move_to(&self, node: usize) -> Result<(), Error> {
        let nodes = self.inside.homes.nodes();
        let index = nodes.index_of(node).map_err(Error::NoHome)?;
        let mut change = self.inside.change.lock();
        change.why = format!("node {node} was requested");
        self.inside.put(&mut change, node as u32);
        if let Some(migration) = &mut change.migration {
            migration.set(index, inside::since_start(P::now()));
        }
        Ok(())
    }

    /// Returns a text that says where the home is, and why.
    pub fn explain(&self) -> String {
        let homes = &self.inside.homes;
        if !homes.has_several() {
            let node = homes.nodes().get(0).id;
            return format!(
                "node {node}: this process may use only one node, so everything is at home; nothing is counted, placed or moved"
            );
        }
        let why = self.inside.change.lock().why.clone();
        let follows = if self.inside.follows() { "; it follows its memory" } else { "" };
        match self.node() {
            Some(node) => format!("node {node}: {why}{follows}"),
            None => format!("no node yet: {why}{follows}"),
        }
    }
}

impl<P: Platform> Homes<P> {
    /// The index of the node for one more home, and the reason, in words.
    pub(crate) fn pick(&self, nodes: &Nodes, cpu: usize) -> (usize, String) {
        if nodes.is_single() {
            return (0, "there is one node".to_owned());
        }
        let loads = self.loads(nodes);
        let index = nearq_home::pick(nodes, &loads, nodes.of_cpu(cpu));
        let all: Vec<_> = nodes
            .iter()
            .zip(&loads)
            .map(|(node, load)| {
                let (homes, others) = (load.homes / 1000, load.others / 1000);
                format!(
                    "node {} has {} CPUs, {homes} homes, {others} other running tasks",
                    node.id,
                    node.cpus.len()
                )
            })
            .collect();
        (index, format!("it was the least loaded when this was chosen: {}", all.join("; ")))
    }
}

impl<P: Platform> Clone for Home<P> {
    fn clone(&self) -> Self {
        Home::of(Arc::clone(&self.inside))
    }
}

impl<P: Platform> Drop for Home<P> {
    fn drop(&mut self) {
        self.inside.let_go();
    }
}

/// By which home it is a handle of.
impl<P: Platform> core::hash::Hash for Home<P> {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.inside).hash(state);
    }
}

impl<P: Platform> Eq for Home<P> {}

/// Whether they are handles of the same home.
impl<P: Platform> PartialEq for Home<P> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inside, &other.inside)
    }
}

impl<P: Platform> core::fmt::Debug for Home<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Home").field("node", &self.node()).finish()
    }
}

#[cfg(test)]
mod tests;
