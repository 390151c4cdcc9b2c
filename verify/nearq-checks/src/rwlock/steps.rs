//! What the steps of a thread do.

use super::model::Step;
use super::{At, DOMAINS, Kind, Look, Mutant, Scenario, State, What};

impl Scenario {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The thread is at another place.
    fn go(state: &mut State, me: usize, at: At) {
        state.threads[me].at = at;
    }

    /// The use of the lock is over.
    fn ends(state: &mut State, me: usize) {
        let thread = &mut state.threads[me];
        thread.at = At::Start;
        thread.done += 1;
        thread.passed = 0;
    }

    /// The reader has the lock.
    fn reads(state: &mut State, me: usize) {
        state.threads[me].passed = 0;
        Self::go(state, me, At::Reads);
    }

    pub(super) fn take(&self, state: &mut State, me: usize, step: Step) {
        if let Some(lock) = state.threads[me].wakes_bucket.take() {
            return self.wake_bucket(state, lock);
        }
        if let Some(lock) = state.threads[me].wakes_readers.take() {
            return self.wake_readers(state, lock);
        }
        let op = self.op(me, state).expect("it has something to do");
        match op.what {
            What::Read | What::Lend => self.step_of_reader(state, me, step),
            What::Write | What::Upgrade => self.step_of_writer(state, me, step),
        }
    }

    /// Increments the counter, and wakes: one step, because a thread that reads the counter in between does not sleep.
    fn wake_bucket(&self, state: &mut State, lock: u8) {
        let bucket = &mut state.buckets[usize::from(lock)];
        *bucket = (*bucket + 1) % 4;
        for me in 0..state.threads.len() {
            if self.op(me, state).is_some_and(|op| op.lock == lock) {
                match state.threads[me].at {
                    At::HeadAsleep => Self::go(state, me, At::Head),
                    At::DrainAsleep => {
                        let at = Self::first_line(state, lock, Look::First);
                        Self::go(state, me, at);
                    }
                    _ => {}
                }
            }
        }
    }

    fn wake_readers(&self, state: &mut State, lock: u8) {
        for me in 0..state.threads.len() {
            if let At::Asleep { began, by_cache } = state.threads[me].at
                && self.op(me, state).is_some_and(|op| op.lock == lock)
            {
                Self::go(state, me, At::Waits { began, by_cache });
            }
        }
    }

    // ---- readers ----------------------------------------------------------------------------------------

    /// Whether a reader that is counted for `phase` has the lock.
    fn is_in(&self, state: &State, lock: usize, phase: bool) -> bool {
        let lock = &state.locks[lock];
        (lock.row || self.is(Mutant::RowNotCompared)) && lock.phase == phase
    }

    fn step_of_reader(&self, state: &mut State, me: usize, step: Step) {
        let op = self.op(me, state).expect("it has something to do");
        let (index, script) = (usize::from(op.lock), &self.scripts[me]);
        let (here, there) = (usize::from(script.domain), usize::from(script.leaves));
        let lock = &mut state.locks[index];
        match state.threads[me].at {
            At::Start => {
                if op.what == What::Lend && !lock.row && !state.row.lent {
                    (lock.row, state.row.lent) = (true, true);
                    if lock.has_writer() && !self.is(Mutant::LenderIsSilent) {
                        state.threads[me].wakes_bucket = Some(op.lock);
                    }
                }
                Self::go(state, me, At::Enters);
            }
            At::Enters if lock.row && lock.kind != Kind::Ending => {
                let at = At::Count { phase: lock.phase, writer: lock.has_writer() };
                Self::go(state, me, at);
            }
            At::Enters if !lock.has_writer() => {
                lock.active += 1;
                Self::reads(state, me);
            }
            At::Enters => {
                lock.waiting += 1;
                let began = lock.phase;
                Self::go(state, me, At::Waits { began, by_cache: false });
            }
            At::Count { phase, writer } => {
                let phase = phase != writer;
                state.row.counts[here][usize::from(phase)] += 1;
                Self::go(state, me, At::LookAgain { phase });
            }
            At::LookAgain { phase } => {
                let may_enter = !lock.has_writer() || self.is(Mutant::NoSecondLook);
                if lock.row && lock.phase == phase && may_enter {
                    state.events.by_cache = true;
                    Self::reads(state, me);
                } else if lock.row && lock.phase != phase && lock.kind == Kind::Writer {
                    state.events.waited_by_cache = true;
                    Self::go(state, me, At::Waits { began: !phase, by_cache: true });
                } else {
                    state.events.late |= !lock.row;
                    Self::go(state, me, At::TakeBack { phase, gives_up: false });
                }
            }
            At::TakeBack { phase, gives_up } => {
                let at =
                    if self.is(Mutant::TakesBackElsewhere) { DOMAINS - 1 - here } else { here };
                state.row.counts[at][usize::from(phase)] -= 1;
                Self::go(state, me, At::TookBack { gives_up });
            }
            At::TookBack { gives_up } => {
                if !self.is(Mutant::LateIsSilent) {
                    state.threads[me].wakes_bucket = state.row.asleep.take();
                }
                if gives_up { Self::ends(state, me) } else { Self::go(state, me, At::Enters) }
            }
            At::Waits { began, by_cache } if by_cache => {
                if self.is_in(state, index, !began) {
                    Self::reads(state, me);
                    return;
                }
                let lock = &mut state.locks[index];
                if lock.row && lock.phase == began && lock.kind == Kind::Writer {
                    lock.readers_asleep = true;
                    Self::go(state, me, At::Marked { began, by_cache });
                } else {
                    Self::go(state, me, At::TakeBack { phase: !began, gives_up: false });
                }
            }
            At::Waits { began, by_cache } => {
                if lock.phase != began {
                    Self::reads(state, me);
                } else if lock.has_writer() {
                    lock.readers_asleep = true;
                    Self::go(state, me, At::Marked { began, by_cache });
                } else {
                    lock.waiting -= 1;
                    lock.active += 1;
                    Self::reads(state, me);
                }
            }
            At::Marked { began, by_cache } => {
                let sleeps = lock.readers_asleep && lock.has_writer() && lock.phase == began;
                state.events.reader_slept |= sleeps;
                let next = if sleeps {
                    At::Asleep { began, by_cache }
                } else {
                    At::Waits { began, by_cache }
                };
                Self::go(state, me, next);
            }
            At::Asleep { began, by_cache } => {
                debug_assert_eq!(step, Step::TimeOut);
                Self::go(state, me, At::TimedOut { began, by_cache });
            }
            At::TimedOut { began, by_cache } => {
                let in_word = !by_cache && lock.phase != began;
                if in_word || by_cache && self.is_in(state, index, !began) {
                    Self::reads(state, me);
                } else if by_cache {
                    Self::go(state, me, At::TakeBack { phase: !began, gives_up: true });
                } else {
                    state.locks[index].waiting -= 1;
                    Self::ends(state, me);
                }
            }
            At::Reads if lock.row => {
                state.row.counts[there][usize::from(lock.phase)] -= 1;
                Self::go(state, me, At::Left);
            }
            At::Reads => Self::go(state, me, At::LeavesWord),
            At::LeavesWord => {
                lock.active -= 1;
                let is_last =
                    lock.active == 0 || lock.row && self.mutant != Some(Mutant::LastInWordOnly);
                if is_last && lock.has_writer() && lock.writer_asleep {
                    state.threads[me].wakes_bucket = Some(op.lock);
                }
                Self::ends(state, me);
            }
            At::Left => {
                state.threads[me].wakes_bucket = state.row.asleep.take();
                Self::ends(state, me);
            }
            at => unreachable!("a reader at {at:?}"),
        }
    }

    // ---- writers and upgradable readers -----------------------------------------------------------------

    /// The first step of adding up the readers: those in the word.
    fn first_line(state: &State, lock: u8, look: Look) -> At {
        let lock = &state.locks[usize::from(lock)];
        let line = if lock.row { 0 } else { DOMAINS as u8 };
        At::Sums { line, sum: lock.active, look }
    }

    /// A thread has made the kind a writer's, or `Upgradable`.
    fn enters(&self, state: &mut State, me: usize, kind: Kind) {
        let op = self.op(me, state).expect("it has something to do");
        let lock = &mut state.locks[usize::from(op.lock)];
        lock.kind = kind;
        let at = if kind == Kind::Upgradable {
            At::ReadsUpgradably
        } else {
            Self::first_line(state, op.lock, Look::First)
        };
        Self::go(state, me, at);
    }

    /// The head releases `writers`.
    fn releases(state: &mut State, me: usize, lock: usize) {
        if state.threads[me].is_head {
            state.threads[me].is_head = false;
            state.locks[lock].head = false;
        }
    }

    fn step_of_writer(&self, state: &mut State, me: usize, step: Step) {
        let op = self.op(me, state).expect("it has something to do");
        let (index, upgrades) = (usize::from(op.lock), op.what == What::Upgrade);
        let writer = if step == Step::Ending { Kind::Ending } else { Kind::Writer };
        let bucket = state.buckets[index];
        let lock = &mut state.locks[index];
        match state.threads[me].at {
            At::Start => {
                let free = lock.kind == Kind::None && !lock.reserved;
                if free && upgrades {
                    self.enters(state, me, Kind::Upgradable);
                } else if free && lock.active == 0 && !lock.row {
                    lock.kind = Kind::Writer;
                    Self::go(state, me, At::HasIt);
                } else {
                    Self::go(state, me, At::Queues);
                }
            }
            At::Queues if step == Step::TimeOut => Self::ends(state, me),
            At::Queues => {
                lock.head = true;
                state.threads[me].is_head = true;
                Self::go(state, me, At::Head);
            }
            At::Head if lock.kind == Kind::None => {
                lock.reserved = false;
                self.enters(state, me, if upgrades { Kind::Upgradable } else { writer });
                if upgrades {
                    Self::releases(state, me, index);
                }
            }
            At::Head if step == Step::Reserve => lock.reserved = true,
            At::Head => Self::go(state, me, At::HeadCounted { count: bucket }),
            At::HeadCounted { count } => {
                if lock.kind == Kind::None {
                    Self::go(state, me, At::Head);
                } else {
                    lock.writer_asleep = true;
                    Self::go(state, me, At::HeadMarked { count });
                }
            }
            At::HeadMarked { count } => {
                state.events.writer_slept = true;
                Self::go(state, me, if count == bucket { At::HeadAsleep } else { At::Head });
            }
            At::HeadAsleep => {
                lock.reserved = false;
                Self::releases(state, me, index);
                Self::ends(state, me);
            }
            At::ReadsUpgradably => self.enters(state, me, writer),
            At::Sums { line, sum, look } if usize::from(line) < DOMAINS => {
                let sum = sum + state.row.counts[usize::from(line)][usize::from(lock.phase)];
                Self::go(state, me, At::Sums { line: line + 1, sum, look });
            }
            At::Sums { sum: 0, .. } => Self::go(state, me, At::HasIt),
            At::Sums { look: Look::First, .. } => Self::go(state, me, At::MustWait),
            At::Sums { look: Look::BeforeSleep(count), .. } => {
                state.events.writer_slept = true;
                let again = Self::first_line(state, op.lock, Look::First);
                Self::go(state, me, if count == bucket { At::DrainAsleep } else { again });
            }
            At::MustWait => Self::go(state, me, At::DrainCounted { count: bucket }),
            At::DrainCounted { count } => {
                lock.writer_asleep = true;
                Self::go(state, me, At::DrainMarked { count });
            }
            At::DrainMarked { count } => {
                if lock.row {
                    state.row.asleep = Some(op.lock);
                }
                let next = if self.is(Mutant::NoThirdLook) {
                    At::Sums { line: DOMAINS as u8, sum: 1, look: Look::BeforeSleep(count) }
                } else {
                    Self::first_line(state, op.lock, Look::BeforeSleep(count))
                };
                Self::go(state, me, next);
            }
            At::DrainAsleep => Self::go(state, me, At::GivesUp),
            At::GivesUp => {
                state.events.gave_up = true;
                if self.is(Mutant::GiveUpChangesPhase) {
                    lock.phase = !lock.phase;
                    lock.active += lock.waiting;
                    lock.waiting = 0;
                }
                // An upgradable reader that could not upgrade leaves at once, which is the same step here.
                self.becomes_free(state, me);
                Self::releases(state, me, index);
                Self::ends(state, me);
            }
            At::HasIt => {
                if state.threads[me].is_head {
                    lock.writer_asleep = false;
                }
                if step != Step::Keep {
                    Self::releases(state, me, index);
                }
                Self::go(state, me, At::Writes);
            }
            At::Writes if state.threads[me].is_head => Self::releases(state, me, index),
            At::Writes => {
                if lock.row {
                    if !self.is(Mutant::ActiveStays) {
                        let script = &self.scripts[me];
                        let line = &mut state.row.counts[usize::from(script.leaves)];
                        line[usize::from(lock.phase)] += lock.active;
                    }
                    state.row.asleep = None;
                }
                Self::go(state, me, At::Moved);
            }
            At::Moved => {
                let ends = lock.kind == Kind::Ending || self.is(Mutant::RowGoesUnannounced);
                let frees = lock.row && ends;
                lock.row &= !ends;
                if self.is(Mutant::LetsNobodyIn) {
                    lock.phase = !lock.phase;
                    lock.active = 0;
                } else if !self.is(Mutant::PhaseStays) {
                    lock.phase = !lock.phase;
                    lock.active = lock.waiting;
                    lock.waiting = 0;
                }
                state.events.ended |= frees;
                self.becomes_free(state, me);
                self.passes(state, op.lock);
                if frees { Self::go(state, me, At::FreesRow) } else { Self::ends(state, me) }
            }
            At::FreesRow => {
                state.row.lent = false;
                Self::ends(state, me);
            }
            at => unreachable!("a writer at {at:?}"),
        }
    }

    /// The kind becomes `None`; then the thread wakes those that sleep.
    fn becomes_free(&self, state: &mut State, me: usize) {
        let op = self.op(me, state).expect("it has something to do");
        let lock = &mut state.locks[usize::from(op.lock)];
        lock.kind = Kind::None;
        state.threads[me].wakes_bucket = lock.writer_asleep.then_some(op.lock);
        state.threads[me].wakes_readers = lock.readers_asleep.then_some(op.lock);
        (lock.writer_asleep, lock.readers_asleep) = (false, false);
    }

    /// A writer has left the lock: readers that still wait then have waited for it.
    fn passes(&self, state: &mut State, lock: u8) {
        for me in 0..state.threads.len() {
            let waits = match state.threads[me].at {
                At::Waits { began, by_cache }
                | At::Marked { began, by_cache }
                | At::Asleep { began, by_cache } => {
                    // One that has been let in has not waited for a second one.
                    let phase = state.locks[usize::from(lock)].phase;
                    !(if by_cache {
                        self.is_in(state, usize::from(lock), !began)
                    } else {
                        phase != began
                    })
                }
                _ => false,
            };
            if waits && self.op(me, state).is_some_and(|op| op.lock == lock) {
                state.threads[me].passed += 1;
            }
        }
    }
}
