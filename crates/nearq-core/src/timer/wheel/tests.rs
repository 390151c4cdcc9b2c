//! The wheel, compared with a list that is searched: it returns everything that is due and nothing else, however time jumps.

use core::cell::UnsafeCell;
use core::ptr::NonNull;
use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{Entry, Node, Wheel};

struct Plain(UnsafeCell<Entry<Plain>>);

// SAFETY: a node's entry is its field.
unsafe impl Node for Plain {
    unsafe fn with_entry<R>(node: NonNull<Self>, f: impl FnOnce(&mut Entry<Self>) -> R) -> R {
        // SAFETY: alive by the caller's promise.
        let entry = unsafe { node.as_ref() }.0.get();
        // SAFETY: only the caller touches it.
        f(unsafe { &mut *entry })
    }
}

/// A wheel, its nodes, and which deadlines they should have.
struct Both {
    now: u64,
    wheel: Wheel<Plain>,
    nodes: Vec<Plain>,
    /// The deadline of each node that is on the wheel.
    deadlines: Vec<Option<u64>>,
    /// Whether a node that was not due was taken off since the wheel was last empty.
    removed: bool,
}

impl Both {
    fn new(now: u64, count: usize) -> Self {
        let nodes = (0..count).map(|_| Plain(UnsafeCell::new(Entry::new()))).collect();
        Both { now, wheel: Wheel::new(now), nodes, deadlines: vec![None; count], removed: false }
    }

    fn node(&self, number: usize) -> NonNull<Plain> {
        NonNull::from(&self.nodes[number])
    }

    fn insert(&mut self, number: usize, deadline: u64) {
        self.remove(number);
        // SAFETY: it is off the wheel, and lives as long as the wheel.
        unsafe { self.wheel.insert(self.node(number), deadline) };
        self.deadlines[number] = Some(deadline);
    }

    fn remove(&mut self, number: usize) {
        // SAFETY: the node is alive, and there is one wheel.
        let was_on = unsafe { self.wheel.remove(self.node(number)) };
        assert_eq!(was_on, self.deadlines[number].take().is_some());
        self.removed |= was_on;
    }

    fn take(&mut self) -> Option<(usize, u64)> {
        let node = self.wheel.take_due(self.now)?;
        let place = node.as_ptr().addr() - self.nodes.as_ptr().addr();
        let number = place / size_of::<Plain>();
        Some((number, self.deadlines[number].take().expect("it was on the wheel")))
    }

    /// Moves time, takes off what is due, and puts back what `again` says. Returns how many were taken.
    fn advance(&mut self, to: u64, mut again: impl FnMut(usize, u64) -> Option<u64>) -> usize {
        // A node that was put on after its deadline counts as due from then on.
        let mut last_tick = self.now >> super::TICK_BITS;
        let before = last_tick;
        self.now = to;
        let mut due: BTreeSet<usize> = self.due();
        let (mut taken, mut ordered) = (0, true);
        while let Some((number, deadline)) = self.take() {
            taken += 1;
            assert!(deadline <= self.now, "{deadline} is taken at {}", self.now);
            assert!(due.remove(&number), "it was due already, and is taken once");
            let tick = (deadline >> super::TICK_BITS).max(before);
            assert!(!ordered || tick >= last_tick, "the earliest tick first");
            last_tick = tick;
            if let Some(next) = again(number, deadline) {
                self.insert(number, next);
                if next <= self.now {
                    due.insert(number);
                    ordered = false;
                }
            }
        }
        assert_eq!(due, BTreeSet::new(), "all due nodes were taken");
        self.check();
        taken
    }

    fn due(&self) -> BTreeSet<usize> {
        let due = |deadline: &Option<u64>| deadline.is_some_and(|deadline| deadline <= self.now);
        (0..self.nodes.len()).filter(|number| due(&self.deadlines[*number])).collect()
    }

    fn check(&mut self) {
        let first = self.deadlines.iter().flatten().min().copied();
        let next = self.wheel.next_expiry();
        assert_eq!(self.wheel.is_empty(), first.is_none());
        self.removed &= first.is_some();
        if self.removed {
            assert_eq!(next.is_some(), first.is_some());
            assert!(next <= first, "{next:?} is after {first:?}");
        } else {
            assert_eq!(next, first);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, u64),
    Remove(usize),
    Advance(u64),
    /// Moves to the time that the wheel reports, less this many nanoseconds.
    Next(u64),
}

/// Times of every size: each number of bits is equally likely.
fn times() -> impl Strategy<Value = u64> {
    (0_u32..=63, any::<u64>()).prop_map(|(bits, random)| random & ((1_u64 << bits) - 1))
}

fn steps(nodes: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..nodes, times()).prop_map(|(node, time)| Step::Insert(node, time)),
        1 => (0..nodes, 0_u64..20_000).prop_map(|(node, time)| Step::Insert(node, time)),
        2 => (0..nodes).prop_map(Step::Remove),
        2 => times().prop_map(Step::Advance),
        3 => (0_u64..3).prop_map(Step::Next),
    ];
    vec(step, 0..if cfg!(miri) { 60 } else { 300 })
}

/// How many programs are tried; few under Miri.
fn cases() -> u32 {
    if cfg!(miri) { 4 } else { nearq_model::bound(400, 2_000) }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn only_due_nodes_are_taken(
        start in times(),
        steps in steps(24),
        again in vec(proptest::option::of(times()), 24),
    ) {
        let mut both = Both::new(start, 24);
        for step in steps {
            match step {
                // Also deadlines that have passed.
                Step::Insert(node, time) => {
                    let deadline = both.now.saturating_add(time).saturating_sub(3_000);
                    both.insert(node, deadline);
                    both.check();
                }
                Step::Remove(node) => {
                    both.remove(node);
                    both.check();
                }
                Step::Advance(time) => {
                    let to = both.now.saturating_add(time);
                    let mut left = 40;
                    both.advance(to, |node, _| {
                        left -= 1;
                        again[node].filter(|_| left > 0).map(|time| to.saturating_add(time))
                    });
                }
                Step::Next(before) => {
                    let next = both.wheel.next_expiry().unwrap_or(0);
                    let to = next.saturating_sub(before).max(both.now);
                    both.advance(to, |_, _| None);
                }
            }
        }
    }

    /// A thread that sleeps until the time that the wheel reports is woken once for each different deadline, if nothing is removed, and a
    /// few times more if something is.
    #[test]
    fn sleeping_until_the_next_expiry_causes_no_needless_wake_ups(
        start in times(),
        times in vec(times(), 1..50),
        removed in vec(any::<bool>(), 50),
        remove in any::<bool>(),
    ) {
        let mut both = Both::new(start, 50);
        for (node, time) in times.iter().enumerate() {
            both.insert(node, start.saturating_add(*time));
        }
        for (node, removed) in removed.iter().enumerate() {
            if *removed && remove {
                both.remove(node);
            }
        }
        let gone = removed.iter().filter(|removed| **removed && remove).count();
        let mut fruitless = 0;
        while let Some(next) = both.wheel.next_expiry() {
            let to = next.max(both.now);
            fruitless += usize::from(both.advance(to, |_, _| None) == 0);
        }
        prop_assert!(fruitless <= gone, "{} fruitless after {} removals", fruitless, gone);
    }
}

#[test]
fn a_deadline_is_met_to_the_nanosecond() {
    let mut both = Both::new(1_000, 3);
    both.insert(0, 5_001);
    both.insert(1, 5_000);
    both.insert(2, u64::MAX);
    assert_eq!(both.wheel.next_expiry(), Some(5_000));
    assert_eq!(both.advance(4_999, |_, _| None), 0);
    assert_eq!(both.advance(5_000, |_, _| None), 1);
    assert_eq!(both.wheel.next_expiry(), Some(5_001));
    assert_eq!(both.advance(5_001, |_, _| None), 1);
    assert_eq!(both.advance(u64::MAX - 1, |_, _| None), 0);
    assert_eq!(both.advance(u64::MAX, |_, _| None), 1);
    assert_eq!(both.wheel.next_expiry(), None);
}

#[test]
fn nodes_of_one_deadline_expire_in_insertion_order() {
    let mut both = Both::new(0, 100);
    (0..100).for_each(|node| both.insert(node, 1_000_000_000));
    both.now = 1_000_000_000;
    let order: Vec<_> = core::iter::from_fn(|| both.take()).map(|(node, _)| node).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>());
}

#[test]
fn at_the_end_any_node_can_be_taken() {
    let mut both = Both::new(0, 64);
    (0..64).for_each(|node| both.insert(node, 1 << node));
    let taken: BTreeSet<_> =
        core::iter::from_fn(|| both.wheel.take_any()).map(|node| node.as_ptr().addr()).collect();
    assert_eq!(taken.len(), 64);
    assert!(both.wheel.is_empty());
}
