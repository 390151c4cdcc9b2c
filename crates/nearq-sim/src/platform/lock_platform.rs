//! The trait [`LockPlatform`], implemented for [`Sim`].

use core::time::Duration;

use nearq_platform::{
    Atomic, CacheMap, HeldLocks, Instant, LockPlatform, Machine, MemoryPolicy, Ordering, OsError,
    Wait,
};

use super::{Sim, nanos, spin, system_call};
use crate::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
use crate::context;
use crate::kept::Kept;
use crate::memory::{self, Access};
use crate::thread::{EndCallback, State};
use crate::trace::Kind;

impl LockPlatform for Sim {
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        let shared = system_call("LockPlatform::wait");
        let address = core::ptr::from_ref(word).addr();
        {
            let mut world = shared.world.borrow_mut();
            let now = world.now();
            // The value counts as it is at this moment; no other thread acts before we sleep.
            let differs = word.peek() != expected;
            world.access(address, Access::Read);
            if differs {
                return Wait::Changed;
            }
            if deadline.is_some_and(|deadline| deadline.as_nanos() <= now) {
                return Wait::TimedOut;
            }
        }
        shared.block(|world| world.sleep_on(address, expected, deadline.map(Instant::as_nanos)));
        shared.world.borrow().me().outcome
    }

    fn wake(word: *const AtomicU32, count: usize) -> usize {
        let Some(shared) = context::current() else { return 0 };
        shared.step_in_kernel(|world| world.costs.system_call);
        shared.world.borrow_mut().wake(word.addr(), count)
    }

    fn wait_until_changed(word: &AtomicU32, value: u32, budget: u32) -> bool {
        spin(
            core::ptr::from_ref(word).addr(),
            budget,
            || word.load(Ordering::Relaxed) != value,
            || word.peek() == value,
        )
    }

    fn pause(checks: u32) {
        context::expect("LockPlatform::pause").step(|world| u64::from(checks) * world.costs.look);
    }

    fn yield_now() {
        let shared = system_call("LockPlatform::yield_now");
        shared.world.borrow_mut().yield_now();
        shared.sync();
    }

    fn sleep(duration: Duration) {
        let shared = system_call("LockPlatform::sleep");
        shared.block(|world| {
            let until = world.now().saturating_add(nanos(duration));
            world.record(Kind::Sleep, until);
            world.block(State::Sleeping, Some(until));
            true
        });
    }

    fn now() -> Instant {
        let shared = context::expect("LockPlatform::now");
        shared.step(|world| world.costs.clock);
        let now = shared.world.borrow().now();
        Instant::from_nanos(now)
    }

    fn current_cpu() -> usize {
        let shared = context::expect("LockPlatform::current_cpu");
        shared.step(|world| world.costs.own_line);
        shared.world.borrow().cpu
    }

    /// The read is free of charge: a program reads a setting once, at a time of its own choice.
    fn cache_map() -> CacheMap {
        let world = context::expect("LockPlatform::cache_map").world.borrow();
        let topology = world.hardware.topology().clone().with_online(&world.online);
        CacheMap::of(&Machine { topology, limits: world.limits.clone() })
    }

    fn number() -> u32 {
        context::current().map_or(0, |shared| shared.world.borrow().me().number)
    }

    fn set_number(number: u32, end: fn(u32)) -> bool {
        let mut world = context::expect("LockPlatform::set_number").world.borrow_mut();
        let me = world.me_mut();
        me.number = number;
        let ended = matches!(me.end_callback, EndCallback::Called);
        if !ended {
            me.end_callback = EndCallback::Set(end);
        }
        !ended
    }

    fn with_held<R>(with: impl FnOnce(&HeldLocks) -> R) -> Option<R> {
        let world = context::current()?.world.borrow();
        Some(with(&world.me().held))
    }

    fn shared() -> *const () {
        context::current().map_or(core::ptr::null(), |shared| shared.world.borrow().locks.pointer())
    }

    unsafe fn share(make: fn() -> *const (), end: unsafe fn(*const ())) -> *const () {
        let shared = context::expect("LockPlatform::share");
        let there = shared.world.borrow().locks.pointer();
        if !there.is_null() {
            return there;
        }
        // Other threads may run in the meantime, and make one too.
        let made = Kept::new(make(), end);
        let mut world = shared.world.borrow_mut();
        if world.locks.pointer().is_null() {
            world.locks = made;
        } else {
            drop(world);
            drop(made);
            world = shared.world.borrow_mut();
        }
        world.locks.pointer()
    }

    /// Each page that is moved costs `page_move`, and is in no cache afterwards.
    fn bind_memory(range: &[u8], policy: &MemoryPolicy, move_pages: bool) -> Result<(), OsError> {
        let shared = system_call("LockPlatform::bind_memory");
        let what = format!("{} bytes", range.len());
        let policy = shared.world.borrow().memory.bytes.resolve(policy, &what)?;
        memory::bind(shared, range, policy, move_pages);
        Ok(())
    }

    fn setting(name: &str) -> Option<String> {
        context::current()?.world.borrow().settings.get(name).cloned()
    }

    /// The text goes into the trace and the outcome.
    fn warn(line: &str) {
        let Some(shared) = context::current() else { return };
        let mut world = shared.world.borrow_mut();
        world.record(Kind::Warn, line.len() as u64);
        world.trace.text(line);
        world.warnings.push(line.to_owned());
    }

    fn warn_once(cause: &str, line: &str) {
        if context::current().is_some_and(|shared| shared.said.is_first(cause)) {
            Self::warn(line);
        }
    }
}
