//! What the locks of a process share: the records of waiters, the slots, which CPUs are near each other, how many threads may spin, and the
//! settings.
//!
//! The first thread that has to wait for a lock makes it. The platform keeps it, because a lock of four bytes has no space for a pointer to
//! it. Nothing in it is ever moved or freed while the process lives.
//!
//! # Forks
//! The child of a fork has a copy. The threads that wait in it do not exist. The first use in the child empties the slots' queues and
//! forgets the spinners and the counts, which belong to the parent; queues in mutexes' words are handled when a thread meets them
//! (`queue.rs`). Forks are noticed if something follows them: a runtime does, and so does [`start`](crate::start).
//!
//! # Slots
//! Slots need memory, and a thread that holds a mutex must not wait for memory. So they are made by threads that wait for the first time,
//! before they queue up, if waiters may come to queue up by domain: many at once (`lines.rs` says where). A thread that binds a slot takes
//! one that is there, or leaves the mutex as it is. A thread that takes the last one, or finds none, forgets its record (`waiter_slab.rs`),
//! so that its next wait is like its first, and more are made. That costs threads that do not bind slots nothing.
//!
//! A mutex may be gone without having been dropped, like C++'s, which has no destructor that reports it; and a mutex that is no longer used
//! keeps its slot. A slot does not know its mutex, so no other thread can take it back. Programs hardly need 1024 slots at once. When more
//! have been needed, the last thread that leaves a slot's queues gives the slot back, in every mode. From then on a mutex has a slot only
//! while a thread waits for it, and a program frees a mutex only when none does. The slots that were taken before stay lost, and so do
//! those of mutexes whose last waiter gave up at a deadline and which no thread has taken since.
//!
//! # Which threads may spin
//! Spinning makes sense while another CPU does what is waited for. So no more threads spin in this process than it has CPUs, less one: then
//! a CPU is left for the thread that all others wait for. They are counted by domain, each of which may have as many
//! spinners as CPUs, so that the counting stays within the cache; the first domain has one less. If a process may use only one CPU, no
//! thread spins. Threads of other programs are not counted: the cap keeps our own from harming each other, and the budget of each spin
//! bounds the rest.

use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, CacheMap, ForkHooks, Linux, LockPlatform, Ordering};

use crate::domains::{self, MOST_DOMAINS};
use crate::fallible;
use crate::lines::Row;
use crate::numbered::Numbered;
use crate::readers::ReaderRows;
use crate::settings::{Mode, Settings};
use crate::slot::Slot;
use crate::statistics::Counts;
use crate::stay::Stay;
use crate::waiter_slab::WaiterSlab;

/// How long a thread that waits for some steps of another thread sleeps.
const MOMENT: Duration = Duration::from_micros(50);

/// How many slots are made at first; then as many again, and then twice as many each time. Their lines of one domain fill a page.
const FIRST_SLOTS: usize = if cfg!(test) { 1 } else { 64 };
/// Chosen so that there are 4095 slots.
const SLOT_CHUNKS: usize = if cfg!(test) { 13 } else { 7 };

/// Once this chunk is made, which is the last but one, slots are few: 1024 were taken at once.
const SHORT: usize = SLOT_CHUNKS - 2;

/// In `complained`: there was a warning that there are no more slots.
const EXHAUSTED: u32 = 1 << 31;

/// The slots of a process, by number. Few at first under test, so that tests cover how more are made.
type Slots<P> = Numbered<P, Slot<P>, FIRST_SLOTS, SLOT_CHUNKS>;

/// The CPUs under one last-level cache, or of one node or package (`domains.rs`).
#[repr(align(64))]
pub(crate) struct Domain<P: LockPlatform> {
    /// How many threads spin here.
    spinners: P::AtomicU32,
    /// How many may spin here.
    cap: u32,
    /// The node that it is on.
    pub(crate) node: usize,
    /// The system's number of that node.
    memory: Option<usize>,
}

/// What reader-writer locks need now and then, and have no space for, by their address.
#[repr(align(64))]
pub(crate) struct Bucket<P: LockPlatform> {
    /// Where a head sleeps; `raw_rwlock.rs` says how.
    pub(crate) count: P::AtomicU32,
    /// Until when a lock gets no row.
    pub(crate) no_row_until: P::AtomicU64,
    /// 1 while a reader lends a row to a lock (`by_cache.rs`). In the child of a fork no thread does.
    pub(crate) lending: P::AtomicU32,
}

/// How many buckets there are. Two locks that share one wake each other's head, and get no row if the other one does not.
const BUCKETS: usize = if cfg!(test) { 2 } else { 64 };

/// What the locks of a process share.
pub(crate) struct ProcessState<P: LockPlatform> {
    pub(crate) waiters: WaiterSlab<P>,
    cache_map: CacheMap,
    /// The domain of each cache.
    domain_of: Box<[u8]>,
    pub(crate) domains: Box<[Domain<P>]>,
    /// How many domains have CPUs that the process may use.
    pub(crate) used_domains: usize,
    /// How many reads of a word take about a microsecond.
    reads: u32,
    /// The process that it belongs to (`LockPlatform::fork_epoch`), times two; odd while it is made fit for that process.
    epoch: P::AtomicU64,
    pub(crate) slots: Slots<P>,
    /// 1 while a thread makes slots.
    stocking: P::AtomicU32,
    /// 1 once a thread of a real-time class has been seen.
    urgent: P::AtomicU32,
    /// 1 if forks are followed on behalf of this state.
    followed: P::AtomicU32,
    /// Counts, by domain.
    pub(crate) counts: Box<[Counts<P>]>,
    /// The settings, packed, but for the depth, which is read only if they say that there is one.
    settings: P::AtomicU64,
    depth: P::AtomicU32,
    /// The rows of reader-writer locks.
    pub(crate) readers: ReaderRows<P>,
    buckets: Box<[Bucket<P>]>,
    /// Which warnings were printed: a bit for each of the settings (`Settings::within_bounds`), and [`EXHAUSTED`].
    pub(crate) complained: P::AtomicU32,
}

#[cold]
fn make<P: LockPlatform>() -> *const () {
    // SAFETY: always a `ProcessState`, which is `Sync`; freed as it was made.
    unsafe { P::share(ProcessState::<P>::make, ProcessState::<P>::end) }
}

/// How many reads of a word take a microsecond on this machine: a pause is 3 cycles on some processors and 140 on others.
fn reads<P: LockPlatform>() -> u32 {
    const SAMPLE: u32 = 64;
    let word = P::AtomicU32::new(0);
    let shortest = (0..3)
        .map(|_| {
            let began = P::now();
            P::wait_until_changed(&word, 0, SAMPLE);
            P::now() - began
        })
        .min();
    let nanos = shortest.map_or(0, |time| time.as_nanos() as u32);
    (SAMPLE * 1000 / nanos.max(1)).clamp(5, 500)
}

/// Creates the state that the mutexes of this process share. Otherwise the first thread that has to wait creates it. After this call,
/// waiting needs no memory and reads no files, and forks are noticed in the child.
///
/// For libraries that are loaded into other programs. A program with a runtime does not need it. Calling it again does nothing. Must not be
/// called by functions that run around a fork.
#[doc(hidden)]
pub fn start() {
    start_in::<Linux>();
}

/// As [`start`], on any platform.
fn start_in<P: LockPlatform>() {
    unsafe fn nothing(_process: *const ()) {}
    static HOOKS: ForkHooks = ForkHooks { prepare: nothing, parent: nothing, child: nothing };
    let process = ProcessState::<P>::get();
    // Early, so that the platform can note the ends of threads: that may need memory, which it may still allocate here.
    P::set_number(P::number(), thread_ended::<P>);
    if process.may_bind(process.settings().mode) {
        process.stock();
    }
    // Relaxed: the thread that changes it does what follows, once.
    if process.followed.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: the hooks do nothing, with any argument.
        unsafe { P::follow_forks(core::ptr::from_ref(process).cast(), &HOOKS) };
    }
}

/// Announces that the process may have threads of real-time classes (`SCHED_FIFO`, `SCHED_RR` or `SCHED_DEADLINE`). From now on, each
/// thread that waits for a condition asks the system how urgent it is, which takes one or two system calls.
///
/// A program needs this only if it changes the class of a thread that has waited before. A thread that is of such a class when it first
/// waits for a condition, or when it finds a mutex held, is recognised. Calling it again does nothing.
///
/// ```
/// nearq_lock::expect_urgent();
/// ```
pub fn expect_urgent() {
    ProcessState::<Linux>::get().expect_urgent();
}

/// A thread has ended.
fn thread_ended<P: LockPlatform>(number: u32) {
    ProcessState::<P>::get().waiters.ended(number);
}

impl<P: LockPlatform> ProcessState<P> {
    /// The state of the caller's process. It is created if it does not exist; this may read the machine's description, which takes a while.
    #[inline]
    pub(crate) fn get<'a>() -> &'a Self {
        let process = Self::of_any_process();
        // Acquire: pairs with the release of the thread that renewed it.
        if process.epoch.load(Ordering::Acquire) != P::fork_epoch() << 1 {
            process.renew();
        }
        process
    }

    /// The state of the caller's process, for a caller that uses nothing of it that the child of a fork has to make fit first.
    #[inline]
    pub(crate) fn of_any_process<'a>() -> &'a Self {
        let there = P::shared();
        let there = if there.is_null() { make::<P>() } else { there };
        // SAFETY: made below, for this platform (a platform has one kind of shared thing, and only this crate shares one), and lives as
        // long as the platform's process, which the caller is a part of.
        unsafe { &*there.cast::<Self>() }
    }

    /// The state of the caller's process, if it exists, for a caller that only observes; and whether its contents are this process's, or
    /// still the parent's.
    pub(crate) fn as_it_is<'a>() -> Option<(&'a Self, bool)> {
        // SAFETY: null, or made by `make` for this platform; it lives as long as the platform's process, which the caller is a part of.
        let process = unsafe { P::shared().cast::<Self>().as_ref() }?;
        // Acquire: pairs with the release of the thread that renewed it.
        Some((process, process.epoch.load(Ordering::Acquire) == P::fork_epoch() << 1))
    }

    /// The first use in the child of a fork: the threads that waited in slots and those that were spinning do not exist.
    #[cold]
    fn renew(&self) {
        let now = P::fork_epoch() << 1;
        loop {
            // Acquire: pairs with the release of the thread that renewed it.
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch == now {
                return;
            }
            if epoch == now | 1 {
                // Another thread is doing it. That thread may be less urgent than the caller, and need the caller's CPU.
                P::sleep(MOMENT);
                continue;
            }
            // Relaxed: decides which thread does it; the others wait for the release below.
            let claimed =
                self.epoch.compare_exchange(epoch, now | 1, Ordering::Relaxed, Ordering::Relaxed);
            if claimed.is_ok() {
                for domain in &self.domains {
                    domain.spinners.store(0, Ordering::Relaxed);
                }
                self.slots.each(Slot::renew);
                self.readers.renew();
                for bucket in &self.buckets {
                    bucket.lending.store(0, Ordering::Relaxed);
                }
                self.counts.iter().for_each(Counts::clear);
                self.stocking.store(0, Ordering::Relaxed);
                // Release: pairs with the acquires above.
                self.epoch.store(now, Ordering::Release);
                return;
            }
        }
    }

    fn make() -> *const () {
        let cache_map = P::cache_map();
        let caches = cache_map.caches();
        let (domain_of, count) = domains::of_caches::<P>(caches);
        let mut domains: Vec<Domain<P>> = (0..count)
            .map(|_| Domain { spinners: P::AtomicU32::new(0), cap: 0, node: 0, memory: None })
            .collect();
        for (cache, domain) in caches.iter().zip(&domain_of).rev() {
            let domain = &mut domains[usize::from(*domain)];
            domain.cap += cache.cpus as u32;
            (domain.node, domain.memory) = (cache.node, cache.memory);
        }
        let used_domains = domains.iter().filter(|domain| domain.cap > 0).count();
        if let Some(first) = domains.iter_mut().find(|domain| domain.cap > 0) {
            first.cap -= 1;
        }
        let process = ProcessState {
            waiters: WaiterSlab::new(thread_ended::<P>),
            cache_map,
            domain_of,
            domains: domains.into_boxed_slice(),
            used_domains,
            reads: reads::<P>(),
            epoch: P::AtomicU64::new(P::fork_epoch() << 1),
            followed: P::AtomicU32::new(0),
            counts: (0..count).map(|_| Counts::new()).collect(),
            slots: Slots::new(),
            stocking: P::AtomicU32::new(0),
            urgent: P::AtomicU32::new(0),
            settings: P::AtomicU64::new(Settings::at_start::<P>().pack()),
            depth: P::AtomicU32::new(0),
            readers: ReaderRows::new(),
            buckets: (0..BUCKETS)
                .map(|_| Bucket {
                    count: P::AtomicU32::new(0),
                    no_row_until: P::AtomicU64::new(0),
                    lending: P::AtomicU32::new(0),
                })
                .collect(),
            complained: P::AtomicU32::new(0),
        };
        Box::into_raw(Box::new(process)).cast_const().cast()
    }

    unsafe fn end(process: *const ()) {
        // SAFETY: made by `make`, and no thread uses it any more, as `LockPlatform::share` promises.
        let process = unsafe { Box::from_raw(process.cast_mut().cast::<Self>()) };
        // Relaxed: no other thread uses it.
        if process.followed.load(Ordering::Relaxed) == 1 {
            P::unfollow_forks(core::ptr::from_ref(&*process).cast());
        }
    }

    /// The settings of the mutexes.
    #[inline]
    pub(crate) fn settings(&self) -> Settings {
        // Relaxed for both: numbers; nothing is published with them. While the settings are being changed, the depth may be the other one.
        Settings::unpack(self.settings.load(Ordering::Relaxed), || {
            self.depth.load(Ordering::Relaxed)
        })
    }

    /// Changes the settings, which are within their bounds.
    pub(crate) fn set(&self, settings: Settings) {
        // Relaxed for both: as above.
        if settings.depth != 0 {
            self.depth.store(settings.depth, Ordering::Relaxed);
        }
        self.settings.store(settings.pack(), Ordering::Relaxed);
    }

    /// How urgent the caller is, which is about to wait for a condition. If no thread of a real-time class was ever seen, 0, without asking
    /// the system.
    #[inline]
    pub(crate) fn urgency(&self) -> u32 {
        // Relaxed: a hint; nothing is published with it.
        if self.urgent.load(Ordering::Relaxed) == 0 { 0 } else { Self::query_urgency() }
    }

    #[cold]
    #[inline(never)]
    fn query_urgency() -> u32 {
        P::urgency()
    }

    /// Whether the caller is of a real-time class: asks the system, and notes it for [`urgency`](Self::urgency).
    pub(crate) fn check_urgency(&self) -> bool {
        let urgent = P::is_real_time();
        if urgent {
            self.expect_urgent();
        }
        urgent
    }

    /// Threads of real-time classes may wait from now on.
    pub(crate) fn expect_urgent(&self) {
        // Relaxed: a hint; nothing is published with it. It is read first, so that the cache line stays shared by all that read it.
        if self.urgent.load(Ordering::Relaxed) == 0 {
            self.urgent.store(1, Ordering::Relaxed);
        }
    }

    /// Whether waiters of mutexes with that mode may queue up by domain.
    pub(crate) fn may_bind(&self, mode: Mode) -> bool {
        match mode {
            Mode::Numa => true,
            Mode::Auto => self.used_domains > 1,
            Mode::Off | Mode::Plain => false,
        }
    }

    /// Ensures that a slot is free, if there may be one more: makes some, which takes memory. Not for a thread that holds a mutex for which
    /// other threads may be waiting. False if another thread is making some.
    #[cold]
    pub(crate) fn stock(&self) -> bool {
        if self.slots.is_one_free() {
            return true;
        }
        // Acquire: sees what the previous thread has made.
        if self.stocking.swap(1, Ordering::Acquire) != 0 {
            return false;
        }
        let ready = self.slots.is_one_free() || self.make_slots();
        // Release: pairs with the acquire above.
        self.stocking.store(0, Ordering::Release);
        // Relaxed: the thread that sets the bit prints the warning.
        if !ready
            && !self.slots.are_more()
            && self.complained.fetch_or(EXHAUSTED, Ordering::Relaxed) & EXHAUSTED == 0
        {
            P::warn(
                "4095 mutexes have queues by cache, which is the limit: other mutexes keep one queue. Mutexes that were never dropped or destroyed \
                 keep theirs (nearq dump PID --locks)",
            );
        }
        true
    }

    /// Makes the next chunk of slots; false if there is none, or no memory for it.
    pub(crate) fn make_slots(&self) -> bool {
        let mut nodes = [None; MOST_DOMAINS];
        nodes.iter_mut().zip(&self.domains).for_each(|(node, domain)| *node = domain.memory);
        let nodes = &nodes[..self.domains.len()];
        self.slots.make_more(|count| fallible::slice(Row::sheet(count, nodes)?.map(Slot::new)))
    }

    /// Takes a slot that is there and makes it ready to be bound, with its turn taken. None if all are bound, or the one that is free is
    /// not ready.
    pub(crate) fn take_slot(&self) -> Option<u32> {
        let number = self.slots.take_made();
        let complain = || self.complained.load(Ordering::Relaxed) & EXHAUSTED == 0;
        if !self.slots.is_one_free() && (self.slots.are_more() || complain()) {
            // So that the caller makes more at its next wait, or warns that there are no more.
            self.waiters.forget_record();
        }
        let number = number?;
        if self.slots.get(number).bind() {
            return Some(number);
        }
        self.slots.free(number);
        None
    }

    /// Whether so many slots are taken that none is left for a mutex that no thread waits for.
    pub(crate) fn is_short_of_slots(&self) -> bool {
        self.slots.is_made(SHORT)
    }

    /// Gives back a slot whose mutex is gone. No thread waits there.
    pub(crate) fn give_slot_back(&self, number: u32) {
        let slot = self.slots.get(number);
        slot.unbind(self, 0);
        self.slots.free(number);
    }

    /// The number of the bucket of the reader-writer lock whose state has that address.
    pub(crate) fn bucket_of(address: usize) -> u32 {
        // Knuth's multiplicative hashing: adjacent addresses are spread over the buckets.
        let spread = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (spread >> 32) as u32 % BUCKETS as u32
    }

    /// The bucket of that number.
    pub(crate) fn bucket(&self, number: u32) -> &Bucket<P> {
        &self.buckets[number as usize]
    }

    /// Wakes the threads that sleep in a bucket. The caller has changed what they wait for.
    pub(crate) fn wake_bucket(&self, number: u32) {
        let count = &self.bucket(number).count;
        // Release: pairs with the acquire of a thread that is about to sleep, which has to find what the caller has changed.
        count.fetch_add(1, Ordering::Release);
        // Other locks may share the bucket.
        P::wake(count, usize::MAX);
    }

    /// A free row for the readers of a lock.
    #[cold]
    pub(crate) fn lend_row(&self, now: u64) -> Option<u32> {
        let mut nodes = [None; MOST_DOMAINS];
        nodes.iter_mut().zip(&self.domains).for_each(|(node, domain)| *node = domain.memory);
        self.readers.take(&nodes[..self.domains.len()], now)
    }

    /// The domain that the caller runs in.
    #[inline]
    pub(crate) fn current_domain(&self) -> usize {
        if self.domains.len() == 1 {
            return 0;
        }
        self.domain_of[self.cache_map.cache_of(P::current_cpu())].into()
    }

    /// How many reads take about this many microseconds.
    pub(crate) fn reads(&self, micros: u32) -> u32 {
        self.reads * micros
    }

    /// Reads a word until it changes, for about this many microseconds; not at all if enough threads spin in the domain, of which `spare`
    /// places are left to other threads. Returns whether it changed.
    #[inline]
    pub(crate) fn spin(
        &self,
        domain: usize,
        word: &P::AtomicU32,
        value: u32,
        micros: u32,
        spare: u32,
        stay: Option<&Stay<P>>,
    ) -> bool {
        let read = || P::wait_until_changed(word, value, self.reads(micros));
        self.as_spinner(domain, spare, stay, read).unwrap_or(false)
    }

    /// Lets this many microseconds pass without reading anything; none if enough threads spin in the domain.
    pub(crate) fn pause(&self, domain: usize, micros: u32, stay: Option<&Stay<P>>) {
        self.as_spinner(domain, 0, stay, || P::pause(self.reads(micros)));
    }

    /// A thread that was counted as spinning in the domain no longer spins.
    pub(crate) fn spins_no_more(&self, domain: usize) {
        // Relaxed: a count and nothing else.
        self.domains[domain].spinners.fetch_sub(1, Ordering::Relaxed);
    }

    /// Does something as one of the threads that spin in the domain, unless there are enough of them.
    #[inline]
    fn as_spinner<R>(
        &self,
        index: usize,
        spare: u32,
        stay: Option<&Stay<P>>,
        spin: impl FnOnce() -> R,
    ) -> Option<R> {
        let domain = &self.domains[index];
        // Relaxed for all: a count and nothing else.
        if domain.spinners.load(Ordering::Relaxed) + spare >= domain.cap {
            return None;
        }
        if domain.spinners.fetch_add(1, Ordering::Relaxed) + spare >= domain.cap {
            domain.spinners.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        if let Some(stay) = stay {
            stay.spins(Some(index));
        }
        let out = spin();
        if let Some(stay) = stay {
            stay.spins(None);
        }
        domain.spinners.fetch_sub(1, Ordering::Relaxed);
        Some(out)
    }

    /// Whether one more thread of the domain may spin, besides one that may.
    pub(crate) fn another_may_spin(&self, domain: usize) -> bool {
        let domain = &self.domains[domain];
        // Relaxed: a hint.
        domain.spinners.load(Ordering::Relaxed) + 1 < domain.cap
    }
}
