//! The members of a set that can be waited for, in the order in which they were added, and how far they have been checked.
//!
//! Items that are held back mostly start in that order as well: so a check that continues where the last one ended comes first to those
//! that have been admitted since. A ring, so that each step takes the same time however many members there are.

/// The end, before the first member and after the last one: its entry in `steps`. A member's entry is one after its place.
const END: u32 = 0;

pub(super) struct Order {
    steps: Vec<Step>,
    /// Members in the order.
    len: usize,
    /// The first that has not been seen; those before it have been.
    unseen: u32,
}

/// The entries before and after one; its own number twice if it is not in the order.
#[derive(Clone, Copy)]
struct Step {
    before: u32,
    after: u32,
}

impl Order {
    pub(super) fn new() -> Self {
        Order { steps: vec![Step { before: END, after: END }], len: 0, unseen: END }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a place at the end, unseen. The place either was used before, or comes after all earlier ones.
    pub(super) fn add(&mut self, place: u32) {
        let entry = place + 1;
        let last = self.steps[END as usize].before;
        let step = Step { before: last, after: END };
        match self.steps.get_mut(entry as usize) {
            Some(old) => *old = step,
            None => self.steps.push(step),
        }
        self.steps[last as usize].after = entry;
        self.steps[END as usize].before = entry;
        self.len += 1;
        if self.unseen == END {
            self.unseen = entry;
        }
    }

    /// Takes a place out; returns whether it was in.
    pub(super) fn remove(&mut self, place: u32) -> bool {
        let entry = place + 1;
        let Step { before, after } = self.steps[entry as usize];
        if before == entry {
            return false;
        }
        self.steps[before as usize].after = after;
        self.steps[after as usize].before = before;
        self.steps[entry as usize] = Step { before: entry, after: entry };
        self.len -= 1;
        if self.unseen == entry {
            self.unseen = after;
        }
        true
    }

    /// The first place.
    pub(super) fn first(&self) -> Option<u32> {
        self.steps[END as usize].after.checked_sub(1)
    }

    /// The first place that has not been seen.
    pub(super) fn unseen(&self) -> Option<u32> {
        self.unseen.checked_sub(1)
    }

    /// Marks the first unseen place as seen.
    pub(super) fn see(&mut self) {
        self.unseen = self.steps[self.unseen as usize].after;
    }

    /// Marks all as unseen.
    pub(super) fn forget(&mut self) {
        self.unseen = self.steps[END as usize].after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All places that have not been seen, in order.
    fn unseen(order: &mut Order) -> Vec<u32> {
        let mut places = Vec::new();
        while let Some(place) = order.unseen() {
            places.push(place);
            order.see();
        }
        places
    }

    #[test]
    fn what_is_added_comes_last_and_unseen_and_what_is_taken_out_not_at_all() {
        let mut order = Order::new();
        assert_eq!((order.first(), order.unseen(), order.len()), (None, None, 0));
        (0..4).for_each(|place| order.add(place));
        assert_eq!(unseen(&mut order), [0, 1, 2, 3]);
        assert!(order.remove(1) && !order.remove(1));
        order.add(1);
        order.add(4);
        assert_eq!((order.first(), order.len()), (Some(0), 5));
        assert!(order.remove(1), "the first that has not been seen");
        assert_eq!(unseen(&mut order), [4]);
        order.forget();
        assert!(order.remove(0));
        assert_eq!(unseen(&mut order), [2, 3, 4]);
        for place in [2, 3, 4] {
            assert!(order.remove(place));
        }
        assert_eq!((order.first(), order.unseen(), order.len()), (None, None, 0));
    }
}
