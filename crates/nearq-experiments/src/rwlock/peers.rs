//! Other designs of reader-writer locks, written for any platform, so that they run on simulated machines beside ours.
//!
//! - [`Rwsem`] is the kernel's `rw_semaphore` (`kernel/locking/rwsem.c`) as far as it matters here: one count that every reader changes; a
//!   writer that does not get it spins in a queue of spinning writers (`OsqLock`) and then sleeps in a list, in the order of arrival; a thread that
//!   leaves wakes the first of the list, or all readers at its front; a writer that has slept for 4 ms at the front has the lock handed to
//!   it. The kernel spins while the owner runs, which user space cannot know: here for 20 us at a time.
//! - [`Bravo`] is the lock of Dice and Kogan ("BRAVO", USENIX ATC 2019), over that: while a lock is biased, readers publish themselves in a
//!   table of 4096 places and do not touch the lock; a writer takes the bias away, waits for the readers in the table, and allows the bias
//!   again after nine times as long as that took.

use super::contestant::Shared;
use crate::harness::Host;
use nearq_lock::Mutex;
use nearq_lock::raw::OsqLock;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A writer has the lock.
const WRITER: u64 = 1;
/// Threads are in the list.
const WAITERS: u64 = 2;
/// The lock is handed to the first of the list.
const HANDOFF: u64 = 4;
/// One reader that has the lock, or is about to find out that it has not.
const READER: u64 = 1 << 8;

/// For how long a writer spins before it sleeps, and how long one at the front sleeps before it wants the lock handed to it.
const SPIN: Duration = Duration::from_micros(20);
const HANDED_AFTER: Duration = Duration::from_millis(4);

/// A thread in the list.
struct Waiter<P: Host> {
    writes: bool,
    /// 1 when the reader has the lock, or when the writer has to look again.
    woken: P::AtomicU32,
}

type List<P> = VecDeque<Arc<Waiter<P>>>;

/// The kernel's way.
pub(super) struct Rwsem<P: Host> {
    count: P::AtomicU64,
    spinning: OsqLock<(), P>,
    list: Mutex<List<P>, P>,
}

impl<P: Host> Rwsem<P> {
    fn waiter(&self, list: &mut List<P>, writes: bool) -> Arc<Waiter<P>> {
        let waiter = Arc::new(Waiter { writes, woken: P::AtomicU32::new(0) });
        list.push_back(Arc::clone(&waiter));
        // Relaxed: a thread that leaves afterwards finds it, as it changes the same word.
        self.count.fetch_or(WAITERS, Ordering::Relaxed);
        waiter
    }

    /// Wakes the first writer, or lets all readers at the front in. The caller has the list.
    fn wake_first(&self, list: &mut List<P>) {
        let Some(first) = list.front() else { return };
        if first.writes {
            signal(first);
            return;
        }
        // Acquire: pairs with the release of the writer that left last.
        let before = self.count.fetch_add(READER, Ordering::Acquire);
        if before & WRITER != 0 {
            // Relaxed: taken back before anything was done.
            self.count.fetch_sub(READER, Ordering::Relaxed);
            return;
        }
        let mut let_in = Vec::new();
        while list.front().is_some_and(|waiter| !waiter.writes) {
            let_in.extend(list.pop_front());
        }
        // Relaxed: under the list, and the lock has been taken for all of them.
        self.count.fetch_add(READER * (let_in.len() as u64 - 1), Ordering::Relaxed);
        if list.is_empty() {
            self.count.fetch_and(!(WAITERS | HANDOFF), Ordering::Relaxed);
        }
        let_in.iter().for_each(signal);
    }

    fn wake_if_waited_for(&self, left: u64) {
        if left & WAITERS != 0 {
            let mut list = self.list.lock();
            self.wake_first(&mut list);
        }
    }

    #[cold]
    fn read_slow(&self) {
        let mut list = self.list.lock();
        let waiter = self.waiter(&mut list, false);
        // Relaxed: looked at again below by a step.
        if self.count.load(Ordering::Relaxed) & WRITER == 0
            && list.front().is_some_and(|first| Arc::ptr_eq(first, &waiter))
        {
            self.wake_first(&mut list);
        }
        drop(list);
        sleep(&waiter, None);
    }

    /// Takes a lock that no thread has.
    fn try_write(&self, first: bool) -> bool {
        // Relaxed: a guess.
        let word = self.count.load(Ordering::Relaxed);
        let free = word & !(WAITERS | if first { HANDOFF } else { 0 }) == 0;
        free && self
            .count
            // Acquire: pairs with the releases of the threads that left.
            .compare_exchange(
                word,
                (word | WRITER) & !HANDOFF,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    fn spin(&self) -> bool {
        let _turn = self.spinning.lock();
        let end = P::now() + SPIN;
        while P::now() < end {
            if self.try_write(false) {
                return true;
            }
            P::pause(16);
        }
        false
    }

    #[cold]
    fn write_slow(&self) {
        if self.spin() {
            return;
        }
        let mut list = self.list.lock();
        let waiter = self.waiter(&mut list, true);
        let began = P::now();
        loop {
            let first = list.front().is_some_and(|first| Arc::ptr_eq(first, &waiter));
            if first && self.try_write(true) {
                list.pop_front();
                if list.is_empty() {
                    // Relaxed: under the list.
                    self.count.fetch_and(!WAITERS, Ordering::Relaxed);
                }
                return;
            }
            if first && P::now() - began >= HANDED_AFTER {
                // Relaxed: only the writer at the front, which holds the list, sets it.
                self.count.fetch_or(HANDOFF, Ordering::Relaxed);
            }
            drop(list);
            sleep(&waiter, first.then_some(HANDED_AFTER));
            list = self.list.lock();
            // Relaxed: under the list, in which it was set.
            waiter.woken.store(0, Ordering::Relaxed);
        }
    }
}

fn signal<P: Host>(waiter: &Arc<Waiter<P>>) {
    // Release: pairs with the acquire in `sleep`.
    waiter.woken.store(1, Ordering::Release);
    P::wake(&raw const waiter.woken, 1);
}

fn sleep<P: Host>(waiter: &Waiter<P>, longest: Option<Duration>) {
    let until = longest.map(|time| P::now() + time);
    // Acquire: pairs with the release in `signal`.
    while waiter.woken.load(Ordering::Acquire) == 0 {
        P::wait(&waiter.woken, 0, until);
        if until.is_some_and(P::has_come) {
            return;
        }
    }
}

impl<P: Host> Shared for Rwsem<P> {
    fn free() -> Self {
        let (spinning, list) = (OsqLock::new_in(()), Mutex::new_in(VecDeque::new()));
        Self { count: P::AtomicU64::new(0), spinning, list }
    }

    fn read<R>(&self, _thread: usize, section: impl FnOnce() -> R) -> R {
        // Acquire: pairs with the release of the writer that left last.
        let before = self.count.fetch_add(READER, Ordering::Acquire);
        if before & (WRITER | WAITERS | HANDOFF) != 0 {
            // Relaxed: nothing was done.
            let left = self.count.fetch_sub(READER, Ordering::Relaxed) - READER;
            if left / READER == 0 && left & WRITER == 0 {
                self.wake_if_waited_for(left);
            }
            self.read_slow();
        }
        let result = section();
        // Release: pairs with the acquire of the writer that comes next.
        let left = self.count.fetch_sub(READER, Ordering::Release) - READER;
        if left / READER == 0 {
            self.wake_if_waited_for(left);
        }
        result
    }

    fn write<R>(&self, section: impl FnOnce() -> R) -> R {
        if !self.try_write(false) {
            self.write_slow();
        }
        let result = section();
        // Release: pairs with the acquires of the threads that come next.
        let left = self.count.fetch_and(!WRITER, Ordering::Release);
        self.wake_if_waited_for(left);
        result
    }
}

/// Places of the table, as in the paper.
const PLACES: usize = 4096;
/// For how many times as long as a writer has waited for the table there is no bias, as in the paper.
const TIMES: u64 = 9;

/// BRAVO over the kernel's way. The table is this lock's: in a run there is no other lock.
pub(super) struct Bravo<P: Host> {
    lock: Rwsem<P>,
    biased: P::AtomicU32,
    /// When readers may turn the bias on again. Only under the lock.
    again: P::AtomicU64,
    table: Vec<P::AtomicU32>,
}

impl<P: Host> Bravo<P> {
    /// Whether the reader is published at that place.
    fn publish(&self, place: &P::AtomicU32) -> bool {
        // Relaxed: looked at again below.
        if self.biased.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // SeqCst: Dekker's pattern with `revoke`, which changes the bias and then reads the table. Acquire, included: pairs with the
        // release of the writer that left last.
        if place.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return false;
        }
        if self.biased.load(Ordering::SeqCst) != 0 {
            return true;
        }
        // Release: pairs with the acquire of the writer that reads the table.
        place.store(0, Ordering::Release);
        false
    }

    /// The caller, which has the lock as a writer, takes the bias away.
    fn revoke(&self) {
        // Relaxed: only changed from 0 under the lock.
        if self.biased.load(Ordering::Relaxed) == 0 {
            return;
        }
        let began = P::now();
        // SeqCst: Dekker's pattern with `publish`.
        self.biased.swap(0, Ordering::SeqCst);
        for place in &self.table {
            // SeqCst: likewise. Acquire, included: pairs with the release of the reader that leaves.
            while place.load(Ordering::SeqCst) != 0 {
                P::pause(16);
            }
        }
        let now = P::now();
        let took = (now - began).as_nanos() as u64;
        // Relaxed: under the lock.
        self.again.store(now.as_nanos() + TIMES * took, Ordering::Relaxed);
    }
}

impl<P: Host> Shared for Bravo<P> {
    fn free() -> Self {
        Self {
            lock: Rwsem::free(),
            biased: P::AtomicU32::new(0),
            again: P::AtomicU64::new(0),
            table: (0..PLACES).map(|_| P::AtomicU32::new(0)).collect(),
        }
    }

    fn read<R>(&self, thread: usize, section: impl FnOnce() -> R) -> R {
        // Knuth's multiplicative hashing, as threads of neighbouring numbers should not share a line.
        let spread = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &self.table[(spread >> 32) as usize % PLACES];
        if self.publish(place) {
            let result = section();
            // Release: pairs with the acquire of the writer that reads the table.
            place.store(0, Ordering::Release);
            return result;
        }
        self.lock.read(thread, || {
            // Relaxed for all: under the lock, as a reader; a writer changes them alone.
            if self.biased.load(Ordering::Relaxed) == 0
                && P::now().as_nanos() >= self.again.load(Ordering::Relaxed)
            {
                self.biased.store(1, Ordering::Relaxed);
            }
            section()
        })
    }

    fn write<R>(&self, section: impl FnOnce() -> R) -> R {
        self.lock.write(|| {
            self.revoke();
            section()
        })
    }
}
