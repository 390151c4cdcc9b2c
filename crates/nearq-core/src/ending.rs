//! The ends of futures, one after the other where the end of one brings about the next.
//!
//! A future that is dropped drops what it holds. That may wake another future whose queue is gone, or give back what kept it, and so the
//! other one ends in the same thread (`future`). A chain of these must not need a stack that is as deep as the chain is long: beyond
//! [`DEEPEST`] ends within each other, the next ones are put on a list, and the outermost of the ends runs them when it is over. A thread
//! that is about to wait runs them first ([`catch_up`]), because it may wait for one of them.
//!
//! Closures that are cancelled are not put off: who cancels one is promised that it has been dropped when that returns (`task`), and may
//! free what it used. So a chain of them does need a deep stack.
//!
//! The list is on the stack of the outermost end; the thread's second slot (`Platform::ending`) leads to it. Nobody else knows of it.

use core::cell::{Cell, RefCell};
use core::marker::PhantomData;
use std::collections::VecDeque;

use nearq_platform::Platform;

/// So many ends run within each other.
const DEEPEST: u32 = 16;

type End = Box<dyn FnOnce()>;

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

/// What the ends that the caller is within have put off.
fn current<'a, P: Platform>() -> Option<&'a Ends> {
    // SAFETY: null, or set by `in_turn` to what is on this thread's stack until that has cleared it again.
    unsafe { P::ending().cast::<Ends>().as_ref() }
}

/// Runs `end`, which ends a future and does not panic: now, or before the outermost end that the caller is within is over.
pub(crate) fn in_turn<P: Platform>(end: impl FnOnce() + 'static) {
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
        ends.later.borrow_mut().push_back(Box::new(end));
        return;
    }
    ends.depth.set(depth + 1);
    end();
    ends.depth.set(depth);
}

/// Runs the ends that have been put off in this thread; before it waits.
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
            end();
        }
    }
}
