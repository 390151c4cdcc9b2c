//! Pods of machines that are described, not read: which have pools, and where callers go.

use nearq_platform::Machine;
use nearq_topology::{AffinityScope, CpuSet, Limits, Quota, Topology};

use crate::masks::Masks;
use crate::plan::Plan;

fn machine(description: &str, allowed: &str) -> Machine {
    let topology = Topology::from_synthetic(description).unwrap();
    let allowed: CpuSet = allowed.parse().unwrap();
    let mut limits = Limits::unlimited(topology.online().clone());
    limits.affinity = allowed;
    Machine { topology, limits }
}

fn plan(machine: &Machine, scope: AffinityScope, threads: Option<usize>) -> Plan {
    Plan::new(machine, scope, threads, "test".into(), None)
}

/// The CPUs, the node and the threads of each pod.
fn pods(plan: &Plan) -> Vec<(String, Option<usize>, usize)> {
    plan.pods.iter().map(|pod| (pod.cpus.to_list(), pod.node, pod.threads)).collect()
}

#[test]
fn pods_that_the_process_may_use_have_a_thread_for_each_cpu() {
    let machine = machine("numa:2 l3:2 core:4", "1-5,12");
    let found = plan(&machine, AffinityScope::Cache, None);
    let expected = [("0-3", Some(0), 3), ("4-7", Some(0), 2), ("12-15", Some(1), 1)];
    assert_eq!(
        pods(&found),
        expected.map(|(cpus, node, threads)| (cpus.to_owned(), node, threads))
    );
    let found = plan(&machine, AffinityScope::System, Some(5));
    assert_eq!(pods(&found), [("0-15".to_owned(), None, 5)]);
}

#[test]
fn isolated_cpus_have_no_threads_unless_there_are_no_others() {
    let mut machine = machine("l3:3 core:4", "0-11");
    machine.limits.isolated = "2-3,8-11".parse().unwrap();
    let found = plan(&machine, AffinityScope::Cache, None);
    assert_eq!(pods(&found), [("0-3".into(), Some(0), 2), ("4-7".into(), Some(0), 4)]);
    let masks = Masks::new(&found, &machine.limits);
    assert_eq!([0, 1].map(|pod| masks.mask(pod).to_list()), ["0-1", "4-7"]);

    machine.limits.affinity = "8-9".parse().unwrap();
    let found = plan(&machine, AffinityScope::Cache, None);
    assert_eq!(pods(&found), [("8-11".into(), Some(0), 2)]);
    assert_eq!(Masks::new(&found, &machine.limits).mask(0).to_list(), "8-9");
}

#[test]
fn a_quota_limits_the_threads_of_each_pod() {
    let mut machine = machine("l3:2 core:8", "0-11");
    machine.limits.quota = Some(Quota::new(4.5, "/sys/fs/cgroup/cpu.max"));
    let threads = |threads| {
        let found = plan(&machine, AffinityScope::Cache, threads);
        found.pods.iter().map(|pod| pod.threads).collect::<Vec<_>>()
    };
    assert_eq!(threads(None), [5, 4]);
    assert_eq!(threads(Some(7)), [7, 7], "a number that is given counts");
}

#[test]
fn a_caller_outside_of_all_pods_goes_to_its_node_or_to_the_first_pod() {
    let machine = machine("numa:3 l3:2 core:2", "2-3,4-5");
    let found = plan(&machine, AffinityScope::Cache, None);
    assert_eq!(found.pods.len(), 2);
    let goes = |cpu| found.pod_of(cpu);
    assert_eq!((goes(2), goes(4)), (0, 1), "its own pod");
    assert_eq!((goes(0), goes(7)), (0, 1), "a pod of its node");
    assert_eq!((goes(11), goes(5000)), (0, 0), "a node without a pod, and a CPU of no node");
}
