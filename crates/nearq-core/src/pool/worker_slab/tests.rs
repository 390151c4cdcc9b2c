//! The slab of workers: numbers stay valid, the space may run out, and several threads may add at once.

use std::sync::Arc;

use nearq_platform::{Linux, ThreadSpec, Threads};

use super::{CHUNK, MAX_WORKERS, WorkerSlab};
use crate::pool::worker::Worker;

#[test]
fn numbers_are_consecutive_until_the_slab_is_full() {
    let slab = WorkerSlab::<Linux>::new();
    assert_eq!(slab.iter().count(), 0);
    for number in 0..MAX_WORKERS {
        let worker =
            slab.add(|index| Worker::new(index, core::ptr::null())).expect("there is room");
        assert_eq!(worker.index as usize, number);
        assert!(core::ptr::eq(worker, slab.get(worker.index)));
    }
    for _ in 0..3 {
        assert!(slab.add(|index| Worker::new(index, core::ptr::null())).is_none());
    }
    let numbers: Vec<_> = slab.iter().map(|worker| worker.index as usize).collect();
    assert_eq!(numbers, (0..MAX_WORKERS).collect::<Vec<_>>());
}

#[test]
fn threads_add_workers_at_once() {
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let slab = Arc::new(WorkerSlab::<Linux>::new());
        let threads = [(); 3].map(|()| {
            let slab = Arc::clone(&slab);
            Linux::spawn(ThreadSpec::default(), move || {
                for _ in 0..CHUNK {
                    slab.add(|index| Worker::new(index, core::ptr::null())).expect("there is room");
                }
            })
            .expect("a thread can be started")
        });
        threads.into_iter().for_each(Linux::join);
        let numbers: Vec<_> = slab.iter().map(|worker| worker.index as usize).collect();
        assert_eq!(numbers, (0..3 * CHUNK).collect::<Vec<_>>());
    }
}

#[test]
#[cfg(not(miri))]
fn through_every_interleaving() {
    use nearq_model::Loom;

    crate::item::tests::model(2, || {
        let slab = Arc::new(WorkerSlab::<Loom>::new());
        let others = [(); 2].map(|()| {
            let slab = Arc::clone(&slab);
            crate::item::tests::spawn(move || {
                let worker =
                    slab.add(|index| Worker::new(index, core::ptr::null())).expect("there is room");
                assert_eq!(slab.get(worker.index).index, worker.index);
            })
        });
        // A reader sees entries that are whole, or none.
        assert!(slab.iter().all(|worker| (worker.index as usize) < 2));
        others.into_iter().for_each(Loom::join);
        let numbers: Vec<_> = slab.iter().map(|worker| worker.index).collect();
        assert_eq!(numbers, [0, 1]);
    });
}
