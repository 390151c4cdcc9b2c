//! The platform [`Sim`]: each call charges its cost, waits for its turn, and asks the machine. The calls of each of the platform's traits
//! are in a file of their own; this file has the functions that only a simulated machine can offer, and the code that the files share.

mod lock_platform;
mod placement;
mod threads;

use core::time::Duration;

use nearq_platform::{OsError, SchedPolicy, ThreadSpec};
use nearq_topology::{CpuSet, Limits};

use crate::context::{self, Shared};
use crate::costs;
use crate::cpu::FULL_RATE;
use crate::faults::Faults;
use crate::memory::{self, Accesses};
use crate::thread::{self, Entry, JoinHandle, State, Thread};
use crate::trace::Kind;
use crate::world::World;

/// `EAGAIN`: no more threads can be started.
const EAGAIN: i32 = 11;
/// The error number, as on Linux.
const NO_ROOM: &str = "a limit on threads is reached: RLIMIT_NPROC (ulimit -u), pids.max of the control group, or kernel.threads-max";
/// `ESRCH`: no such thread.
const ESRCH: i32 = 3;
/// `EBUSY`: the last CPU.
const EBUSY: i32 = 16;
/// `EINVAL`: no CPU left.
const EINVAL: i32 = 22;
/// Work is done in pieces of at most this many nanoseconds, so that integers do not overflow: an hour.
const LONGEST_PIECE: u64 = 3_600_000_000_000;

/// A simulated machine as a [`Platform`](nearq_platform::Platform).
///
/// Its functions may be called by the code that [`Simulation::run`](crate::Simulation::run) runs; the machine is
/// found from the caller. Atomics may be made, used and dropped outside as well, free of charge.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

impl Sim {
    /// Does an amount of work for which the fastest CPU of the machine, with its core to itself, takes `duration`. A slower CPU takes
    /// longer, and so does a CPU while another one of its core is busy. Other threads get their turn in the meantime.
    ///
    /// Only work is scaled this way; the costs of platform calls are the same on all CPUs.
    pub fn charge(duration: Duration) {
        let shared = context::expect("Sim::charge");
        let mut left = nanos(duration);
        while left > 0 {
            let piece = left.min(LONGEST_PIECE);
            shared.work(piece * FULL_RATE, true, None, || true);
            left -= piece;
        }
    }

    /// Does something with preemption off, as the kernel does while it holds a spinlock: whatever happens, the caller keeps its CPU until
    /// this returns. What would have taken the CPU from it, such as the end of its slice, a woken thread or a new affinity, does so
    /// afterwards. Faults do not preempt it either.
    ///
    /// # Panics
    /// If `what` sleeps or waits for a thread.
    ///
    /// ```
    /// use nearq_sim::Sim;
    /// # use nearq_platform::LockPlatform as _;
    ///
    /// # let machine = nearq_sim::Machine::described("core:2")?;
    /// # let outcome =
    /// nearq_sim::Simulation::on(&machine, 1).run(|| {
    ///     let cpus = Sim::without_preemption(|| [Sim::current_cpu(), Sim::current_cpu()]);
    ///     assert_eq!(cpus[0], cpus[1]);
    /// });
    /// # assert!(outcome.panics.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_preemption<R>(what: impl FnOnce() -> R) -> R {
        /// Turns preemption on again, unless it was off before.
        struct On;
        impl Drop for On {
            fn drop(&mut self) {
                let mut world = context::expect("Sim::without_preemption").world.borrow_mut();
                let cpu = world.cpu;
                world.cpus[cpu].preemption_off = false;
            }
        }
        let shared = context::expect("Sim::without_preemption");
        // A thread that was to have the CPU before gets it now.
        shared.sync();
        let on = {
            let mut world = shared.world.borrow_mut();
            let cpu = world.cpu;
            let was_off = std::mem::replace(&mut world.cpus[cpu].preemption_off, true);
            (!was_off).then(|| On)
        };
        let result = what();
        drop(on);
        result
    }

    /// Reads the cycle counter of the CPU, as user code does without the kernel's clock. A tick is a nanosecond of virtual time.
    pub fn counter() -> u64 {
        let shared = context::expect("Sim::counter");
        shared.step(|world| world.costs.counter);
        shared.world.borrow().now()
    }

    /// How often control has passed to a simulated thread so far. Between two reads by a thread that sleeps in between, it grows by the
    /// times that control passed to other threads, and by one for the sleeper's own return. On an idle machine it grows only by the latter.
    pub fn switches() -> u64 {
        context::expect("Sim::switches").world.borrow().switches
    }

    /// Reads these bytes: takes the time to get them to the caller's CPU from their current place.
    ///
    /// The bytes themselves are not read; they need not hold anything.
    ///
    /// The range is followed by page (4 KiB) and line: which caches hold it, how long they do so at their size, on which node it lives, and
    /// the other traffic on the path to that node. The cost of a read follows from that and from [`Costs`](crate::Costs): `l2_stream` and
    /// `l3_stream` from the CPU's own caches; `memory_stream` from its node's memory, and proportionally slower from other memory and other
    /// caches with their larger latency; the time of the slowest of `llc_bandwidth`, `node_bandwidth` and `link_bandwidth` on the path,
    /// which all CPUs share, if that is longer; and a `page_fault` for each page that has not been touched. The caller may be preempted in
    /// the meantime; a busy sibling or a slow core does not lengthen the read.
    ///
    /// A range smaller than a page shares its page with the objects that the allocator put beside it, as on a real machine.
    pub fn read(range: &[u8]) {
        let shared = context::expect("Sim::read");
        memory::stream(shared, range.as_ptr().addr(), range.len(), false);
    }

    /// Writes these bytes: as [`read`](Self::read), and all other caches lose them. They go back to memory some time later.
    ///
    /// The bytes themselves are left as they are.
    pub fn write(range: &mut [u8]) {
        let shared = context::expect("Sim::write");
        memory::stream(shared, range.as_ptr().addr(), range.len(), true);
    }

    /// Reads and writes at `accesses` random places of a range, each after the one before: `a[random()] += 1`.
    ///
    /// An access takes the latency of the place where its line is: a cache of the caller's CPU, another cache, or the memory of its page's
    /// node. The share of accesses to each place follows from how much of the range each cache holds, which is tracked for the range as a
    /// whole and not by line. After Thiébaut and Stone, "Footprints in the Cache", ACM Transactions on Computer Systems 5 (4), 1987, each
    /// line that comes in replaces a random line. The bytes count on the shared paths. Pages that have not been touched are touched first.
    ///
    /// A processor that executes out of order has several such accesses in flight at once, and is faster by some factor in
    /// all places: the ratios between places stay.
    ///
    /// Keep to the same ranges: overlapping ranges are tracked as if they did not overlap, and
    /// [`read`](Self::read) and [`write`](Self::write) track the lines of a range separately.
    pub fn scatter(range: &mut [u8], accesses: usize) {
        let shared = context::expect("Sim::scatter");
        let accesses = Accesses::AtRandom(accesses as u64);
        memory::many(shared, range.as_ptr().addr(), range.len(), accesses);
    }

    /// Reads that many bytes of a range in order, from where the last sweep ended, wrapping to the front at its end.
    ///
    /// Costs what [`read`](Self::read) does, except that caches are followed as by [`scatter`](Self::scatter), for the range as a whole. A
    /// range that is larger than a cache is never found in it: the bytes that come next are always those that left the cache longest ago.
    pub fn sweep(range: &[u8], bytes: usize) {
        let shared = context::expect("Sim::sweep");
        let accesses = Accesses::InOrder { bytes: bytes as u64, write: false };
        memory::many(shared, range.as_ptr().addr(), range.len(), accesses);
    }

    /// As [`sweep`](Self::sweep), and writes the bytes.
    pub fn sweep_mut(range: &mut [u8], bytes: usize) {
        let shared = context::expect("Sim::sweep_mut");
        let accesses = Accesses::InOrder { bytes: bytes as u64, write: true };
        memory::many(shared, range.as_ptr().addr(), range.len(), accesses);
    }

    /// Changes what the process may use of the machine, as an administrator does by writing to the cgroup.
    ///
    /// Affects [`Placement::machine`](nearq_platform::Placement::machine), and threads on CPUs that are not allowed any more leave them. A
    /// CPU quota is enforced in periods of 100 ms: when it is used up, no thread runs until the next period.
    ///
    /// # Panics
    /// If no CPU of the machine is left.
    pub fn set_limits(limits: Limits) {
        let shared = context::expect("Sim::set_limits");
        shared.sync();
        let mut world = shared.world.borrow_mut();
        let cpus = limits.effective();
        assert!(
            !cpus.is_empty() && cpus.is_subset(world.hardware.topology().possible()),
            "the limits allow CPUs {cpus}, but the machine has {}",
            world.hardware.topology().possible()
        );
        let now = world.now();
        world.set_limits(limits, now);
    }

    /// From now on the scheduler receives [wake hints](nearq_platform::Placement::set_wake_hint), as if an administrator loaded nearq-scx,
    /// or no longer does. A hint sets the thread's [wake CPU](Self::set_wake_cpu). At first it receives none, as Linux's own scheduler.
    pub fn receive_wake_hints(receives: bool) {
        let shared = context::expect("Sim::receive_wake_hints");
        shared.world.borrow_mut().wake_hints = receives;
    }

    /// Makes the scheduler treat `cpu` as a thread's previous CPU at its next wake-up: the search for an idle CPU starts at `cpu`, and the
    /// thread waits for `cpu` if no CPU is idle. This is a hint, and moves no thread by itself.
    ///
    /// The field is internal to the kernel (`p->wake_cpu`), and no program on Linux can set it: this function is for kernel policies that
    /// are tried on the simulated machine. It costs nothing beyond the wake-up. A thread that does not sleep keeps the hint until the next
    /// time that it sleeps; as in the kernel, the hint is lost when the thread continues on another CPU.
    ///
    /// # Errors
    /// If the thread has ended, or the machine has no such CPU.
    pub fn set_wake_cpu(thread: Thread, cpu: usize) -> Result<(), OsError> {
        let shared = context::expect("Sim::set_wake_cpu");
        shared.sync();
        let mut world = shared.world.borrow_mut();
        let possible = world.hardware.topology().possible();
        if !possible.contains(cpu) {
            let attempt = format!("wake simulated thread {} near CPU {cpu}", thread.id);
            let remedy = format!("name one of the machine's CPUs, {possible}");
            return Err(OsError::new(attempt, EINVAL, remedy));
        }
        if world.threads.find(thread).is_none() {
            return Err(gone(thread));
        }
        world.threads.at_mut(thread.slot).wake_cpu = Some(cpu);
        Ok(())
    }

    /// The CPU that the scheduler will treat as a thread's previous CPU at its next wake-up: the CPU that the thread is on or was on last,
    /// unless [`set_wake_cpu`](Self::set_wake_cpu) set another.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn wake_cpu(thread: Thread) -> Result<usize, OsError> {
        let shared = context::expect("Sim::wake_cpu");
        shared.sync();
        let world = shared.world.borrow();
        world.threads.find(thread).map(Entry::previous_cpu).ok_or_else(|| gone(thread))
    }

    /// Begins these faults, in place of the previous ones. The time of each fault still depends on the seed.
    pub fn start_faults(faults: Faults) {
        let shared = system_call("Sim::start_faults");
        let mut world = shared.world.borrow_mut();
        let now = world.now();
        world.change_faults(faults, now);
    }

    /// Ends all faults: nothing goes wrong from now on, CPUs that a fault took are online again, and the limits are those that the program
    /// set last, or else those that it started with. Timers that were set late before stay late.
    pub fn stop_faults() {
        let shared = system_call("Sim::stop_faults");
        let mut world = shared.world.borrow_mut();
        let now = world.now();
        world.stop_faults(now);
    }

    /// Brings a CPU online or takes it offline, as an administrator does.
    ///
    /// Threads leave a CPU that goes offline. A thread that may run nowhere else may run on all CPUs from then on, as on Linux.
    ///
    /// # Errors
    /// If the machine has no such CPU, or the CPU is the last one that is online.
    pub fn set_online(cpu: usize, online: bool) -> Result<(), OsError> {
        let shared = system_call("Sim::set_online");
        let mut world = shared.world.borrow_mut();
        let possible = world.hardware.topology().possible();
        let attempt = || format!("take CPU {cpu} {}", if online { "online" } else { "offline" });
        if !possible.contains(cpu) {
            let remedy = format!("name one of the machine's CPUs, {possible}");
            return Err(OsError::new(attempt(), EINVAL, remedy));
        }
        if !online && world.online.contains(cpu) && world.online.len() == 1 {
            let remedy = "leave at least one CPU online";
            return Err(OsError::new(attempt(), EBUSY, remedy));
        }
        let now = world.now();
        world.set_online(cpu, online, now);
        drop(world);
        // If the caller itself must leave its CPU, it is on another CPU when this returns.
        shared.sync();
        Ok(())
    }
}

/// Works for `duration` at full speed.
///
/// The same as [`Sim::charge`].
pub fn compute(duration: Duration) {
    Sim::charge(duration);
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Enters the simulated kernel.
pub(crate) fn system_call<'a>(what: &str) -> &'a Shared {
    let shared = context::expect(what);
    shared.step_in_kernel(|world| world.costs.system_call);
    shared
}

pub(crate) fn gone(thread: Thread) -> OsError {
    OsError::new(format!("reach simulated thread {}", thread.id), ESRCH, "")
}

/// Asks the simulated kernel about a thread.
fn ask<R>(thread: Thread, answer: impl FnOnce(&World, &Entry) -> R) -> Result<R, OsError> {
    let shared = system_call("asking about a thread");
    let world = shared.world.borrow();
    world.threads.find(thread).map(|entry| answer(&world, entry)).ok_or_else(|| gone(thread))
}

/// Makes the simulated kernel change a thread.
fn change(thread: Thread, how: impl FnOnce(&mut Entry)) -> Result<(), OsError> {
    let shared = system_call("changing a thread");
    let mut world = shared.world.borrow_mut();
    if world.threads.find(thread).is_none() {
        return Err(gone(thread));
    }
    how(world.threads.at_mut(thread.slot));
    Ok(())
}

/// Spins on the word at `address` until `changed` returns true; each call of `changed` is a read that costs time, and each call of `same`
/// is a read that costs none. The spinning is one event, however long it takes.
fn spin(address: usize, budget: u32, changed: impl Fn() -> bool, same: impl Fn() -> bool) -> bool {
    let shared = context::expect("LockPlatform::wait_until_changed");
    let mut left = {
        let world = shared.world.borrow();
        // With one CPU, a thread that might change the word cannot run while we spin.
        let checks = if world.usable.len() == 1 { 0 } else { u64::from(budget) };
        (checks * world.costs.look).min(LONGEST_PIECE)
    };
    loop {
        if changed() {
            return true;
        }
        if left == 0 || std::thread::panicking() {
            return false;
        }
        // The word may have changed between the read and this moment: then the next read sees the change.
        let spent = shared.work(left * FULL_RATE, false, Some(address), &same);
        left -= spent / FULL_RATE;
    }
}

/// Puts the caller to sleep until a thread, which is alive, has ended.
pub(crate) fn wait_for_end(shared: &Shared, thread: Thread) {
    shared.block(|world| {
        let slot = world.slot;
        world.record(Kind::Join, thread.id);
        world.threads.at_mut(thread.slot).joiners.push(slot);
        world.block(State::Joining { thread }, None);
        true
    });
}

/// Makes the simulated kernel change a thread's share of its CPU.
fn change_weight(thread: Thread, how: impl FnOnce(&mut Entry)) -> Result<(), OsError> {
    change(thread, how)?;
    let mut world = context::expect("changing a thread").world.borrow_mut();
    let now = world.now();
    world.ask(now, |scheduler, kernel| scheduler.set_weight(kernel, thread));
    world.carry_out_orders(now);
    Ok(())
}

/// Starts a thread of the caller's process, or the first thread of a new process, which gets the thread's name.
pub(crate) fn start(
    spec: ThreadSpec,
    begins_process: bool,
    main: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle, OsError> {
    let shared = context::expect("Threads::spawn");
    shared.step_in_kernel(|world| world.costs.spawn);
    let (thread, refused) = {
        let mut world = shared.world.borrow_mut();
        if world.refuses_spawn() {
            return Err(OsError::new(format!("start the thread {:?}", spec.name), EAGAIN, NO_ROOM));
        }
        let (me, cpu) = (world.me(), world.cpu);
        // The class and the slice are inherited as well; if a nice value is given, the class is still inherited.
        let (mut nice, mut slice) = (spec.nice.unwrap_or(me.nice), me.slice);
        let mut idle = me.weight == costs::IDLE_WEIGHT;
        if let Some(wanted) = spec.scheduling {
            (idle, nice) = (wanted.policy == SchedPolicy::Idle, wanted.nice.clamp(-20, 19));
            slice = allowed_slice(wanted.slice, world.costs.slice);
        }
        let limits = world.usable.clone();
        let usable = spec.affinity.as_ref().filter(|cpus| cpus.intersects(&limits));
        let refused = match (&spec.affinity, usable) {
            (Some(cpus), None) => Some(no_cpu(cpus, &limits)),
            _ => None,
        };
        let affinity = usable.unwrap_or(&me.affinity).clone();
        let thread = world.threads.add(&spec, affinity, nice, cpu, slice);
        if idle {
            world.threads.at_mut(thread.slot).weight = costs::IDLE_WEIGHT;
        }
        (thread, refused)
    };
    let report = spec.refused;
    let main = move || {
        if let (Some(refused), Some(report)) = (refused, report) {
            report(&refused);
        }
        main();
    };
    if let Err(refused) = shared.add_fiber(thread.slot, spec.stack_size, main) {
        shared.world.borrow_mut().threads.remove(thread.slot);
        return Err(refused);
    }
    let mut world = shared.world.borrow_mut();
    world.join_process(thread.slot);
    if begins_process {
        world.found_process(&spec.name, thread.slot);
    }
    world.record(Kind::Spawn, thread.id);
    world.trace.text(&thread::cut_name(&spec.name));
    let now = world.now();
    world.begin(thread.slot, now);
    Ok(JoinHandle(thread))
}

/// The slice that the scheduler gives to a thread that asks for one, as on Linux.
fn allowed_slice(asked: Option<Duration>, standard: u64) -> u64 {
    asked.map_or(standard, |slice| nanos(slice).clamp(100_000, 100_000_000))
}

fn no_cpu(cpus: &CpuSet, limits: &CpuSet) -> OsError {
    let remedy = "name at least one CPU that the limits allow";
    OsError::new(format!("restrict a simulated thread to CPUs {cpus} of {limits}"), EINVAL, remedy)
}
