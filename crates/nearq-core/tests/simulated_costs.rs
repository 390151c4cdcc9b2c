//! What the runtime's steps cost on a simulated machine, where the cost is that of the simulation and not of the step.

use nearq_core::Work;
use nearq_platform::LockPlatform;
use nearq_sim::{Costs, Sim, Simulation};
use nearq_topology::Topology;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;

/// The line of an item is in the cache of the thread that drops the last handle, so freeing it reads nothing from memory.
#[test]
fn freeing_an_item_does_not_read_it_from_memory() {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let took = Simulation::new(machine, 1)
        .run(|| {
            let work = Work::<Sim>::new_in(|_| {});
            // The first access to a line reads it from memory.
            assert!(!work.cancel());
            let before = Sim::now();
            drop(work);
            Sim::now() - before
        })
        .expect();
    assert!(took < Duration::from_nanos(Costs::DEFAULT.memory), "{took:?}");
}
