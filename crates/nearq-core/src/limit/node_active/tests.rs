//! The limit through every interleaving: nothing that is held back is forgotten, no more is admitted than allowed, and a thread that waits
//! for an empty queue is woken.
//!
//! The queue is a real one, on a runtime that starts no threads: the test's threads do what workers do.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};
use nearq_topology::{AffinityScope, Limits, Topology};

use super::{CLOSED, Entry, NodeActive, ceiling};
use crate::base::ids::QueueKind;
use crate::item::tests::{execute, model, model_within, spawn, step};
use crate::layout::attributes::Attributes;
use crate::layout::domain::Bounds;
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;
use crate::pool::worker::Worker;
use crate::queue::Queue;
use crate::queue::runtime::Runtime;
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

/// A queue, its pools, the newest first, and the runtime.
pub(crate) struct Stub {
    pub(crate) queue: Arc<Queue<Loom>>,
    pools: Vec<Arc<Pool<Loom>>>,
    runtime: Runtime<Loom>,
}

/// Two nodes of a CPU each.
const TWO_NODES: &str = "numa:2 core:1";

impl Stub {
    pub(crate) fn new(max_active: usize, workers: usize) -> Arc<Self> {
        Self::with_scope(AffinityScope::System, max_active, workers)
    }

    pub(crate) fn with_scope(scope: AffinityScope, max_active: usize, workers: usize) -> Arc<Self> {
        Self::on(None, scope, max_active, workers)
    }

    /// On the named machine if there is one, otherwise on the model's own.
    pub(crate) fn on(
        machine: Option<&str>,
        scope: AffinityScope,
        max_active: usize,
        workers: usize,
    ) -> Arc<Self> {
        let bounds = Bounds::new(max_active, None);
        let attributes = Attributes { affinity_scope: Some(scope), ..Attributes::default() };
        Self::of_kind(QueueKind::Unbound, machine, attributes, bounds, workers)
    }

    fn ordered(workers: usize) -> Arc<Self> {
        let bounds = QueueKind::Ordered.default_bounds();
        Self::of_kind(QueueKind::Ordered, None, Attributes::default(), bounds, workers)
    }

    fn of_kind(
        kind: QueueKind,
        machine: Option<&str>,
        attributes: Attributes,
        bounds: Bounds,
        workers: usize,
    ) -> Arc<Self> {
        let runtime =
            Runtime::<Loom>::builder_in().spin(0).build().expect("the machine is constant");
        if let Some(machine) = machine {
            let topology = Topology::from_synthetic(machine).expect("well formed");
            runtime.inner().change_machine_config(|machine_config| {
                machine_config.limits = Limits::unlimited(topology.possible().clone());
                machine_config.topology = topology;
            });
        }
        runtime.inner().services.alarm.stop();
        runtime.inner().stopping.store(1, Ordering::SeqCst);
        let queue = Queue::new(
            &runtime,
            "modelled".into(),
            kind,
            crate::queue::QueueFlags { freezable: true, ..Default::default() },
            attributes.bounded(bounds),
        );
        runtime.inner().add_queue(&queue);
        let pools: Vec<_> = queue.pwqs().map(|pwq| Arc::clone(&pwq.pool)).collect();
        for pool in &pools {
            // The pool is queued up for a place, so pushers leave it to other threads to wake a worker.
            assert!(pool.mark_queued_for_place());
        }
        for _ in 0..workers {
            let pool = Arc::as_ptr(&pools[0]);
            let added = runtime.inner().services.workers.add(|index| Worker::new(index, pool));
            added.expect("there is room");
        }
        Arc::new(Stub { queue, pools, runtime })
    }

    /// The first domain; the machine of most tests has one node.
    pub(crate) fn node_active(&self) -> &NodeActive<Loom> {
        self.queue.domains().next().expect("a domain")
    }

    pub(crate) fn set_max_active(&self, items: usize) {
        let changed = self.queue.change(|attributes| attributes.max_active = items);
        changed.expect("the call succeeds");
    }

    pub(crate) fn issue_on(&self, cpu: usize, work: &Work<Loom>) {
        assert_eq!(self.queue.queue_on(work.item(), |places| places.cpu(cpu)), Ok(true));
    }

    pub(crate) fn issue(&self, work: &Work<Loom>) {
        assert!(self.queue.queue(work.item()));
    }

    /// The pool on which that CPU's items are.
    pub(crate) fn pool_of(&self, cpu: usize) -> &Pool<Loom> {
        let has_cpu = |pool: &&Arc<Pool<Loom>>| pool.key.pod.contains(cpu);
        self.pools.iter().find(has_cpu).expect("a pool for each CPU")
    }

    /// Takes one item, if there is one, and handles it as a worker does.
    pub(crate) fn work(&self, worker: u32) -> bool {
        self.queue.pwqs().any(|pwq| self.work_at(&pwq.pool, worker))
    }

    /// As [`work`](Self::work), with what is on one pool.
    pub(crate) fn work_at(&self, pool: &Pool<Loom>, worker: u32) -> bool {
        let inner = self.runtime.inner();
        step(pool, inner.services.workers.get(worker))
    }

    /// Works, or lets other threads run, while `goes_on` returns true.
    pub(crate) fn work_while(&self, worker: u32, goes_on: impl Fn() -> bool) {
        while goes_on() {
            if !self.work(worker) {
                Loom::yield_now();
            }
        }
    }

    /// A thread that does the same as worker 1.
    pub(crate) fn worker_while(
        self: &Arc<Self>,
        goes_on: impl Fn(&Self) -> bool + Send + 'static,
    ) -> <Loom as Threads>::JoinHandle {
        let stub = Arc::clone(self);
        spawn(move || stub.work_while(1, || goes_on(&stub)))
    }

    /// A thread that queues the item.
    pub(crate) fn issuer(self: &Arc<Self>, work: &Work<Loom>) -> <Loom as Threads>::JoinHandle {
        let (stub, work) = (Arc::clone(self), work.clone());
        spawn(move || stub.issue(&work))
    }

    /// A thread that queues the item for a CPU.
    fn issuer_on(self: &Arc<Self>, cpu: usize, work: &Work<Loom>) -> <Loom as Threads>::JoinHandle {
        let (stub, work) = (Arc::clone(self), work.clone());
        spawn(move || stub.issue_on(cpu, &work))
    }

    /// Works until nothing is on the pool. Called when no other thread exists any more.
    pub(crate) fn run_out(&self) {
        while self.work(0) {}
    }

    /// What must hold when nothing moves.
    pub(crate) fn check(&self, items: u64) {
        let node_active = self.node_active();
        assert!(self.queue.is_empty() && self.queue.pwqs().all(PoolWorkqueue::is_drained));
        // What counts as admitted and has not entered is credits; none is lost.
        node_active.withdraw();
        assert_eq!(node_active.counts(), (items, 0));
        assert_eq!(self.queue.completed(), items);
        let ceiling = ceiling(node_active.ceiling.load(Ordering::SeqCst));
        let highest = items + node_active.limit();
        assert!(
            ceiling == CLOSED || ceiling <= highest,
            "the ceiling is {ceiling} instead of {highest}"
        );
        assert_ne!(ceiling, CLOSED, "nothing waits, so it is open");
    }
}

pub(crate) fn idle() -> Work<Loom> {
    Work::new_in(|_: &Work<Loom>| {})
}

/// Items that record their numbers in the order in which they start, as digits: a panic in an item would be caught.
pub(crate) struct Digits(Arc<AtomicU32>);

impl Digits {
    pub(crate) fn new() -> Self {
        Digits(Arc::new(AtomicU32::new(0)))
    }

    pub(crate) fn item(&self, digit: u32) -> Work<Loom> {
        let order = Arc::clone(&self.0);
        Work::new_in(move |_: &Work<Loom>| {
            order.store(order.load(Ordering::Relaxed) * 10 + digit, Ordering::Relaxed);
        })
    }

    /// The first `COUNT` of them.
    pub(crate) fn items<const COUNT: usize>(&self) -> [Work<Loom>; COUNT] {
        core::array::from_fn(|index| self.item(index as u32 + 1))
    }

    pub(crate) fn read(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[test]
fn held_back_while_the_last_item_ends() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let (first, second) = (idle(), idle());
        stub.issue(&first);
        let issuer = stub.issuer(&second);
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        stub.check(2);
    });
}

/// What one thread queues first starts first, even while a worker opens the ceiling.
#[test]
fn no_item_overtakes_a_held_back_item() {
    model_within(2, 3, || {
        let stub = Stub::new(1, 2);
        let digits = Digits::new();
        let works = digits.items::<2>();
        // The state in which an item that was held back and activated leaves it.
        stub.node_active().close();
        let issuer = {
            let (stub, works) = (Arc::clone(&stub), works.clone());
            spawn(move || works.iter().for_each(|work| stub.issue(work)))
        };
        stub.node_active().attend();
        Loom::join(issuer);
        stub.run_out();
        assert_eq!(digits.read(), 12);
        stub.check(2);
    });
}

#[test]
fn two_issuers_with_a_limit_of_one() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        let issuers = works.each_ref().map(|work| stub.issuer(work));
        stub.work(1);
        issuers.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn two_items_end_while_one_is_held_back_and_three_never_run() {
    model_within(1, 2, || {
        let stub = Stub::new(2, 2);
        let inside = Arc::new(AtomicU32::new(0));
        let works = [(); 3].map(|()| {
            let inside = Arc::clone(&inside);
            Work::<Loom>::new_in(move |_: &Work<Loom>| {
                assert!(inside.fetch_add(1, Ordering::Relaxed) < 2, "more than the limit");
                inside.fetch_sub(1, Ordering::Relaxed);
            })
        });
        stub.issue(&works[0]);
        stub.issue(&works[1]);
        let other = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                stub.work(1);
            })
        };
        let issuer = stub.issuer(&works[2]);
        stub.work(0);
        Loom::join(other);
        Loom::join(issuer);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn an_item_that_requeues_itself_at_the_limit() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let queue = Arc::downgrade(&stub.queue);
        let mut runs = 0;
        let requeued = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            runs += 1;
            if runs == 1 {
                assert!(queue.upgrade().expect("alive").queue(work.item()));
            }
        });
        stub.issue(&requeued);
        let other = idle();
        let issuer = stub.issuer(&other);
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn the_limit_is_raised_while_an_item_is_held_back() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        stub.issue(&works[0]);
        let issuer = stub.issuer(&works[1]);
        stub.set_max_active(2);
        Loom::join(issuer);
        // Whichever of the two was second, the second item may start before the first has ended.
        let mut started = 0;
        let worker = stub.runtime.inner().services.workers.get(0);
        while stub.pools[0].take(worker, 1) != 0 {
            let item = worker.batch.pop().expect("it was just taken");
            if item.account().is_null() {
                execute(item, |item| stub.pools[0].push(item));
            } else {
                // Starts an item, which does not end.
                started += 1;
            }
        }
        assert_eq!(started, 2);
        core::mem::forget(works);
    });
}

#[test]
fn the_limit_is_lowered_while_an_issuer_raises_the_ceiling() {
    model(3, || {
        let stub = Stub::new(3, 2);
        let works = [(); 4].map(|()| idle());
        for work in &works[..3] {
            stub.issue(work);
        }
        let issuer = stub.issuer(&works[3]);
        stub.work(1);
        stub.set_max_active(1);
        stub.work(1);
        Loom::join(issuer);
        // The fourth may have been admitted while the limit was 3; the fifth must not be, while two are active.
        let ceiling = ceiling(stub.node_active().ceiling.load(Ordering::SeqCst));
        assert!(ceiling <= 3, "two have ended, one may be active, and {ceiling} may be admitted");
        stub.run_out();
        stub.check(4);
    });
}

#[test]
fn the_limit_is_lowered_while_a_worker_opens_the_ceiling() {
    model(3, || {
        let stub = Stub::new(2, 2);
        stub.set_max_active(3);
        let worker = {
            let stub = Arc::clone(&stub);
            // The activation item.
            spawn(move || assert!(stub.work(1)))
        };
        stub.set_max_active(1);
        Loom::join(worker);
        stub.run_out();
        stub.check(0);
    });
}

/// A limit that leaves credits on a pwq after the first item.
const WITH_CREDITS: usize = 8;

#[test]
fn no_credit_outlives_a_lowered_limit() {
    model(3, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [idle(), idle()];
        let issuer = stub.issuer(&works[0]);
        stub.set_max_active(1);
        // Whatever the issuer is doing, no more is admitted than the new limit allows.
        let pwq = stub.queue.pwqs().next().expect("a pod");
        assert!(!pwq.credits.take());
        Loom::join(issuer);
        assert!(!pwq.credits.take());
        stub.issue(&works[1]);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn a_draining_thread_is_woken_despite_a_concurrent_issuer() {
    model_within(1, 2, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [idle(), idle()];
        stub.issue(&works[0]);
        // The next item makes its issuer ask for credits.
        stub.queue.pwqs().for_each(|pwq| while pwq.credits.take() {});
        stub.node_active().admitted.store(1, Ordering::SeqCst);
        let issued = Arc::new(AtomicU32::new(0));
        let others = [
            {
                let (stub, work) = (Arc::clone(&stub), works[1].clone());
                let issued = Arc::clone(&issued);
                spawn(move || {
                    let accepted = stub.queue.try_queue(work.item()).is_ok();
                    issued.store(1 + u32::from(accepted), Ordering::SeqCst);
                })
            },
            {
                let issued = Arc::clone(&issued);
                // Both items, and the activation item as often as it comes.
                stub.worker_while(move |stub| {
                    issued.load(Ordering::SeqCst) == 0
                        || !stub.queue.is_empty()
                        || stub.node_active().drainers.load(Ordering::SeqCst) != 0
                })
            },
        ];
        stub.queue.drain().expect("from outside");
        others.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(u64::from(issued.load(Ordering::SeqCst)));
        assert!(!works[1].is_pending());
    });
}

#[test]
fn two_issuers_use_one_pwqs_credits() {
    model(3, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [(); 3].map(|()| idle());
        stub.issue(&works[0]);
        let issuer = stub.issuer(&works[1]);
        stub.issue(&works[2]);
        Loom::join(issuer);
        assert_eq!(stub.node_active().counts().1, 0);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn credits_of_one_pwq_can_be_used_by_another() {
    model(1, || {
        let limit = 16;
        let stub = Stub::with_scope(AffinityScope::Cpu, limit, 2);
        let pwqs: Vec<_> = stub.queue.pwqs().collect();
        assert!(pwqs.len() > 1);

        let admit = |pwq: &PoolWorkqueue<Loom>| {
            pwq.credits.take() || pwq.node_active().refill(pwq) == Entry::LetIn
        };
        assert!(admit(pwqs[0]));
        assert!(stub.node_active().counts().0 > 1, "the first pwq has credits");
        for _ in 1..limit {
            assert!(admit(pwqs[1]));
        }
        assert!(!admit(pwqs[1]) && !admit(pwqs[0]));
        core::mem::forget(stub);
    });
}

#[test]
fn a_thread_waiting_for_an_empty_queue_is_woken() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        for work in &works {
            stub.issue(work);
        }
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                assert!(stub.work(1));
                assert!(stub.work(1));
            })
        };
        stub.queue.drain().expect("from outside");
        assert_eq!(stub.queue.completed(), 2);
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn a_thread_waiting_for_an_empty_queue_is_woken_by_the_last_of_two_workers() {
    model_within(1, 2, || {
        let stub = Stub::new(2, 2);
        let works = [idle(), idle()];
        for work in &works {
            stub.issue(work);
        }
        let workers = [0, 1].map(|number| {
            let stub = Arc::clone(&stub);
            spawn(move || {
                // For a moment the items are neither on the inbox nor on the list.
                while !stub.work(number) {
                    Loom::yield_now();
                }
            })
        });
        stub.queue.drain().expect("from outside");
        assert_eq!(stub.queue.completed(), 2);
        workers.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(2);
    });
}

mod attention;
mod kinds;
mod tidying;

#[test]
fn held_back_while_only_cancelled_items_are_found() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let [first, second, third] = core::array::from_fn(|_| idle());
        stub.issue(&first);
        stub.issue(&second);
        // Its node stays on the list of held-back items.
        assert!(second.cancel());
        stub.run_out();
        stub.node_active().begin_drain();
        stub.node_active().end_drain();
        // The activation item takes a place for what it finds, and gives it back.
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                let _ = stub.work(1);
            })
        };
        stub.issue(&third);
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

/// Other workers may complete items as fast as one worker admits them: that worker hands on what is left.
#[test]
fn a_worker_admits_a_few_items_and_hands_on_the_rest() {
    model(1, || {
        let stub = Stub::new(100, 1);
        stub.runtime.freeze().expect("no item runs");
        let few = super::activation::AT_ONCE as usize;
        let works: Vec<_> = (0..=few).map(|_| Work::<Loom>::new_in(|_: &Work<Loom>| {})).collect();
        for work in &works {
            stub.issue(work);
        }
        stub.runtime.thaw();
        // The activation item, which comes before all other items.
        assert!(stub.work(0));
        assert_eq!(stub.node_active().inactive.load(Ordering::SeqCst), 1);
        assert!(stub.node_active().activation_item.is_active(), "a worker goes on");
        stub.work_while(0, || works.iter().any(Work::is_pending));
        assert!(!stub.node_active().activation_item.is_active());
    });
}
