//! The simulated machine's memory: what an access costs, by where the data is.
//!
//! Two kinds of access, two models:
//! - **Atomics** (`lines`): single cache lines with an owner, readers and a home node. They move one at a time, and the cost depends on the
//!   distances between all of them.
//! - **Declared bytes** (`bytes`): ranges that a thread reads or writes as a whole. They are followed by page, and the cost depends on
//!   which caches hold them (`caches`, `pages`), on which node they live (`placement`), and on the other traffic on the path to them
//!   (`bandwidth`). Many accesses to one range can be declared at once; then the cost depends on how much of the range each cache holds
//!   (`bytes/bulk`).
//!
//! The two do not meet: an atomic inside a declared range is followed as an atomic, and its neighbours as bytes.
//! So the policies of ranges do not apply to lines.
//!
//! # Addresses
//! Both find their state by real address, so the layout of the program's own structures counts, as it does on a real machine. The address
//! itself must not count: tables are looked up by address, and never walked if the order would have an effect. Declared memory that is given
//! back is forgotten: when it is used again, it is new. Lines that are given back are used again (`freed`).

mod bandwidth;
mod bytes;
mod caches;
mod capture;
mod coming;
mod freed;
mod lines;
mod pages;
mod placement;
mod stores;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use self::placement::Policy;
use crate::context;
use crate::costs::Costs;
use crate::hardware::Hardware;

pub(crate) use bytes::{Accesses, Bytes, bind, many, stream};
pub(crate) use lines::{Access, Lines};
pub(crate) use placement::Placing;

/// Bytes of a line.
const LINE: usize = 64;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Spreads the bits of an address or a number; the same in every process.
#[derive(Default)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }
    fn write_usize(&mut self, value: usize) {
        let mixed = (self.0 ^ value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map that is looked up and never walked: its order depends on addresses.
pub(crate) type AddressMap<T> = HashMap<usize, T, BuildHasherDefault<FixedHasher>>;

/// Who accesses a line, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By<'a> {
    pub(crate) cpu: usize,
    pub(crate) now: u64,
    /// Where the thread's memory comes from.
    pub(crate) policy: &'a Policy,
}

/// All memory of a machine.
#[derive(Debug)]
pub(crate) struct Memory {
    lines: Lines,
    pub(crate) bytes: Bytes,
}

impl Memory {
    pub(crate) fn new(hardware: &Hardware, costs: &Costs) -> Self {
        Memory { lines: Lines::default(), bytes: Bytes::new(hardware.topology(), costs) }
    }

    /// Accesses the line of an atomic at time `now`, by a thread with that policy. Returns the line's number, and nanoseconds until the
    /// access is done.
    #[inline]
    pub(crate) fn access(
        &mut self,
        address: usize,
        access: Access,
        by: By<'_>,
        hardware: &Hardware,
        costs: &Costs,
    ) -> (u64, u64) {
        let node = hardware.node(by.cpu) as u32;
        let place = |number| self.bytes.place_line(node, by.policy, number);
        self.lines.access(address, access, (by.cpu, by.now), hardware, costs, place)
    }

    /// A CPU asks for a copy of the line of an atomic, and does not wait for it.
    pub(crate) fn fetch_ahead(&mut self, address: usize, by: (usize, u64), hardware: &Hardware) {
        self.lines.fetch_ahead(address, by, hardware);
    }

    /// When a CPU may do an access, for its stores that others have not seen yet.
    pub(crate) fn ready(&mut self, access: Access, cpu: usize, now: u64, costs: &Costs) -> u64 {
        self.lines.ready(access, cpu, now, costs)
    }

    /// When all stores of a CPU have been seen; `now` if they have.
    #[inline]
    pub(crate) fn stores_seen(&self, cpu: usize, now: u64) -> u64 {
        self.lines.seen(cpu, now)
    }

    /// When a CPU must try again to access the line of `address`, if it must wait.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        address: usize,
        access: Access,
        by: (usize, u64),
        hardware: &Hardware,
        costs: &Costs,
    ) -> Option<u64> {
        self.lines.wait(address, access, by, hardware, costs)
    }

    /// The number of an atomic's line, if it was touched.
    pub(crate) fn line(&self, address: usize) -> Option<u64> {
        self.lines.line(address)
    }

    /// Gives a line back: the atomic at `address` is dropped on that CPU.
    pub(crate) fn give_line_back(&mut self, address: usize, cpu: usize, costs: &Costs) {
        self.lines.give_back(address, cpu, costs);
    }
}

/// Records that memory is given back: the machine on which the caller is a simulated thread forgets what it knows about its pages.
///
/// The allocator calls this, so it is also called for memory of the simulator itself, while the state is borrowed. That memory was never
/// declared by a program, so the machine knows nothing about it.
pub(crate) fn given_back(start: usize, bytes: usize) {
    if let Some(shared) = context::current()
        && let Ok(mut world) = shared.world.try_borrow_mut()
    {
        world.memory.bytes.forget(start, bytes);
    }
}
