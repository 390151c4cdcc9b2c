//! What the kernel's paths cost.
//!
//! | quantity | what is measured | what is subtracted, and why |
//! |---|---|---|
//! | `clock` | a reading of the monotonic clock | nothing |
//! | `counter` | a reading of the CPU's cycle counter, or of the clock where programs have no counter | nothing |
//! | `system call` | `getppid`, which does nothing else | nothing |
//! | `wake call DISTANCE` | the call that wakes a thread that sleeps in a futex on an idle CPU | one reading of the clock, which is between the two ends |
//! | `wake call own CPU` | the same for a thread of the waker's CPU, which does not interrupt the waker (`SCHED_BATCH`) | as above; the cost `wake_up` is what is left without `system call`, and the cost `interrupt` what the call takes longer for another CPU |
//! | `wake to running DISTANCE` | from before that call to the first instruction of the woken thread | one reading of the clock; the cost `idle_exit` is what is left without `wake call own CPU` |
//! | `wake to running DISTANCE, p99` | the 99th percentile of the same, of 100 wake-ups each | as above |
//! | `context switch` | two threads of one CPU that yield to each other: the time for each switch | the calls: `system call` for each yield. Yields after which the kernel stays with the thread are counted as calls alone |
//! | `migration` | a thread that is woken on another CPU than its last, compared with one that is woken on its last | the latter: only the difference counts. Needs three CPUs |
//! | `move` | a running thread moves itself to another CPU with `sched_setaffinity` | nothing. It is not a cost: the kernel uses a helper thread for such moves |
//! | `spawn` | the creator's call that creates a thread | nothing; the thread is joined outside of it |
//! | `read machine` | reading the description of the machine from `/sys` and `/proc` | nothing |

use super::meter::{Samples, batches_on, bind, no_thread, on, switches_of_thread};
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Linux, Placement as _, Threads};
use nearq_report::quantile;
use nearq_topology::CpuSet;
use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn failed(error: impl std::fmt::Display) -> Error {
    Error::run(error.to_string())
}

/// A reading of the clock, and a system call.
pub(super) fn calls(cpu: usize, count: usize) -> Result<Vec<Samples>, Error> {
    let clock = batches_on(cpu, "clock", count, |times| {
        for _ in 0..times {
            black_box(Instant::now());
        }
    })?;
    let counter = batches_on(cpu, "counter", count, |times| {
        for _ in 0..times {
            black_box(<Linux as Host>::ticks());
        }
    })?;
    let call = batches_on(cpu, "system call", count, |times| {
        for _ in 0..times {
            // SAFETY: the call takes nothing and returns a number.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
    })?;
    Ok(vec![clock, counter, call])
}

/// How long the sleeper is left alone before each wake-up, so that its CPU is idle.
const GAP: Duration = Duration::from_micros(60);
/// Wake-ups of one percentile.
const GROUP: usize = 100;

const ASLEEP: u32 = 0;
const AWAKE: u32 = 1;

/// What the waker and the sleeper share.
struct Bed {
    /// `ASLEEP` while the thread sleeps or is about to; the waker sets `AWAKE` and wakes it.
    word: AtomicU32,
    /// How often the sleeper has announced that it goes to sleep.
    rounds: AtomicU32,
    /// When it ran again, in nanoseconds after the start.
    ran: AtomicU64,
    over: AtomicBool,
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) -> i64 {
    let none = std::ptr::null::<libc::timespec>();
    // SAFETY: the word is alive; the kernel reads it, and takes no other pointer for these operations without a time.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            none,
        )
    }
}

/// Makes the caller a thread that preempts no other when it wakes up. Every thread may do that; a refusal makes the samples longer.
fn become_batch() {
    // The priority is all that the kernel's `sched_param` has. musl's is longer, and its function refuses.
    let priority: libc::c_int = 0;
    // SAFETY: 0 is the caller; the kernel reads the priority, which is alive.
    unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority)
    };
}

/// What wake-ups showed: how long the call took, and how long until the thread ran, both in nanoseconds.
#[derive(Default)]
struct WakeUps {
    calls: Vec<f64>,
    latencies: Vec<f64>,
}

/// Wakes a thread on `sleeper` from a thread on `waker`, `count` times. `before` is called with the sleeper while it sleeps.
fn wake_ups(
    [waker, sleeper]: [usize; 2],
    count: usize,
    clock: f64,
    mut before: impl FnMut(<Linux as Threads>::Thread, usize) -> Result<(), Error> + Send,
) -> Result<WakeUps, Error> {
    let bed = Bed {
        word: AtomicU32::new(ASLEEP),
        rounds: AtomicU32::new(0),
        ran: AtomicU64::new(0),
        over: AtomicBool::new(false),
    };
    // A sleeper on the waker's CPU needs the CPU to go to sleep.
    let same = waker == sleeper;
    let pause = || if same { std::thread::yield_now() } else { spin_loop() };
    let start = Instant::now();
    let of_sleeper = Mutex::new(None);
    std::thread::scope(|scope| {
        let body = || {
            *of_sleeper.lock().expect("no panic") = Some(Linux::current_thread());
            let bound = bind(sleeper);
            if same {
                become_batch();
            }
            let mut round = 0;
            // Relaxed: a flag that is checked again after each wake-up.
            while !bed.over.load(Ordering::Relaxed) && bound.is_ok() {
                bed.word.store(ASLEEP, Ordering::Relaxed);
                round += 1;
                // Release, pairs with the waker's acquire: it sees the word asleep.
                bed.rounds.store(round, Ordering::Release);
                while bed.word.load(Ordering::Relaxed) == ASLEEP {
                    futex(&bed.word, libc::FUTEX_WAIT, ASLEEP);
                }
                let ran = start.elapsed().as_nanos() as u64;
                // Release, pairs with the waker's acquire of `ran`.
                bed.ran.store(ran, Ordering::Release);
            }
            // A failure must not leave the waker waiting.
            bed.rounds.store(u32::MAX, Ordering::Release);
            bound
        };
        let sleeper = std::thread::Builder::new().spawn_scoped(scope, body).map_err(no_thread)?;
        let woken = on(waker, || {
            let mut all = WakeUps::default();
            for at in 0..count {
                while bed.rounds.load(Ordering::Acquire) < at as u32 + 1 {
                    pause();
                }
                if sleeper.is_finished() {
                    break;
                }
                let asleep = Instant::now();
                if same {
                    std::thread::sleep(GAP);
                }
                while asleep.elapsed() < GAP {
                    spin_loop();
                }
                let thread = of_sleeper.lock().expect("no panic").expect("it has begun");
                before(thread, at)?;
                bed.ran.store(0, Ordering::Relaxed);
                let from = start.elapsed().as_nanos() as u64;
                // Relaxed: the futex call orders it for the sleeper.
                bed.word.store(AWAKE, Ordering::Relaxed);
                let woken = futex(&bed.word, libc::FUTEX_WAKE, 1);
                let called = start.elapsed().as_nanos() as u64;
                let mut ran = bed.ran.load(Ordering::Acquire);
                while ran == 0 {
                    pause();
                    ran = bed.ran.load(Ordering::Acquire);
                }
                // Of a sleeper that was not asleep yet there is nothing to learn.
                if woken == 1 {
                    all.calls.push((called - from) as f64 - clock);
                    all.latencies.push(ran.saturating_sub(from) as f64 - clock);
                }
            }
            Ok(all)
        });
        bed.over.store(true, Ordering::Relaxed);
        while !sleeper.is_finished() {
            bed.word.store(AWAKE, Ordering::Relaxed);
            futex(&bed.word, libc::FUTEX_WAKE, 1);
            std::thread::yield_now();
        }
        sleeper.join().expect("it does not panic")?;
        woken
    })
}

/// Wake-ups over one distance.
pub(super) fn wakes(
    distance: &str,
    pair: [usize; 2],
    clock: f64,
    count: usize,
) -> Result<Vec<Samples>, Error> {
    let WakeUps { calls, latencies } = wake_ups(pair, count.max(GROUP), clock, |_, _| Ok(()))?;
    if latencies.len() < GROUP / 2 {
        return Err(Error::run(format!(
            "wake-ups to CPU {}: only {} of {count} found the thread asleep",
            pair[1],
            latencies.len()
        )));
    }
    let of = |name: String, values: Vec<f64>| Samples { values, ..Samples::new(name, "ns") };
    let tail = latencies.chunks(GROUP).map(|group| quantile(group, 0.99)).collect();
    let name = format!("wake to running {distance}");
    Ok(vec![
        of(format!("wake call {distance}"), calls),
        of(name.clone(), latencies),
        of(format!("{name}, p99"), tail),
    ])
}

/// The call that wakes a thread on the waker's own CPU.
pub(super) fn wake_here(cpu: usize, clock: f64, count: usize) -> Result<Samples, Error> {
    let WakeUps { calls, .. } = wake_ups([cpu, cpu], count, clock, |_, _| Ok(()))?;
    if calls.is_empty() {
        return Err(Error::run(format!("wake-ups on CPU {cpu}: none found the thread asleep")));
    }
    Ok(Samples { values: calls, ..Samples::new("wake call own CPU", "ns") })
}

/// A thread that is woken on another CPU than its last: what that takes longer. `waker` is a third CPU.
pub(super) fn migration(
    waker: usize,
    [a, b]: [usize; 2],
    clock: f64,
    count: usize,
) -> Result<Samples, Error> {
    let place = |thread, cpu| Linux::set_affinity(thread, &CpuSet::single(cpu)).map_err(failed);
    // Both change the mask before each wake-up, so that both do the same except for the move.
    let stays = wake_ups([waker, a], count, clock, |thread, _| place(thread, a))?;
    let moves = wake_ups([waker, a], count, clock, |thread, at| place(thread, [b, a][at % 2]))?;
    let stayed = quantile(&stays.latencies, 0.5);
    let values = moves.latencies.iter().map(|latency| latency - stayed).collect();
    Ok(Samples { values, ..Samples::new("migration", "ns") })
}

/// Yields in a batch.
const YIELDS: u64 = 500;

/// Two threads of one CPU that yield to each other.
pub(super) fn context_switch(cpu: usize, call: f64, count: usize) -> Result<Samples, Error> {
    let (over, yields, switches) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let body = || {
            bind(cpu)?;
            // Relaxed, all: counts of a thread on the same CPU as their reader.
            while !over.load(Ordering::Relaxed) {
                std::thread::yield_now();
                yields.fetch_add(1, Ordering::Relaxed);
                switches.store(switches_of_thread() as u64, Ordering::Relaxed);
            }
            Ok::<(), Error>(())
        };
        let other = std::thread::Builder::new().spawn_scoped(scope, body).map_err(no_thread)?;
        let samples = on(cpu, || {
            let mut samples = Samples::new("context switch", "ns");
            for _ in 0..count {
                let read = || [yields.load(Ordering::Relaxed), switches.load(Ordering::Relaxed)];
                let (others, own) = (read(), switches_of_thread());
                let start = Instant::now();
                for _ in 0..YIELDS {
                    std::thread::yield_now();
                }
                let passed = start.elapsed().as_nanos() as f64;
                let own = (switches_of_thread() - own) as u64;
                let others_now = read();
                let [yields, switches] = [others_now[0] - others[0], others_now[1] - others[1]];
                // The other thread makes two calls for each of its yields: it also reads its count.
                let calls = (YIELDS + 2 * yields) as f64 * call;
                let switched = own + switches;
                if switched > YIELDS / 8 {
                    samples.add((passed - calls).max(1.0) / switched as f64, false);
                }
            }
            Ok(samples)
        });
        over.store(true, Ordering::Relaxed);
        other.join().expect("it does not panic")?;
        let samples = samples?;
        if samples.values.is_empty() {
            return Err(Error::run("two threads that yield to each other did not take turns"));
        }
        Ok(samples)
    })
}

/// A running thread moves itself from CPU to CPU.
pub(super) fn moves([a, b]: [usize; 2], count: usize) -> Result<Samples, Error> {
    on(a, || {
        let mut samples = Samples::new("move", "ns");
        for at in 0..count {
            let start = Instant::now();
            bind([b, a][at % 2])?;
            samples.add(start.elapsed().as_nanos() as f64, false);
        }
        Ok(samples)
    })
}

/// Creating a thread: the creator's time.
pub(super) fn spawn(cpu: usize, count: usize) -> Result<Samples, Error> {
    on(cpu, || {
        let mut samples = Samples::new("spawn", "ns");
        for _ in 0..count {
            let before = switches_of_thread();
            let start = Instant::now();
            let thread = std::thread::Builder::new().spawn(|| ()).map_err(no_thread)?;
            let passed = start.elapsed().as_nanos() as f64;
            samples.add(passed, switches_of_thread() != before);
            thread.join().expect("it does nothing");
        }
        Ok(samples)
    })
}

/// Reading the description of the machine.
pub(super) fn read_machine(cpu: usize, count: usize) -> Result<Samples, Error> {
    let mut wrong = None;
    let samples = batches_on(cpu, "read machine", count, |times| {
        for _ in 0..times {
            wrong = Linux::machine().err().or(wrong.take());
        }
    })?;
    wrong.map_or(Ok(samples), |wrong| Err(failed(wrong)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::tests::{a_cpu, cpus};

    fn median(samples: Samples) -> f64 {
        samples.median()
    }

    #[test]
    fn the_kernels_paths_take_a_sane_time() {
        let cpu = a_cpu();
        let [clock, _, call]: [Samples; 3] = calls(cpu, 9).unwrap().try_into().unwrap();
        assert!((2.0..5_000.0).contains(&clock.median()), "{clock:?}");
        assert!((10.0..20_000.0).contains(&call.median()), "{call:?}");
        let wake = median(wake_here(cpu, 0.0, 50).unwrap());
        assert!((50.0..1e6).contains(&wake), "{wake}");
        let switch = median(context_switch(cpu, 0.0, 9).unwrap());
        assert!((50.0..1e6).contains(&switch), "{switch}");
        let spawn = median(spawn(cpu, 9).unwrap());
        assert!((1e3..1e8).contains(&spawn), "{spawn}");
        let read = median(read_machine(cpu, 2).unwrap());
        assert!((1e3..1e9).contains(&read), "{read}");
    }

    #[test]
    fn a_wake_up_takes_longer_than_its_call_is_entered() {
        let cpus = cpus();
        let [a, b] = [cpus[0], *cpus.last().unwrap()];
        if a == b {
            return println!("skipped: wake-ups: they need two CPUs");
        }
        let all = wakes("same_llc", [a, b], 0.0, 100).unwrap();
        let [call, running, tail] = [0, 1, 2].map(|at| all[at].median());
        assert!(call > 50.0 && running > 200.0 && running < 1e9, "{call} {running}");
        assert!(tail >= running, "{tail} {running}");
        assert!(median(moves([a, b], 9).unwrap()) > 100.0);
    }
}
