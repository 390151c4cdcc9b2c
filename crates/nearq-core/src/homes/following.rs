//! Dynamic homes: they move to where most of their memory is, and most of their items' CPU time was.
//!
//! The monitor judges them, at most once in the interval of the weights and only while there is work: sampling 256 pages costs some 0.1 ms,
//! too much between two items. For how it judges, see `nearq_home::HomeMigration`.

use core::time::Duration;

use nearq_home::{Evidence, HomeMigration, Nodes, Verdict, Weights};
use nearq_platform::{Instant, Platform};

use super::inside::{Inside, index_of, since_start};
use super::{Home, Homes};

impl<P: Platform> Home<P> {
    /// Sets whether the home is dynamic: whether it moves to the node that has most of the [registered](Self::register) memory, with some
    /// weight on where its items ran. Off until set.
    ///
    /// It moves only if another node is better by a margin, twice in a row, and at most once in an interval
    /// ([`home_weights`](crate::Runtime::home_weights): `move_margin`, `move_time`, `move_interval_ms`). The runtime judges it only while
    /// there is work. If there is only one node, this does nothing.
    pub fn set_dynamic(&self, dynamic: bool) {
        let nodes = self.inside().homes.nodes();
        self.inside().set_follows(dynamic, &nodes, P::now());
    }

    /// Returns whether the home is dynamic.
    pub fn is_dynamic(&self) -> bool {
        self.inside().follows()
    }
}

impl<P: Platform> Homes<P> {
    /// Judges the dynamic homes, if it is due. By the monitor.
    pub(crate) fn judge(&self, now: Instant) {
        if !self.are_used() || !self.begin_judging(now) {
            return;
        }
        let (nodes, weights) = (self.nodes(), self.weights());
        for home in self.all().iter().filter(|home| home.follows()) {
            home.judge(now, &nodes, &weights);
        }
    }
}

impl<P: Platform> Inside<P> {
    fn judge(&self, now: Instant, nodes: &Nodes, weights: &Weights) {
        let residency = self.pages();
        let pages = |id: usize| residency.pages.get(id).copied().unwrap_or(0) as u64;
        let evidence = Evidence {
            pages: nodes.iter().map(|node| pages(node.memory)).collect(),
            cpu_time: nodes
                .iter()
                .map(|node| Duration::from_nanos(self.take_cpu_time(node.id)))
                .collect(),
        };
        let mut change = self.change.lock();
        let Some(node) = self.known_node() else { return };
        let Some(index) = index_of(nodes, node) else { return };
        let migration =
            change.migration.get_or_insert_with(|| HomeMigration::new(index, since_start(now)));
        if migration.home() != index {
            // The nodes that may be used have changed, and with them the indices.
            migration.set(index, since_start(now));
        }
        match migration.consider(since_start(now), &evidence, nodes, weights) {
            Verdict::Stay(why) => change.why = why.to_string(),
            Verdict::Move { to, why } => {
                change.why = why.to_string();
                self.put(&mut change, nodes.get(to).id as u32);
            }
        }
    }
}
