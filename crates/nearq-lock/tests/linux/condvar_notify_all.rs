//! When all threads are notified, not all of them wake up at once.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Condvar, Mode, Mutex, Settings, Statistics};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::alone;

const THREADS: usize = 40;

/// How many times a thread of this process has given up a CPU, voluntarily and not, and whether it sleeps.
fn switches(thread: u64) -> ([u64; 2], bool) {
    let path = format!("/proc/self/task/{thread}/status");
    let status = fs::read_to_string(path).expect("the thread is there");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("the kernel reports it").trim().to_owned()
    };
    let count = |name| field(name).parse::<u64>().expect("a number");
    let counts = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(count);
    (counts, field("State:").starts_with('S'))
}

struct Scene {
    mutex: Mutex<Seen>,
    condvar: Condvar,
}

#[derive(Default)]
struct Seen {
    waiting: Vec<u64>,
    /// The threads that have returned, and how many times they had given up a CPU voluntarily by then.
    back: Vec<(u64, u64)>,
}

fn notify_all_of(mode: Mode) {
    let mut settings = Settings::default();
    settings.mode = mode;
    settings.count = true;
    settings.set_for_process();
    let scene = Arc::new(Scene { mutex: Mutex::new(Seen::default()), condvar: Condvar::new() });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let scene = Arc::clone(&scene);
            let main = move || {
                let me = Linux::thread_id(Linux::current_thread());
                let mut seen = scene.mutex.lock();
                seen.waiting.push(me);
                scene.condvar.wait(&mut seen);
                seen.back.push((me, switches(me).0[0]));
            };
            Linux::spawn(ThreadSpec::default(), main).expect("some threads can be created")
        })
        .collect();
    let seen = loop {
        let seen = scene.mutex.lock();
        let asleep = seen.waiting.iter().all(|&thread| switches(thread).1);
        if seen.waiting.len() == THREADS && asleep {
            break seen;
        }
        drop(seen);
        Linux::sleep(Duration::from_millis(1));
    };
    let waiting = seen.waiting.clone();
    let moved = Statistics::of_process().moved;
    let before: Vec<[u64; 2]> = waiting.iter().map(|&thread| switches(thread).0).collect();
    assert_eq!(scene.condvar.notify_all(), THREADS);
    assert_eq!(Statistics::of_process().moved - moved, THREADS as u64);
    // While we hold the mutex, all except the one in front have nothing to do, however long it takes.
    Linux::sleep(Duration::from_millis(50));
    let disturbed = (waiting.iter().zip(&before))
        .filter(|&(&thread, &before)| {
            let (now, asleep) = switches(thread);
            now != before || !asleep
        })
        .count();
    assert!(disturbed <= 2, "{mode:?}: {disturbed} of {THREADS} were woken");
    drop(seen);
    threads.into_iter().for_each(Linux::join);
    let seen = scene.mutex.lock();
    assert_eq!(seen.back.len(), THREADS);
    // A thread that is woken finds the mutex free, or sleeps once more until the one before releases it. Being preempted does not count.
    let all: u64 = (waiting.iter().zip(&before))
        .map(|(thread, before)| {
            let (_, now) =
                seen.back.iter().find(|back| back.0 == *thread).expect("the thread returned");
            now - before[0]
        })
        .sum();
    println!("{mode:?}: {disturbed} woken at once, {all} switches of {THREADS} threads");
    assert!(all <= 2 * THREADS as u64, "{mode:?}: {all} switches of {THREADS} threads");
}

#[test]
fn all_waiters_are_notified_and_one_runs() {
    let _alone = alone();
    for mode in [Mode::Plain, Mode::Numa, Mode::Off, Mode::Auto] {
        notify_all_of(mode);
    }
}
