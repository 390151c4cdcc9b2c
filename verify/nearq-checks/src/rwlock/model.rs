//! Which steps a thread can take, and what must hold.

use stateright::{Model, Property};

use super::{At, Events, Kind, Lock, Op, Row, Scenario, State, Thread, What};

/// A thread takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The thread.
    pub thread: u8,
    /// Which of the steps that it can take.
    pub step: Step,
}

/// Which step a thread takes, if there are several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The only one.
    Next,
    /// A writer says that it takes the row away.
    Ending,
    /// The head reserves the lock.
    Reserve,
    /// The head keeps `writers` until it leaves as a writer.
    Keep,
    /// The deadline comes.
    TimeOut,
}

impl Scenario {
    pub(super) fn op(&self, thread: usize, state: &State) -> Option<Op> {
        self.scripts[thread].ops.get(usize::from(state.threads[thread].done)).copied()
    }

    fn steps(&self, state: &State, me: usize, step: &mut dyn FnMut(Step)) {
        let thread = &state.threads[me];
        if thread.wakes_bucket.is_some() || thread.wakes_readers.is_some() {
            return step(Step::Next);
        }
        let Some(op) = self.op(me, state) else { return };
        let lock = &state.locks[usize::from(op.lock)];
        match thread.at {
            At::Asleep { .. } | At::HeadAsleep | At::DrainAsleep => {
                if op.until {
                    step(Step::TimeOut);
                }
            }
            At::Queues => {
                if !lock.head {
                    step(Step::Next);
                }
                if op.until {
                    step(Step::TimeOut);
                }
            }
            At::Head if lock.kind == Kind::None && op.what == What::Write => {
                step(Step::Next);
                if lock.row {
                    step(Step::Ending);
                }
            }
            At::Head => {
                step(Step::Next);
                if lock.kind != Kind::None && !lock.reserved {
                    step(Step::Reserve);
                }
            }
            At::HasIt if thread.is_head => {
                step(Step::Next);
                step(Step::Keep);
            }
            At::ReadsUpgradably => {
                step(Step::Next);
                if lock.row {
                    step(Step::Ending);
                }
            }
            _ => step(Step::Next),
        }
    }

    fn is_over(&self, state: &State) -> bool {
        (0..state.threads.len()).all(|thread| self.op(thread, state).is_none())
    }
}

/// Whether no thread uses the lock.
fn is_free(lock: &Lock, row: &Row) -> bool {
    let readers = lock.active + if lock.row { row.sum(lock.phase) } else { 0 };
    let waiting = lock.waiting + if lock.row { row.sum(!lock.phase) } else { 0 };
    readers == 0 && waiting == 0 && lock.kind == Kind::None && !lock.reserved && !lock.head
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            locks: Default::default(),
            row: Row::default(),
            buckets: Default::default(),
            threads: vec![Thread::default(); self.scripts.len()],
            events: Events::default(),
        };
        state.locks[0].row = self.lent;
        state.row.lent = self.lent;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for me in 0..state.threads.len() {
            self.steps(state, me, &mut |step| actions.push(Action { thread: me as u8, step }));
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut state = state.clone();
        self.take(&mut state, usize::from(action.thread), action.step);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a writer is alone", |model: &Self, state: &State| {
                let has = |lock, what: &dyn Fn(At) -> bool| {
                    let threads = state.threads.iter().enumerate();
                    let on_it = |thread| model.op(thread, state).is_some_and(|op| op.lock == lock);
                    threads.filter(|(index, one)| on_it(*index) && what(one.at)).count()
                };
                (0..state.locks.len() as u8).all(|lock| {
                    let writers = has(lock, &|at| matches!(at, At::Writes | At::HasIt));
                    let upgradable = has(lock, &|at| at == At::ReadsUpgradably);
                    let readers = has(lock, &|at| at == At::Reads);
                    writers + upgradable <= 1 && (writers == 0 || readers == 0)
                })
            }),
            Property::always("a thread can go on", |model: &Self, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || model.is_over(state)
            }),
            Property::always("all is as before at the end", |model: &Self, state: &State| {
                !model.is_over(state)
                    || state
                        .threads
                        .iter()
                        .any(|one| one.wakes_bucket.or(one.wakes_readers).is_some())
                    || state.locks.iter().all(|lock| is_free(lock, &state.row))
                        && state.row.lent == state.locks.iter().any(|lock| lock.row)
                        && (state.row.lent || state.row.sum(false) == 0 && state.row.sum(true) == 0)
            }),
            Property::always("a reader waits for one writer", |model: &Self, state: &State| {
                let may_give_up = |op: &Op| op.until && op.what != What::Read;
                model.scripts.iter().any(|script| script.ops.iter().any(may_give_up))
                    || state.threads.iter().all(|thread| thread.passed <= 1)
            }),
            Property::sometimes("one enters by cache", |_, state: &State| state.events.by_cache),
            Property::sometimes("one waits by cache", |_, state: &State| {
                state.events.waited_by_cache
            }),
            Property::sometimes("one comes late", |_, state: &State| state.events.late),
            Property::sometimes("the row is taken away", |_, state: &State| state.events.ended),
            Property::sometimes("a writer gives up", |_, state: &State| state.events.gave_up),
            Property::sometimes("a reader sleeps", |_, state: &State| state.events.reader_slept),
            Property::sometimes("a writer sleeps", |_, state: &State| state.events.writer_slept),
        ]
    }
}
