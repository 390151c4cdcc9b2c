//! What all CPUs share: the ports of last-level caches, the memory of nodes and the links between them.
//!
//! Each is a server that handles one transfer after the other: bytes occupy it for a time that follows from its bandwidth, and wait until
//! it is done with the earlier ones. So all CPUs that use a server get its bandwidth together, and each gets a share of it. The two
//! directions are not distinguished.
//!
//! Times are picoseconds: a page passes a fast server in less than a few dozen nanoseconds.

use crate::costs::Costs;

/// Picoseconds that `bytes` take at `rate` bytes a microsecond.
pub(super) fn time(bytes: u64, rate: u64) -> u64 {
    bytes * 1_000_000 / rate.max(1)
}

#[derive(Clone, Debug, Default)]
struct Server {
    free_at: u64,
}

impl Server {
    /// Sends `bytes` through the server at `now`. Returns the time at which they are through.
    fn send(&mut self, bytes: u64, rate: u64, now: u64) -> u64 {
        self.free_at = self.free_at.max(now).saturating_add(time(bytes, rate));
        self.free_at
    }
}

/// One end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// A last-level cache, by index, and its node.
    Llc(u32, u32),
    /// A node's memory.
    Memory(u32),
}

impl End {
    fn node(self) -> u32 {
        match self {
            End::Llc(_, node) | End::Memory(node) => node,
        }
    }
}

/// Everything that is shared.
#[derive(Debug)]
pub(super) struct Bandwidth {
    ports: Vec<Server>,
    memories: Vec<Server>,
    links: Vec<Server>,
}

impl Bandwidth {
    pub(super) fn new(llcs: usize, nodes: usize) -> Self {
        Bandwidth {
            ports: vec![Server::default(); llcs],
            memories: vec![Server::default(); nodes],
            links: vec![Server::default(); nodes],
        }
    }

    /// Sends bytes at `now` from one end to the other. Returns the time at which the slowest server on the path is done with them.
    pub(super) fn send(&mut self, from: End, to: End, bytes: u64, now: u64, costs: &Costs) -> u64 {
        let mut done = now;
        for end in [from, to] {
            let through = match end {
                End::Llc(llc, _) => self.ports[llc as usize].send(bytes, costs.llc_bandwidth, now),
                End::Memory(node) => {
                    self.memories[node as usize].send(bytes, costs.node_bandwidth, now)
                }
            };
            done = done.max(through);
            if from.node() != to.node() {
                let link = &mut self.links[end.node() as usize];
                done = done.max(link.send(bytes, costs.link_bandwidth, now));
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_takes_the_slowest_part_and_waits_for_earlier_ones() {
        let mut costs = Costs::DEFAULT;
        costs.llc_bandwidth = 50_000;
        costs.node_bandwidth = 100_000;
        costs.link_bandwidth = 40_000;
        let mut shared = Bandwidth::new(4, 2);
        // 40_000 bytes: 0.8 us through a port, 0.4 us through a memory, 1 us through a link.
        let mut send = |from, to, now| shared.send(from, to, 40_000, now, &costs);
        let (near, other, far) = (End::Llc(0, 0), End::Llc(1, 0), End::Llc(2, 1));
        assert_eq!(send(End::Memory(0), near, 0), 800_000);
        assert_eq!(
            send(End::Memory(0), other, 0),
            800_000,
            "the memory is the second's for 0.8 us"
        );
        assert_eq!(send(End::Memory(0), far, 0), 1_200_000, "third in the memory's queue");
        assert_eq!(send(End::Memory(0), near, 10_000_000), 10_800_000, "everything is free again");
        assert_eq!(send(far, near, 20_000_000), 21_000_000);
        assert_eq!(send(far, near, 20_500_000), 22_000_000, "behind the transfer before");
    }
}
