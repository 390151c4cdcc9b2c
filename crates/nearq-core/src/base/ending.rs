//! The ends of futures, run one after the other when one end causes the next.
//!
//! A future that is dropped drops what it holds. That may wake another future whose queue is gone, or give back what kept it alive, so that
//! the other future ends in the same thread (`future`). A chain of these must not need a stack as deep as the chain is long: beyond
//! [`DEEPEST`] ends within each other, the next ones are put on a list, and the outermost end runs them when it is over. A thread that is
//! about to wait runs them first ([`catch_up`]), because it may wait for one of them.
//!
//! Closures that are cancelled are not put off: a caller that cancels one is promised that it has been dropped when the call returns
//! (`task`), and may free what the closure used. So a chain of them does need a deep stack.
//!
//! The timer's thread has no time for what these ends run. It puts off all ends that it causes, for another thread to run ([`put_off`]).
//!
//! The list is on the stack of the outermost end; the thread's second slot (`Threads::ending`) points to it. Nothing else refers to it.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use std::collections::VecDeque;

use nearq_platform::Platform;

/// At most this many ends run within each other.
const DEEPEST: u32 = 16;

/// An end that was put off.
pub(crate) struct End(Box<dyn FnOnce()>);

// SAFETY: the caller of `in_turn` promises that any thread may run it.
unsafe impl Send for End {}

impl End {
    pub(crate) fn run(self) {
        (self.0)();
    }
}

struct Ends {
    depth: Cell<u32>,
    later: RefCell<VecDeque<End>>,
}

/// Clears the slot when it is dropped.
struct Entered<P: Platform>(PhantomData<P>);

impl<P: Platform> Drop for Entered<P> {
    fn drop(&mut self) {
        P::set_ending(core::ptr::null());
    }
}

/// The list of ends that were put off while the caller is within other ends.
fn current<'a, P: Platform>() -> Option<&'a Ends> {
    // SAFETY: null, or set by `in_turn` to what is on this thread's stack until that has cleared it again.
    unsafe { P::ending().cast::<Ends>().as_ref() }
}

/// Runs `end`, which ends a future and does not panic: either now, or before the outermost end that the caller is within is over.
///
/// # Safety
/// Any thread may run `end`.
pub(crate) unsafe fn in_turn<P: Platform>(end: impl FnOnce() + 'static) {
    let Some(ends) = current::<P>() else {
        let ends = Ends { depth: Cell::new(1), later: RefCell::default() };
        P::set_ending((&raw const ends).cast());
        let _entered = Entered::<P>(PhantomData);
        end();
        ends.run_later();
        return;
    };
    let depth = ends.depth.get();
    if depth >= DEEPEST {
        ends.later.borrow_mut().push_back(End(Box::new(end)));
        return;
    }
    ends.depth.set(depth + 1);
    end();
    ends.depth.set(depth);
}

/// Runs `f`, which does not panic, and gives the ends that it causes to `add` instead of running them. The calling thread is not within an
/// end. (If it waits in `f`, the ends run before that wait, because it may wait for them.)
pub(crate) fn put_off<P: Platform, R>(f: impl FnOnce() -> R, add: impl FnMut(End)) -> R {
    debug_assert!(current::<P>().is_none());
    let ends = Ends { depth: Cell::new(DEEPEST), later: RefCell::default() };
    P::set_ending((&raw const ends).cast());
    let entered = Entered::<P>(PhantomData);
    let result = f();
    drop(entered);
    ends.later.into_inner().into_iter().for_each(add);
    result
}

/// Runs the ends that have been put off in this thread. Called before the thread waits.
pub(crate) fn catch_up<P: Platform>() {
    if let Some(ends) = current::<P>() {
        ends.run_later();
    }
}

impl Ends {
    fn run_later(&self) {
        loop {
            let next = self.later.borrow_mut().pop_front();
            let Some(end) = next else { return };
            end.run();
        }
    }
}
