//! Threads of which the machine's scheduler is told that they belong to node 1, and one that belongs nowhere: for a virtual machine of two
//! nodes under the node affine scheduler, in which a script looks what it knows of them.
//!
//! Prints a line `NAME THREAD` for each, and goes on until it is killed. The thread that has entered a home leaves it once the file
//! exists that the argument names.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nearq::{Home, Scope, Workqueue};
use nearq_platform::{Linux, Threads as _};

/// The scheduler checks a task now and then when it wakes up: a task that must be told something must not sleep for long.
const NAP: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn Error>> {
    let leave = std::env::args().nth(1).ok_or("give the file at which the thread leaves")?;
    let home = Home::on(1)?;
    let queue = Workqueue::builder("moves").build()?;
    let queues = [("worker", Scope::Numa), ("anywhere", Scope::System)];
    let mut kept = Vec::new();
    for (name, scope) in queues {
        let queue = Workqueue::builder(name).scope(scope).home(&home).build()?;
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
    // A runtime of which nothing moves looks at nothing, and so for no scheduler that was loaded since.
    loop {
        queue.spawn(|| ()).join()?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Says who this is, and stays until then.
fn stay(name: &str, is_over: impl Fn() -> bool) {
    println!("{name} {}", Linux::thread_id(Linux::current_thread()));
    while !is_over() {
        thread::sleep(NAP);
    }
}
