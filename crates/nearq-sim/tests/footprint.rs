//! The simulator's memory grows with the number of living objects, not with past events. This is one test, alone in its process, because it
//! counts all of the process's memory.

#![allow(clippy::disallowed_types, reason = "counts the real memory of the real process")]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Parker, ThreadSpec, Threads};
use nearq_sim::{LineAligned, Sim, Simulation, compute};
use nearq_topology::Topology;

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: this passes every call to another allocator, and only counts besides.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are ours.
        unsafe { LineAligned.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller got `pointer` from `alloc` above with this layout, so it is `LineAligned`'s.
        unsafe { LineAligned.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that are allocated, and pages that are mapped: stacks are mapped and not allocated.
fn memory() -> (usize, usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("it is Linux");
    let pages = pages.split(' ').next().and_then(|pages| pages.parse().ok());
    (LIVE.load(Ordering::Relaxed), pages.expect("the first number"))
}

#[test]
fn a_long_run_takes_no_more_memory_than_a_short_one() {
    let machine = Topology::from_synthetic("numa:2 core:4").expect("well formed");
    let outcome = Simulation::new(machine, 1).time_limit(Duration::from_secs(100_000)).run(|| {
        let parkers: Arc<Vec<_>> = Arc::new((0..16).map(|_| Parker::<Sim>::new()).collect());
        let mut seen = Vec::new();
        for round in 0..40 {
            // Threads that come and go, and deadlines far ahead that are not reached: 2,000 of them a round.
            let left = Arc::new(nearq_sim::AtomicU32::new(16));
            let threads: Vec<_> = (0..16)
                .map(|at| {
                    let (parkers, left) = (Arc::clone(&parkers), Arc::clone(&left));
                    let main = move || {
                        for _ in 0..125 {
                            parkers[at].park(Some(Sim::now() + Duration::from_secs(50_000)));
                            compute(Duration::from_micros(500));
                        }
                        left.fetch_sub(1, nearq_platform::Ordering::Relaxed);
                    };
                    Sim::spawn(ThreadSpec::default(), main).expect("room")
                })
                .collect();
            while left.load(nearq_platform::Ordering::Relaxed) > 0 {
                parkers.iter().for_each(Parker::unpark);
                Sim::sleep(Duration::from_millis(5));
            }
            threads.into_iter().for_each(Sim::join);
            if round == 4 || round == 39 {
                seen.push((Sim::now(), memory()));
            }
        }
        seen
    });
    let [(early, few), (late, many)] = outcome.expect()[..] else { panic!("two rounds are seen") };
    assert!(late - early > Duration::from_secs(20), "{:?}", late - early);
    // A hash map may have grown; 70,000 deadlines would be millions of bytes, 560 stacks more than 30,000 pages.
    assert!(many.0 < few.0 + 20_000, "{} bytes, then {}", few.0, many.0);
    assert!(many.1 < few.1 + 2_000, "{} pages, then {}", few.1, many.1);
}
