//! What the walls cost: instructions of the vertical slice, through the platform and written by hand.
//!
//! `slice_cost platform N` and `slice_cost hand N` do the same N rounds: queue an item, take it off the inbox, run it, give
//! and take a permit. On one thread, so that the count is the same each time. `cargo xtask slice` runs both under
//! callgrind and compares.

use std::hint::black_box;

use nearq_core::Work;
use nearq_core::slice::Slice;
use nearq_platform::{Linux, Parker};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_default();
    let rounds: u64 = arguments.next().and_then(|rounds| rounds.parse().ok()).unwrap_or(100_000);
    match which.as_str() {
        "platform" => platform(rounds),
        "hand" => hand::rounds(rounds),
        _ => {
            eprintln!("usage: slice_cost platform|hand [ROUNDS]");
            std::process::exit(2);
        }
    }
}

fn platform(rounds: u64) {
    let slice = Slice::new();
    let mut ran = 0_u64;
    let work = Work::new(move |_: &Work| {
        ran += 1;
        black_box(ran);
    });
    let parker = slice.parker();
    for _ in 0..rounds {
        round(&slice, &work, parker);
    }
}

/// A function of its own, here and below, so that only the steps are compared and not how the loop keeps its registers.
#[inline(never)]
fn round(slice: &Slice<Linux>, work: &Work, parker: &Parker<Linux>) {
    assert!(slice.queue(work));
    assert_eq!(slice.run(), 1);
    parker.unpark();
    assert!(parker.park(None));
}

/// The same steps over the standard library's atomics, for Linux alone.
#[allow(clippy::disallowed_types, reason = "the version without the platform")]
mod hand {
    use std::cell::UnsafeCell;
    use std::hint::black_box;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::ptr::{NonNull, null_mut};
    use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

    const PENDING: u64 = 1;
    const RUNNING: u64 = 2;
    const DEFERRED: u64 = 4;
    const LOCKED: u64 = 1 << 8;
    const WAITED: u64 = 1 << 9;
    const STALE: u64 = 1 << 10;
    const AWAY: u64 = 1 << 11;
    const ENDED: u64 = 1 << 15;
    const DISABLED: u64 = 0xfff << 16;
    const EPOCH: u64 = 0xfff << 28;
    const REFERENCE: u64 = 1 << 40;
    const ALIVE: u64 = PENDING | RUNNING | STALE | LOCKED;
    const NOBODY: u64 = 0xff_ffff;
    const SEARCHING: u64 = 0xfff << 24;
    const EMPTY: u32 = 0;
    const PARKED: u32 = 1;
    const PERMIT: u32 = 2;

    struct Table {
        execute: unsafe fn(NonNull<Item>) -> Executed,
        free: unsafe fn(NonNull<Item>),
    }

    struct Executed {
        panicked: bool,
        push: bool,
    }

    #[repr(C)]
    struct Item {
        state: AtomicU64,
        next: AtomicPtr<Item>,
        link: AtomicPtr<()>,
        table: &'static Table,
        cpu: UnsafeCell<u32>,
        join: AtomicU32,
        extra: AtomicPtr<()>,
        runs: UnsafeCell<u64>,
    }

    static TABLE: Table = Table { execute, free: free_item };

    unsafe fn execute(item: NonNull<Item>) -> Executed {
        // SAFETY: the caller has RUNNING, which keeps the item alive.
        let header = unsafe { item.as_ref() };
        // SAFETY: RUNNING is ours, and with it the counter.
        let runs = unsafe { &mut *header.runs.get() };
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            *runs += 1;
            black_box(*runs);
        }));
        let mut deferred = false;
        let word = header.state.load(Ordering::Relaxed);
        if word & DEFERRED != 0 {
            deferred = true;
        } else if word & (LOCKED | WAITED) == 0 && header.change(word, word & !RUNNING) {
            if word < REFERENCE && word & !RUNNING & ALIVE == 0 {
                // SAFETY: nobody else has it.
                unsafe { (header.table.free)(item) };
            }
        } else {
            deferred = rare(header);
        }
        Executed { panicked: outcome.is_err(), push: deferred }
    }

    /// What does not happen here.
    #[cold]
    #[inline(never)]
    fn rare(header: &Item) -> bool {
        black_box(&header.state);
        unreachable!("nobody else has the item")
    }

    impl Item {
        fn change(&self, from: u64, to: u64) -> bool {
            self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        }

        fn finish_deferred(&self) -> bool {
            loop {
                let word = self.state.load(Ordering::Acquire);
                let own = self.link.load(Ordering::Relaxed).is_null();
                if own && word & (LOCKED | WAITED | AWAY | DEFERRED) == DEFERRED {
                    if self.change(word, word & !(RUNNING | DEFERRED)) {
                        return true;
                    }
                } else if word & LOCKED != 0 {
                    if self.change(word, word | ENDED) {
                        return false;
                    }
                } else if self.change(word, word | LOCKED | ENDED) {
                    return rare(self);
                }
            }
        }

        fn start(&self) -> bool {
            let word = self.state.load(Ordering::Relaxed);
            if word & (LOCKED | STALE | AWAY) == 0 {
                let link = self.link.load(Ordering::Relaxed);
                self.link.store(null_mut(), Ordering::Relaxed);
                let to = word ^ (PENDING | RUNNING);
                if self
                    .state
                    .compare_exchange(word, to, Ordering::SeqCst, Ordering::Relaxed)
                    .is_ok()
                {
                    return true;
                }
                self.link.store(link, Ordering::Release);
            }
            rare(self)
        }
    }

    unsafe fn free_item(item: NonNull<Item>) {
        // SAFETY: allocated as a box below, and nobody has it any more.
        drop(unsafe { Box::from_raw(item.as_ptr()) });
    }

    struct List {
        head: *mut Item,
        tail: *mut Item,
        len: usize,
    }

    impl List {
        fn push_front(&mut self, item: NonNull<Item>) {
            // SAFETY: the list has the item.
            unsafe { item.as_ref() }.next.store(self.head, Ordering::Relaxed);
            self.head = item.as_ptr();
            if self.tail.is_null() {
                self.tail = item.as_ptr();
            }
            self.len += 1;
        }

        fn pop_front(&mut self) -> Option<NonNull<Item>> {
            let item = NonNull::new(self.head)?;
            // SAFETY: the list has the item.
            self.head = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
            if self.head.is_null() {
                self.tail = null_mut();
            }
            self.len -= 1;
            Some(item)
        }
    }

    struct Pool {
        head: AtomicPtr<Item>,
        idle: AtomicU64,
        epoch: u64,
        /// An entry of its own, as a worker has.
        worker: Box<Worker>,
    }

    struct Worker {
        permit: AtomicU32,
    }

    impl Worker {
        fn unpark(&self) {
            if self.permit.swap(PERMIT, Ordering::Release) == PARKED {
                self.wake();
            }
        }

        #[cold]
        #[inline(never)]
        fn wake(&self) {
            black_box(&self.permit);
            unreachable!("the worker does not sleep");
        }

        fn park(&self) -> bool {
            self.permit.swap(EMPTY, Ordering::Acquire) == PERMIT
        }
    }

    impl Pool {
        fn push(&self, item: NonNull<Item>) {
            let mut head = self.head.load(Ordering::Relaxed);
            loop {
                // SAFETY: PENDING is ours.
                unsafe { item.as_ref() }.next.store(head, Ordering::Relaxed);
                match self.head.compare_exchange_weak(
                    head,
                    item.as_ptr(),
                    Ordering::SeqCst,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(found) => head = found,
                }
            }
            let word = self.idle.load(Ordering::SeqCst);
            if word & SEARCHING != 0 || word & NOBODY == NOBODY {
                return;
            }
            self.wake();
        }

        #[cold]
        #[inline(never)]
        fn wake(&self) {
            black_box(&self.idle);
            unreachable!("the worker searches");
        }

        fn queue(&self, item: NonNull<Item>) -> bool {
            // SAFETY: the caller has a handle.
            let header = unsafe { item.as_ref() };
            let word = header.state.load(Ordering::Relaxed);
            let plain = PENDING | LOCKED | STALE | AWAY | DISABLED | EPOCH;
            if word & plain != self.epoch || !header.change(word, word | PENDING) {
                return rare(header);
            }
            // SAFETY: PENDING is ours.
            unsafe { *header.cpu.get() = 0 };
            header.link.store(null_mut(), Ordering::Release);
            if header.state.load(Ordering::Acquire) & RUNNING == 0 || Self::publish_running(header)
            {
                self.push(item);
            }
            true
        }

        #[cold]
        fn publish_running(header: &Item) -> bool {
            if header.state.fetch_or(DEFERRED, Ordering::AcqRel) & RUNNING != 0 {
                return false;
            }
            header.state.fetch_and(!DEFERRED, Ordering::AcqRel);
            true
        }

        fn take_all(&self) -> List {
            let mut list = List { head: null_mut(), tail: null_mut(), len: 0 };
            if self.head.load(Ordering::Relaxed).is_null() {
                return list;
            }
            let mut newest = self.head.swap(null_mut(), Ordering::SeqCst);
            while let Some(item) = NonNull::new(newest) {
                // SAFETY: the whole list is ours since the swap.
                newest = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
                list.push_front(item);
            }
            list
        }

        fn run(&self) -> usize {
            let mut items = self.take_all();
            let count = items.len;
            while let Some(item) = items.pop_front() {
                // SAFETY: it came off the list, so PENDING is ours.
                let header = unsafe { item.as_ref() };
                assert!(header.start());
                // SAFETY: RUNNING is ours, and the table is the item's own.
                let executed = unsafe { (header.table.execute)(item) };
                black_box(executed.panicked);
                // SAFETY: RUNNING is still ours where it was queued meanwhile.
                if executed.push && unsafe { item.as_ref() }.finish_deferred() {
                    self.push(item);
                }
            }
            count
        }
    }

    #[inline(never)]
    fn round(pool: &Pool, item: NonNull<Item>, worker: &Worker) {
        assert!(pool.queue(item));
        assert_eq!(pool.run(), 1);
        worker.unpark();
        assert!(worker.park());
    }

    pub(crate) fn rounds(rounds: u64) {
        let pool = Pool {
            head: AtomicPtr::new(null_mut()),
            idle: AtomicU64::new(NOBODY | 1 << 24),
            epoch: black_box(0),
            worker: Box::new(Worker { permit: AtomicU32::new(EMPTY) }),
        };
        let item = NonNull::from(Box::leak(Box::new(Item {
            state: AtomicU64::new(REFERENCE),
            next: AtomicPtr::new(null_mut()),
            link: AtomicPtr::new(null_mut()),
            table: &TABLE,
            cpu: UnsafeCell::new(0),
            join: AtomicU32::new(0),
            extra: AtomicPtr::new(null_mut()),
            runs: UnsafeCell::new(0),
        })));
        let worker = &*pool.worker;
        for _ in 0..rounds {
            round(&pool, item, worker);
        }
        // SAFETY: the item is idle, and nobody else has it.
        let item = unsafe { Box::from_raw(item.as_ptr()) };
        assert_eq!(item.join.load(Ordering::Relaxed), 0);
        assert!(item.extra.load(Ordering::Relaxed).is_null());
    }
}
