//! The programs, each with its input, and the scenarios in which they run.

use super::numeric::{self, Body};
use super::pools::{Counted, Pool};
use super::sorts;
use super::trees::{self, Node, Uts};
use crate::Error;
use crate::scopes::mixed;
use serde::Serialize;

/// What a scenario shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// What a join costs: the program has no cut-off.
    Joins,
    /// How long a program takes.
    Programs,
    /// How long a small program takes if the pool was idle.
    Latency,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Joins, Self::Programs, Self::Latency];
}

/// A scenario: a program, and the sizes of its input.
#[derive(Debug)]
pub(super) struct Scenario {
    /// Its name.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) kind: Kind,
    /// What a size counts.
    pub(super) unit: &'static str,
    /// The usual size, that of a quick run, and that of tests.
    sizes: [usize; 3],
    make: fn(usize) -> Program,
}

/// All of them, in the order of the tables.
pub(super) const SCENARIOS: [Scenario; 11] = [
    Scenario {
        name: "fib",
        kind: Kind::Joins,
        unit: "n",
        sizes: [32, 27, 10],
        make: |n| Program::Fib(n as u32),
    },
    Scenario {
        name: "tree-sum",
        kind: Kind::Joins,
        unit: "layers",
        sizes: [20, 18, 6],
        make: Program::tree,
    },
    Scenario {
        name: "n-queens",
        kind: Kind::Joins,
        unit: "queens",
        sizes: [12, 10, 6],
        make: |size| Program::Queens(size as u32),
    },
    Scenario {
        name: "uts",
        kind: Kind::Joins,
        unit: "depth",
        sizes: [10, 8, 4],
        make: Program::uts,
    },
    Scenario {
        name: "merge-sort",
        kind: Kind::Programs,
        unit: "numbers",
        sizes: [10_000_000, 1_000_000, 20_000],
        make: Program::merge_sort,
    },
    Scenario {
        name: "quick-sort",
        kind: Kind::Programs,
        unit: "numbers",
        sizes: [10_000_000, 1_000_000, 20_000],
        make: Program::quick_sort,
    },
    Scenario {
        name: "matmul",
        kind: Kind::Programs,
        unit: "rows",
        sizes: [1024, 512, 64],
        make: Program::matmul,
    },
    Scenario {
        name: "nbody",
        kind: Kind::Programs,
        unit: "bodies",
        sizes: [8192, 2048, 64],
        make: Program::nbody,
    },
    Scenario {
        name: "sieve",
        kind: Kind::Programs,
        unit: "numbers",
        sizes: [100_000_000, 10_000_000, 100_000],
        make: Program::Sieve,
    },
    Scenario {
        name: "map-reduce",
        kind: Kind::Programs,
        unit: "numbers",
        sizes: [10_000_000, 10_000_000, 20_000],
        make: |size| Program::MapReduce((0..size as u64).collect()),
    },
    Scenario {
        name: "small-tree",
        kind: Kind::Latency,
        unit: "layers",
        sizes: [10, 10, 10],
        make: Program::tree,
    },
];

/// How large inputs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Usual,
    Quick,
    Tiny,
}

impl Scenario {
    /// The size of its input.
    pub(super) fn size(&self, size: Size) -> usize {
        self.sizes[size as usize]
    }

    /// Its program, ready to run: what it computes and its joins are known.
    pub(super) fn prepare(&'static self, size: Size) -> Result<Prepared, Error> {
        let mut program = (self.make)(self.size(size));
        program.reset();
        let mut joins = 0;
        let returned = program.run::<Counted>(&mut joins);
        let expected = program.result(returned);
        if program.known().is_some_and(|known| known != expected) {
            return Err(Error::run(format!("{}: the sequential program is wrong", self.name)));
        }
        Ok(Prepared { scenario: self, program, joins, expected })
    }
}

/// A program that is ready to run.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) scenario: &'static Scenario,
    /// Its input and its space.
    pub(super) program: Program,
    /// How many joins it makes.
    pub(super) joins: u64,
    /// What it computes.
    expected: u64,
}

impl Prepared {
    /// An error if the program, which returned that, has computed something else.
    pub(super) fn verify(&self, returned: u64, row: &str) -> Result<(), Error> {
        let result = self.program.result(returned);
        if result == self.expected {
            return Ok(());
        }
        let (name, expected) = (self.scenario.name, self.expected);
        Err(Error::run(format!("{name}, {row}: the result is {result}, not {expected}")))
    }
}

/// A program with its input, and space for its result.
#[derive(Debug)]
pub(super) enum Program {
    Fib(u32),
    Tree { root: Node, layers: usize },
    Queens(u32),
    Uts(Uts),
    MergeSort { input: Vec<u32>, numbers: Vec<u32>, space: Vec<u32> },
    QuickSort { input: Vec<u32>, numbers: Vec<u32> },
    Matmul { a: Vec<f32>, b: Vec<f32>, sum: Vec<f32> },
    Nbody { before: Vec<Body>, after: Vec<Body> },
    Sieve(usize),
    MapReduce(Vec<u64>),
}

/// The first terms of OEIS A000170: in how many ways that many queens can stand.
const QUEENS: [u64; 14] = [1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14_200, 73_712];
/// The primes below 10 to the power of the index: OEIS A006880.
const PRIMES: [u64; 9] = [0, 4, 25, 168, 1229, 9592, 78_498, 664_579, 5_761_455];
/// The nodes of the tree T1 of the benchmark.
const T1: (u32, u64) = (10, 4_130_071);

impl Program {
    fn tree(layers: usize) -> Self {
        Self::Tree { root: Node::tree(layers as u32), layers }
    }

    fn uts(depth: usize) -> Self {
        Self::Uts(Uts { depth: depth as u32, branching: 4.0, root: 19 })
    }

    fn merge_sort(size: usize) -> Self {
        Self::MergeSort { input: random(size), numbers: vec![0; size], space: vec![0; size] }
    }

    fn quick_sort(size: usize) -> Self {
        Self::QuickSort { input: random(size), numbers: vec![0; size] }
    }

    fn matmul(rows: usize) -> Self {
        let fractions = |seed| (0..rows * rows).map(move |at| fraction(seed, at) as f32).collect();
        Self::Matmul { a: fractions(1), b: fractions(2), sum: vec![0.0; rows * rows] }
    }

    fn nbody(bodies: usize) -> Self {
        let body = |at| Body {
            place: [1, 2, 3].map(|axis| fraction(axis, at)),
            speed: [0.0; 3],
            mass: fraction(4, at),
        };
        let before: Vec<Body> = (0..bodies).map(body).collect();
        Self::Nbody { after: before.clone(), before }
    }

    /// Brings the input back to what it was.
    pub(super) fn reset(&mut self) {
        match self {
            Self::MergeSort { input, numbers, .. } | Self::QuickSort { input, numbers } => {
                numbers.copy_from_slice(input);
            }
            Self::Matmul { sum, .. } => sum.fill(0.0),
            Self::Fib(_)
            | Self::Tree { .. }
            | Self::Queens(_)
            | Self::Uts(_)
            | Self::Nbody { .. }
            | Self::Sieve(_)
            | Self::MapReduce(_) => {}
        }
    }

    /// Runs it in a pool. What it returns is a part of its result.
    pub(super) fn run<P: Pool>(&mut self, scope: &mut P::Scope<'_>) -> u64 {
        match self {
            Self::Fib(n) => return trees::fib::<P>(scope, *n),
            Self::Tree { root, .. } => return trees::tree_sum::<P>(scope, root),
            Self::Queens(size) => return trees::queens::<P>(scope, *size),
            Self::Uts(tree) => return tree.nodes::<P>(scope),
            Self::Sieve(end) => return numeric::primes::<P>(scope, *end),
            Self::MapReduce(numbers) => return numeric::map_reduce::<P>(scope, numbers),
            Self::MergeSort { numbers, space, .. } => sorts::merge_sort::<P>(scope, numbers, space),
            Self::QuickSort { numbers, .. } => sorts::quick_sort::<P>(scope, numbers),
            Self::Matmul { a, b, sum } => numeric::add_product::<P>(scope, sum, a, b),
            Self::Nbody { before, after } => numeric::move_bodies::<P>(scope, before, 0, after),
        }
        0
    }

    /// What it has computed, after it returned that.
    fn result(&self, returned: u64) -> u64 {
        match self {
            Self::MergeSort { numbers, .. } | Self::QuickSort { numbers, .. } => {
                digest(numbers.iter().map(|number| u64::from(*number)))
            }
            Self::Matmul { sum, .. } => digest(sum.iter().map(|one| u64::from(one.to_bits()))),
            Self::Nbody { after, .. } => {
                digest(after.iter().flat_map(|body| body.place).map(f64::to_bits))
            }
            Self::Fib(_)
            | Self::Tree { .. }
            | Self::Queens(_)
            | Self::Uts(_)
            | Self::Sieve(_)
            | Self::MapReduce(_) => returned,
        }
    }

    /// What it must compute, where that is published or can be had in another way.
    fn known(&self) -> Option<u64> {
        match self {
            Self::Fib(n) => Some((0..*n).fold((0, 1), |(a, b), _| (b, a + b)).0),
            Self::Tree { layers, .. } => Some((1 << layers) - 1),
            Self::Queens(size) => QUEENS.get(*size as usize).copied(),
            Self::Uts(tree) => (tree.depth == T1.0).then_some(T1.1),
            Self::MergeSort { input, .. } | Self::QuickSort { input, .. } => {
                let mut sorted = input.clone();
                sorted.sort_unstable();
                Some(digest(sorted.into_iter().map(u64::from)))
            }
            Self::Sieve(end) => {
                let power = end.ilog10() as usize;
                PRIMES.get(power).copied().filter(|_| 10_usize.pow(power as u32) == *end)
            }
            Self::MapReduce(numbers) => {
                Some(numbers.iter().map(|number| mixed(*number)).fold(0, u64::wrapping_add))
            }
            Self::Matmul { .. } | Self::Nbody { .. } => None,
        }
    }
}

/// Random numbers, the same ones each time.
fn random(size: usize) -> Vec<u32> {
    (0..size as u64).map(|at| mixed(at) as u32).collect()
}

/// A number from 0 to 1, the same one each time.
fn fraction(seed: u64, at: usize) -> f64 {
    mixed(seed << 32 | at as u64) as f64 / u64::MAX as f64
}

/// A number that differs if one of the words, or their order, does.
fn digest(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, |sum, word| mixed(sum ^ word))
}

#[cfg(test)]
#[path = "tests/program.rs"]
mod program_tests;
