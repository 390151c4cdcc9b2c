//! An error that reaches a person through `main() -> Result` or `unwrap` reads the same as when a program
//! prints it.

use std::error::Error;
use std::time::Duration;

use nearq::{Runtime, Workqueue};
use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::Refusal;

/// Checks that the two forms of an error are the same sentence.
#[track_caller]
fn reads_as_a_sentence(error: &dyn Error) {
    let text = error.to_string();
    assert_eq!(format!("{error:?}"), text);
    assert!(text.contains(' '), "{text}");
}

#[test]
fn the_debug_form_is_the_sentence() {
    let queue = Workqueue::builder("refuses").build().unwrap();
    reads_as_a_sentence(&"later".parse::<nearq::home::HomeChoice>().unwrap_err());
    reads_as_a_sentence(&queue.set_nice(99).unwrap_err());
    reads_as_a_sentence(&nearq::Error::EmptyMask);
    reads_as_a_sentence(&nearq::home::Home::on(9999).unwrap_err());
    reads_as_a_sentence(&"llc".parse::<nearq::AffinityScope>().unwrap_err());
    reads_as_a_sentence(&nearq::Topology::from_synthetic("core:none").unwrap_err());
    reads_as_a_sentence(&nearq::home::Weights::default().set("colour", 1).unwrap_err());
    reads_as_a_sentence(&Client::connect(u32::MAX).unwrap_err());
    let refusal = Refusal::NotHere { why: "there is nothing here".into() };
    reads_as_a_sentence(&refusal);
    reads_as_a_sentence(&ClientError::Refused(refusal));
    let panicked = queue.spawn(|| panic!("on purpose")).join().unwrap_err();
    reads_as_a_sentence(&panicked);
    reads_as_a_sentence(panicked.panic().unwrap());

    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("stuck").build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    queue.spawn(move || receiver.recv());
    reads_as_a_sentence(&runtime.shutdown(Duration::ZERO).unwrap_err());
    drop(sender);
}
