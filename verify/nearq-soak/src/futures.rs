//! What a program does with futures and sets: spawns, wakes, cancels and joins them.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomPinned;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use nearq::{JoinError, JoinHandle};
use nearq_platform::LockPlatform;
use nearq_sim::{Sim, compute};

use super::ledger::{Ledger, Unit};
use super::plan::{Body, FuturePlan, Handle, Member, Pause, SetEnd, Step};
use super::program::{Actor, Answer, Captured, ProgramState, drop_quietly, me, note};
use super::steps::poll_once;

/// What a closure carries, and drops at its end.
pub(super) type Luggage = Box<dyn Any + Send>;

/// A handle that is joined at the end: of a closure, and whether it panics; or of a future.
pub(super) enum Kept {
    Closure(Unit, bool, JoinHandle<Answer, Sim>),
    Future(usize, bool, JoinHandle<Answer, Sim>),
}

/// How long the outside thread sleeps between its checks: longer each time while there is nothing to do.
const SHORT_NAP: Duration = Duration::from_micros(20);
const LONG_NAP: Duration = Duration::from_millis(5);

/// Wakers that a thread outside of the runtime must call.
#[derive(Default)]
pub(super) struct Wakers {
    waiting: Mutex<Vec<Wake>>,
    closed: AtomicBool,
}

impl Wakers {
    fn leave(&self, wake: Wake) {
        self.waiting.lock().expect("not held by a panic").push(wake);
    }

    /// The outside thread: calls the wakers that are left to it, until no more can come.
    pub(super) fn wake_them(&self) {
        let mut nap = SHORT_NAP;
        loop {
            let closed = self.closed.load(Ordering::Relaxed);
            // Calling or dropping a waker runs foreign code, so it is not done under the lock.
            let waiting = std::mem::take(&mut *self.waiting.lock().expect("not held by a panic"));
            if closed && waiting.is_empty() {
                return;
            }
            nap = if waiting.is_empty() { (nap * 2).min(LONG_NAP) } else { SHORT_NAP };
            for mut wake in waiting {
                wake.now();
                if wake.twice {
                    wake.twice = false;
                    self.leave(wake);
                }
            }
            Sim::sleep(nap);
        }
    }

    /// No more wakers will be left with it.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}

/// Wakes a future, at the latest when it is dropped.
struct Wake {
    ledger: Arc<Ledger>,
    future: usize,
    waker: Option<Waker>,
    twice: bool,
}

impl Wake {
    fn now(&mut self) {
        self.ledger.begin_wake(self.future);
        if self.twice {
            self.waker.as_ref().expect("taken the second time").wake_by_ref();
        } else if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        if self.waker.is_some() {
            self.twice = false;
            self.now();
        }
    }
}

/// A future of the program. It must not be moved, and reports if it was.
struct Program {
    state: Arc<ProgramState>,
    number: usize,
    /// The queue that polls it.
    on: usize,
    plan: Arc<FuturePlan>,
    at: usize,
    place: Option<usize>,
    _captured: Captured,
    _pinned: PhantomPinned,
}

impl Program {
    fn new(state: &Arc<ProgramState>, number: usize, on: usize, plan: &Arc<FuturePlan>) -> Self {
        Program {
            state: Arc::clone(state),
            number,
            on,
            plan: Arc::clone(plan),
            at: 0,
            place: None,
            _captured: Captured::new(&state.ledger, format!("future {number}"))
                .that_panics(state.plan.hardships.drops_panic),
            _pinned: PhantomPinned,
        }
    }

    fn wait(&self, pause: Pause, waker: &Waker) {
        let ledger = &self.state.ledger;
        let wake = |twice| Wake {
            ledger: Arc::clone(ledger),
            future: self.number,
            waker: Some(waker.clone()),
            twice,
        };
        match pause {
            Pause::Own(times) => (0..times).for_each(|_| {
                ledger.begin_wake(self.number);
                waker.wake_by_ref();
            }),
            Pause::Outside { twice } => self.state.wakers.leave(wake(twice)),
            Pause::Closure { queue } => {
                let body = Body {
                    steps: vec![Step::Compute(Duration::from_micros(1))],
                    ..Body::default()
                };
                let wake: Luggage = Box::new(wake(false));
                let actor = Actor { within: Some(self.on), ..Actor::default() };
                drop(self.state.spawn(queue, &Arc::new(body), actor, Some(wake)));
            }
        }
    }
}

impl Future for Program {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let ledger = Arc::clone(&this.state.ledger);
        ledger.begin_poll(this.number, me());
        note(format_args!("future {} is polled", this.number));
        let place = std::ptr::from_ref(this).addr();
        if *this.place.get_or_insert(place) != place {
            ledger.violation(format!("future {} has been moved", this.number));
        }
        let next = this.plan.pauses.get(this.at).copied();
        this.at += 1;
        if let Some((time, pause)) = next {
            compute(time);
            this.wait(pause, context.waker());
            ledger.end_poll(this.number, false, false);
            return Poll::Pending;
        }
        ledger.end_poll(this.number, true, this.plan.panics);
        note(format_args!("future {} ends", this.number));
        if this.plan.panics {
            resume_unwind(Box::new(panic_text(this.number)));
        }
        Poll::Ready(Answer::new(this.number, this.state.plan.hardships.drops_panic))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.state.ledger.future_dropped(self.number);
    }
}

fn panic_text(future: usize) -> String {
    format!("future {future} panics on purpose")
}

/// The text with which the drop of what a future captured panics.
fn drop_text(future: usize) -> String {
    Captured::text(&format!("future {future}"))
}

impl ProgramState {
    pub(super) fn future(
        self: &Arc<Self>,
        number: usize,
        plan: &Arc<FuturePlan>,
        handle: Handle,
        kept: &mut Vec<Kept>,
    ) {
        let Some(queue) = self.queue(number) else { return };
        let future = self.ledger.add_future(number);
        let mut joining = queue.spawn_future(Program::new(self, future, number, plan));
        note(format_args!("future {future} spawned on queue-{number}"));
        self.let_go(number, queue, Actor::default());
        match handle {
            Handle::Drop => drop_quietly(joining),
            Handle::Keep => kept.push(Kept::Future(future, plan.panics, joining)),
            Handle::Join => self.future_joined(future, plan.panics, joining.join()),
            Handle::Poll => match poll_once(&mut joining) {
                Some(result) => self.future_joined(future, plan.panics, result),
                None => self.future_joined(future, plan.panics, joining.join()),
            },
            Handle::Cancel => {
                self.ledger.begin_cancel_future(future);
                let cancelled = joining.cancel();
                note(format_args!("future {future} cancelled: {cancelled}"));
                let result = joining.join();
                // What the queue has refused can no longer be cancelled, and has not ended either.
                let refused = matches!(result, Err(JoinError::Refused));
                self.ledger.end_cancel_future(future, cancelled || refused);
                self.future_joined(future, plan.panics, result);
            }
        }
    }

    pub(super) fn join_kept(&self, kept: Kept) {
        match kept {
            Kept::Closure(unit, panics, handle) => self.joined(unit, panics, handle.join()),
            Kept::Future(future, panics, handle) => {
                self.future_joined(future, panics, handle.join());
            }
        }
    }

    fn future_joined(&self, future: usize, panics: bool, result: Result<Answer, JoinError>) {
        let result = result.map(Answer::joined);
        note(format_args!("has joined future {future}"));
        let right = match &result {
            Ok(answer) => !panics && answer.number == future,
            Err(JoinError::Cancelled | JoinError::Refused) => true,
            Err(error) => panics && error.message() == Some(panic_text(future).as_str()),
        };
        if !right {
            self.ledger.violation(format!("joining future {future} gave {result:?}"));
        }
        let cancelled = matches!(result, Err(JoinError::Cancelled | JoinError::Refused));
        self.ledger.future_joined(future, cancelled);
    }

    // ---- sets ------------------------------------------------------------------------------------------------

    /// Spawns members, joins some of them, and ends the set.
    pub(super) fn set_of(
        self: &Arc<Self>,
        number: usize,
        members: &[Member],
        joined: usize,
        end: SetEnd,
        actor: Actor<'_>,
    ) {
        // A draining queue does not report which members it refuses.
        if self.plan.is_drained(number) {
            return;
        }
        let Some(queue) = self.queue(number) else { return };
        let mut set = queue.join_set::<Joined>();
        let mut out = Members::default();
        let drops_panic = self.plan.hardships.drops_panic;
        for member in members {
            match member {
                Member::Closure(body) => {
                    let unit = self.ledger.add_closure();
                    let call = self.ledger.begin_call(unit, number, actor.cpu);
                    let (state, body) = (Arc::clone(self), Arc::clone(body));
                    let captured = Arc::new(Captured::new(&self.ledger, self.name(unit)));
                    out.closures.push((unit, body.panics, Arc::downgrade(&captured)));
                    set.spawn(move || {
                        let _captured = captured;
                        let actor = Actor { within: Some(number), ..Actor::default() };
                        state.run(unit, &body, actor, false, |_| body.panics);
                        Joined::Closure(Answer::new(unit, drops_panic))
                    });
                    self.ledger.end_call(call, true);
                    note(format_args!("closure {unit} spawned in a set on queue-{number}"));
                }
                Member::Future(plan) => {
                    let future = self.ledger.add_future(number);
                    out.futures.push((future, plan.panics));
                    let program = Program::new(self, future, number, plan);
                    set.spawn_future(async move { Joined::Future(program.await) });
                    note(format_args!("future {future} spawned in a set on queue-{number}"));
                }
            }
        }
        for _ in 0..joined {
            self.joined_of_set(&mut out, set.blocking_join_next());
        }
        if end != SetEnd::Join {
            out.futures.iter().for_each(|(future, _)| self.ledger.begin_cancel_future(*future));
        }
        let cancels: Vec<_> = match end {
            SetEnd::Join => Vec::new(),
            _ => out.closures.iter().map(|closure| self.ledger.begin_cancel(closure.0)).collect(),
        };
        match end {
            SetEnd::Drop => drop_quietly(set),
            _ => {
                if end == SetEnd::Cancel {
                    set.cancel_all();
                    note(format_args!("has cancelled a set on queue-{number}"));
                }
                while !set.is_empty() {
                    self.joined_of_set(&mut out, set.blocking_join_next());
                }
                if set.blocking_join_next().is_some() {
                    self.ledger.violation("a set has more results than members".into());
                }
                drop(set);
            }
        }
        // Members without a result of their own were cancelled; this is certain if what they captured has been dropped and they have not
        // begun.
        let mut nameless = out.cancelled;
        for cancel in cancels {
            let left = out.closures.iter().find(|closure| closure.0 == cancel.unit());
            let is_cancelled = left.is_some_and(|(unit, _, captured)| {
                captured.strong_count() == 0 && !self.ledger.has_started(*unit)
            });
            nameless = nameless.saturating_sub(usize::from(is_cancelled && end == SetEnd::Cancel));
            if left.is_some() && !is_cancelled && end == SetEnd::Cancel {
                self.ledger.violation(format!("a set gave no result of closure {}", cancel.unit()));
            }
            self.ledger.end_cancel(cancel, is_cancelled);
        }
        if end != SetEnd::Drop && nameless > out.futures.len() {
            self.ledger.violation(format!("a set gave {nameless} results as cancelled too many"));
        }
        note(format_args!("a set on queue-{number} has ended"));
        self.let_go(number, queue, actor);
    }

    fn joined_of_set(&self, out: &mut Members, result: Option<Result<Joined, JoinError>>) {
        let Some(result) = result else {
            self.ledger.violation("a set with members has none to join".into());
            return;
        };
        let result = result.map(Joined::joined);
        let found = match &result {
            Ok(Joined::Closure(answer)) => {
                out.take_closure(|closure| closure == (answer.number, false))
            }
            Ok(Joined::Future(answer)) => {
                let found = out.take_future(|member| member == (answer.number, false));
                if found {
                    self.ledger.future_joined(answer.number, false);
                }
                found
            }
            Err(JoinError::Cancelled | JoinError::Refused) => {
                out.cancelled += 1;
                true
            }
            Err(error) => {
                let text = error.message().unwrap_or_default();
                out.take_closure(|(unit, panics)| {
                    panics && text == super::program::panic_text(unit)
                }) || out.take_future(|(future, panics)| {
                    // The member's own future drops the program's, as a part of its last poll.
                    let drops = self.plan.hardships.drops_panic;
                    panics && text == panic_text(future) || drops && text == drop_text(future)
                })
            }
        };
        if !found {
            self.ledger.violation(format!("a set gave {result:?}, which none of its members left"));
        }
    }
}

/// The result of a set's member.
#[derive(Debug)]
enum Joined {
    Closure(Answer),
    Future(Answer),
}

impl Joined {
    fn joined(self) -> Self {
        match self {
            Joined::Closure(answer) => Joined::Closure(answer.joined()),
            Joined::Future(answer) => Joined::Future(answer.joined()),
        }
    }
}

/// The members of a set that have not been joined by name, whether they panic, and whether what they captured is still there.
#[derive(Default)]
struct Members {
    closures: Vec<(Unit, bool, std::sync::Weak<Captured>)>,
    futures: Vec<(usize, bool)>,
    cancelled: usize,
}

impl Members {
    fn take_closure(&mut self, is: impl Fn((Unit, bool)) -> bool) -> bool {
        let at = self.closures.iter().position(|(unit, panics, _)| is((*unit, *panics)));
        at.map(|at| self.closures.swap_remove(at)).is_some()
    }

    fn take_future(&mut self, is: impl Fn((usize, bool)) -> bool) -> bool {
        let at = self.futures.iter().position(|(future, panics)| is((*future, *panics)));
        at.map(|at| self.futures.swap_remove(at)).is_some()
    }
}
