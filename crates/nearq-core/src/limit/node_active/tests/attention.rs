//! Several executions that end at once: one worker checks for all of them.

use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::task::Wake;

use super::super::UNATTENDED;
use super::*;
use crate::queue::flush::FlushedQueue;

/// One worker checks, another asks it to check again, and a third finds that another has asked already: the completion that the third one
/// counted is seen, too.
#[test]
fn none_of_three_items_that_end_at_once_is_missed() {
    model_within(2, 3, || {
        let stub = Stub::new(3, 1);
        let node_active = stub.node_active();
        let pwq = stub.queue.pwqs().next().expect("a pod");
        // Three are admitted, and run. Then a thread freezes, and waits until they have ended.
        for _ in 0..3 {
            assert!(pwq.credits.take() || node_active.refill(pwq) == Entry::LetIn);
        }
        node_active.limit.store(0, Ordering::SeqCst);
        node_active.close_anew();
        node_active.freezers.store(1, Ordering::SeqCst);
        let others = [1, 2].map(|worker| {
            let stub = Arc::clone(&stub);
            spawn(move || stub.queue.pwqs().for_each(|pwq| pwq.end(worker)))
        });
        pwq.end(0);
        others.into_iter().for_each(Loom::join);
        assert!(node_active.is_still());
        assert_ne!(node_active.stilled.load(Ordering::SeqCst), 0, "the waiters are notified");
    });
}

/// Notes the state of the domain when it is called.
struct Observer {
    stub: Arc<Stub>,
    seen: AtomicU32,
}

impl Wake for Observer {
    fn wake(self: Arc<Self>) {
        self.seen
            .store(self.stub.node_active().attention.load(Ordering::SeqCst), Ordering::Relaxed);
    }
}

/// What a worker admits may have been cancelled before it had entered; then that worker notifies the waiters. Wakers are foreign code, and
/// may take long: other workers admit items meanwhile.
#[test]
fn wakers_are_called_while_other_workers_may_admit_items() {
    model(0, || {
        let stub = Stub::new(1, 1);
        let observer =
            Arc::new(Observer { stub: Arc::clone(&stub), seen: AtomicU32::new(u32::MAX) });
        let work = idle();
        stub.issue(&work);
        let pwq = stub.queue.pwqs().next().expect("a pod");
        let mut flushed = pin!(FlushedQueue::new(&stub.queue));
        let waker = Waker::from(Arc::clone(&observer));
        assert_eq!(flushed.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
        assert!(pwq.is_watched());
        // As if the item had just been admitted by the worker that runs it.
        stub.node_active().inactive_queue.lock().watched.push(core::ptr::from_ref(pwq));
        stub.node_active().close();
        assert!(stub.work(0));
        assert_eq!(observer.seen.load(Ordering::Relaxed), UNATTENDED);
    });
}
