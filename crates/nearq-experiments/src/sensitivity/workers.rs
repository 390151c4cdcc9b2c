//! Running simulations side by side: each is a function of its input, on one thread of its own.

use crate::{Error, Progress};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does all tasks, as many at a time as there are CPUs to use, and gives their results in order; the error of the
/// first task that fails, if one does.
pub(super) fn all<T: Sync, R: Send>(
    tasks: &[T],
    progress: &Progress,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks.len()));
    progress.begin(tasks.len());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(tasks.len());
    let body = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            progress.step(format!("simulation {} of {}", number + 1, tasks.len()));
            // A panic of the simulator itself, not of a program that runs in it.
            let result = catch_unwind(AssertUnwindSafe(|| work(task)))
                .unwrap_or_else(|_| Err(Error::run(format!("simulation {} panicked", number + 1))));
            if result.is_err() {
                // Nobody begins another one.
                next.store(tasks.len(), Ordering::Relaxed);
            }
            done.lock().expect("nobody panics with it").push((number, result));
            progress.done();
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(body);
        }
        body();
    });
    let mut done = done.into_inner().expect("nobody panics with it");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_tasks() {
        let tasks: Vec<u64> = (0..100).collect();
        let squares = all(&tasks, &Progress::hidden(), |task| Ok(task * task)).unwrap();
        assert!(squares.iter().zip(&tasks).all(|(square, task)| *square == task * task));
        assert_eq!(squares.len(), 100);
    }

    #[test]
    fn the_first_failure_is_the_result_and_ends_the_rest() {
        let tasks: Vec<u64> = (0..10_000).collect();
        let begun = AtomicUsize::new(0);
        let error = all(&tasks, &Progress::hidden(), |task| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *task == 3 { Err(Error::run("no 3")) } else { Ok(*task) }
        });
        assert_eq!(error, Err(Error::run("no 3")));
        assert!(begun.into_inner() < 10_000);
    }
}
