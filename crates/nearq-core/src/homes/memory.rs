//! Memory and homes: where a range is, binding it, registering it, and the policy of a worker's thread.

use std::sync::Arc;

use nearq_home::Nodes;
use nearq_platform::{MemoryPolicy as SystemPolicy, Platform, Residency};

use super::{Home, Homes, Inside};
use crate::base::error::Error;

/// How many pages are looked up of one range, and of all the memory of a dynamic home: some 0.1 ms.
pub(super) const SAMPLES: usize = 256;

/// Which node the memory that a queue's items touch first comes from.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Workqueue, home::MemoryPolicy};
///
/// // What its items allocate is used from all nodes.
/// let queue = Workqueue::builder("index").memory(MemoryPolicy::Interleave).build()?;
/// assert_eq!(queue.memory().to_string(), "interleave");
/// # Ok::<(), nearq::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryPolicy {
    /// The home of the item, even while the item runs elsewhere, while that node has free memory. For an item without a home: where the
    /// program gets its memory without this policy, which is mostly the node where the item runs.
    #[default]
    Home = 0,
    /// All nodes in turn, page by page: for memory that items of all nodes use alike.
    Interleave = 1,
    /// Where the program gets its memory without this policy, whatever the home is.
    Untouched = 2,
}

impl MemoryPolicy {
    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            1 => MemoryPolicy::Interleave,
            2 => MemoryPolicy::Untouched,
            _ => MemoryPolicy::Home,
        }
    }

    /// Every policy.
    pub const ALL: &'static [Self] =
        &[MemoryPolicy::Home, MemoryPolicy::Interleave, MemoryPolicy::Untouched];

    /// Returns its name, as used in settings; the text of `Display`.
    pub fn name(self) -> &'static str {
        match self {
            MemoryPolicy::Home => "home",
            MemoryPolicy::Interleave => "interleave",
            MemoryPolicy::Untouched => "untouched",
        }
    }
}

impl core::fmt::Display for MemoryPolicy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

impl core::str::FromStr for MemoryPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|memory| memory.name() == text).copied();
        found.ok_or_else(|| Error::unknown_name("memory policy", text, Self::ALL))
    }
}

/// The node that can be a home and has most of a range's pages, and the reason, in words.
pub(crate) fn most_of<P: Platform>(
    nodes: &Nodes,
    start: usize,
    len: usize,
) -> Option<(u32, String)> {
    let residency = P::residency_at(start..start + len, SAMPLES).ok()?;
    let pages = |id: usize| residency.pages.get(id).copied().unwrap_or(0);
    let most =
        nodes.iter().map(|node| node.memory).max_by_key(|id| (pages(*id), usize::MAX - id))?;
    let checked: usize = residency.pages.iter().sum();
    (pages(most) > 0).then(|| {
        let why = format!("{} of {checked} checked pages are there", pages(most));
        (most as u32, why)
    })
}

impl<P: Platform> Home<P> {
    /// Binds a range of memory to the home: pages that are elsewhere are moved there, and pages that are touched later come from there
    /// while the node has free memory. Pages that are only partly in the range are left alone. If there is only one node, this does
    /// nothing.
    ///
    /// # Errors
    /// The home's node can no longer be used ([`Error::NoHome`]). Or the system refuses, as many containers do ([`Error::Refused`]): then
    /// the memory stays where it is, and the program can go on.
    pub fn bind(&self, range: &mut [u8]) -> Result<(), Error> {
        let homes = &self.inside().homes;
        if !homes.has_several() {
            return Ok(());
        }
        let nodes = homes.nodes();
        let node =
            nodes.get(nodes.index_of(self.inside().node() as usize).map_err(Error::NoHome)?).memory;
        P::bind_memory(range, &SystemPolicy::Preferred(node), true).map_err(Error::Refused)
    }

    /// Binds a slice of any type, as [`bind`](Self::bind) does.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_slice<T>(&self, slice: &mut [T]) -> Result<(), Error> {
        let bytes = core::mem::size_of_val(slice);
        // SAFETY: validity: the slice's own bytes. What is in them that is no value of `u8` (padding) is neither read nor written: the
        // platform uses the address and the length. Aliasing: the caller's exclusive borrow, during the call.
        let range = unsafe { core::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), bytes) };
        self.bind(range)
    }

    /// Declares that a range of memory belongs to the home until the returned guard is dropped: a [dynamic](Self::set_dynamic) home moves
    /// to where most of its memory is.
    ///
    /// The memory itself is not touched, kept or moved. Addresses that are no longer mapped count as nothing.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::home::Home;
    ///
    /// let table = vec![0_u8; 1 << 20];
    /// let home = Home::near(&table)?;
    /// let _registered = home.register(&table);
    /// home.set_dynamic(true);
    /// println!("{}", home.explain());
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn register(&self, range: &[u8]) -> Registered<P> {
        self.register_slice(range)
    }

    /// Registers a slice of any type, as [`register`](Self::register) does.
    pub fn register_slice<T>(&self, slice: &[T]) -> Registered<P> {
        let start = slice.as_ptr().addr();
        let range = start..start + core::mem::size_of_val(slice);
        let number = self.inside().ranges.lock().add(range);
        Registered { home: self.clone(), number }
    }
}

/// Memory belongs to a home while this guard lives; returned by [`Home::register`].
#[must_use = "the memory belongs to the home as long as this lives"]
#[derive(Debug)]
pub struct Registered<P: Platform = nearq_platform::Linux> {
    home: Home<P>,
    number: u64,
}

impl<P: Platform> Drop for Registered<P> {
    fn drop(&mut self) {
        self.home.inside().ranges.lock().remove(self.number);
    }
}

impl<P: Platform> Inside<P> {
    /// Sampled pages of the registered memory, by the node's number: each range gets samples in proportion to its share of all the bytes.
    pub(super) fn pages(&self) -> Residency {
        let list: Vec<_> = self.ranges.lock().list.iter().map(|(_, range)| range.clone()).collect();
        let all: usize = list.iter().map(ExactSizeIterator::len).sum();
        let mut sum = Residency::default();
        for range in list {
            let share = (range.len() as u128 * SAMPLES as u128).div_ceil(all.max(1) as u128);
            let Ok(residency) = P::residency_at(range, share as usize) else { continue };
            if sum.pages.len() < residency.pages.len() {
                sum.pages.resize(residency.pages.len(), 0);
            }
            for (sum, pages) in sum.pages.iter_mut().zip(&residency.pages) {
                *sum += pages;
            }
            sum.absent += residency.absent;
        }
        sum
    }
}

/// What a worker's memory policy must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The policy that the program had before there were homes.
    Own,
    /// That node first.
    Node(u32),
    /// All nodes in turn.
    InTurn,
}

/// The memory policy of one worker's thread. Private to it.
///
/// A thread inherits the policy of the thread that started it, which may be a worker in the middle of an item with a home. So if there are
/// homes, a new worker does not know which policy it has, and sets it before its first item.
pub(crate) struct WorkerMemory {
    /// None if that is not known.
    has: Option<Wanted>,
    /// What the program had before there were homes; known from the first change on.
    own: Option<SystemPolicy>,
    /// The policy was refused, or the thread has one that must not be changed.
    off: bool,
}

impl WorkerMemory {
    pub(crate) fn new<P: Platform>(homes: &Homes<P>) -> Self {
        WorkerMemory { has: (!homes.are_used()).then_some(Wanted::Own), own: None, off: false }
    }

    /// Whether it differs from what the program had before, or may differ.
    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        self.has != Some(Wanted::Own)
    }

    /// Ensures that the policy is that: one system call if it is another one.
    #[inline]
    pub(crate) fn want<P: Platform>(&mut self, wanted: Wanted, homes: &Arc<Homes<P>>) {
        if self.has != Some(wanted) && !self.off {
            self.change(wanted, homes);
        }
    }

    #[cold]
    fn change<P: Platform>(&mut self, wanted: Wanted, homes: &Arc<Homes<P>>) {
        self.own = self.own.take().or_else(|| homes.own_policy());
        let Some(own) = self.own.clone() else {
            self.off = true;
            return;
        };
        let policy = match wanted {
            Wanted::Own => own,
            Wanted::Node(node) => SystemPolicy::Preferred(node as usize),
            Wanted::InTurn => {
                SystemPolicy::Interleave(homes.nodes().iter().map(|node| node.memory).collect())
            }
        };
        match P::set_memory_policy(&policy) {
            Ok(()) => self.has = Some(wanted),
            Err(refused) => {
                self.off = true;
                super::registry::warn_of_memory::<P>(&refused);
            }
        }
    }
}
