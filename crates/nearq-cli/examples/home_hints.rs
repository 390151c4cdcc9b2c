//! Threads whose home, node 1, is reported to the machine's scheduler, the first thread, whose home is node 0, and one thread without a home.
//! For a virtual machine with two nodes under the node affine scheduler, in which a script checks which homes that scheduler has recorded.
//!
//! It also queues items of a localised queue, whose workers should wake up near the CPU that queues.
//!
//! Prints a line `NAME THREAD` for each, and runs until it is killed. The thread that has entered a home leaves it once the file named by
//! the argument exists.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nearq::{AffinityScope, Workqueue, home::Home};
use nearq_platform::{Linux, Threads as _};

/// The scheduler checks a task now and then when it wakes up: a task whose home has changed must not sleep for long.
const NAP: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn Error>> {
    let leave = std::env::args().nth(1).ok_or("give the file at which the thread leaves")?;
    let home = Home::on(1)?;
    let queue =
        Workqueue::builder("moves").affinity_scope(AffinityScope::System).localize(true).build()?;
    let queues = [("worker", AffinityScope::Numa), ("anywhere", AffinityScope::System)];
    let mut kept = Vec::new();
    for (name, scope) in queues {
        let queue = Workqueue::builder(name).affinity_scope(scope).home(&home).build()?;
        let item = queue.spawn(move || stay(name, || false));
        // A queue that is dropped waits for its items.
        kept.push((queue, item));
    }
    let _entered = thread::spawn(move || {
        let at_home = home.enter().expect("node 1 may be used");
        stay("entered", || Path::new(&leave).exists());
        drop(at_home);
        stay("left", || false);
    });
    // The process's other threads have no part in this.
    let _first = Home::on(0)?.enter()?;
    println!("first {}", Linux::thread_id(Linux::current_thread()));
    // An idle runtime checks nothing, so it would not notice a scheduler that was loaded since.
    loop {
        queue.spawn(|| ()).join()?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Prints the thread's name and number, and stays until then.
fn stay(name: &str, is_over: impl Fn() -> bool) {
    println!("{name} {}", Linux::thread_id(Linux::current_thread()));
    while !is_over() {
        thread::sleep(NAP);
    }
}
