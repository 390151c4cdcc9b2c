//! The way from a simulated thread to its machine, and the switching of coroutines.
//!
//! Platform calls have no handle, so the machine is found through a thread-local pointer of the operating system's thread. It is set
//! exactly while a simulated thread's code runs. A simulated thread gives up control in [`Shared::suspend`] and nowhere else, never while
//! the state is borrowed, and **never while a panic unwinds**: the count of panics belongs to the operating system's thread, and another
//! simulated thread would see it increased. A thread that unwinds therefore goes on although its CPU is not the earliest; if it must block,
//! the simulation cannot go on and the process is aborted with a message.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use nearq_platform::{OsError, Retries, Said};

use crate::cpu::FULL_RATE;
use crate::kept::call_end_callback;
use crate::outcome::Panicked;
use crate::thread::Piece;
use crate::trace::Kind;
use crate::world::World;

/// Bytes of a simulated thread's stack, unless it asks for more. Only pages that are used take memory.
const STACK: usize = 256 * 1024;
/// How many stacks of ended threads are kept for new ones.
const SPARE_STACKS: usize = 256;
/// `EAGAIN`: what Linux returns when it can start no more threads.
const EAGAIN: i32 = 11;

/// A simulated thread's code and stack.
type Fiber = Coroutine<(), (), ()>;

thread_local! {
    static CURRENT: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// While this value lives, the code that runs belongs to a simulated thread.
struct Entered;

impl Entered {
    fn new(shared: &Shared) -> Self {
        CURRENT.set(shared);
        Entered
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

/// A simulated machine, and the coroutines of its threads.
pub(crate) struct Shared {
    pub(crate) world: RefCell<World>,
    /// The coroutines by slot; `None` while the thread runs. Never dropped with coroutines inside: see [`Shared::abandon`].
    fibers: RefCell<Vec<Option<ManuallyDrop<Fiber>>>>,
    spare: RefCell<Vec<DefaultStack>>,
    /// The attempts that threads make while they wait.
    pub(crate) retries: Retries,
    /// The causes for which a warning was given.
    pub(crate) said: Said,
    /// The words on which threads sleep while they wait for work.
    pub(crate) waiting_for_work: RefCell<Vec<usize>>,
}

/// The machine on which the caller is a simulated thread, if it is one.
#[inline]
pub(crate) fn current<'a>() -> Option<&'a Shared> {
    // SAFETY: the pointer is not null only while `Shared::resume` runs a coroutine, which borrows the machine for that long. A coroutine
    // that is suspended keeps such a reference on its stack; it is resumed only by the same machine, so the reference is used only while
    // that exists. All of this is on one thread, to which the pointer belongs.
    unsafe { CURRENT.get().as_ref() }
}

/// The machine on which the caller is a simulated thread.
///
/// # Panics
/// If it is not a simulated thread.
pub(crate) fn expect<'a>(what: &str) -> &'a Shared {
    current().unwrap_or_else(|| {
        panic!("{what} outside of a simulation: call it from the code that Simulation::run runs")
    })
}

impl Shared {
    pub(crate) fn new(world: World) -> Self {
        Shared {
            world: RefCell::new(world),
            fibers: RefCell::default(),
            spare: RefCell::default(),
            retries: Retries::new(),
            said: Said::new(),
            waiting_for_work: RefCell::default(),
        }
    }

    // ---- for the event loop ----------------------------------------------------------------------------

    /// Makes the coroutine of the thread in `slot`, which does not run yet.
    pub(crate) fn add_fiber(
        &self,
        slot: usize,
        stack_size: Option<usize>,
        main: impl FnOnce() + 'static,
    ) -> Result<(), OsError> {
        let spare = if stack_size.is_none_or(|size| size <= STACK) {
            self.spare.borrow_mut().pop()
        } else {
            None
        };
        let stack = match spare {
            Some(stack) => stack,
            None => DefaultStack::new(stack_size.unwrap_or(0).max(STACK)).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(EAGAIN);
                OsError::new("map the stack of a simulated thread", errno, "simulate fewer threads")
            })?,
        };
        let fiber = Fiber::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            expect("a simulated thread").run_thread(yielder, main);
        });
        let mut fibers = self.fibers.borrow_mut();
        if fibers.len() <= slot {
            fibers.resize_with(slot + 1, || None);
        }
        fibers[slot] = Some(ManuallyDrop::new(fiber));
        Ok(())
    }

    /// The body of every coroutine.
    fn run_thread(&self, yielder: &Yielder<(), ()>, main: impl FnOnce()) {
        self.world.borrow_mut().me_mut().yielder = yielder;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(main));
        call_end_callback();
        // Other threads see the thread's end, so it must happen in order.
        self.sync();
        if let Err(payload) = caught {
            let message = payload
                .downcast_ref::<&str>()
                .map(ToString::to_string)
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic without a message".to_owned());
            drop(payload);
            let mut world = self.world.borrow_mut();
            let so_far = world.panics.len() as u64;
            world.record(Kind::Panic, so_far);
            world.trace.text(&message);
            let (thread, name) = (world.me().id, world.me().name.clone());
            world.panics.push(Panicked { thread, name, message });
        }
    }

    /// Runs the thread in `slot` until it gives up control.
    pub(crate) fn resume(&self, slot: usize) {
        let fiber = self.fibers.borrow_mut()[slot].take();
        let mut fiber = fiber.expect("a thread runs on one CPU at a time");
        let result = {
            let _entered = Entered::new(self);
            fiber.resume(())
        };
        match result {
            CoroutineResult::Yield(()) => self.fibers.borrow_mut()[slot] = Some(fiber),
            CoroutineResult::Return(()) => {
                let stack = ManuallyDrop::into_inner(fiber).into_stack();
                let limit = corosensei::stack::Stack::limit(&stack).get();
                let size = corosensei::stack::Stack::base(&stack).get() - limit;
                // The stack becomes another thread's memory, and must be new to it.
                self.world.borrow_mut().memory.bytes.forget(limit, size);
                let mut spare = self.spare.borrow_mut();
                // `2 *` because `size` includes the guard page; a larger stack is not kept.
                if spare.len() < SPARE_STACKS && size < 2 * STACK {
                    spare.push(stack);
                }
                self.world.borrow_mut().end_current();
            }
        }
    }

    /// Leaves the threads that have not ended as they are, for good: their stacks are neither unwound nor freed.
    ///
    /// That is what the end of a process does to its threads. Unwinding them would not be reliable: a destructor may wait for a thread that
    /// is gone, and a worker may catch the unwinding and go on. Freeing the stacks would leave dangling pointers in structures that still
    /// exist. So the memory of unfinished threads leaks, stacks and what they own; a program that ends its threads leaks nothing.
    pub(crate) fn abandon(self) -> World {
        // `ManuallyDrop`: the coroutines in the table are not dropped with it.
        drop(self.fibers);
        self.world.into_inner()
    }

    // ---- for simulated threads -------------------------------------------------------------------------

    /// Waits until the caller's CPU is the earliest, so that what it does next happens in order.
    #[inline]
    pub(crate) fn sync(&self) {
        let mut world = self.world.borrow_mut();
        if world.may_go_on() {
            return;
        }
        drop(world);
        self.give_way();
    }

    /// Lets other threads go first.
    #[cold]
    fn give_way(&self) {
        // Not while a panic unwinds: see the top of this file.
        if std::thread::panicking() {
            return;
        }
        {
            let mut world = self.world.borrow_mut();
            let cpu = world.cpu;
            world.plan(cpu);
        }
        self.suspend();
    }

    /// Charges a cost, and waits for the caller's turn.
    pub(crate) fn step(&self, cost: impl FnOnce(&World) -> u64) {
        self.step_as(World::charge, cost);
    }

    /// The same, for a step of the kernel.
    pub(crate) fn step_in_kernel(&self, cost: impl FnOnce(&World) -> u64) {
        self.step_as(World::charge_kernel, cost);
    }

    fn step_as(&self, charge: fn(&mut World, u64), cost: impl FnOnce(&World) -> u64) {
        {
            let mut world = self.world.borrow_mut();
            let cost = cost(&world);
            charge(&mut world, cost);
        }
        self.sync();
    }

    /// Puts the caller to sleep: `asleep` takes the caller off its CPU, and returns whether it did. Returns when another thread or an event
    /// has made the caller ready.
    pub(crate) fn block(&self, asleep: impl FnOnce(&mut World) -> bool) {
        if std::thread::panicking() {
            eprintln!(
                "nearq-sim: simulated thread {} must wait while a panic unwinds in it; a simulated machine cannot \
                 switch threads then. Do not take contended locks or wait in destructors that run in a panic.",
                self.world.borrow().me().id
            );
            std::process::abort();
        }
        {
            let world = self.world.borrow();
            assert!(
                !world.cpus[world.cpu].preemption_off,
                "simulated thread {} would sleep while preemption is off: do not wait in Sim::without_preemption",
                world.me().id
            );
        }
        if asleep(&mut self.world.borrow_mut()) {
            self.suspend();
        }
    }

    /// Works on the CPU for that many units: at the core's speed if `scaled`, otherwise by the clock. Ends early only if an address is
    /// given and the word there changes. Does nothing if `keep` returns false when it is the caller's turn. Returns what was done.
    pub(crate) fn work(
        &self,
        units: u64,
        scaled: bool,
        watch: Option<usize>,
        keep: impl FnOnce() -> bool,
    ) -> u64 {
        self.sync();
        let mut world = self.world.borrow_mut();
        if !keep() {
            return 0;
        }
        let cpu = world.cpu;
        let at = &world.cpus[cpu];
        let rate = if scaled { at.rate } else { FULL_RATE };
        let start = at.clock;
        let end = start.saturating_add(units.div_ceil(rate));
        // Work that ends before any other thread goes on cannot be interrupted.
        let alone =
            end < at.check_at() && end <= world.time_limit && world.events.is_first(end, cpu);
        if alone || std::thread::panicking() {
            world.cpus[cpu].clock = end;
            return units;
        }
        world.cpus[cpu].since = start;
        world.me_mut().piece =
            Some(Piece { left: units, scaled, watch: watch.is_some(), over: false });
        if let Some(address) = watch {
            world.watch(address);
        }
        world.plan(cpu);
        if watch.is_some() {
            world.release_highest(start);
        }
        drop(world);
        self.suspend();
        let mut world = self.world.borrow_mut();
        if let Some(address) = watch {
            world.unwatch(address);
        }
        let piece = world.me_mut().piece.take().expect("it was set above");
        units - piece.left
    }

    /// Gives up control. The caller has recorded in the state when it goes on, and does not have the state borrowed.
    fn suspend(&self) {
        let yielder = self.world.borrow().me_yielder();
        // SAFETY: the pointer was set by this very coroutine when it started; the yielder lives at the root of the coroutine's stack until
        // the coroutine ends, and only its own thread uses it.
        unsafe { (*yielder).suspend(()) };
    }
}

impl World {
    /// The yielder of the thread whose code runs. `slot` names it until the event loop goes on, even after it was
    /// taken off its CPU.
    fn me_yielder(&self) -> *const Yielder<(), ()> {
        self.me().yielder
    }
}
