//! What loads need from a platform beyond [`Platform`]: bells and clocks, CPU time, work to do, and favoured threads. The default
//! methods describe a simulated machine: no run leaves anything for the next one, there are no other programs, no host takes time, and
//! process times are not counted.

use crate::blocking::{Sampler, work};
use crate::highpri::{CROWD_WORK, StealClock, privilege};
use crate::{Error, peers};
use nearq_platform::{
    Atomic as _, Instant, Linux, LockPlatform, Ordering, Parker, Placement, Platform, SchedPolicy,
    ThreadSpec, Threads,
};
use nearq_report::usage;
use nearq_sim::Sim;
use nearq_topology::CpuSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A platform that experiments run on.
pub trait Host: Platform {
    /// The bell that wakes an issuer on this platform.
    type Bell: Bell;

    /// Reads how much time the host took from a CPU.
    type Steal;

    /// An item that has not run after this long never will.
    const LOST_AFTER: Duration;

    /// One wait for a lock in this many goes into the distribution, with this number as its weight; long waits all do.
    const EVERY: u64 = 1;

    /// CPU time of the whole program so far; `threads` are its working threads.
    fn used_by(threads: &[Self::Thread]) -> Duration;

    /// Uses the CPU for that many rounds.
    fn compute(rounds: u64);

    /// A reader for that CPU.
    fn steal(cpu: usize) -> Self::Steal;

    /// Time that the host has taken so far, in any unit.
    fn stolen(clock: &mut Self::Steal) -> u64;

    /// What a thread of the crowd does between two sleeps.
    fn crowd_work();

    /// Favours the caller, the thread that queues: as a real-time thread, or by the nice value -20. On Linux, threads that it starts later
    /// are not favoured; on a simulated machine they are, unless they state a priority. Returns whether that was allowed.
    fn favour_issuer() -> bool;

    /// CPU time of the process so far, if it is counted.
    fn process_time() -> Option<Duration> {
        None
    }

    /// Context switches of the process so far, if they are counted.
    fn switches() -> Option<u64> {
        None
    }

    /// Counts threads from now on, if that is possible from outside.
    fn sampler() -> Result<Option<Sampler>, Error> {
        Ok(None)
    }

    /// Runs `body`, and makes sure that none of its threads is left for the next measurement.
    fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        body()
    }

    /// Runs `body` on a thread that, with all that it starts, may use only `cpus`.
    fn confined<T: Send>(
        _cpus: &CpuSet,
        body: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        body()
    }

    /// A counter that runs at a constant rate and is read quickly. Readings of threads on different CPUs cannot be compared.
    #[inline]
    fn ticks() -> u64 {
        Self::now().as_nanos()
    }

    /// Nanoseconds of one tick of the counter.
    fn tick_ns() -> f64 {
        1.0
    }

    /// The caller will read this word, and its address is known already. A simulated CPU begins to fetch its line; a real one does so by
    /// itself.
    #[inline]
    fn fetch_ahead(_word: &Self::AtomicU64) {}

    /// Makes the bits of `mask` in a word those of `bits`, and returns the word before. CPUs have an instruction for it where the bits are
    /// whole bytes; Rust has none, so on Linux it is a loop, and costs more.
    ///
    /// Ordering: acquire and release.
    #[inline]
    fn exchange_part(word: &Self::AtomicU32, mask: u32, bits: u32) -> u32 {
        // Relaxed: decided by the step below.
        let mut found = word.load(Ordering::Relaxed);
        loop {
            let next = found & !mask | bits & mask;
            // Acquire, release: as promised. Relaxed: nothing is read on failure.
            match word.compare_exchange_weak(found, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(now) => found = now,
            }
        }
    }

    /// The same without returning the word before: a plain store on simulated machines, the same loop on Linux. Ordering: release; on Linux
    /// acquire as well.
    #[inline]
    fn store_part(word: &Self::AtomicU32, mask: u32, bits: u32) {
        Self::exchange_part(word, mask, bits);
    }
}

/// A bell that wakes a waiting thread: if it is rung before the wait, the wait ends at once.
pub trait Bell: Clone + Send + Sync + Sized + 'static {
    /// A bell that has not been rung.
    fn new() -> Result<Self, Error>;

    /// Rings it.
    fn ring(&self);

    /// Waits until the bell is rung, or returns at once if it was rung since the last wait; false if it was not rung within `longest`.
    fn wait(&self, longest: Duration) -> bool;
}

/// A bell of Linux: an eventfd, which the kernel rings as well when a transfer ends.
#[derive(Clone, Debug)]
pub struct EventBell(Arc<File>);

impl Bell for EventBell {
    fn new() -> Result<Self, Error> {
        // SAFETY: the call takes two integers and returns a new descriptor or -1.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Error::run(format!("eventfd: {}", io::Error::last_os_error())));
        }
        // SAFETY: the descriptor is new and ours alone.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self(Arc::new(File::from(descriptor))))
    }

    fn ring(&self) {
        // An eventfd that refuses to count means that the counter is full: the waiting thread will wake.
        let _ = (&*self.0).write(&1_u64.to_ne_bytes());
    }

    fn wait(&self, longest: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd, and the count says one.
        let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
        if ready <= 0 {
            return ready < 0; // Interrupted by a signal: check again.
        }
        let _ = (&*self.0).read(&mut [0; 8]);
        true
    }
}

impl AsRawFd for EventBell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// How long the counter is compared with the clock.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: Duration = Duration::from_millis(20);

impl Host for Linux {
    type Bell = EventBell;
    type Steal = StealClock;

    const LOST_AFTER: Duration = Duration::from_secs(20);
    const EVERY: u64 = 16;

    fn used_by(_threads: &[Self::Thread]) -> Duration {
        usage::cpu_time()
    }

    fn compute(rounds: u64) {
        work::compute(rounds);
    }

    fn steal(cpu: usize) -> StealClock {
        StealClock::of(cpu)
    }

    fn stolen(clock: &mut StealClock) -> u64 {
        clock.read()
    }

    #[inline]
    fn crowd_work() {}

    fn favour_issuer() -> bool {
        privilege::real_time().or_else(|_| privilege::favour_alone()).is_ok()
    }

    fn process_time() -> Option<Duration> {
        Some(usage::cpu_time())
    }

    fn switches() -> Option<u64> {
        Some(usage::switches())
    }

    fn sampler() -> Result<Option<Sampler>, Error> {
        Sampler::start().map(Some)
    }

    fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        peers::alone(body)
    }

    fn confined<T: Send>(
        cpus: &CpuSet,
        body: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let confine = || {
            Linux::set_affinity(Linux::current_thread(), cpus).map_err(super::failed)?;
            body()
        };
        thread::scope(|scope| scope.spawn(confine).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn ticks() -> u64 {
        // SAFETY: the instruction reads a counter into registers; every x86-64 has it, and Linux allows it to programs.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    #[cfg(target_arch = "x86_64")]
    fn tick_ns() -> f64 {
        static NANOSECONDS: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
        *NANOSECONDS.get_or_init(|| {
            let (time, ticks) = (Linux::now(), Self::ticks());
            Linux::sleep(CALIBRATION);
            let passed = Self::ticks().wrapping_sub(ticks).max(1);
            (Linux::now() - time).as_nanos() as f64 / passed as f64
        })
    }
}

/// A bell of the simulated machine.
#[derive(Clone)]
pub struct ParkBell(Arc<Parker<Sim>>);

impl Bell for ParkBell {
    fn new() -> Result<Self, Error> {
        Ok(Self(Arc::new(Parker::new())))
    }

    fn ring(&self) {
        self.0.unpark();
    }

    fn wait(&self, longest: Duration) -> bool {
        self.0.park(Some(Sim::now() + longest))
    }
}

impl Host for Sim {
    type Bell = ParkBell;
    type Steal = ();

    const LOST_AFTER: Duration = Duration::from_secs(1);

    fn used_by(threads: &[Self::Thread]) -> Duration {
        // The time of a thread that has ended cannot be read; workers and issuers outlive the run.
        threads.iter().filter_map(|thread| Sim::cpu_time(*thread).ok()).sum()
    }

    fn compute(rounds: u64) {
        nearq_sim::compute(Duration::from_nanos(rounds));
    }

    fn steal(_cpu: usize) {}

    fn stolen(_clock: &mut ()) -> u64 {
        0
    }

    #[inline]
    fn crowd_work() {
        Self::charge(CROWD_WORK);
    }

    fn favour_issuer() -> bool {
        Self::set_scheduling(Self::current_thread(), SchedPolicy::Normal, -20, None).is_ok()
    }

    fn ticks() -> u64 {
        Self::counter()
    }

    fn fetch_ahead(word: &Self::AtomicU64) {
        nearq_sim::fetch_ahead(word);
    }

    fn exchange_part(word: &Self::AtomicU32, mask: u32, bits: u32) -> u32 {
        word.exchange_part(mask, bits)
    }

    fn store_part(word: &Self::AtomicU32, mask: u32, bits: u32) {
        word.store_part(mask, bits);
    }
}

/// The clocks and counts at a moment.
pub(crate) struct Since {
    wall: Instant,
    cpu: Option<Duration>,
    switches: Option<u64>,
}

impl Since {
    /// Reads them now.
    pub(crate) fn now<P: Host>() -> Self {
        let (cpu, switches) = (P::process_time(), P::switches());
        Self { wall: P::now(), cpu, switches }
    }

    /// Wall time since then.
    pub(crate) fn elapsed<P: Host>(&self) -> Duration {
        P::now() - self.wall
    }

    /// CPU time of the process since then, if it is counted.
    pub(crate) fn cpu<P: Host>(&self) -> Option<Duration> {
        P::process_time().zip(self.cpu).map(|(end, start)| end.saturating_sub(start))
    }

    /// Context switches since then, if they are counted.
    pub(crate) fn switches<P: Host>(&self) -> Option<u64> {
        P::switches().zip(self.switches).map(|(end, start)| end - start)
    }
}

/// Starts a thread of that name on these CPUs.
pub(crate) fn on_cpus(name: String, cpus: CpuSet) -> ThreadSpec {
    ThreadSpec { name, affinity: Some(cpus), ..ThreadSpec::default() }
}

/// A thread that returns a result.
pub(crate) struct Running<P: Host, R> {
    thread: P::JoinHandle,
    result: Arc<Mutex<Option<Result<R, Error>>>>,
}

impl<P: Host, R: Send + 'static> Running<P, R> {
    /// Runs `body` on a new thread.
    pub(crate) fn start(
        spec: ThreadSpec,
        body: impl FnOnce() -> Result<R, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        let main = move || {
            let ended = body();
            *place.lock().expect("no thread panics while holding it") = Some(ended);
        };
        let thread = P::spawn(spec, main).map_err(super::failed)?;
        Ok(Self { thread, result })
    }

    /// Waits for the thread, and returns its result.
    pub(crate) fn join(self) -> Result<R, Error> {
        P::join(self.thread);
        let ended = self.result.lock().expect("no thread panics while holding it").take();
        ended.unwrap_or_else(|| Err(Error::run("a thread of the experiment panicked")))
    }
}

/// Runs `body` on a new thread, and returns its result.
pub(crate) fn on_thread<P: Host, R: Send + 'static>(
    spec: ThreadSpec,
    body: impl FnOnce() -> Result<R, Error> + Send + 'static,
) -> Result<R, Error> {
    Running::<P, R>::start(spec, body)?.join()
}

/// The purpose of a thread of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It makes blocks and verifies them.
    Issuer,
    /// It runs items.
    Worker,
}

/// A thread, and its purpose.
type Member<H> = (Role, <H as Threads>::Thread);

/// The threads of a run that work.
#[derive(Clone, Debug)]
pub struct Census<H: Host>(Arc<Mutex<Vec<Member<H>>>>);

impl<H: Host> Census<H> {
    /// Adds the caller.
    pub fn enter(&self, role: Role) {
        let caller = H::current_thread();
        self.list().push((role, caller));
    }

    /// CPU time of the program so far.
    pub fn cpu_time(&self) -> Duration {
        let threads: Vec<_> = self.list().iter().map(|(_, thread)| *thread).collect();
        H::used_by(&threads)
    }

    /// CPU time of the issuers so far.
    pub fn issuers_cpu_time(&self) -> Duration {
        let list = self.list().clone();
        let issuers = list.into_iter().filter(|(role, _)| *role == Role::Issuer);
        issuers.filter_map(|(_, thread)| <H as Threads>::cpu_time(thread).ok()).sum()
    }

    /// The list; no thread calls the platform while holding it, so that on the simulated machine no thread waits for it.
    fn list(&self) -> std::sync::MutexGuard<'_, Vec<Member<H>>> {
        self.0.lock().expect("no thread panics while holding the list")
    }
}

impl<H: Host> Default for Census<H> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Vec::new())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_started_by_a_confined_thread_are_confined() {
        let affinity_before = Linux::affinity(Linux::current_thread()).unwrap();
        let first = CpuSet::single(affinity_before.first().unwrap());
        let inner = Linux::confined(&first, || {
            let thread = thread::spawn(|| Linux::affinity(Linux::current_thread()).unwrap());
            Ok(thread.join().unwrap())
        });
        assert_eq!(inner.unwrap(), first);
        assert_eq!(
            Linux::affinity(Linux::current_thread()).unwrap(),
            affinity_before,
            "the caller is not"
        );
    }

    #[test]
    fn ticks_have_the_declared_length() {
        // The best of several: if a thread is preempted between two of the readings, the result is off by the length of the preemption.
        let off = |_| {
            let (time, ticks) = (Linux::now(), Linux::ticks());
            Linux::sleep(Duration::from_millis(10));
            let by_ticks = (Linux::ticks() - ticks) as f64 * Linux::tick_ns();
            let by_clock = (Linux::now() - time).as_nanos() as f64;
            (by_ticks / by_clock - 1.0).abs()
        };
        let best = (0..20).map(off).fold(f64::INFINITY, f64::min);
        assert!(best < 0.02, "{best}");
    }
}
