//! The load of the kernel's locktorture: everybody wants one lock and changes two shared cache lines under it.

use super::contestant::Exclusive;
use super::load::{Load, Plan};
use super::run::Shape;
use super::{Line, bump};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

/// How often a long section changes both lines.
pub(super) const LONG_SECTION: u64 = 100;

/// A lock, and what it protects.
pub(super) struct Torture<P: Host, L> {
    lock: Line<L>,
    /// Counters that are changed in two steps, so that one change of two at the same time is lost.
    lines: [Line<P::AtomicU64>; 2],
    changes: u64,
}

impl<P: Host, L: Exclusive> Shape<P> for Torture<P, L> {
    fn new(plan: &Plan) -> Self {
        let line = || Line(P::AtomicU64::new(0));
        let changes = if plan.load == Load::Long { LONG_SECTION } else { 1 };
        Self { lock: Line(L::free()), lines: [line(), line()], changes }
    }

    #[inline]
    fn step(&self, _writer: usize, _turn: u64, acquired: impl FnOnce()) {
        self.lock.0.with(|| {
            acquired();
            for _ in 0..self.changes {
                bump::<P>(&self.lines[0].0);
                bump::<P>(&self.lines[1].0);
            }
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let expected = entered.iter().sum::<u64>() * self.changes;
        // Relaxed: everybody has ended.
        let found = [0, 1].map(|line| self.lines[line].0.load(Ordering::Relaxed));
        if found == [expected; 2] {
            return Ok(());
        }
        Err(format!("the counters stand at {found:?}, and {expected} changes were made of each"))
    }
}
