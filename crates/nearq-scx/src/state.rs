//! What the scheduler has counted, in the form that users need: by node, with sums and rates.
//!
//! All numbers are copied out of the kernel at once, while the scheduler goes on. So numbers that belong together may differ by the events
//! of a few microseconds.

use nearq_scx_policy::layout::{COUNTED, CROSSED, EVENTS, Llc, NONE, Nq, UNIT};

/// The names of all counts, by index of [`Counts`], and the meaning of each.
pub(crate) fn events() -> impl Iterator<Item = (&'static str, &'static str)> {
    EVENTS.into_iter().chain([("crossed", "changes of node, whatever the home")])
}

/// The counts, by the policy's index of events.
pub(crate) type Counts = [u64; COUNTED];

/// The index of the count of that name.
pub(crate) fn event(name: &str) -> usize {
    events().position(|(known, _)| known == name).expect("the name of an event")
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeNow {
    /// The operating system's number.
    pub(crate) id: u32,
    /// Its CPUs that are online, by number.
    pub(crate) cpus: Vec<usize>,
    /// The number of tasks that are at home on the node; of these, how many run or wait, on any node; of these, how many wait elsewhere.
    pub(crate) homes: u32,
    pub(crate) wanting: u32,
    pub(crate) waiting_away: u32,
    /// The numbers of tasks that run and that wait on the node, whatever their home.
    pub(crate) running: u32,
    pub(crate) waiting: u32,
    /// The number of running tasks whose home is elsewhere.
    pub(crate) guests: u32,
    /// Tasks that run or wait for each CPU, in thousandths, smoothed.
    pub(crate) load: u64,
    /// CPU time on its CPUs, of tasks that are at home on the node and of other tasks, in nanoseconds.
    pub(crate) home_ns: u64,
    pub(crate) away_ns: u64,
    pub(crate) counts: Counts,
}

/// The state of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    pub(crate) nodes: Vec<NodeNow>,
}

impl Now {
    /// Makes it from the scheduler's state.
    pub(crate) fn of(nq: &Nq) -> Self {
        let known = (nq.nodes as usize).min(nq.node.len());
        let mut nodes: Vec<NodeNow> = (0..known)
            .map(|index| {
                let (node, on) = (&nq.node[index], &nq.on_node[index]);
                let capacity = u64::from(on.capacity.max(1));
                NodeNow {
                    id: node.id,
                    cpus: Vec::new(),
                    homes: on.homes,
                    wanting: on.wanting,
                    waiting_away: waiting_away(nq, index),
                    running: on.running,
                    waiting: on.waiting,
                    guests: 0,
                    load: u64::from(on.load) * u64::from(UNIT) / capacity,
                    home_ns: 0,
                    away_ns: 0,
                    counts: [0; COUNTED],
                }
            })
            .collect();
        for cpu in 0..(nq.cpus as usize).min(nq.cpu.len()) {
            let (place, on) = (nq.cpu[cpu].node, &nq.on_cpu[cpu]);
            let Some(node) = nodes.get_mut(place as usize) else { continue };
            if is_set(&nq.online, cpu) {
                node.cpus.push(cpu);
            }
            node.guests += u32::from(on.running != 0 && on.home != NONE && on.home != place);
            node.home_ns += on.home_ns;
            node.away_ns += on.away_ns;
            for (sum, count) in node.counts.iter_mut().zip(on.events) {
                *sum += count;
            }
        }
        Now { nodes }
    }

    /// All nodes' counts together.
    pub(crate) fn counts(&self) -> Counts {
        let mut sum = [0; COUNTED];
        for (at, sum) in sum.iter_mut().enumerate() {
            *sum = self.nodes.iter().map(|node| node.counts[at]).sum();
        }
        sum
    }

    /// CPU time at home and away, of all nodes.
    pub(crate) fn cpu_time(&self) -> (u64, u64) {
        let sum = |of: fn(&NodeNow) -> u64| self.nodes.iter().map(of).sum();
        (sum(|node| node.home_ns), sum(|node| node.away_ns))
    }

    /// What has been counted since an earlier state; values that are not counts are those of this state.
    #[must_use]
    pub(crate) fn since(&self, before: &Now) -> Now {
        let mut since = self.clone();
        for node in &mut since.nodes {
            let Some(old) = before.nodes.iter().find(|old| old.id == node.id) else { continue };
            node.home_ns = node.home_ns.saturating_sub(old.home_ns);
            node.away_ns = node.away_ns.saturating_sub(old.away_ns);
            for (count, old) in node.counts.iter_mut().zip(old.counts) {
                *count = count.saturating_sub(old);
            }
        }
        since
    }
}

/// How many last-level caches have an online CPU. The cache of an offline CPU cannot be read, so until it comes online it counts as having
/// a cache of its own. That is only a place for counts, not a cache of the machine.
pub(crate) fn caches(nq: &Nq) -> usize {
    let known = (nq.llcs as usize).min(nq.llc.len());
    let is_online =
        |llc: &&Llc| llc.cpus.iter().zip(&nq.online).any(|(cpus, online)| cpus & online != 0);
    nq.llc[..known].iter().filter(is_online).count()
}

/// How many tasks that are at home on a node wait in queues of other nodes.
fn waiting_away(nq: &Nq, home: usize) -> u32 {
    let elsewhere = nq
        .llc
        .iter()
        .zip(&nq.on_llc)
        .take(nq.llcs as usize)
        .filter(|(llc, _)| llc.node as usize != home);
    elsewhere.map(|(_, on)| on.waiting_of[home]).sum()
}

/// Whether a CPU is in a mask of the policy.
pub(crate) fn is_set(mask: &[u64], cpu: usize) -> bool {
    mask.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 != 0)
}

/// The operating system's number of a node, by the policy's index.
pub(crate) fn node_id(nq: &Nq, index: u32) -> Option<u32> {
    (index < nq.nodes).then(|| nq.node.get(index as usize).map(|node| node.id)).flatten()
}

/// The policy's index of a node, by the operating system's number.
pub(crate) fn node_index(nq: &Nq, id: u32) -> Option<u32> {
    (0..nq.nodes).find(|index| node_id(nq, *index) == Some(id))
}

/// Numbers of CPUs as `0-3,8`.
pub(crate) fn list(cpus: &[usize]) -> String {
    cpus.iter().copied().collect::<nearq_topology::CpuSet>().to_list()
}

const _: () = assert!(CROSSED + 1 == COUNTED, "one event has its name here");

/// A made-up state for tests: two nodes of four CPUs with the numbers 0 and 2, on which events have been counted.
#[cfg(test)]
pub(crate) fn made_up() -> Box<Nq> {
    use nearq_topology::Topology;
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2").unwrap();
    let mut nq = nearq_scx_policy::describe(&machine, machine.online()).unwrap();
    nq.node[1].id = 2;
    (nq.on_node[0].homes, nq.on_node[0].wanting) = (120, 6);
    // One of them waits in a queue of the other node.
    (nq.on_llc[1].waiting_of[0], nq.on_llc[2].waiting_of[0]) = (1, 1);
    (nq.on_node[0].running, nq.on_node[0].waiting, nq.on_node[0].load) = (4, 2, 6000);
    (nq.on_node[1].homes, nq.on_node[1].running, nq.on_node[1].load) = (80, 1, 1000);
    for cpu in 0..4 {
        (nq.on_cpu[cpu].running, nq.on_cpu[cpu].home) = (1, 0);
        nq.on_cpu[cpu].home_ns = 2_000_000_000;
        nq.on_cpu[cpu].events[event("woke_previous")] = 1000;
    }
    (nq.on_cpu[5].running, nq.on_cpu[5].home) = (1, 0);
    nq.on_cpu[5].away_ns = 500_000_000;
    nq.on_cpu[5].events[event("left")] = 7;
    nq.on_cpu[5].events[event("crossed")] = 9;
    nq.on_cpu[1].events[event("returned")] = 6;
    nq
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;
    use nearq_topology::Topology;

    #[test]
    fn cpus_are_summed_up_by_node() {
        let now = Now::of(&made_up());
        assert_eq!(now.nodes.len(), 2);
        let [first, second] = &now.nodes[..] else { unreachable!() };
        assert_eq!((first.id, second.id), (0, 2));
        assert_eq!((list(&first.cpus), list(&second.cpus)), ("0-3".into(), "4-7".into()));
        assert_eq!((first.home_ns, first.away_ns, second.away_ns), (8_000_000_000, 0, 500_000_000));
    }

    #[test]
    fn only_counters_are_subtracted() {
        let mut nq = made_up();
        let before = Now::of(&nq);
        nq.on_cpu[5].events[event("left")] += 3;
        nq.on_cpu[2].home_ns += 5;
        nq.on_node[0].homes = 121;
        let since = Now::of(&nq).since(&before);
        assert_eq!(since.counts()[event("left")], 3);
        assert_eq!(since.counts()[event("crossed")], 0);
        assert_eq!((since.cpu_time(), since.nodes[0].homes), ((5, 0), 121));
        // For another machine, or a scheduler that was loaded again, no difference is negative.
        assert_eq!(before.since(&Now::of(&nq)).counts()[event("left")], 0);
    }

    #[test]
    fn nodes_are_found_by_number() {
        let nq = made_up();
        assert_eq!((node_index(&nq, 2), node_index(&nq, 1)), (Some(1), None));
        assert_eq!((node_id(&nq, 1), node_id(&nq, 2), node_id(&nq, NONE)), (Some(2), None, None));
    }

    #[test]
    fn caches_made_up_for_offline_cpus_are_not_shown() {
        let mut files: Vec<(String, String)> = Vec::new();
        let mut add = |path: String, text: &str| {
            files.push((format!("sys/devices/system/{path}"), text.into()))
        };
        add("cpu/possible".into(), "0-7");
        add("cpu/present".into(), "0-7");
        add("cpu/online".into(), "0-4,6-7");
        add("node/node0/cpulist".into(), "0-3");
        add("node/node1/cpulist".into(), "4,6-7");
        for cpu in [0, 1, 2, 3, 4, 6, 7] {
            let index = format!("cpu/cpu{cpu}/cache/index3");
            add(format!("{index}/level"), "3");
            add(format!("{index}/type"), "Unified");
            add(format!("{index}/shared_cpu_list"), ["0-1", "2-3", "4", "6-7"][cpu / 2]);
        }
        // Only the CPU's node can be read.
        add("cpu/cpu5/node1/cpulist".into(), "4,6-7");
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let files = Files::new("offline", &files);
        let machine = Topology::from_sysfs(&files.0).unwrap();
        let mut nq = nearq_scx_policy::describe(&machine, machine.online()).unwrap();
        assert_eq!((nq.llcs, caches(&nq)), (5, 4));
        assert_eq!(nq.cpu[5].node, 1);
        assert!((0..8).all(|cpu| (cpu == 5) == (nq.cpu[cpu].llc == nq.cpu[5].llc)));
        // Once the CPU is online, it counts as having a cache of its own until the machine is read again.
        nq.online[0] |= 1 << 5;
        assert_eq!(caches(&nq), 5);
        nq.online = Default::default();
        assert_eq!(caches(&nq), 0);
    }

    #[test]
    fn an_invalid_state_is_read_without_a_panic() {
        let mut nq = made_up();
        (nq.nodes, nq.cpus) = (u32::MAX, u32::MAX);
        nq.cpu[3].node = 77;
        nq.on_node[0].capacity = 0;
        assert_eq!(Now::of(&nq).nodes.len(), nq.node.len());
        nq.llcs = u32::MAX;
        assert_eq!(caches(&nq), 4);
    }
}
