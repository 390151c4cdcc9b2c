//! The task of numa_test: `a[ix[i]] += b[i]` over random places, then `b[k] = a[k]`, again and again.
//!
//! Written anew after what is known of `randupdt` (E. Focht, 2001): one allocation of 20 bytes for each element, two arrays of
//! doubles and one of indices; in each pass every element of `b` is added to a random element of `a`, and then `b` becomes a
//! copy of `a`. The task looks at its clocks every 20,000 updates, and where its memory is each second.

use super::account::{Account, Told};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of an element: two doubles and an index.
pub(super) const ELEMENT: usize = 20;
/// Updates from look to look.
const UPDATES: usize = 20_000;
/// How often it looks where its memory is.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a task works.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Until {
    /// So many passes.
    Passes(usize),
    /// Until so many nanoseconds after the run began.
    Time(u64),
}

/// What a task does it to, and where.
pub(super) trait Memory {
    /// Touches all of it for the first time: `a` is zero, `b` counts, `ix` is random.
    fn touch(&mut self);
    /// Updates by the elements from `from` to below `to`.
    fn update(&mut self, from: usize, to: usize);
    /// `b` becomes a copy of `a`.
    fn copy(&mut self);
    /// Pages by node.
    fn pages(&self) -> Vec<u64>;
    /// The time of the run.
    fn now(&self) -> Duration;
    /// CPU time that the task has used.
    fn cpu_time(&self) -> Duration;
    /// The node that it is on.
    fn node(&self) -> usize;
    /// CPU time in user mode, and in the kernel if that is told apart.
    fn user_and_system(&self) -> (Duration, Option<Duration>);
}

/// Works; `settled` is called when the memory is touched.
pub(super) fn work(
    memory: &mut impl Memory,
    nodes: usize,
    elements: usize,
    until: Until,
    settled: impl FnOnce(),
) -> Told {
    let mut account = Account::open(nodes, memory.node(), memory.cpu_time());
    memory.touch();
    account.look(memory.now(), memory.cpu_time(), memory.node());
    account.settle(&memory.pages());
    let mut looked = memory.now();
    settled();
    let mut passes = 0;
    let over = |passes: usize, now: Duration| match until {
        Until::Passes(all) => passes >= all,
        Until::Time(end) => now.as_nanos() >= u128::from(end),
    };
    'passes: while !over(passes, memory.now()) {
        let mut at = 0;
        while at < elements {
            let end = elements.min(at + UPDATES);
            memory.update(at, end);
            at = end;
            let now = memory.now();
            account.look(now, memory.cpu_time(), memory.node());
            if matches!(until, Until::Time(_)) && over(passes, now) {
                break 'passes;
            }
            if now.saturating_sub(looked) >= PERIOD {
                looked = now;
                account.settle(&memory.pages());
            }
        }
        memory.copy();
        account.look(memory.now(), memory.cpu_time(), memory.node());
        passes += 1;
    }
    let (user, system) = memory.user_and_system();
    account.close(user, system, memory.pages())
}
