//! Tests of `work`: how many threads the process has at most while something runs.

use super::*;
use std::sync::Barrier;

#[test]
fn threads_that_have_ended_are_still_counted() {
    let sampler = Sampler::start().unwrap();
    let barrier = Barrier::new(6);
    // Our thread, the sampler's, and five more. The sampler also counts when it is asked, however busy the machine is.
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| barrier.wait());
        }
        assert!(sampler.most() >= 7);
        barrier.wait();
    });
    assert!(sampler.most() >= 7);
}
