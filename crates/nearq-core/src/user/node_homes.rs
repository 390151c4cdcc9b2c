//! What can be set for a runtime's homes, and what can be read of them.

use std::sync::Arc;

use nearq_home::Weights;
use nearq_platform::Platform;
use nearq_topology::CpuSet;

use crate::base::error::Error;
use crate::homes::{HomeChoice, Homes};
use crate::queue::runtime::Runtime;

/// A node that can be a home, and its present load; see [`Runtime::home_nodes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeHomes {
    /// The node's number.
    pub node: usize,
    /// The CPUs of the node that the process may use.
    pub cpus: CpuSet,
    /// The number of homes given out there; 0 if there is only one node.
    pub homes: u32,
    /// The number of workers that run something there that is not at home there.
    pub others: u32,
}

impl<P: Platform> Runtime<P> {
    pub(crate) fn homes_of(&self) -> &Arc<Homes<P>> {
        &self.inner().services.homes
    }

    /// Returns the nodes that can be a [home](crate::home::Home), and the number of homes on each.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// for node in nearq::Runtime::global().home_nodes() {
    ///     println!("node {}, CPUs {}: {} homes", node.node, node.cpus, node.homes);
    /// }
    /// ```
    pub fn home_nodes(&self) -> Vec<NodeHomes> {
        let homes = self.homes_of();
        let (nodes, several) = (homes.nodes(), homes.has_several());
        let rows = nodes.iter().zip(homes.loads(&nodes));
        rows.map(|(node, load)| NodeHomes {
            node: node.id,
            cpus: node.cpus.clone(),
            homes: if several { load.homes / 1000 } else { 0 },
            others: load.others / 1000,
        })
        .collect()
    }

    /// Returns the weights of homes. They decide at which imbalance workers of other nodes take an item whose home is elsewhere, and when a
    /// dynamic home moves.
    pub fn home_weights(&self) -> Weights {
        self.homes_of().weights()
    }

    /// Changes one of the [weights](Self::home_weights), by its name. In effect at once.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let runtime = nearq::Runtime::global();
    /// runtime.set_home_weight("move_interval_ms", 5_000)?;
    /// assert_eq!(runtime.home_weights().get("move_interval_ms"), Some(5_000));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Weight`] if there is no weight with that name, or the value is not allowed; the error says what is allowed.
    pub fn set_home_weight(&self, name: &str, value: u32) -> Result<(), Error> {
        let mut weights = self.home_weights();
        weights.set(name, value).map_err(Error::Weight)?;
        self.homes_of().set_weights(weights);
        Ok(())
    }

    /// Returns when the node of a [picked](crate::home::Home::pick) home is chosen.
    pub fn home_choice(&self) -> HomeChoice {
        self.homes_of().choice()
    }

    /// Changes when the node of a [picked](crate::home::Home::pick) home is chosen. In effect for homes that are picked from now on.
    pub fn set_home_choice(&self, choice: HomeChoice) {
        self.homes_of().set_choice(choice);
    }

    /// Returns whether homes are inherited: whether what an item with a home queues is at home there too, if neither it nor its queue has a
    /// home. Closures and futures inherit the home for good, a [`Work`](crate::Work) for that run. On by default.
    pub fn inherits_homes(&self) -> bool {
        self.homes_of().inherits()
    }

    /// Changes whether homes are [inherited](Self::inherits_homes). In effect for what is queued from now on.
    pub fn set_inherits_homes(&self, inherits: bool) {
        self.homes_of().set_inherits(inherits);
    }
}
