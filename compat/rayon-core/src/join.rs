//! [`join`] and [`join_context`].

use std::marker::PhantomData;

use crate::members::Member;
use crate::registry::Registry;

/// Says whether a closure of [`join_context`] runs in the thread that called that.
#[derive(Debug)]
pub struct FnContext {
    migrated: bool,
    /// Neither `Send` nor `Sync`: it is about the current thread.
    _marker: PhantomData<*mut ()>,
}

impl FnContext {
    fn new(migrated: bool) -> Self {
        FnContext { migrated, _marker: PhantomData }
    }

    /// Whether the closure runs in another thread than the one that called [`join_context`].
    #[inline]
    pub fn migrated(&self) -> bool {
        self.migrated
    }
}

/// Runs two closures, possibly at the same time, and returns both results.
///
/// In a pool, the caller runs the first one. Meanwhile another member may run the second; if none has begun it when the first has returned,
/// the caller runs it too. Outside of pools, both run in the global pool.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     match numbers.split_at_checked(1000) {
///         Some((some, others)) => {
///             let (a, b) = rayon_core::join(|| some.iter().sum::<u64>(), || sum(others));
///             a + b
///         }
///         None => numbers.iter().sum(),
///     }
/// }
/// assert_eq!(sum(&[1; 5000]), 5000);
/// ```
///
/// # Panics
/// With the panic of the first closure, or else of the second, after both have ended.
#[inline(always)]
pub fn join<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    match Member::current() {
        Some(member) if !member.is_attached() => nearq::join(oper_a, oper_b),
        _ => in_pool(|| nearq::join(oper_a, oper_b)),
    }
}

/// As [`join`], with closures that are told whether they run in another thread than the caller.
///
/// # Panics
/// As [`join`].
#[inline(always)]
pub fn join_context<A, B, RA, RB>(oper_a: A, oper_b: B) -> (RA, RB)
where
    A: FnOnce(FnContext) -> RA + Send,
    B: FnOnce(FnContext) -> RB + Send,
    RA: Send,
    RB: Send,
{
    let run = |number: usize, injected: bool| {
        let second = move || {
            let here = Member::current().map(|member| member.number());
            oper_b(FnContext::new(injected || here != Some(number)))
        };
        nearq::join(move || oper_a(FnContext::new(injected)), second)
    };
    match Member::current() {
        Some(member) if !member.is_attached() => run(member.number(), false),
        _ => in_pool(|| run(0, true)),
    }
}

#[cold]
fn in_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    Registry::current().run_in_worker(f)
}
