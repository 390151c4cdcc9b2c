//! What a program does with forks: it installs trees of joins on a queue, and checks what they return.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use nearq::Workqueue;
use nearq_platform::LockPlatform;
use nearq_sim::Sim;

use super::ledger::Unit;
use super::plan::{Body, Tree};
use super::program::{Actor, Answer, Captured, ProgramState, me, note};

/// A tree that runs.
struct Root<'a> {
    state: &'a Arc<ProgramState>,
    queue: &'a Workqueue<Sim>,
    number: usize,
    unit: Unit,
    /// How often each leaf has run to its end.
    ran: Vec<AtomicU32>,
    /// The thread of the leaf that began first.
    first: OnceLock<u64>,
    /// The thread that runs leaf 0, and so the root.
    runner: OnceLock<u64>,
}

impl ProgramState {
    /// Runs the tree on the queue. If it is `bare`, the first join comes from the caller; otherwise an `install` comes before it.
    pub(super) fn fork(self: &Arc<Self>, number: usize, tree: &Tree, bare: bool, actor: Actor<'_>) {
        let Some(queue) = self.queue(number) else { return };
        let unit = self.ledger.add_closure();
        let call = self.ledger.begin_call(unit, number, actor.cpu);
        note(format_args!("forks as closure {unit} on queue-{number}"));
        let ran = (0..tree.count()).map(|_| AtomicU32::new(0)).collect();
        let root = Root {
            state: self,
            queue: &queue,
            number,
            unit,
            ran,
            first: OnceLock::new(),
            runner: OnceLock::new(),
        };
        let caller = me();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if bare {
                return root.branch(tree, 0);
            }
            queue.install(|| {
                // Inside an item of the queue, this is a part of that item.
                let execution = (me() != caller).then(|| {
                    self.ledger.begin_execution(unit, me(), Sim::current_cpu(), Sim::now())
                });
                let outcome = catch_unwind(AssertUnwindSafe(|| root.branch(tree, 0)));
                if let Some(execution) = execution {
                    self.ledger.end_execution(unit, execution, outcome.is_err());
                }
                outcome.unwrap_or_else(|payload| resume_unwind(payload))
            })
        }));
        note(format_args!("closure {unit} on queue-{number} has joined its parts"));
        let is_own_item = root.runner.get().is_some_and(|runner| *runner != caller);
        if root.may_be_refused() {
            self.refused(call, number);
        } else {
            if is_own_item && !bare {
                self.ledger.end_call(call, true);
            } else {
                // A part of the item that forks, or of one of which the ledger does not know.
                self.ledger.call_failed(call);
                if is_own_item {
                    self.ledger.joined_from_outside(number, outcome.is_err());
                }
            }
            root.check(tree, 0..tree.count(), outcome.as_ref().map(|answer| answer.number));
        }
        drop(outcome.map(Answer::joined));
        self.let_go(number, queue, actor);
    }
}

impl Root<'_> {
    /// Runs a part of the tree, whose leaves have the numbers from `first` on. The answer is the sum of their numbers.
    fn branch(&self, tree: &Tree, first: usize) -> Answer {
        let (a, b) = match tree {
            Tree::Leaf(body) => return self.leaf(body, first),
            Tree::Fork(a, b) => (a, b),
        };
        let middle = first + a.count();
        let captured =
            || Captured::new(&self.state.ledger, format!("a join of closure {}", self.unit));
        let (one, other) = (captured(), captured());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.queue.join(
                move || {
                    let _captured = one;
                    self.branch(a, first)
                },
                move || {
                    let _captured = other;
                    self.branch(b, middle)
                },
            )
        }));
        let outcome = outcome.map(|(a, b)| (a.joined(), b.joined()));
        if !self.may_be_refused() {
            let sum = outcome.as_ref().map(|(a, b)| a.number + b.number);
            self.check(tree, first..middle + b.count(), sum);
        }
        match outcome {
            Ok((a, b)) => self.answer(a.number + b.number),
            Err(payload) => resume_unwind(payload),
        }
    }

    fn leaf(&self, body: &Body, number: usize) -> Answer {
        let ledger = &self.state.ledger;
        let thread = me();
        let first = *self.first.get_or_init(|| thread);
        if number == 0 {
            self.runner.get_or_init(|| thread);
        }
        let is_one_more = ledger.begin_leaf(self.number, thread, Sim::current_cpu(), first);
        note(format_args!("leaf {number} of closure {} starts", self.unit));
        let actor = Actor { within: Some(self.number), ..Actor::default() };
        for step in &body.steps {
            self.state.step(step, actor, &mut Vec::new());
        }
        self.ran[number].fetch_add(1, Ordering::Relaxed);
        ledger.end_leaf(self.number, thread, is_one_more);
        note(format_args!("leaf {number} of closure {} ends", self.unit));
        if body.panics {
            resume_unwind(Box::new(self.panic_text(number)));
        }
        self.answer(number)
    }

    fn answer(&self, number: usize) -> Answer {
        Answer::new(number, self.state.plan.hardships.drops_panic)
    }

    fn panic_text(&self, leaf: usize) -> String {
        format!("leaf {leaf} of closure {} panics on purpose", self.unit)
    }

    /// Whether the queue has refused the tree, if it may: then nothing of it has run.
    fn may_be_refused(&self) -> bool {
        self.state.plan.is_drained(self.number) && self.first.get().is_none()
    }

    /// A part of the tree has returned or panicked: each of its leaves has run once, and the outcome is that of the leaves.
    fn check(
        &self,
        tree: &Tree,
        leaves: Range<usize>,
        outcome: Result<usize, &Box<dyn std::any::Any + Send>>,
    ) {
        let ledger = &self.state.ledger;
        for leaf in leaves.clone() {
            let times = self.ran[leaf].load(Ordering::Relaxed);
            if times != 1 {
                ledger.violation(format!(
                    "closure {} has joined its leaf {leaf}, which has run to its end {times} times",
                    self.unit
                ));
            }
        }
        // The panic of the first part comes before that of the second one.
        let panics = tree.leaves().iter().position(|leaf| leaf.panics);
        let expected = match panics {
            Some(leaf) => Err(self.panic_text(leaves.start + leaf)),
            None => Ok(leaves.sum()),
        };
        let outcome = outcome.map_err(|payload| {
            let text = payload.downcast_ref::<String>();
            text.cloned().unwrap_or_else(|| "another panic".to_owned())
        });
        if outcome != expected {
            ledger.violation(format!(
                "a join of closure {} gave {outcome:?} instead of {expected:?}",
                self.unit
            ));
        }
    }
}
