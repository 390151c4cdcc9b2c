//! The monitor throws away what cancelled items have left among the held-back ones, if no worker does.

use core::time::Duration;

use nearq_sim::{Sim, Simulation};

use super::*;

/// It does so while the item that has the place ends, one that is held back is cancelled, and another one is not.
#[test]
fn cancelled_items_are_discarded_while_a_worker_admits_others() {
    model_within(1, 3, || {
        let stub = Stub::new(1, 2);
        let [first, second, third] = [idle(), idle(), idle()];
        stub.issue(&first);
        stub.issue(&second);
        stub.issue(&third);
        let other = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                stub.work(1);
            })
        };
        let canceller = {
            let second = second.clone();
            spawn(move || assert!(second.cancel()))
        };
        stub.node_active().clear_out();
        Loom::join(canceller);
        Loom::join(other);
        stub.run_out();
        let ran = u64::from(stub.queue.completed() == 3) + 2;
        stub.check(ran);
        assert_eq!(stub.node_active().stale.load(Ordering::SeqCst), 0);
    });
}

/// The only worker sleeps in an item, and the limit's only place is taken by one that waits for it.
#[test]
fn cancelled_items_do_not_pile_up_without_an_active_worker() {
    const ROUNDS: usize = 30;
    const EACH: usize = 500;
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 1).run(|| {
        let runtime =
            Runtime::<Sim>::builder_in().thread_limit(1).build().expect("the settings are valid");
        let busy = runtime.workqueue_builder("busy").build().expect("the call succeeds");
        let rounds = Duration::from_millis(5) * ROUNDS as u32;
        let sleeper = busy.spawn(move || Sim::sleep(2 * rounds));
        Sim::sleep(Duration::from_millis(1));
        let held =
            runtime.workqueue_builder("held").max_active(1).build().expect("the call succeeds");
        let first = held.spawn(|| ());
        let last = held.spawn(|| ());
        let mut most = 0;
        for _ in 0..ROUNDS {
            for _ in 0..EACH {
                let work = Work::<Sim>::new_in(|_: &Work<Sim>| unreachable!("it is cancelled"));
                assert!(held.queue(&work) && work.cancel());
            }
            let left = held.shared().domains().map(|domain| domain.stale.load(Ordering::Relaxed));
            most = most.max(left.sum::<u64>());
            Sim::sleep(Duration::from_millis(5));
        }
        assert!(!first.is_finished() && !sleeper.is_finished(), "nothing has moved");
        for handle in [sleeper, first, last] {
            handle.join().expect("does not panic");
        }
        most as usize
    });
    let most = outcome.expect();
    assert!(most < ROUNDS * EACH / 3, "{most} of {} at once", ROUNDS * EACH);
}
