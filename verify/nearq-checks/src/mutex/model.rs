//! Which steps a thread can take at its place, and which function does them.

use stateright::{Model, Property};

use super::at::{At, Queue, Sleeper, Then};
use super::properties;
use super::scenario::{How, Mode, Mutant, Op, Scenario, Script};
use super::state::{
    DOMAINS, MOST_RECORDS, MOST_THREADS, MUTEXES, Record, SLOTS, Slot, State, Thread, Wake, Word,
};

/// A thread takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The thread.
    pub thread: u8,
    /// The thread's action.
    pub step: Step,
}

/// A thread's action, with the name of the function or of the operation in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Step {
    /// `wake` if no thread sleeps there, or if it wakes all.
    Wake,
    /// `wake` of one thread: this one.
    WakeOne(u8),

    // ---- raw_mutex.rs and waiting.rs
    /// The mutex is free: takes it, without a queue.
    Take,
    /// The mutex is not free: takes this record, if the thread needs one and there is one.
    FindHeld(u8),
    /// `try_lock` returns false.
    Refuse,
    TryQuiet,
    TryLookAgain,
    TryTurn,
    TryTake,
    StoreLocked,
    PassedBy,
    /// Likewise, with this record.
    BindInFront(u8),
    Unlock,
    UnlockFair,
    FairQuiet,
    WaitWithoutQueue,
    SleepOnWord,
    TimeOut,
    WakeForNoReason,
    Drop,

    // ---- queueing up
    /// As `FindHeld`.
    TakeRecord(u8),
    /// `queue_up`: the step that puts the record into the word's tail.
    JoinPlain,
    /// `queue_up`: the word names a slot.
    FindSlot,
    FindOvertaken,
    AskNoPassing,
    Look,
    LookAgain,
    Join,
    Link,
    WaitBy,
    SleepBy,
    Awake,
    StandUp,
    SetBit,

    // ---- with the turn
    ContendTake,
    /// Takes the mutex; `count` decides that a slot must be bound.
    ContendTakeAndBind,
    Rouse,
    WantReserve,
    Reserve,
    SayAsleep,
    /// Likewise, and removes `RESERVED`, because CPUs are few.
    SayAsleepCrowded,
    HandWithin,
    HandAcross,
    SitBehind,
    /// Gives the turn to this domain.
    GiveAway(u8),
    Rest,
    Unbind,
    Unreserve,
    UnreserveLate,

    // ---- leaving a queue
    StepOut,
    ClearTail,
    SwapGone,
    Tell,
    ReadFront,

    // ---- binding and unbinding
    TakeSlot,
    BindLine,
    BindTop,
    BindWord,
    UnbindWord,
    UnbindTop,
    FreeSlot,
}

impl Scenario {
    pub(super) fn script(&self, thread: &Thread) -> &Script {
        &self.scripts[usize::from(thread.script)]
    }

    /// The operation that a thread is in, or before.
    pub(super) fn op(&self, thread: &Thread) -> Option<Op> {
        self.scripts.get(usize::from(thread.script))?.ops.get(usize::from(thread.done)).copied()
    }

    /// The records that a thread without one may take; 0 if it has one, or there is none.
    ///
    /// A late thread may still know the number of a free record. Free records that no thread knows are all alike, so only the first of them
    /// is tried.
    fn each_record(&self, state: &State, thread: &Thread, mut each: impl FnMut(u8)) {
        let free = |number: &u8| !state.records[usize::from(*number) - 1].used;
        let all = 1..=self.records;
        if thread.own != 0 || !all.clone().any(|number| free(&number)) {
            return each(0);
        }
        let mut others = false;
        for number in all.filter(free) {
            let known = state.is_known(number);
            if known || !others {
                each(number);
            }
            others |= !known;
        }
    }

    /// Whether all the other threads are done with a mutex.
    fn is_last(&self, state: &State, me: usize, mutex: u8) -> bool {
        state.threads.iter().enumerate().all(|(index, thread)| {
            index == me
                || self.scripts.get(usize::from(thread.script)).is_none_or(|script| {
                    script.ops[usize::from(thread.done)..].iter().all(|op| op.mutex() != mutex)
                })
        })
    }

    /// The steps that a thread can take in a state.
    fn steps(&self, state: &State, me: usize, step: &mut dyn FnMut(Step)) {
        let thread = &state.threads[me];
        match thread.wake {
            Some(Wake::One(mutex)) if state.sleepers(mutex).next().is_some() => {
                return state.sleepers(mutex).for_each(|index| step(Step::WakeOne(index as u8)));
            }
            Some(_) => return step(Step::Wake),
            None => {}
        }
        let Some(op) = self.op(thread) else { return };
        let word = state.words[usize::from(op.mutex())];
        let ignores = self.mutant == Some(Mutant::ReservedIgnored);
        let free = !word.locked && (ignores || !word.reserved);
        match (thread.at, op) {
            (At::Between, Op::Drop(mutex)) => {
                if self.is_last(state, me, mutex) {
                    step(Step::Drop);
                }
            }
            (_, Op::Drop(_)) => self.steps_of_slots(state, thread, Mode::Auto, step),
            (At::Between, Op::With { how: How::Try, .. }) => step(match word {
                _ if free => Step::Take,
                Word { locked: true, .. } | Word { tail: 1.., .. } => Step::Refuse,
                Word { numa: true, .. } => Step::TryQuiet,
                _ => Step::Take,
            }),
            (At::Between, _) if free => step(Step::Take),
            (At::Between, _) if self.script(thread).mode == Mode::Off => step(Step::FindHeld(0)),
            (At::Between, _) => {
                self.each_record(state, thread, |number| step(Step::FindHeld(number)))
            }
            (At::TakeRecord, _) => {
                self.each_record(state, thread, |number| step(Step::TakeRecord(number)))
            }
            (At::Holding, Op::With { bind: true, .. }) if !thread.asked => {
                self.each_record(state, thread, |number| step(Step::BindInFront(number)));
            }
            (At::QueueUp, _) => {
                step(match word {
                    _ if free => Step::Take,
                    Word { numa: true, .. } => Step::FindSlot,
                    _ => Step::JoinPlain,
                });
                if !thread.asked && !word.reserved {
                    step(Step::FindOvertaken);
                }
            }
            (At::Holding, Op::With { fair, .. }) => {
                step(if fair { Step::UnlockFair } else { Step::Unlock });
            }
            (At::AsleepOnWord { .. } | At::AsleepBy(_), Op::With { how, .. }) => {
                if how == How::Until {
                    step(Step::TimeOut);
                }
                if thread.spurious > 0 {
                    step(Step::WakeForNoReason);
                }
            }
            (At::Contend { queue, roused }, Op::With { how, .. }) => {
                self.steps_of_contender(state, thread, word, queue, roused, how, step);
            }
            (_, Op::With { .. }) => {
                self.steps_of_slots(state, thread, self.script(thread).mode, step);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all of them are looked up by the caller already")]
    fn steps_of_contender(
        &self,
        state: &State,
        thread: &Thread,
        word: Word,
        queue: Queue,
        roused: bool,
        how: How,
        step: &mut dyn FnMut(Step),
    ) {
        if !word.locked {
            let mode = self.script(thread).mode;
            let counts = queue == Queue::Plain && !word.numa && word.tail != thread.own;
            if !counts || mode != Mode::Numa {
                step(Step::ContendTake);
            }
            if counts && matches!(mode, Mode::Numa | Mode::Auto) {
                step(Step::ContendTakeAndBind);
            }
            return;
        }
        step(Step::SayAsleep);
        if word.reserved {
            step(Step::SayAsleepCrowded);
        } else {
            step(Step::WantReserve);
        }
        if !roused && state.behind_asleep(thread.own) {
            step(Step::Rouse);
        }
        if how == How::Until {
            step(Step::TimeOut);
        }
    }

    fn steps_of_slots(
        &self,
        state: &State,
        thread: &Thread,
        mode: Mode,
        step: &mut dyn FnMut(Step),
    ) {
        match thread.at {
            At::HandOn { slot, .. } => {
                step(Step::HandWithin);
                let mut standing = state.slots[usize::from(slot) - 1].standing;
                standing[usize::from(self.script(thread).domain)] = false;
                if standing.contains(&true) {
                    step(Step::HandAcross);
                }
            }
            At::HandToDomains { slot, then } => {
                let standing = state.slots[usize::from(slot) - 1].standing;
                if standing.contains(&true) && self.mutant != Some(Mutant::RestBlindly) {
                    (0..DOMAINS)
                        .filter(|&domain| standing[domain])
                        .for_each(|domain| step(Step::GiveAway(domain as u8)));
                    return;
                }
                let holds = then == Then::Hold;
                if holds && mode != Mode::Numa {
                    step(Step::Unbind);
                }
                if !holds || matches!(mode, Mode::Numa | Mode::Auto) {
                    step(Step::Rest);
                }
            }
            at => step(only_step(at)),
        }
    }
}

/// The step that a thread takes at a place where it has no choice.
fn only_step(at: At) -> Step {
    match at {
        At::TryQuiet(_) => Step::TryQuiet,
        At::TryLookAgain { .. } => Step::TryLookAgain,
        At::TryTurn { .. } => Step::TryTurn,
        At::TryTake { .. } => Step::TryTake,
        At::StoreLocked => Step::StoreLocked,
        At::PassedBy(_) => Step::PassedBy,
        At::FairQuiet(_) => Step::FairQuiet,
        At::Unlock { .. } => Step::Unlock,
        At::WithoutQueue { .. } => Step::WaitWithoutQueue,
        At::SleepOnWord { .. } => Step::SleepOnWord,
        At::AskNoPassing => Step::AskNoPassing,
        At::Look { .. } => Step::Look,
        At::LookAgain { .. } => Step::LookAgain,
        At::Join { .. } => Step::Join,
        At::Link { .. } => Step::Link,
        At::WaitBy(_) => Step::WaitBy,
        At::SleepBy(_) => Step::SleepBy,
        At::Awake { .. } => Step::Awake,
        At::StandUp { .. } => Step::StandUp,
        At::SetBit { .. } => Step::SetBit,
        At::Reserve { .. } => Step::Reserve,
        At::SitBehind { .. } => Step::SitBehind,
        At::Unreserve { .. } => Step::Unreserve,
        At::UnreserveLate { .. } => Step::UnreserveLate,
        At::StepOut { .. } => Step::StepOut,
        At::ClearTail { .. } => Step::ClearTail,
        At::SwapGone { .. } => Step::SwapGone,
        At::Tell { .. } => Step::Tell,
        At::ReadFront { .. } => Step::ReadFront,
        At::TakeSlot => Step::TakeSlot,
        At::BindLine { .. } => Step::BindLine,
        At::BindTop { .. } => Step::BindTop,
        At::BindWord { .. } => Step::BindWord,
        At::UnbindWord { .. } => Step::UnbindWord,
        At::UnbindTop { .. } => Step::UnbindTop,
        At::FreeSlot { .. } => Step::FreeSlot,
        At::Between
        | At::QueueUp
        | At::TakeRecord
        | At::Holding
        | At::AsleepOnWord { .. }
        | At::AsleepBy(_)
        | At::Contend { .. }
        | At::HandOn { .. }
        | At::HandToDomains { .. } => unreachable!("there is a choice at {at:?}"),
    }
}

/// A thread that is taking a step.
pub(super) struct Acting<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) state: &'a mut State,
    pub(super) me: usize,
}

impl Acting<'_> {
    pub(super) fn thread(&mut self) -> &mut Thread {
        &mut self.state.threads[self.me]
    }

    /// The number of the thread's record.
    pub(super) fn own(&self) -> u8 {
        self.state.threads[self.me].own
    }

    pub(super) fn here(&self) -> usize {
        usize::from(self.scenario.script(&self.state.threads[self.me]).domain)
    }

    /// The mutex of the operation that the thread is in.
    pub(super) fn mutex(&self) -> usize {
        let op = self.scenario.op(&self.state.threads[self.me]);
        usize::from(op.expect("a thread that acts is in an operation").mutex())
    }

    pub(super) fn word(&mut self) -> &mut Word {
        let mutex = self.mutex();
        &mut self.state.words[mutex]
    }

    pub(super) fn go(&mut self, at: At) {
        self.thread().at = at;
    }

    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.scenario.mutant == Some(mutant)
    }

    /// The operation is over.
    pub(super) fn finish(&mut self) {
        let thread = self.thread();
        thread.at = At::Between;
        thread.done += 1;
        (thread.holds, thread.asked) = (false, false);
    }

    fn act(&mut self, step: Step) {
        let at = self.state.threads[self.me].at;
        match (step, at) {
            (Step::Wake, _) => self.wake(),
            (Step::WakeOne(who), _) => self.wake_one(who),
            (Step::Take, _) => self.take(),
            (Step::FindHeld(number), _) => self.find_held(number),
            (Step::TakeRecord(number), _) => self.take_record(number),
            (Step::Refuse, _) => self.finish(),
            (Step::TryQuiet, At::TryQuiet(seen)) => self.try_quiet(seen),
            (Step::TryQuiet, _) => {
                let seen = *self.word();
                self.go(At::TryQuiet(seen));
            }
            (Step::TryLookAgain, At::TryLookAgain { seen, generation }) => {
                self.try_look_again(seen, generation);
            }
            (Step::TryTurn, At::TryTurn { slot, generation }) => self.try_turn(slot, generation),
            (Step::TryTake, At::TryTake { slot }) => self.try_take(slot),
            (Step::StoreLocked, _) => self.store_locked(),
            (Step::PassedBy, At::PassedBy(slot)) => self.passed_by(slot),
            (Step::BindInFront(number), _) => self.bind_in_front(number),
            (Step::Unlock, At::Unlock { keep }) => self.unlock(keep),
            (Step::Unlock, _) => self.unlock(false),
            (Step::UnlockFair, _) => self.unlock_fair(),
            (Step::FairQuiet, At::FairQuiet(slot)) => self.fair_quiet(slot),
            (Step::WaitWithoutQueue, At::WithoutQueue { slept }) => self.wait_without_queue(slept),
            (Step::SleepOnWord, At::SleepOnWord { expected, sleeper }) => {
                self.sleep_on_word(expected, sleeper);
            }
            (Step::TimeOut, At::AsleepOnWord { sleeper: Sleeper::WithoutQueue, .. }) => {
                self.finish();
            }
            (
                Step::TimeOut,
                At::AsleepOnWord { sleeper: Sleeper::Contender(queue, _), .. }
                | At::Contend { queue, .. },
            ) => self.give_up_turn(queue),
            (Step::TimeOut, At::AsleepBy(queue)) => self.go(At::Awake { queue, late: true }),
            (Step::WakeForNoReason, at) => self.wake_for_no_reason(at),
            (Step::Drop, _) => self.drop_mutex(),
            (Step::JoinPlain, _) => self.join_plain(),
            (Step::FindSlot, _) => {
                let slot = self.word().slot;
                self.go(At::Look { slot });
            }
            (Step::FindOvertaken, _) => self.go(At::AskNoPassing),
            (Step::AskNoPassing, _) => self.ask_no_passing(),
            (Step::Look, At::Look { slot }) => self.look(slot),
            (Step::LookAgain, At::LookAgain { slot, seen }) => self.reread_machine(slot, seen),
            (Step::Join, At::Join { slot, seen }) => self.join(slot, seen),
            (Step::Link, At::Link { before, queue }) => self.link(before, queue),
            (Step::WaitBy, At::WaitBy(queue)) => self.wait_by(queue),
            (Step::SleepBy, At::SleepBy(queue)) => self.sleep_by(queue),
            (Step::Awake, At::Awake { queue, late }) => self.awake(queue, late),
            (Step::StandUp, At::StandUp { slot, generation }) => self.stand_up(slot, generation),
            (Step::SetBit, At::SetBit { slot, generation }) => self.set_bit(slot, generation),
            (Step::ContendTake, At::Contend { queue, .. }) => self.contend_take(queue, false),
            (Step::ContendTakeAndBind, At::Contend { queue, .. }) => self.contend_take(queue, true),
            (Step::Rouse, At::Contend { queue, .. }) => self.rouse(queue),
            (Step::WantReserve, At::Contend { queue, roused }) => {
                self.go(At::Reserve { queue, roused });
            }
            (Step::Reserve, At::Reserve { queue, roused }) => self.reserve(queue, roused),
            (Step::SayAsleep, At::Contend { queue, roused }) => {
                self.mark_asleep(queue, roused, false);
            }
            (Step::SayAsleepCrowded, At::Contend { queue, roused }) => {
                self.mark_asleep(queue, roused, true);
            }
            (Step::HandWithin, At::HandOn { slot, generation, then }) => {
                self.hand_within(slot, generation, then);
            }
            (Step::HandAcross, At::HandOn { slot, generation, then }) => {
                self.hand_across(slot, generation, then);
            }
            (Step::SitBehind, At::SitBehind { slot, behind, then }) => {
                self.sit_behind(slot, behind, then);
            }
            (Step::GiveAway(domain), At::HandToDomains { slot, then }) => {
                self.give_away(slot, domain, then);
            }
            (Step::Rest, At::HandToDomains { slot, then }) => self.rest(slot, then),
            (Step::Unbind, At::HandToDomains { slot, then }) => {
                self.go(At::UnbindWord { slot, then });
            }
            (Step::Unreserve, At::Unreserve { slot, generation }) => {
                self.unreserve(slot, generation);
            }
            (Step::UnreserveLate, At::UnreserveLate { empty }) => self.unreserve_late(empty),
            (Step::StepOut, At::StepOut { number, message, tail, after }) => {
                self.step_out(number, message, tail, after);
            }
            (Step::ClearTail, At::ClearTail { number, message, tail, after }) => {
                self.clear_tail(number, message, tail, after);
            }
            (Step::SwapGone, At::SwapGone { number, message, tail, after }) => {
                self.swap_gone(number, message, tail, after);
            }
            (Step::Tell, At::Tell { number, message, tail, after }) => {
                self.send(number, message, tail, after);
            }
            (Step::ReadFront, At::ReadFront { slot, domain, message, after }) => {
                self.read_front(slot, domain, message, after);
            }
            (Step::TakeSlot, _) => self.take_slot(),
            (Step::BindLine, At::BindLine { slot, domain }) => self.bind_line(slot, domain),
            (Step::BindTop, At::BindTop { slot }) => self.bind_top(slot),
            (Step::BindWord, At::BindWord { slot }) => self.bind_word(slot),
            (Step::UnbindWord, At::UnbindWord { slot, then }) => self.unbind_word(slot, then),
            (Step::UnbindTop, At::UnbindTop { slot, then }) => self.unbind_top(slot, then),
            (Step::FreeSlot, At::FreeSlot { slot, then }) => self.free_slot(slot, then),
            (step, at) => unreachable!("{step:?} at {at:?}"),
        }
    }
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut words = [Word::default(); MUTEXES];
        let mut slots = [Slot::default(); SLOTS];
        if self.bound {
            words[0] = Word { numa: true, slot: 1, ..Word::default() };
            slots[0].used = true;
        }
        let nobody = Thread {
            script: u8::MAX,
            done: 0,
            at: At::Between,
            own: 0,
            holds: false,
            asked: false,
            spurious: self.spurious,
            wake: None,
            wakes_then: 0,
            wakes_later: 0,
        };
        let mut threads = [nobody; MOST_THREADS];
        let scripts = self.scripts.iter().enumerate();
        let all = scripts.flat_map(|(index, script)| (0..script.threads).map(move |_| index));
        for (index, script) in all.enumerate() {
            threads[index].script = script as u8;
        }
        assert!(usize::from(self.slots) <= SLOTS && usize::from(self.records) <= MOST_RECORDS);
        vec![State {
            words,
            dropped: [false; MUTEXES],
            slots,
            records: [Record::default(); MOST_RECORDS],
            threads,
            reserved_by: [0; MUTEXES],
            robbed: false,
            ignored: false,
            passed: false,
            fault: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.fault.is_some() {
            return;
        }
        for me in 0..MOST_THREADS {
            self.steps(state, me, &mut |step| actions.push(Action { thread: me as u8, step }));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let me = usize::from(action.thread);
        Acting { scenario: self, state: &mut state, me }.act(action.step);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
