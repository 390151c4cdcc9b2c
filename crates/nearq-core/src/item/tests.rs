//! The state word through every interleaving: one push per claim, one execution at a time, and what each thread sees. This file also has
//! what the tests of other modules need from the model checker.

#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{
    Atomic, AtomicInt, Linux, LockPlatform, Ordering, Platform, ThreadSpec, Threads,
};

use super::owned::{ItemRef, Pending, Running};
use super::{Epoch, Finished, Item, ItemVtable, Started};
use crate::item::Name;
use crate::item::inbox::Inbox;
use crate::item::list::List;
use crate::item::proxy::{self, Arrived};
use crate::limit::pool_workqueue::{PoolWorkqueue, push_deferred};
use crate::pool::Pool;
use crate::pool::context::Context;
use crate::pool::worker::Worker;
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

/// Runs `program` through every interleaving with at most that many preemptions.
pub(crate) fn model(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
    builder(preemptions).check(program);
}

/// As [`model`], with a quick and a long bound. With the long one, a program that is too large to be checked completely is checked for ten
/// minutes.
pub(crate) fn model_within(quick: usize, long: usize, program: impl Fn() + Send + Sync + 'static) {
    let mut builder = builder(bound(quick, long));
    builder.max_duration = bound(None, Some(TEN_MINUTES));
    builder.check(program);
}

/// As [`model_within`], for a program that is too large to be checked completely even with one preemption less: its first runs.
pub(crate) fn model_in_part(
    runs: usize,
    preemptions: usize,
    program: impl Fn() + Send + Sync + 'static,
) {
    let mut builder = builder(preemptions);
    builder.max_permutations = bound(Some(runs), None);
    // The limit is checked only at these intervals.
    builder.checkpoint_interval = runs;
    builder.max_duration = bound(None, Some(TEN_MINUTES));
    builder.check(program);
}

const TEN_MINUTES: core::time::Duration = core::time::Duration::from_mins(10);

fn builder(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder
}

/// Starts a thread of the model.
pub(crate) fn spawn(main: impl FnOnce() + Send + 'static) -> <Loom as Threads>::JoinHandle {
    Loom::spawn(ThreadSpec::default(), main).expect("the model starts threads")
}

/// The queueing of an item that is on no list, as if the caller had claimed it.
pub(crate) fn pending<P: Platform>(item: &Item<P>) -> Pending<P> {
    // SAFETY: tests have each of these items on one list at a time.
    unsafe { Pending::from_raw(core::ptr::NonNull::from(item)) }
}

/// Runs an item as a worker does, and pushes it again if necessary.
pub(crate) fn execute(item: Pending<Loom>, push: impl FnOnce(Pending<Loom>)) {
    match item.start() {
        Started::Yes(item) => {
            let table = item.table();
            if let Some(item) = item.execute(table).deferred
                && let Some(node) = item.finish_deferred(core::ptr::null())
            {
                push(node);
            }
        }
        Started::Free(item) => item.free(),
        _ => {}
    }
}

/// Takes one node off a pool, if there is one, and handles it as a worker does.
pub(crate) fn step<P: Platform>(pool: &Pool<P>, worker: &Worker<P>) -> bool {
    if pool.take(worker, 1) == 0 {
        return false;
    }
    let node = worker.batch.pop().expect("it was just taken");
    let account = node.account();
    let (item, account) = match node.start() {
        Started::Yes(item) => (item, account),
        Started::Left | Started::Cancelled => return true,
        Started::Free(item) => {
            item.free();
            return true;
        }
        Started::Proxy(node) => match proxy::arrive(node) {
            Arrived::Started(target, account) => (target, account),
            Arrived::Gone => return true,
            Arrived::Again(node) => {
                pool.push(node);
                P::yield_now();
                return true;
            }
        },
    };
    let _origin = item.origin();
    let context = Context::new(pool, worker);
    context.account.set(account);
    context.executing.item.set(item.as_raw().as_ptr().cast());
    let entered = context.enter();
    let table = item.table();
    let deferred = item.execute(table).deferred;
    // SAFETY: null for the activation item; otherwise a pwq of the queue, which is alive.
    match unsafe { PoolWorkqueue::of(account).as_ref() } {
        Some(served) => {
            if let Some(item) = deferred {
                push_deferred(item, Some(served));
            }
            drop(entered);
            served.end(worker.index);
        }
        None => {
            if let Some(item) = deferred {
                let node = item.finish_deferred(core::ptr::null());
                pool.push(node.expect("no thread cancels an activation item"));
            }
        }
    }
    true
}

/// Whether `part` aborts the process: `part` runs in a process of its own, in the test of that name, which calls this function.
pub(crate) fn aborts(test: &str, part: impl FnOnce()) {
    const CHILD: &str = "NEARQ_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        return part();
    }
    let program = std::env::current_exe().expect("it has a path");
    let mut command = std::process::Command::new(program);
    let output = command.args([test, "--exact", "--nocapture"]).env(CHILD, "1").output();
    let output = output.expect("it can be started");
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(6), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Something that items are pushed onto, and counts.
struct TestList {
    inbox: Inbox<Loom>,
    pushes: AtomicU32,
}

impl TestList {
    fn new() -> Arc<Self> {
        Arc::new(TestList { inbox: Inbox::new(), pushes: AtomicU32::new(0) })
    }

    fn push(&self, item: Pending<Loom>) {
        self.pushes.fetch_add(1, Ordering::Relaxed);
        self.inbox.push(item);
    }

    fn queue(&self, work: &Work<Loom>) -> bool {
        let Some(item) = Item::claim(work.item(), Epoch::now::<Loom>()) else { return false };
        item.set_target(core::ptr::null(), crate::item::Origin::of_cpu(0));
        if let Some(item) = item.publish() {
            self.push(item);
        }
        true
    }

    fn run(&self) {
        let mut items = self.inbox.take_all();
        while let Some(item) = items.pop_front() {
            execute(item, |item| self.push(item));
        }
    }

    /// Runs until nothing is left. Called when no other thread exists any more.
    fn run_out(&self) {
        while !self.inbox.is_empty() {
            self.run();
        }
    }
}

#[test]
#[cfg(not(miri))]
fn each_claim_causes_one_push_and_one_execution() {
    model(3, || {
        let list = TestList::new();
        let runs = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&runs);
        // The model watches the function's memory: two executions at once, or in an order that the second does
        // not see, are reported.
        let mut executions = 0;
        let work = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            executions += 1;
            count.store(executions, Ordering::Relaxed);
        });
        let claims = Arc::new(AtomicU32::new(0));
        let queuers = [(); 2].map(|()| {
            let (list, work, claims) = (Arc::clone(&list), work.clone(), Arc::clone(&claims));
            spawn(move || {
                claims.fetch_add(u32::from(list.queue(&work)), Ordering::Relaxed);
            })
        });
        list.run();
        list.run();
        queuers.into_iter().for_each(Loom::join);
        list.run_out();
        let claims = claims.load(Ordering::Relaxed);
        assert!(claims >= 1);
        assert_eq!(list.pushes.load(Ordering::Relaxed), claims);
        assert_eq!(runs.load(Ordering::Relaxed), claims);
        assert!(!work.is_pending() && !work.is_running());
    });
}

/// Two threads write, and then queue an item that reads.
#[cfg(not(miri))]
fn check_writes_are_visible(queue: fn(&TestList, &Work<Loom>)) {
    model(3, move || {
        let list = TestList::new();
        let written = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let read = [(); 2].map(|()| Arc::new(AtomicU32::new(0)));
        let (from, to) = (written.clone(), read.clone());
        let work = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            for (from, to) in from.iter().zip(&to) {
                // The largest number that any execution saw.
                let seen = from.load(Ordering::Relaxed).max(to.load(Ordering::Relaxed));
                to.store(seen, Ordering::Relaxed);
            }
        });
        let queuers = [0, 1].map(|number| {
            let (list, work, written) =
                (Arc::clone(&list), work.clone(), Arc::clone(&written[number]));
            spawn(move || {
                written.store(1, Ordering::Relaxed);
                queue(&list, &work);
            })
        });
        list.run();
        queuers.into_iter().for_each(Loom::join);
        list.run_out();
        // Whatever the queueings answered: an execution came after each of them.
        assert_eq!(read.map(|word| word.load(Ordering::Relaxed)), [1, 1]);
    });
}

#[test]
#[cfg(not(miri))]
fn writes_before_a_queueing_are_visible_to_the_execution() {
    check_writes_are_visible(|list, work| _ = list.queue(work));
}

#[test]
#[cfg(not(miri))]
fn writes_before_a_pending_item_is_joined_are_visible_to_the_execution() {
    check_writes_are_visible(|list, work| {
        if !work.header().joins_pending() {
            list.queue(work);
        }
    });
}

#[test]
#[cfg(not(miri))]
fn plain_writes_are_visible_from_queuer_to_execution_and_back() {
    use nearq_platform::PlatformCell;

    struct Shared(<Loom as Threads>::Cell<u32>);
    // SAFETY: the item's protocol orders the accesses; the model reports it if that is not so.
    unsafe impl Sync for Shared {}
    // SAFETY: the number belongs to no thread, and the protocol orders its drop after all accesses; the model reports it if not.
    unsafe impl Send for Shared {}

    model(3, || {
        let list = TestList::new();
        let cell = Arc::new(Shared(PlatformCell::new(0)));
        let (cell_clone, ran) = (Arc::clone(&cell), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&ran);
        let work = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            // SAFETY: the queuer wrote before it queued.
            cell_clone.0.with_mut(|value| unsafe { *value += 1 });
            count.fetch_add(1, Ordering::Release);
        });
        let queuer = {
            let (list, cell, ran) = (Arc::clone(&list), Arc::clone(&cell), Arc::clone(&ran));
            let work = work.clone();
            spawn(move || {
                // SAFETY: nothing is queued yet.
                cell.0.with_mut(|value| unsafe { *value = 10 });
                assert!(list.queue(&work));
                if ran.load(Ordering::Acquire) == 1 {
                    // It may still be running: then the thread that runs it pushes it.
                    assert!(list.queue(&work), "it is not pending once it runs");
                }
            })
        };
        list.run();
        list.run();
        Loom::join(queuer);
        list.run_out();
        let runs = ran.load(Ordering::Relaxed);
        // SAFETY: every other thread has ended.
        assert_eq!(cell.0.with(|value| unsafe { *value }), 10 + runs);
        assert_eq!(list.pushes.load(Ordering::Relaxed), runs);
    });
}

#[test]
#[cfg(not(miri))]
fn requeueing_from_inside_and_from_outside_at_once() {
    model(3, || {
        let list = TestList::new();
        let list_clone = Arc::clone(&list);
        let answers = Arc::new(AtomicU32::new(0));
        let inside = Arc::clone(&answers);
        let mut runs = 0;
        let work = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            runs += 1;
            if runs == 1 {
                inside.fetch_add(u32::from(list_clone.queue(work)), Ordering::Relaxed);
            }
            // The high half counts executions.
            inside.fetch_add(1 << 16, Ordering::Relaxed);
        });
        assert!(list.queue(&work));
        let queuer = {
            let (list, work, answers) = (Arc::clone(&list), work.clone(), Arc::clone(&answers));
            spawn(move || {
                answers.fetch_add(u32::from(list.queue(&work)), Ordering::Relaxed);
            })
        };
        list.run();
        Loom::join(queuer);
        list.run_out();
        let answers = answers.load(Ordering::Relaxed);
        assert_eq!(answers >> 16, 1 + (answers & 0xffff), "an execution for each queueing");
        assert_eq!(list.pushes.load(Ordering::Relaxed), answers >> 16);
    });
}

/// Records that it is dropped, and checks that this happens once.
pub(crate) struct Tail(pub(crate) Arc<AtomicU32>);

impl Drop for Tail {
    fn drop(&mut self) {
        // Relaxed: the thread that frees must see what was done before by other means than this.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
#[cfg(not(miri))]
fn only_the_last_owner_frees_the_item() {
    model(3, || {
        let list = TestList::new();
        let frees = Arc::new(AtomicU32::new(0));
        let tail = Tail(Arc::clone(&frees));
        let counted = Arc::clone(&frees);
        let work = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            let Tail(frees) = &tail;
            assert_eq!(frees.load(Ordering::Relaxed), 0, "it is alive while it runs");
        });
        let other = work.clone();
        let queuer = {
            let list = Arc::clone(&list);
            spawn(move || {
                list.queue(&work);
                drop(work);
            })
        };
        let dropper = spawn(move || drop(other));
        list.run();
        Loom::join(queuer);
        Loom::join(dropper);
        list.run_out();
        assert_eq!(counted.load(Ordering::Relaxed), 1);
    });
}

#[test]
#[cfg(not(miri))]
fn a_queueing_from_inside_outlives_the_last_handle() {
    model(3, || {
        let list = TestList::new();
        let list_clone = Arc::clone(&list);
        let (frees, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (tail, count) = (Tail(Arc::clone(&frees)), Arc::clone(&runs));
        let work = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            let _ = &tail;
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                assert!(list_clone.queue(work));
            }
        });
        assert!(list.queue(&work));
        let dropper = spawn(move || drop(work));
        list.run_out();
        Loom::join(dropper);
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert_eq!(frees.load(Ordering::Relaxed), 1);
    });
}

// ---- without the model checker, also under Miri -----------------------------------------------------------

fn claim(item: &Item<Linux>) -> Option<Pending<Linux>> {
    // SAFETY: borrowed, so alive.
    let item = unsafe { ItemRef::new(core::ptr::NonNull::from(item)) };
    Item::claim(item, Epoch::now::<Linux>())
}

fn start(node: Option<Pending<Linux>>) -> Running<Linux> {
    match node.expect("there is a node").start() {
        Started::Yes(item) => item,
        _ => panic!("it does not start"),
    }
}

/// An item of which tests use only the address.
pub(crate) fn blank<P: Platform>() -> Item<P> {
    struct Never<P>(core::marker::PhantomData<P>);
    impl<P: Platform> Never<P> {
        const TABLE: ItemVtable<P> = ItemVtable {
            is_optional: crate::item::never_optional,
            execute: |_| unreachable!("never run"),
            free: |_| unreachable!("never freed"),
            parts: None,
            refuse: crate::item::never_refused,
            name: Name::Given("blank"),
        };
    }
    Item::new(&Never::<P>::TABLE)
}

#[test]
fn the_word_goes_through_the_states_of_the_table() {
    let item = blank::<Linux>();
    assert!(!item.is_pending() && !item.is_running());
    let node = claim(&item).expect("it is idle");
    assert!(claim(&item).is_none(), "a second claim joins the first");
    assert!(item.is_pending());
    node.set_target(core::ptr::null(), crate::item::Origin::of_cpu(3));
    assert_eq!((item.origin().cpu(), item.origin().home()), (3, None));
    item.set_origin(crate::item::Origin::new(8191, Some(1023)));
    assert_eq!((item.origin().cpu(), item.origin().home()), (8191, Some(1023)));
    let node = node.publish();
    assert!(node.is_some(), "not running: the queuer pushes");
    let running = start(node);
    assert!(item.is_running() && !item.is_pending());
    let node = claim(&item).expect("it runs");
    assert!(node.publish().is_none(), "running: the worker pushes");
    assert_eq!(running.finish(), Finished::Deferred);
    assert!(item.is_running(), "until the worker has handled the push");
    let node = running.finish_deferred(core::ptr::null());
    assert!(item.is_pending() && !item.is_running());
    assert_eq!(start(node).finish(), Finished::Done);
    item.add_reference();
    assert!(!item.drop_reference());
    assert!(item.drop_reference(), "idle and the last handle");
}

#[test]
fn the_last_handle_of_a_pending_item_leaves_it_to_the_worker() {
    let item = blank::<Linux>();
    let node = claim(&item).expect("it is idle");
    assert!(!item.drop_reference());
    assert_eq!(start(node.publish()).finish(), Finished::Free);
}

#[test]
fn the_last_handle_of_a_running_item_leaves_it_to_the_worker() {
    let item = blank::<Linux>();
    let running = start(claim(&item));
    assert!(!item.drop_reference());
    let node = claim(&item).expect("from inside");
    assert!(node.publish().is_none());
    assert_eq!(running.finish(), Finished::Deferred);
    let node = running.finish_deferred(core::ptr::null());
    assert_eq!(start(node).finish(), Finished::Free);
}

#[test]
fn a_list_keeps_the_order() {
    let items: Vec<Box<Item<Linux>>> = (0..5).map(|_| Box::new(blank())).collect();
    let pointers: Vec<_> = items.iter().map(|item| core::ptr::NonNull::from(&**item)).collect();
    let node = |index: usize| pending::<Linux>(&items[index]);
    let mut list = List::<Linux>::new();
    assert!(list.is_empty() && list.pop_front().is_none());
    list.push_back(node(1));
    list.push_back(node(2));
    list.push_front(node(0));
    let mut other = List::new();
    other.append(&mut List::new());
    assert!(other.is_empty());
    other.push_front(node(3));
    other.push_back(node(4));
    list.append(&mut other);
    assert_eq!((list.len(), other.len()), (5, 0));
    let popped: Vec<_> = core::iter::from_fn(|| list.pop_front()).map(Pending::into_raw).collect();
    assert_eq!(popped, pointers);
    assert!(list.is_empty());
    // The list is empty again: its end is at its beginning.
    list.push_back(node(4));
    assert_eq!(list.pop_front().map(Pending::into_raw), Some(pointers[4]));
}

#[test]
#[cfg(not(miri))]
fn overflowing_the_hold_count_aborts_the_process() {
    aborts("item::tests::overflowing_the_hold_count_aborts_the_process", || {
        let work = Work::new(|_: &Work| {});
        work.header().ext().holds.store(u32::MAX / 2 + 1, Ordering::Relaxed);
        work.header().hold();
        std::process::exit(0);
    });
}
