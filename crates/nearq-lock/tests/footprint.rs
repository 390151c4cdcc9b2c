//! What free mutexes cost in addition to their four bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use nearq_lock::{Mode, Mutex, Settings};
use nearq_platform::{Instant, Linux, LockPlatform, ThreadSpec, Threads};

/// The system's allocator, and how many bytes are allocated now.
struct Counting;

#[allow(clippy::disallowed_types, reason = "an allocator has no platform")]
static BYTES: AtomicIsize = AtomicIsize::new(0);

fn count(bytes: usize, sign: isize) {
    BYTES.fetch_add(sign * bytes as isize, Ordering::Relaxed);
}

// SAFETY: the system's own, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MUTEXES: usize = if cfg!(miri) { 100 } else { 100_000 };
const THREADS: usize = 4;

/// At each tenth of the mutexes, a thread queues up and gives up again.
fn queue_up_in_vain(mutexes: &Arc<[Mutex<()>]>) {
    mutexes.iter().for_each(|mutex| core::mem::forget(mutex.lock()));
    let mutexes_clone = Arc::clone(mutexes);
    let thread = Linux::spawn(ThreadSpec::default(), move || {
        for mutex in mutexes_clone.iter().step_by(10) {
            assert!(mutex.try_lock_until_in(Instant::from_nanos(1)).is_none());
        }
    });
    Linux::join(thread.expect("a thread can be created"));
    for mutex in mutexes.iter() {
        // SAFETY: taken above, and the guard is forgotten.
        unsafe { mutex.force_unlock() };
    }
}

/// 100,000 free mutexes, for each of which threads have competed: less than 1 MB in addition to them, in every mode.
#[test]
fn free_mutexes_need_little_extra_memory() {
    let before = BYTES.load(Ordering::Relaxed);
    for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
        let mut settings = Settings::default();
        // This makes threads queue up at once.
        (settings.mode, settings.yields) = (mode, 0);
        settings.set_for_process();
        let mutexes: Arc<[Mutex<()>]> = (0..MUTEXES).map(|_| Mutex::new(())).collect();
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let mutexes = Arc::clone(&mutexes);
                let main = move || {
                    for (index, mutex) in mutexes.iter().enumerate() {
                        let _guard = mutex.lock();
                        // Waits while holding it, so that the other threads have to wait.
                        if index % 16 == 0 {
                            Linux::yield_now();
                        }
                    }
                };
                Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
            })
            .collect();
        threads.into_iter().for_each(Linux::join);
        queue_up_in_vain(&mutexes);
        let mutex_bytes = size_of_val(&*mutexes) as isize;
        assert_eq!(mutex_bytes, 4 * MUTEXES as isize);
        let beside = BYTES.load(Ordering::Relaxed) - before - mutex_bytes;
        println!("{mode:?}: {beside} bytes beside {mutex_bytes}");
        assert!(beside < 1 << 20, "{mode:?}: {beside} bytes beside {mutex_bytes}");
    }
}
