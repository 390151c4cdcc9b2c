//! The child of a fork makes pools of its own.
//!
//! A program of its own: nothing else runs while it forks.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it runs on Linux only")]

#[path = "../../rayon-core/tests/in_child/mod.rs"]
mod in_child;
#[path = "../../../crates/nearq-topology/tests/skipped/mod.rs"]
mod skipped;

use std::panic::{AssertUnwindSafe, catch_unwind};

use in_child::in_child;
use nearq_platform::{Linux, Placement, Threads};
use nearq_rayon::{AffinityScope, Pools};
use rayon::prelude::*;
use skipped::skipped;

/// Bytes of stack of a thread: more than `ROOM`.
const STACK: usize = 256 << 20;
/// Bytes of address space for all that a child allocates besides stacks.
const ROOM: usize = 64 << 20;

/// Whether each pod works, on its CPUs.
fn use_pools(pools: &Pools) -> bool {
    let masks = pools.each(|_| Linux::affinity(Linux::current_thread()).unwrap());
    let expected: Vec<_> = pools.pods().map(|pod| pod.mask()).collect();
    let sums = pools.pods().map(|pod| pod.run(|| (0..1000).into_par_iter().sum::<u32>()));
    masks == expected && sums.into_iter().all(|sum| sum == 499_500) && pools.here(|| true)
}

/// Bytes of address space of this process.
fn address_space() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: it reads a number.
    pages * usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap()
}

fn limit_address_space(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads the limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
}

/// What a child does that may start no thread at first.
fn recovers(pools: &Pools) -> bool {
    // The C library keeps the stacks of its parent's threads for the threads of the child: others take them first.
    for _ in 0..pools.pods().map(|pod| pod.threads()).sum() {
        std::thread::Builder::new().stack_size(STACK).spawn(std::thread::park).unwrap();
    }
    limit_address_space((address_space() + ROOM) as libc::rlim_t);
    std::panic::set_hook(Box::new(|_| ()));
    let refused = catch_unwind(AssertUnwindSafe(|| pools.in_pod(0, || ()))).unwrap_err();
    limit_address_space(libc::RLIM_INFINITY);
    let text = refused.downcast::<String>().unwrap();
    text.starts_with("after a fork: could not start the thread") && use_pools(pools)
}

fn main() {
    let pools = Pools::builder().scope(AffinityScope::Cpu).threads(2).build().unwrap();
    assert!(use_pools(&pools));
    let global = || use_pools(Pools::global());
    assert!(global());
    assert_eq!(in_child(|| use_pools(&pools) && global()), Ok(()), "pools that were used");

    let unused = Pools::new(AffinityScope::Cache).unwrap();
    assert_eq!(in_child(|| use_pools(&unused)), Ok(()), "pools that were not used");

    for is_used in [false, true] {
        let twice = in_child(|| {
            (!is_used || use_pools(&pools)) && in_child(|| use_pools(&pools)).is_ok() && global()
        });
        assert_eq!(twice, Ok(()), "a fork of a fork");
        let pools = Pools::new(AffinityScope::Cpu).unwrap();
        let ends = in_child(move || {
            let is_right = !is_used || use_pools(&pools);
            drop(pools);
            is_right
        });
        assert_eq!(ends, Ok(()), "pools that end in the child");
    }

    // SAFETY: the system checks what it is given.
    let namespace = || unsafe { libc::unshare(libc::CLONE_NEWPID) } == 0;
    let same_id = in_child(|| {
        if !namespace() {
            skipped(
                "a child with the id of its parent",
                "no process namespace is allowed",
                "run it as root",
            );
            return true;
        }
        let first = in_child(|| {
            let is_first = std::process::id() == 1 && use_pools(&pools) && namespace();
            is_first && in_child(|| std::process::id() == 1 && use_pools(&pools)).is_ok()
        });
        first.is_ok()
    });
    assert_eq!(same_id, Ok(()), "a child with the id of its parent");

    let large = Pools::builder().stack_size(STACK).build().unwrap();
    assert_eq!(in_child(|| recovers(&large)), Ok(()), "a child that may start no thread at first");

    assert!(use_pools(&pools) && use_pools(&unused) && global(), "the parent goes on");
}
