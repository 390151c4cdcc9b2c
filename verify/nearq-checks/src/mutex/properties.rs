//! The properties that must hold in every state, those that must hold at the end, and those that a scenario must reach to be meaningful.

use stateright::{Expectation, Property};

use super::at::{After, At, Sleeper};
use super::scenario::{Op, Scenario};
use super::state::{MUTEXES, Next, RecordState, State, Thread};

type Condition = fn(&Scenario, &State) -> bool;

/// What must hold always.
const ALWAYS: [(&str, Condition); 8] = [
    ("exclusion", exclusion),
    ("no lost wake-up", no_lost_wake_up),
    ("no stuck slot", no_stuck_slot),
    ("no lost record", no_lost_record),
    ("nobody takes another's reservation away", |_, state| !state.robbed),
    ("nobody passes by", |_, state| !state.passed),
    ("RESERVED is heeded", |scenario, state| !state.ignored || scenario.ignores),
    ("no fault", |_, state| state.fault.is_none()),
];

/// What a scenario may reach; its check says which of these it must reach.
const SOMETIMES: [(&str, Condition); 13] = [
    ("a slot is bound", |_, state| any(state, |at| matches!(at, At::BindWord { .. }))),
    ("a slot is unbound", |_, state| any(state, |at| matches!(at, At::UnbindWord { .. }))),
    ("one waits without a queue", |_, state| {
        let without = Sleeper::WithoutQueue;
        any(state, |at| matches!(at, At::AsleepOnWord { sleeper, .. } if sleeper == without))
    }),
    ("one with the turn sleeps", |_, state| {
        let contends = |sleeper| matches!(sleeper, Sleeper::Contender(..));
        any(state, |at| matches!(at, At::AsleepOnWord { sleeper, .. } if contends(sleeper)))
    }),
    ("one begins anew", |_, state| {
        any(state, |at| matches!(at, At::StepOut { after: After::Anew, .. }))
    }),
    ("one stands up", |_, state| any(state, |at| matches!(at, At::SetBit { .. }))),
    ("the turn goes across", |_, state| any(state, |at| matches!(at, At::SitBehind { .. }))),
    ("one leaves before the next has linked", |_, state| {
        state.records.iter().any(|record| matches!(record.next, Next::Gone(_)))
    }),
    ("one that has left is told", |_, state| {
        any(state, |at| match at {
            At::Tell { number, .. } => {
                state.records[usize::from(number) - 1].state == RecordState::Left
            }
            _ => false,
        })
    }),
    ("one comes late to a slot", |_, state| {
        any(state, |at| match at {
            At::Join { slot, seen } => {
                seen.generation != state.slots[usize::from(slot) - 1].generation
            }
            _ => false,
        })
    }),
    ("one tries a mutex that is kept for nobody", |_, state| {
        any(state, |at| matches!(at, At::TryTake { .. }))
    }),
    ("RESERVED is ignored", |_, state| state.ignored),
    ("one with the turn keeps the mutex for itself", |_, state| {
        state.reserved_by.iter().any(|&by| by != 0)
    }),
];

pub(super) fn all() -> Vec<Property<Scenario>> {
    let property = |expectation: Expectation| {
        move |&(name, condition): &(&'static str, Condition)| Property {
            expectation: expectation.clone(),
            name,
            condition,
        }
    };
    let mut all: Vec<_> = ALWAYS.iter().map(property(Expectation::Always)).collect();
    all.push(Property::eventually(
        "everybody is served or gives up",
        |scenario: &Scenario, state: &State| {
            // A fault ends the path, and is reported as a fault.
            state.fault.is_some()
                || state.threads.iter().all(|thread| scenario.op(thread).is_none())
        },
    ));
    all.extend(SOMETIMES.iter().map(property(Expectation::Sometimes)));
    all
}

fn any(state: &State, is: impl Fn(At) -> bool) -> bool {
    state.threads.iter().any(|thread| is(thread.at))
}

/// No two threads hold the same mutex, and the word agrees.
fn exclusion(scenario: &Scenario, state: &State) -> bool {
    let mut holders = [0; MUTEXES];
    for thread in state.threads.iter().filter(|thread| thread.holds) {
        let op = scenario.op(thread).expect("who holds a mutex is in an operation");
        holders[usize::from(op.mutex())] += 1;
    }
    holders.iter().zip(&state.words).all(|(&holders, word)| holders == i32::from(word.locked))
}

/// Some thread can take a step that is not a time-out, or no thread waits: a deadline does not excuse a lost wake-up.
fn no_lost_wake_up(scenario: &Scenario, state: &State) -> bool {
    let sleeps = |thread: &Thread| {
        thread.wake.is_none() && matches!(thread.at, At::AsleepOnWord { .. } | At::AsleepBy(_))
    };
    let may_act = |thread: &Thread| match scenario.op(thread) {
        None => thread.wake.is_some(),
        // That operation may have to wait for the other threads, which are asleep.
        Some(Op::Drop(_)) => thread.at != At::Between || thread.wake.is_some(),
        Some(Op::With { .. }) => !sleeps(thread),
    };
    state.threads.iter().any(may_act) || !state.threads.iter().any(sleeps)
}

/// Whether no thread is in an operation.
fn is_quiet(state: &State) -> bool {
    state.threads.iter().all(|thread| thread.at == At::Between && thread.wake.is_none())
}

/// When all is quiet, a slot belongs to the mutex whose word names it, and is free otherwise; no thread has its turn, or is in its
/// queues.
fn no_stuck_slot(_: &Scenario, state: &State) -> bool {
    if !is_quiet(state) {
        return true;
    }
    let slots = state.slots.iter().enumerate().all(|(index, slot)| {
        let named = state.words.iter().filter(|word| usize::from(word.slot) == index + 1).count();
        let empty = slot.lines.iter().all(|line| line.last == 0);
        named == usize::from(slot.used) && empty && !slot.taken && !slot.standing.contains(&true)
    });
    let mut words = state.words.iter();
    let words = words.all(|word| word.tail == 0 && !word.asleep && (word.slot != 0) == word.numa);
    let dropped = state.words.iter().zip(&state.dropped);
    slots && words && dropped.into_iter().all(|(word, &dropped)| !dropped || word.slot == 0)
}

/// When all is quiet, only threads that keep records have them, each record by one thread.
fn no_lost_record(_: &Scenario, state: &State) -> bool {
    if !is_quiet(state) {
        return true;
    }
    state.records.iter().zip(1..).all(|(record, number)| {
        let owners = state.threads.iter().filter(|thread| thread.own == number).count();
        owners == usize::from(record.used)
    })
}
