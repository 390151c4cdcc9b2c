//! What an uncontended lock costs: instructions, counted under callgrind.
//!
//! `lock_cost mutex|osq|try|notify N` locks and unlocks a `Mutex` or an `OsqLock` N times, tries a mutex that is locked, or notifies a
//! condition variable without waiters. It uses one thread, so that the count is the same each time. The difference between two runs with
//! different N is the cost of that many operations; `cargo xtask counts` does this.

use std::hint::black_box;

use nearq_lock::raw::OsqLock;
use nearq_lock::{Condvar, Mutex};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    match which.as_str() {
        "mutex" => {
            let mutex = Mutex::new(0_u64);
            for _ in 0..count {
                *black_box(&mutex).lock() += 1;
            }
        }
        "osq" => {
            let lock = OsqLock::new(0_u64);
            for _ in 0..count {
                *black_box(&lock).lock() += 1;
            }
        }
        "try" => {
            let mutex = Mutex::new(0_u64);
            let _held = mutex.lock();
            for _ in 0..count {
                assert!(black_box(&mutex).try_lock().is_none());
            }
        }
        "notify" => {
            let condvar = Condvar::new();
            for _ in 0..count {
                black_box(&condvar).notify_one();
            }
        }
        _ => {
            eprintln!("usage: lock_cost mutex|osq|try|notify [N]");
            std::process::exit(2);
        }
    }
}
