//! Models of this crate under the model checker. All runs of a model are explored, and the events in them are counted, so that a model
//! cannot pass without reaching the events that it tests.
//!
//! A model that is made smaller, for example with fewer preemptions, may still pass although it no longer reaches these events. So each
//! model names the events that must happen, and fails if they do not. `cargo test -p nearq-lock --lib model -- --nocapture` prints how
//! often it did.

use std::sync::Arc;

use nearq_platform::{Linux, LockPlatform, Ordering};

use crate::statistics::{Event, seen};

/// Counts over all runs of a model. Counting is not a step of any run.
pub(crate) type Count = <Linux as LockPlatform>::AtomicU32;

/// Explores all runs of a model with at most the given number of preemptions; what `reaches` names must happen in some of them.
pub(crate) fn check(
    preemptions: usize,
    reaches: &[Event],
    model: impl Fn() + Send + Sync + 'static,
) {
    check_first(None, preemptions, reaches, model);
}

/// As [`check`]. For a model that is too large for the quick check: explores only the first `runs` runs, if that is given.
pub(crate) fn check_first(
    runs: Option<usize>,
    preemptions: usize,
    reaches: &[Event],
    model: impl Fn() + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_permutations = runs;
    // loom checks the limit only at these intervals.
    builder.checkpoint_interval = runs.unwrap_or(builder.checkpoint_interval);
    let runs = Arc::new(Count::new(0));
    let counted = Arc::clone(&runs);
    seen::clear();
    builder.check(move || {
        // Relaxed: the threads of a model are coroutines of one.
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let runs = runs.load(Ordering::Relaxed);
    let all: Vec<_> = seen::ALL.into_iter().map(|event| (event, seen::count(event))).collect();
    eprintln!("{runs} runs with {preemptions} preemptions: {all:?}");
    for &event in reaches {
        assert!(seen::count(event) > 0, "{event:?} never happens in {runs} runs");
    }
}
