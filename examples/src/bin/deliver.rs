//! Delivers records to a collector that may refuse them: `cargo run -p nearq-examples --bin deliver [FILE COLLECTOR]`.
//!
//! Many records are digested and sent at once. Those that are refused are sent again after growing delays. Outcomes are logged in the order
//! of the records. Control messages on standard input (`status`, `pause` and `resume`) do not wait behind records: they have favoured
//! workers.

use std::error::Error;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use nearq::{Runtime, Work, Workqueue};
use nearq_examples::delivery::{self, Command, Delivery, Next};

fn main() -> Result<(), Box<dyn Error>> {
    let data = Workqueue::builder("data").freezable().build()?;
    let log = Workqueue::builder("log").ordered().build()?;
    let control = Workqueue::builder("control").highpri().ordered().build()?;
    thread::spawn(move || {
        for command in delivery::commands() {
            control.spawn(move || obey(command));
        }
    });
    // As many as are under way are waiting to be logged.
    let under_way = log.bounded(delivery::UNDER_WAY);
    for delivery in delivery::deliveries()? {
        let outcome = deliver(delivery?, &data);
        under_way.spawn(move || delivery::log(outcome.recv()));
    }
    Ok(log.flush()?)
}

/// Makes attempts until there is an outcome. No thread waits for the next attempt.
fn deliver(mut delivery: Delivery, data: &Workqueue) -> Receiver<String> {
    let (sender, outcome) = mpsc::channel();
    let handle = data.handle();
    let work = Work::new(move |work: &Work| match delivery.attempt() {
        Next::Log(line) => sender.send(line).expect("the log waits for it"),
        Next::Retry(delay) => assert!(handle.queue_delayed(work, delay)),
    });
    data.queue(&work);
    outcome
}

fn obey(command: Command) {
    match command {
        Command::Status => delivery::report("status"),
        Command::Pause => {
            Runtime::global().freeze().expect("this is no record");
            delivery::report("paused");
        }
        Command::Resume => {
            Runtime::global().thaw();
            delivery::report("resumed");
        }
    }
}
