//! Programs without a cut-off: each join has next to nothing to do, so they show what a join costs.

use super::pools::Pool;
use sha1::{Digest as _, Sha1};

/// A Fibonacci number, computed by a join for each addition.
pub(super) fn fib<P: Pool>(scope: &mut P::Scope<'_>, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = P::join(scope, |scope| fib::<P>(scope, n - 1), |scope| fib::<P>(scope, n - 2));
    a + b
}

/// A node of a binary tree whose nodes all have the value 1.
#[derive(Debug)]
pub(super) struct Node {
    value: u64,
    left: Option<Box<Node>>,
    right: Option<Box<Node>>,
}

impl Node {
    /// A balanced tree of that many layers. Neither side's nodes are nearer in memory: the side that is made first alternates with the
    /// layers, because some pools begin with the first closure of a join and some with the second.
    pub(super) fn tree(layers: u32) -> Self {
        let below = || (layers > 1).then(|| Box::new(Self::tree(layers - 1)));
        let (first, second) = (below(), below());
        let (left, right) =
            if layers.is_multiple_of(2) { (first, second) } else { (second, first) };
        Self { value: 1, left, right }
    }
}

/// The sum of a tree's values, by a join for each node: the program of chili's README.
pub(super) fn tree_sum<P: Pool>(scope: &mut P::Scope<'_>, node: &Node) -> u64 {
    let (left, right) = P::join(
        scope,
        |scope| node.left.as_deref().map_or(0, |left| tree_sum::<P>(scope, left)),
        |scope| node.right.as_deref().map_or(0, |right| tree_sum::<P>(scope, right)),
    );
    node.value + left + right
}

/// In how many ways `size` queens can stand on a board of that size: the columns of each row are halved until one is left.
pub(super) fn queens<P: Pool>(scope: &mut P::Scope<'_>, size: u32) -> u64 {
    Board { size, columns: 0, left: 0, right: 0 }.row::<P>(scope)
}

/// A board whose first rows have their queens, as the squares of the next row that these attack: a bit for each column.
#[derive(Clone, Copy, Debug)]
struct Board {
    size: u32,
    columns: u32,
    left: u32,
    right: u32,
}

impl Board {
    /// The ways to place the other queens.
    fn row<P: Pool>(self, scope: &mut P::Scope<'_>) -> u64 {
        if self.columns.count_ones() == self.size {
            return 1;
        }
        self.within::<P>(scope, 0, self.size)
    }

    /// The same, with the queen of the next row in one of these columns.
    fn within<P: Pool>(self, scope: &mut P::Scope<'_>, from: u32, to: u32) -> u64 {
        if to - from > 1 {
            let middle = from.midpoint(to);
            let (a, b) = P::join(
                scope,
                |scope| self.within::<P>(scope, from, middle),
                |scope| self.within::<P>(scope, middle, to),
            );
            return a + b;
        }
        let queen = 1 << from;
        if (self.columns | self.left | self.right) & queen != 0 {
            return 0;
        }
        let next = Self {
            columns: self.columns | queen,
            left: (self.left | queen) << 1,
            right: (self.right | queen) >> 1,
            ..self
        };
        next.row::<P>(scope)
    }
}

/// The unbalanced tree search: a tree whose shape follows from SHA-1, so that no part says how large another one is. S. Olivier et al.,
/// "UTS: An Unbalanced Tree Search Benchmark", LCPC 2006. This is its geometric tree of fixed shape (`-t 1 -a 3`); T1 of its
/// `sample_trees.sh` is `-d 10 -b 4 -r 19` and has 4,130,071 nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uts {
    /// Nodes of this depth have no children.
    pub(super) depth: u32,
    /// The mean number of children of the others.
    pub(super) branching: f64,
    /// The seed.
    pub(super) root: u32,
}

/// No node has more children.
const MOST_CHILDREN: u32 = 100;

impl Uts {
    /// The number of nodes.
    pub(super) fn nodes<P: Pool>(self, scope: &mut P::Scope<'_>) -> u64 {
        let mut seed = [0; 20];
        seed[16..].copy_from_slice(&self.root.to_be_bytes());
        self.below::<P>(scope, Sha1::digest(seed).into(), 0)
    }

    /// The nodes of a subtree.
    fn below<P: Pool>(self, scope: &mut P::Scope<'_>, state: [u8; 20], depth: u32) -> u64 {
        match self.children(&state, depth) {
            0 => 1,
            children => 1 + self.within::<P>(scope, &state, depth + 1, 0, children),
        }
    }

    /// The nodes below a range of a node's children.
    fn within<P: Pool>(
        self,
        scope: &mut P::Scope<'_>,
        parent: &[u8; 20],
        depth: u32,
        from: u32,
        to: u32,
    ) -> u64 {
        if to - from == 1 {
            let state = Sha1::new().chain_update(parent).chain_update(from.to_be_bytes());
            return self.below::<P>(scope, state.finalize().into(), depth);
        }
        let middle = from.midpoint(to);
        let (a, b) = P::join(
            scope,
            |scope| self.within::<P>(scope, parent, depth, from, middle),
            |scope| self.within::<P>(scope, parent, depth, middle, to),
        );
        a + b
    }

    /// How many children a node has: geometrically distributed.
    fn children(self, state: &[u8; 20], depth: u32) -> u32 {
        if depth >= self.depth {
            return 0;
        }
        let last = state[16..].try_into().expect("four bytes");
        let uniform =
            f64::from(u32::from_be_bytes(last) & (u32::MAX >> 1)) / f64::from(1_u32 << 31);
        let success = 1.0 / (1.0 + self.branching);
        (((1.0 - uniform).ln() / (1.0 - success).ln()).floor() as u32).min(MOST_CHILDREN)
    }
}
