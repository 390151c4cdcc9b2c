//! Chooses one state for all states that differ only in names.
//!
//! Threads that follow one script can change places, and so can records: a thread that needs one may take any free one. A representative is
//! the least of the states that result when threads change places, with the records numbered in the order in which the threads, the words
//! and the slots lead to them.

use super::at::At;
use super::state::{Next, Record, State, Thread, Wake};

impl State {
    /// The state that represents this one and all that differ from it only in names.
    #[must_use]
    pub fn representative(&self) -> State {
        let mut least = self.renumbered();
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        self.permute(&mut order, 0, &mut least);
        least
    }

    /// Tries all orders of the threads from `from` on that leave each script at its place.
    fn permute(&self, order: &mut Vec<usize>, from: usize, least: &mut State) {
        if from == order.len() {
            let other = self.reordered(order).renumbered();
            if other < *least {
                *least = other;
            }
            return;
        }
        for other in from..order.len() {
            // Threads that do not exist do nothing, and need not change places.
            let (one, two) = (&self.threads[from], &self.threads[other]);
            if other == from || one.script == two.script && one.script != u8::MAX {
                order.swap(from, other);
                self.permute(order, from + 1, least);
                order.swap(from, other);
            }
        }
    }

    fn reordered(&self, order: &[usize]) -> State {
        let mut state = self.clone();
        for (place, &thread) in order.iter().enumerate() {
            state.threads[place] = self.threads[thread];
        }
        for by in &mut state.reserved_by {
            if let Some(place) = order.iter().position(|&thread| thread + 1 == usize::from(*by)) {
                *by = place as u8 + 1;
            }
        }
        state
    }

    /// Whether some thread knows a record by its number, which it may have read long ago.
    pub(super) fn is_known(&self, number: u8) -> bool {
        let mut names = Names { old: [0; 8], count: 0 };
        for thread in &self.threads {
            names.rename_all(&mut thread.clone());
        }
        names.old[..names.count].contains(&number)
    }

    fn renumbered(&self) -> State {
        let mut state = self.clone();
        let mut names = Names { old: [0; 8], count: 0 };
        for thread in &mut state.threads {
            names.rename_all(thread);
        }
        for word in &mut state.words {
            names.rename(&mut word.tail);
        }
        for line in state.slots.iter_mut().flat_map(|slot| &mut slot.lines) {
            names.rename(&mut line.last);
            names.rename(&mut line.front);
        }
        state.records = [Record::default(); _];
        let mut number = 0;
        // The records that a named record leads to are named in this loop; records that nothing leads to come last.
        loop {
            if number == names.count {
                let all = 1..=self.records.len() as u8;
                let lost = |number: &u8| self.records[usize::from(*number) - 1].used;
                match { all }.filter(lost).find(|number| !names.old[..names.count].contains(number))
                {
                    Some(mut lost) => names.rename(&mut lost),
                    None => return state,
                }
            }
            let mut record = self.records[usize::from(names.old[number]) - 1];
            if let Next::Record(next) = &mut record.next {
                names.rename(next);
            }
            state.records[number] = record;
            number += 1;
        }
    }
}

/// The old numbers, in the order of the new ones.
struct Names {
    old: [u8; 8],
    count: usize,
}

impl Names {
    fn rename(&mut self, number: &mut u8) {
        if *number == 0 {
            return;
        }
        let known = self.old[..self.count].iter().position(|old| old == number);
        let index = known.unwrap_or_else(|| {
            self.old[self.count] = *number;
            self.count += 1;
            self.count - 1
        });
        *number = index as u8 + 1;
    }

    /// The numbers that a thread knows.
    fn rename_all(&mut self, thread: &mut Thread) {
        self.rename(&mut thread.own);
        self.rename(&mut thread.wakes_then);
        self.rename(&mut thread.wakes_later);
        if let Some(Wake::Record(number)) = &mut thread.wake {
            self.rename(number);
        }
        match &mut thread.at {
            At::SleepOnWord { expected: word, .. } => self.rename(&mut word.tail),
            At::LookAgain { seen, .. } | At::Join { seen, .. } => self.rename(&mut seen.last),
            At::Link { before: number, .. }
            | At::SitBehind { behind: number, .. }
            | At::StepOut { number, .. }
            | At::ClearTail { number, .. }
            | At::SwapGone { number, .. }
            | At::Tell { number, .. } => self.rename(number),
            _ => {}
        }
    }
}
