//! Closures that block: on a channel, on a mutex, on another pool.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rayon_core::{current_num_threads, current_thread_index};

use crate::{eventually, pool, watched};

/// In rayon's own pools the last closure never starts.
#[test]
fn as_many_closures_as_cpus_may_wait_for_a_later_one() {
    watched(|| {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let waiting = Arc::new(AtomicUsize::new(0));
        let (done, ended) = channel();
        let mut feeds = Vec::new();
        for number in 0..cpus {
            let (feed, fed) = channel();
            feeds.push(feed);
            let (done, waiting) = (done.clone(), Arc::clone(&waiting));
            rayon_core::spawn(move || {
                waiting.fetch_add(1, Ordering::SeqCst);
                assert_eq!(fed.recv(), Ok(number));
                done.send(number).unwrap();
            });
        }
        eventually("all wait", || waiting.load(Ordering::SeqCst) == cpus);
        rayon_core::spawn(move || {
            for (number, feed) in feeds.into_iter().enumerate() {
                feed.send(number).unwrap();
            }
        });
        let mut all: Vec<usize> = ended.iter().take(cpus).collect();
        all.sort_unstable();
        assert_eq!(all, (0..cpus).collect::<Vec<_>>());
    });
}

/// In rayon's own pools the thread that waits runs one of the closures that want the lock, which it holds itself.
#[test]
fn a_closure_that_holds_a_lock_may_join_while_others_want_the_lock() {
    watched(|| {
        const OTHERS: usize = 8;
        let pool = Arc::new(pool(4));
        let mutex = Arc::new(Mutex::new(0));
        let begun = Arc::new(AtomicUsize::new(0));
        let (done, ended) = channel();
        let spawner = Arc::clone(&pool);
        pool.install(|| {
            let mut count = mutex.lock().unwrap();
            let (stolen, is_stolen) = channel();
            rayon_core::join(
                // So that the second closure is not run by this thread, which must wait for it.
                move || is_stolen.recv().unwrap(),
                || {
                    stolen.send(()).unwrap();
                    for _ in 0..OTHERS {
                        let (mutex, begun) = (Arc::clone(&mutex), Arc::clone(&begun));
                        let done = done.clone();
                        let other = move || {
                            begun.fetch_add(1, Ordering::SeqCst);
                            *mutex.lock().unwrap() += 1;
                            done.send(()).unwrap();
                        };
                        // From outside, so that all members may run them.
                        std::thread::scope(|scope| scope.spawn(|| spawner.spawn(other)).join())
                            .unwrap();
                    }
                    // The two other numbers are held by closures that wait for the lock.
                    eventually("others wait", || begun.load(Ordering::SeqCst) >= 2);
                    // Time in which the thread that waits could take another one.
                    std::thread::sleep(Duration::from_millis(30));
                },
            );
            *count += 1;
        });
        assert_eq!(ended.iter().take(OTHERS).count(), OTHERS);
        assert_eq!(*mutex.lock().unwrap(), OTHERS + 1);
    });
}

#[test]
fn pools_of_one_thread_may_wait_for_each_other() {
    watched(|| {
        let (first, second) = (pool(1), pool(1));
        let result = first.install(|| {
            second.install(|| {
                assert_eq!(first.current_thread_index(), None);
                assert_eq!(second.current_thread_index(), Some(0));
                first.install(|| {
                    assert_eq!(second.current_thread_index(), None);
                    (current_thread_index(), current_num_threads())
                })
            })
        });
        assert_eq!(result, (Some(0), 1));
    });
}

#[test]
fn a_worker_of_another_pool_gets_the_result_and_keeps_its_own_number() {
    watched(|| {
        let (small, large) = (pool(1), pool(3));
        let inside = small.install(|| {
            let inside = large.install(|| {
                assert!(current_thread_index().unwrap() < 3);
                current_num_threads()
            });
            assert_eq!((current_thread_index(), current_num_threads()), (Some(0), 1));
            inside
        });
        assert_eq!(inside, 3);
    });
}

/// A member waits for a part of its work. The thief of that part waits too, and runs its call of a broadcast meanwhile. What that call forks
/// is no part of the member's work: it may want a lock that the member holds.
#[test]
fn a_member_that_waits_runs_no_part_of_the_call_of_a_broadcast_in_its_thief() {
    let parts_ran_in = watched(|| {
        let pool = Arc::new(pool(3));
        let (thief_waits, waits) = channel();
        let (end, ended) = channel::<()>();
        let members = Arc::clone(&pool);
        let whole = std::thread::spawn(move || {
            members.install(|| {
                let (begin, begun) = channel();
                // The thief has stolen the second half, and waits for a part of it that the third member runs.
                let half = move || {
                    let number = rayon_core::current_thread_index().unwrap();
                    let (begin_part, part_begun) = channel();
                    let part = move || {
                        begin_part.send(()).unwrap();
                        ended.recv().unwrap();
                    };
                    rayon_core::join(
                        move || {
                            part_begun.recv().unwrap();
                            begin.send(()).unwrap();
                            thief_waits.send(number).unwrap();
                        },
                        part,
                    );
                };
                rayon_core::join(move || begun.recv().unwrap(), half);
            });
        });
        let thief = waits.recv().unwrap();
        // Longer than a member searches before it sleeps.
        std::thread::sleep(Duration::from_millis(5));
        let (ran, ran_in) = channel();
        let ran = std::sync::Mutex::new(ran);
        pool.spawn_broadcast(move |context| {
            if context.index() != thief {
                return;
            }
            for _ in 0..20 {
                let (begin, begun) = channel();
                let here = || std::thread::current().id();
                // No other member is left that could run the second closure.
                let first = move || begun.recv_timeout(Duration::from_millis(5)).is_err();
                let second = move || {
                    // The first closure may not wait any more.
                    let _ = begin.send(());
                    here()
                };
                let (is_alone, second) = rayon_core::join(first, second);
                ran.lock().unwrap().send(is_alone && second == here()).unwrap();
            }
        });
        let seen: Vec<bool> = ran_in.iter().take(20).collect();
        end.send(()).unwrap();
        whole.join().unwrap();
        seen
    });
    assert_eq!(parts_ran_in, [true; 20]);
}
