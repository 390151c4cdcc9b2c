//! Several executions that end at once, of which one looks for all.

use super::*;

/// One looks, another one asks it to look again, and the third finds that somebody has asked: what that one has counted is seen too.
#[test]
fn none_of_three_that_end_at_once_is_overlooked() {
    model_within(2, 3, || {
        let stub = Stub::new(3, 1);
        let admission = stub.admission();
        let link = stub.queue.links().next().expect("a pod");
        // Three are let in, and run. Then somebody freezes, and waits until they have ended.
        for _ in 0..3 {
            assert!(link.credits.take() || admission.refill(link) == Entry::LetIn);
        }
        admission.limit.store(0, Ordering::SeqCst);
        admission.close_anew();
        admission.freezers.store(1, Ordering::SeqCst);
        let others = [1, 2].map(|worker| {
            let stub = Arc::clone(&stub);
            spawn(move || stub.queue.links().for_each(|link| link.end(worker)))
        });
        link.end(0);
        others.into_iter().for_each(Loom::join);
        assert!(admission.is_still());
        assert_ne!(admission.stilled.load(Ordering::SeqCst), 0, "who waits is told");
    });
}
