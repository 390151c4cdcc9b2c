//! Checks whether a model can go in a circle.
//!
//! The checker does not distinguish a circle from two paths that meet again, so it checks what must happen *eventually* only at the end of
//! a path. If there is no circle, every path ends: then that is enough, and no assumption about the scheduler is needed.

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use stateright::Model;

/// Steps that lead from a state back to the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle<A> {
    /// The steps from the start to that state.
    pub way: Vec<A>,
    /// The steps from that state back to it.
    pub circle: Vec<A>,
}

/// Visits all states of a model. Returns how many there are, if there is no circle.
///
/// States with the same `representative` count as the same. If it only exchanges names, this finds exactly the circles of the model itself:
/// a state that comes back under other names comes back under its first names after some rounds.
///
/// # Errors
/// The first circle that is found.
pub fn find<M: Model>(
    model: &M,
    representative: impl Fn(&M::State) -> M::State,
) -> Result<usize, Circle<M::Action>>
where
    M::State: Hash,
    M::Action: Clone,
{
    let key = |state: &M::State| {
        let mut hasher = DefaultHasher::new();
        representative(state).hash(&mut hasher);
        hasher.finish()
    };
    // For each visited state, its position on the path to the current state, if it is on that path.
    let mut met: HashMap<u64, Option<usize>> = HashMap::new();
    for state in model.init_states() {
        let mut way: Vec<PathStep<M>> = Vec::new();
        let mut next = Some((state, None));
        loop {
            if let Some((state, by)) = next.take() {
                match met.entry(key(&state)) {
                    Entry::Vacant(entry) => {
                        let key = *entry.key();
                        entry.insert(Some(way.len()));
                        let mut actions = Vec::new();
                        model.actions(&state, &mut actions);
                        way.push(PathStep { state, key, by, actions });
                    }
                    Entry::Occupied(entry) => {
                        if let Some(from) = *entry.get() {
                            let steps = way.into_iter().map(|step| step.by).chain([by]);
                            let mut there: Vec<M::Action> = steps.flatten().collect();
                            let circle = there.split_off(from);
                            return Err(Circle { way: there, circle });
                        }
                    }
                }
            }
            let Some(last) = way.last_mut() else { break };
            match last.actions.pop() {
                Some(action) => {
                    next = model
                        .next_state(&last.state, action.clone())
                        .map(|state| (state, Some(action)));
                }
                None => {
                    met.insert(last.key, None);
                    way.pop();
                }
            }
        }
    }
    Ok(met.len())
}

/// A state on the path, the step that led to it, and the steps still to be tried from it.
struct PathStep<M: Model> {
    state: M::State,
    key: u64,
    by: Option<M::Action>,
    actions: Vec<M::Action>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up to four, by one or by two; if allowed, goes back from three to one.
    struct Steps {
        back: bool,
    }

    impl Model for Steps {
        type State = u8;
        type Action = u8;

        fn init_states(&self) -> Vec<u8> {
            vec![0]
        }

        fn actions(&self, state: &u8, actions: &mut Vec<u8>) {
            match state {
                3 if self.back => actions.extend([4, 1]),
                0..=2 => actions.extend([state + 1, state + 2]),
                3 => actions.push(4),
                _ => {}
            }
        }

        fn next_state(&self, _: &u8, action: u8) -> Option<u8> {
            Some(action)
        }
    }

    #[test]
    fn ways_that_meet_are_no_circle() {
        assert_eq!(find(&Steps { back: false }, |&state| state), Ok(5));
    }

    #[test]
    fn a_circle_is_found_and_shown() {
        let Circle { mut way, mut circle } =
            find(&Steps { back: true }, |&state| state).expect_err("1, 3, 1");
        assert_eq!(way.pop(), circle.last().copied(), "it comes back to where it began");
        circle.sort_unstable();
        assert_eq!(circle, [1, 3]);
    }
}
