//! What one CPU does with its own lines, and how fast it is.
//!
//! | quantity | what is measured | what is subtracted, and why |
//! |---|---|---|
//! | `cycle` | an addition that needs the result of the one before, which takes one cycle | nothing: the loop around 64 of them runs beside them |
//! | `read, latency` | a read whose address is the result of the read before, in the L1 cache | nothing |
//! | `read, throughput` | reads that need nothing of each other | nothing |
//! | `write, throughput` | writes to one line | nothing |
//! | `fetch_add`, `compare_exchange`, `swap` | read-modify-writes of a line that no other CPU touches | nothing here; the cost `read_modify_write` is what `fetch_add` takes longer than a read |
//! | `fence` | a full fence with nothing to wait for | nothing |
//! | `look` | a read of an own line, and a pause: one check of a thread that spins | nothing |
//! | `smt share` | a computation beside the same computation on the other CPU of the core, and alone; percent of its speed | nothing: both are measured on the same CPU |

use super::meter::{Samples, batches, batches_on, bind, on};
use crate::Error;
use crate::blocking::work;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Operations in a row without a check of the loop.
const UNROLLED: u64 = 64;

/// A line of its own, and the next one, which some CPUs fetch with it.
#[repr(align(128))]
struct Line(AtomicU64);

/// 64 additions in a row, each of which needs the one before.
#[cfg(target_arch = "x86_64")]
fn additions(mut of: u64) -> u64 {
    // SAFETY: the instructions change one register, which is named, and the flags.
    unsafe {
        core::arch::asm!(".rept 64", "add {0}, {1}", ".endr", inout(reg) of, in(reg) 3_u64, options(nomem, nostack));
    }
    of
}

/// 64 additions in a row, each of which needs the one before.
#[cfg(target_arch = "aarch64")]
fn additions(mut of: u64) -> u64 {
    // SAFETY: the instructions change one register, which is named.
    unsafe {
        core::arch::asm!(".rept 64", "add {0}, {0}, {1}", ".endr", inout(reg) of, in(reg) 3_u64, options(nomem, nostack, preserves_flags));
    }
    of
}

/// 64 steps in a row, each of which needs the one before, and takes a cycle on most CPUs.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn additions(mut of: u64) -> u64 {
    for _ in 0..64 {
        of = black_box(of.wrapping_add(3));
    }
    of
}

/// An operation of a line, 64 times in a row.
macro_rules! of_own_line {
    ($name:literal, $count:expr, |$line:ident| $operation:expr) => {
        batches($name, $count, |times| {
            let own = Line(AtomicU64::new(0));
            let $line = &black_box(&own).0;
            for _ in 0..times {
                for _ in 0..UNROLLED {
                    let _ = black_box($operation);
                }
            }
        })
    };
}

/// The quantities of own lines, on `cpu`.
pub(super) fn own(cpu: usize, count: usize) -> Result<Vec<Samples>, Error> {
    let mut all = on(cpu, || {
        Ok(vec![
            batches("cycle", count, |times| {
                let mut of = 0;
                for _ in 0..times {
                    of = additions(of);
                }
                black_box(of);
            }),
            read_latency(count),
            of_own_line!("read, throughput", count, |line| line.load(Ordering::Relaxed)),
            of_own_line!("write, throughput", count, |line| line.store(1, Ordering::Relaxed)),
            // SeqCst: as strong as any that is used; on x86 all are equal.
            of_own_line!("fetch_add", count, |line| line.fetch_add(1, Ordering::SeqCst)),
            of_own_line!("compare_exchange", count, |line| line.compare_exchange(
                0,
                0,
                Ordering::SeqCst,
                Ordering::Relaxed
            )),
            of_own_line!("swap", count, |line| line.swap(1, Ordering::SeqCst)),
            // SeqCst: it is the fence that is measured; it pairs with nothing.
            of_own_line!("fence", count, |_line| fence(Ordering::SeqCst)),
            of_own_line!("look", count, |line| {
                let word = line.load(Ordering::Relaxed);
                spin_loop();
                word
            }),
        ])
    })?;
    for samples in &mut all {
        samples.values.iter_mut().for_each(|value| *value /= UNROLLED as f64);
    }
    Ok(all)
}

/// A word that holds its own address is read again and again.
fn read_latency(count: usize) -> Samples {
    batches("read, latency", count, |times| {
        let mut cell: usize = 0;
        let start = &raw mut cell;
        cell = start.addr();
        black_box(&cell);
        let mut at: *const usize = start;
        for _ in 0..times {
            for _ in 0..UNROLLED {
                // SAFETY: `at` points to `cell`, which is alive, and which holds the address of itself; the provenance is that of `start`.
                at = start.with_addr(unsafe { at.read_volatile() });
            }
        }
        black_box(at);
    })
}

/// The share of its speed that a CPU keeps beside a busy sibling, in percent.
pub(super) fn smt_share(cpu: usize, sibling: usize, count: usize) -> Result<Samples, Error> {
    let alone = batches_on(cpu, "alone", count, work::compute)?;
    let stop = AtomicBool::new(false);
    let beside = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            bind(sibling)?;
            // Relaxed: the flag guards nothing; the join orders the end.
            while !stop.load(Ordering::Relaxed) {
                work::compute(1000);
            }
            Ok::<(), Error>(())
        });
        let samples = batches_on(cpu, "beside", count, work::compute);
        stop.store(true, Ordering::Relaxed);
        other.join().expect("it does not panic")?;
        samples
    })?;
    let mut share = Samples::new("smt share", "%");
    let fast = alone.median();
    for value in &beside.values {
        share.add((fast / value * 100.0).min(100.0), false);
    }
    share.preempted = alone.preempted + beside.preempted;
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_done_and_take_about_a_cycle() {
        assert_eq!(additions(5), 5 + 64 * 3);
        let all = own(crate::calibrate::tests::a_cpu(), 5).unwrap();
        let of = |name: &str| all.iter().find(|one| one.name == name).unwrap().median();
        // CPUs of today run at 0.4 to 8 GHz.
        assert!((0.12..2.5).contains(&of("cycle")), "{}", of("cycle"));
        assert!(of("read, latency") > of("cycle"), "a read takes several cycles");
        assert!(of("fetch_add") > 3.0 * of("cycle"), "and so does a read-modify-write");
    }
}
