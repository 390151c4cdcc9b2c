//! Adds forks to half of the programs. They are drawn separately from the rest, so that a seed gives the same program with and without
//! them.

use std::sync::Arc;

use nearq_topology::Topology;

use super::Drawer;
use crate::dice::Dice;
use crate::plan::{Body, Op, Plan, Step, Tree};

/// How many joins may be within each other in one tree.
const DEEPEST: usize = 4;

pub(super) fn add(plan: &mut Plan, topology: &Topology) {
    let mut dice = Dice::new(plan.seed ^ 0x666f_726b_206a_6f69);
    if dice.one_in(2) {
        return;
    }
    let drawer = &mut Drawer {
        possible: topology.possible().clone(),
        nodes: topology.nodes().len(),
        queues: plan.queues.clone(),
        items: Vec::new(),
        dice,
    };
    for issuer in &mut plan.issuers {
        for _ in 0..drawer.dice.below(4) {
            let queue = drawer.dice.below(plan.queues.len());
            let at = drawer.dice.below(issuer.ops.len() + 1);
            issuer.ops.insert(at, Op::Step(drawer.fork(queue, DEEPEST)));
        }
    }
    for item in &mut plan.items {
        if drawer.dice.one_in(2) {
            let highest = *item.queues.last().expect("at least one");
            let at = drawer.dice.below(item.body.steps.len() + 1);
            let above = plan.queues.len() - (highest + 1);
            if item.queues.len() == 1 {
                item.body.steps.insert(at, drawer.fork_within(highest, DEEPEST));
            } else if above > 0 {
                // It may have queued itself on any of its own queues, and must not wait behind that.
                let queue = highest + 1 + drawer.dice.below(above);
                item.body.steps.insert(at, drawer.fork(queue, DEEPEST));
            }
        }
    }
}

impl Drawer {
    /// A fork in a body on that queue: mostly on the same one, sometimes on a higher one.
    fn fork_within(&mut self, queue: usize, depth: usize) -> Step {
        let above = self.queues.len() - queue;
        let target = if self.dice.one_in(4) { queue + self.dice.below(above) } else { queue };
        self.fork(target, depth)
    }

    fn fork(&mut self, queue: usize, depth: usize) -> Step {
        let depth = self.dice.within(0..=depth);
        let tree = self.tree(queue, depth);
        let bare = self.dice.one_in(3) && matches!(tree, Tree::Fork(..));
        Step::Fork { queue, tree: Arc::new(tree), bare }
    }

    fn tree(&mut self, queue: usize, depth: usize) -> Tree {
        if depth == 0 || self.dice.one_in(8) {
            return Tree::Leaf(self.leaf(queue, depth));
        }
        let mut part = || Box::new(self.tree(queue, depth - 1));
        Tree::Fork(part(), part())
    }

    /// A leaf. A few wait for higher queues, and a few fork once more.
    fn leaf(&mut self, queue: usize, depth: usize) -> Body {
        let waits = usize::from(self.dice.one_in(8));
        let mut body = self.body(queue, waits, true);
        if self.dice.one_in(2) {
            // Long enough for a thief to come.
            body.steps.push(Step::Compute(self.dice.micros(30..=300)));
        }
        if depth > 0 && self.dice.one_in(4) {
            body.steps.push(self.fork_within(queue, depth - 1));
        }
        body
    }
}
