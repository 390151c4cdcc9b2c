//! Random calls against a model of what is promised, call by call.
//!
//! The model has items that are idle, pending or running, queues with a limit, and the result of each call, but no lists, locks or workers.
//! The program runs on the simulated machine: after each call it sleeps until everything is at rest. So what can start has started, and a
//! run is a function of the calls. Items block if a call has closed their gate. Whatever may block runs in a thread of its own, and must
//! return after exactly the call for which the model says so.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

mod model;
mod program;

use nearq_sim::Simulation;
use nearq_topology::Topology;
use proptest::prelude::*;

use model::{ITEMS, QUEUES};
use program::Program;

/// One call.
#[derive(Clone, Copy, Debug)]
enum Call {
    Queue {
        queue: usize,
        item: usize,
    },
    QueueOn {
        queue: usize,
        item: usize,
        cpu: usize,
    },
    QueueDelayed {
        queue: usize,
        item: usize,
        millis: u64,
    },
    ModifyDelayed {
        queue: usize,
        item: usize,
        millis: u64,
    },
    /// If the item runs: it queues itself on that queue before it ends.
    Again {
        queue: usize,
        item: usize,
    },
    Cancel {
        item: usize,
    },
    CancelSync {
        item: usize,
    },
    Disable {
        item: usize,
    },
    DisableSync {
        item: usize,
    },
    Enable {
        item: usize,
    },
    EnableAndQueue {
        queue: usize,
        item: usize,
    },
    Flush {
        item: usize,
    },
    FlushDelayed {
        item: usize,
    },
    /// Executions that begin from now on block.
    Close {
        item: usize,
    },
    Open {
        item: usize,
    },
    FlushQueue {
        queue: usize,
    },
    Drain {
        queue: usize,
    },
    SetMaxActive {
        queue: usize,
        items: usize,
    },
    Freeze,
    Thaw,
    Spawn {
        queue: usize,
    },
    /// The closure that was spawned first goes on, if it runs.
    OpenSpawned,
    /// Cancels the closure that was spawned last.
    CancelSpawned,
    Pass {
        millis: u64,
    },
}

fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 4 => 1..130_u64]
}

fn call() -> impl Strategy<Value = Call> {
    let queue = || 0..QUEUES;
    let item = || 0..ITEMS;
    let both = || (queue(), item());
    prop_oneof![
        10 => both().prop_map(|(queue, item)| Call::Queue { queue, item }),
        3 => (both(), 0..8_usize).prop_map(|((queue, item), cpu)| Call::QueueOn { queue, item, cpu }),
        5 => (both(), delay())
            .prop_map(|((queue, item), millis)| Call::QueueDelayed { queue, item, millis }),
        4 => (both(), delay())
            .prop_map(|((queue, item), millis)| Call::ModifyDelayed { queue, item, millis }),
        4 => both().prop_map(|(queue, item)| Call::Again { queue, item }),
        6 => item().prop_map(|item| Call::Cancel { item }),
        2 => item().prop_map(|item| Call::CancelSync { item }),
        2 => item().prop_map(|item| Call::Disable { item }),
        1 => item().prop_map(|item| Call::DisableSync { item }),
        4 => item().prop_map(|item| Call::Enable { item }),
        2 => both().prop_map(|(queue, item)| Call::EnableAndQueue { queue, item }),
        4 => item().prop_map(|item| Call::Flush { item }),
        2 => item().prop_map(|item| Call::FlushDelayed { item }),
        8 => item().prop_map(|item| Call::Close { item }),
        8 => item().prop_map(|item| Call::Open { item }),
        3 => queue().prop_map(|queue| Call::FlushQueue { queue }),
        2 => queue().prop_map(|queue| Call::Drain { queue }),
        2 => (1..QUEUES, 1..4_usize).prop_map(|(queue, items)| Call::SetMaxActive { queue, items }),
        1 => Just(Call::Freeze),
        2 => Just(Call::Thaw),
        4 => queue().prop_map(|queue| Call::Spawn { queue }),
        4 => Just(Call::OpenSpawned),
        2 => Just(Call::CancelSpawned),
        3 => (1..100_u64).prop_map(|millis| Call::Pass { millis }),
    ]
}

fn check(calls: Vec<Call>) -> Result<(), TestCaseError> {
    let machine = Topology::from_synthetic("core:8").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(move || {
        // If it panics, it is not dropped: the drop would wait for items that block.
        let mut program = core::mem::ManuallyDrop::new(Program::new());
        program.run(&calls);
        core::mem::ManuallyDrop::into_inner(program).end();
    });
    if outcome.panics.is_empty() && outcome.result.is_some() {
        return Ok(());
    }
    let panics: Vec<_> = outcome.panics.iter().map(ToString::to_string).collect();
    Err(TestCaseError::fail(format!("{:?}: {}", outcome.ending, panics.join("; "))))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: nearq_model::bound(700, 2_000),
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_call_keeps_its_promises(calls in prop::collection::vec(call(), 1..40)) {
        check(calls)?;
    }
}
