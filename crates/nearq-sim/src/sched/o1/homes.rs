//! The home nodes of the document of 2003, an extension of [`O1`](super::O1): each thread's home, and which threads may leave a node.

/// The home of each thread, by slot.
#[derive(Debug, Default)]
pub(super) struct Homes {
    of: Vec<usize>,
}

impl Homes {
    /// Makes a node the home of a thread.
    pub(super) fn set(&mut self, slot: usize, node: usize) {
        if self.of.len() <= slot {
            self.of.resize(slot + 1, 0);
        }
        self.of[slot] = node;
    }

    /// A new thread has its creator's home, or, without a creator, the node where it starts.
    pub(super) fn inherit(&mut self, slot: usize, creator: Option<usize>, node: usize) {
        let home = creator.map_or(node, |creator| self.of(creator));
        self.set(slot, home);
    }

    /// The home of a thread.
    pub(super) fn of(&self, slot: usize) -> usize {
        self.of.get(slot).copied().unwrap_or(0)
    }

    /// Whether a thread that waits in node `there` may go to node `to`, where `members` are the threads of its queue: within a node, to its
    /// home, from a queue all of whose threads are at home, and as a stray.
    pub(super) fn may_leave(
        &self,
        slot: usize,
        there: usize,
        to: usize,
        mut members: impl Iterator<Item = usize>,
    ) -> bool {
        there == to
            || self.of(slot) == to
            || self.of(slot) != there
            || members.all(|member| self.of(member) == there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_own_threads_while_it_has_strays_to_give() {
        let mut homes = Homes::default();
        homes.set(0, 1);
        homes.inherit(1, Some(0), 2);
        homes.inherit(2, None, 2);
        assert_eq!([0, 1, 2, 3].map(|slot| homes.of(slot)), [1, 1, 2, 0]);
        let may = |slot, to, queue: &[usize]| homes.may_leave(slot, 1, to, queue.iter().copied());
        assert!(may(0, 1, &[0, 2]), "within a node");
        assert!(may(2, 2, &[0, 2]), "to its home");
        assert!(may(2, 0, &[0, 2]), "a stray");
        assert!(!may(0, 0, &[0, 2]), "strays come first");
        assert!(may(0, 0, &[0, 1]), "all are at home");
    }
}
