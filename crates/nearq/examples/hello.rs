//! The three ways to have something run: `cargo run --example hello`.

use nearq::{Work, Workqueue};
use std::sync::mpsc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Workqueue::builder("hello").build()?;

    // A closure that runs once. Its handle can be joined, awaited, or dropped.
    let sum = queue.spawn(|| (1..=100).sum::<u32>());
    println!("the sum is {}", sum.join()?);

    // An item that is queued again and again, without allocating. It never runs twice at once, so it may count.
    let (sender, receiver) = mpsc::channel();
    let mut runs = 0;
    let work = Work::new(move |_: &Work| {
        runs += 1;
        sender.send(runs).expect("main is listening");
    });
    for _ in 0..3 {
        queue.queue(&work);
        println!("run {}", receiver.recv()?);
    }

    // Closures that borrow. All have ended when `scope` returns.
    let words = ["near", "its", "data"];
    let mut lengths = [0; 3];
    queue.scope(|scope| {
        for (word, length) in words.iter().zip(&mut lengths) {
            scope.spawn(move || *length = word.len());
        }
    });
    println!("{words:?} are {lengths:?} letters long");
    Ok(())
}
