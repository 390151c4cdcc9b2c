//! Reader-writer locks at several mixes of reads and writes, on this machine or on a simulated one: how often each class gets the lock, and
//! how long the longest wait of each is.
//!
//! `cargo run --release -p nearq-experiments --example rwlock -- [--on MACHINE] [--threads N,...] [--writes PERMILLE,...] [--ms N]`
//!
//! Each thread takes the lock, works for 50 ns on the value, releases it, and works for 50 ns elsewhere. On a simulated machine, threads are
//! spread evenly over the CPUs, and only nearq's locks run.

#![allow(clippy::disallowed_types, reason = "the standard library's lock takes part")]

use core::cell::UnsafeCell;
use core::hint::black_box;
use core::time::Duration;
use std::sync::Arc;

use crossbeam_utils::sync::ShardedLock;
use nearq_lock::{Mode, Settings};
use nearq_platform::{Atomic, Linux, LockPlatform, Ordering, Platform, ThreadSpec};
use nearq_sim::{Machine, Sim, Simulation};
use nearq_topology::CpuSet;

/// So that a simulated run is a function of the options alone.
#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;

/// What one thread got of a lock, or all of them together.
#[derive(Clone, Copy, Default)]
struct Got {
    reads: u64,
    writes: u64,
    longest_read: Duration,
    longest_write: Duration,
}

/// A lock around a number, on lines of its own.
trait Shared: Send + Sync + 'static {
    fn free() -> Self;
    fn read<R>(&self, section: impl FnOnce(u64) -> R) -> R;
    fn write<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R;
}

macro_rules! shared {
    ($lock:ty, $new:expr, $read:ident, $write:ident $(, $unwrap:ident)? $(; $platform:ident)?) => {
        impl$(<$platform: Platform>)? Shared for $lock {
            fn free() -> Self {
                $new(0)
            }
            #[inline]
            fn read<R>(&self, section: impl FnOnce(u64) -> R) -> R {
                let guard = self.$read()$(.$unwrap())?;
                section(*guard)
            }
            #[inline]
            fn write<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
                let mut guard = self.$write()$(.$unwrap())?;
                section(&mut guard)
            }
        }
    };
}

shared!(nearq_lock::RwLock<u64, P>, Self::new_in, read, write; P);
shared!(nearq_lock::Mutex<u64, P>, Self::new_in, lock, lock; P);
shared!(std::sync::RwLock<u64>, Self::new, read, write, unwrap);
shared!(parking_lot::RwLock<u64>, Self::new, read, write);
shared!(ShardedLock<u64>, Self::new, read, write, unwrap);

/// The C library's lock, which prefers readers or writers.
struct Pthread<const WRITERS: bool>(Box<UnsafeCell<libc::pthread_rwlock_t>>, UnsafeCell<u64>);

// SAFETY: the lock is meant for use by several threads, and the number is used under it.
unsafe impl<const WRITERS: bool> Send for Pthread<WRITERS> {}
// SAFETY: as above.
unsafe impl<const WRITERS: bool> Sync for Pthread<WRITERS> {}

/// `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
const PREFER_WRITERS: libc::c_int = 2;

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(
        attributes: *mut libc::pthread_rwlockattr_t,
        kind: libc::c_int,
    ) -> libc::c_int;
}

impl<const WRITERS: bool> Shared for Pthread<WRITERS> {
    fn free() -> Self {
        let lock = Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
        if WRITERS {
            let mut attributes = core::mem::MaybeUninit::uninit();
            // SAFETY: the attributes are initialised by the first call, and the lock by the last one, before any thread uses it.
            let refused = unsafe {
                libc::pthread_rwlockattr_init(attributes.as_mut_ptr())
                    | pthread_rwlockattr_setkind_np(attributes.as_mut_ptr(), PREFER_WRITERS)
                    | libc::pthread_rwlock_init(lock.get(), attributes.as_ptr())
            };
            assert_eq!(refused, 0);
        }
        Pthread(lock, UnsafeCell::new(0))
    }

    fn read<R>(&self, section: impl FnOnce(u64) -> R) -> R {
        // SAFETY: initialised, in a box, and borrowed.
        assert_eq!(unsafe { libc::pthread_rwlock_rdlock(self.0.get()) }, 0);
        // SAFETY: the lock is held for reading.
        let out = section(unsafe { *self.1.get() });
        // SAFETY: taken above.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        out
    }

    fn write<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        // SAFETY: initialised, in a box, and borrowed.
        assert_eq!(unsafe { libc::pthread_rwlock_wrlock(self.0.get()) }, 0);
        // SAFETY: the lock is held for writing.
        let out = section(unsafe { &mut *self.1.get() });
        // SAFETY: taken above.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
        out
    }
}

#[repr(align(128))]
struct OnALine<T>(T);

/// What the threads do.
#[derive(Clone, Copy)]
struct Plan {
    threads: usize,
    /// Of a thousand uses.
    writes: u64,
    time: Duration,
    /// CPUs of the simulated machine; none on this one.
    cpus: Option<usize>,
    work: fn(u64),
}

fn run<P: Platform, L: Shared>(plan: Plan) -> Got {
    let lock = Arc::new(OnALine(L::free()));
    let total = Arc::new(nearq_lock::Mutex::<Got, P>::new_in(Got::default()));
    let begun = Arc::new(<P as LockPlatform>::AtomicU32::new(0));
    let all: Vec<_> = (0..plan.threads)
        .map(|index| {
            let (lock, total, begun) = (Arc::clone(&lock), Arc::clone(&total), Arc::clone(&begun));
            let main = move || {
                while begun.load(Ordering::Acquire) == 0 {
                    P::wait(&begun, 0, None);
                }
                let got = use_lock::<P, L>(&lock.0, plan, index as u64);
                let mut total = total.lock();
                total.reads += got.reads;
                total.writes += got.writes;
                total.longest_read = total.longest_read.max(got.longest_read);
                total.longest_write = total.longest_write.max(got.longest_write);
            };
            let affinity = plan.cpus.map(|cpus| CpuSet::single(index * cpus / plan.threads % cpus));
            P::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main).expect("a thread")
        })
        .collect();
    begun.store(1, Ordering::Release);
    P::wake(&raw const *begun, usize::MAX);
    all.into_iter().for_each(P::join);
    *total.lock()
}

fn use_lock<P: Platform, L: Shared>(lock: &L, plan: Plan, index: u64) -> Got {
    let mut got = Got::default();
    // Any sequence will do (Park, Miller, 1988).
    let mut random = index + 1;
    let end = P::now() + plan.time;
    loop {
        random = random * 48271 % 0x7fff_ffff;
        let began = P::now();
        if began >= end {
            return got;
        }
        if random % 1000 < plan.writes {
            got.longest_write = got.longest_write.max(lock.write(|value| {
                let waited = P::now() - began;
                *value += 1;
                (plan.work)(50);
                waited
            }));
            got.writes += 1;
        } else {
            got.longest_read = got.longest_read.max(lock.read(|value| {
                let waited = P::now() - began;
                black_box(value);
                (plan.work)(50);
                waited
            }));
            got.reads += 1;
        }
        (plan.work)(50);
    }
}

fn works_here(nanos: u64) {
    for _ in 0..nanos / 2 {
        black_box(());
    }
}

fn works_simulated(nanos: u64) {
    nearq_sim::compute(Duration::from_nanos(nanos));
}

/// A lock by name, the mode of nearq's locks for it, and a run of it.
type Contestant = (&'static str, Mode, fn(Plan) -> Got);

fn ours<P: Platform>() -> Vec<Contestant> {
    vec![
        ("nearq", Mode::Auto, run::<P, nearq_lock::RwLock<u64, P>>),
        ("nearq, one word", Mode::Plain, run::<P, nearq_lock::RwLock<u64, P>>),
        ("nearq mutex", Mode::Auto, run::<P, nearq_lock::Mutex<u64, P>>),
    ]
}

fn set_mode<P: LockPlatform>(mode: Mode) {
    let mut settings = Settings::of_process_in::<P>();
    settings.mode = mode;
    settings.set_for_process_in::<P>();
}

fn numbers(list: &str) -> Vec<u64> {
    list.split(',').map(|number| number.parse().expect("a number")).collect()
}

fn main() {
    let (mut on, mut threads, mut writes, mut time) =
        (None, None, vec![0, 10, 100, 500, 1000], None);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().expect("each option has a value");
        match option.as_str() {
            "--on" => on = Some(Machine::named(&value).expect("a machine of nearq topo --list")),
            "--threads" => threads = Some(numbers(&value)),
            "--writes" => writes = numbers(&value),
            "--ms" => time = Some(Duration::from_millis(numbers(&value)[0])),
            _ => panic!("{option}: allowed are --on, --threads, --writes and --ms"),
        }
    }
    let time = time.unwrap_or(Duration::from_millis(if on.is_some() { 10 } else { 300 }));
    let cpus = on.as_ref().map(|machine| machine.topology().possible().len());
    let most = cpus.unwrap_or(16);
    let threads = threads.unwrap_or_else(|| {
        let powers = (0..).map(|power| 2 << power).take_while(|count| *count < most as u64);
        [1].into_iter().chain(powers).chain([most as u64]).collect()
    });
    let contestants = if on.is_some() {
        ours::<Sim>()
    } else {
        let mut all = ours::<Linux>();
        all.push(("std", Mode::Auto, run::<Linux, std::sync::RwLock<u64>>));
        all.push(("parking_lot", Mode::Auto, run::<Linux, parking_lot::RwLock<u64>>));
        all.push(("pthread, readers", Mode::Auto, run::<Linux, Pthread<false>>));
        all.push(("pthread, writers", Mode::Auto, run::<Linux, Pthread<true>>));
        all.push(("ShardedLock", Mode::Auto, run::<Linux, ShardedLock<u64>>));
        all
    };
    println!(
        "writes    threads  lock              reads/ms    writes/ms  longest read  longest write"
    );
    for &writes in &writes {
        for &threads in &threads {
            for &(name, mode, run) in &contestants {
                let work = if on.is_some() { works_simulated } else { works_here };
                let plan = Plan { threads: threads as usize, writes, time, cpus, work };
                let got = if let Some(machine) = &on {
                    let simulation = Simulation::on(machine, 1).run(move || {
                        set_mode::<Sim>(mode);
                        run(plan)
                    });
                    simulation.expect()
                } else {
                    set_mode::<Linux>(mode);
                    run(plan)
                };
                let per_ms = |count: u64| count as f64 / time.as_secs_f64() / 1000.0;
                let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
                println!(
                    "{:5.1} %  {threads:7}  {name:16} {:9.1} {:12.1} {:10.1} µs {:11.1} µs",
                    writes as f64 / 10.0,
                    per_ms(got.reads),
                    per_ms(got.writes),
                    micros(got.longest_read),
                    micros(got.longest_write),
                );
            }
        }
    }
}
