//! NEC TX7 ("AsAmA") with 8 Itanium 2 at 1 GHz, the machine of 2003: 4 nodes of 2 processors, each with an L3 cache of
//! its own, on one front-side bus; a crossbar joins the nodes, each as far from the
//! others: distances of 16 are that ratio of latencies, 1.6.

use nearq_topology::Topology;

use super::sheet::Sheet;
use crate::machine::Machine;

const SHAPE: &str = "numa:4 pack:2 l3:1(size=3MiB) l2:1(size=256KiB) core:1";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .and_then(|topology| topology.with_distances(&super::distances(4, 1, 10, 16)))
        .expect("well formed")
        .with_model_name("Itanium 2");
    let sheet = Sheet::new(
        super::TX7_ITANIUM2,
        "NEC TX7: 8 Itanium 2, 8 L3 caches, 4 nodes",
        topology,
        1_000,
        "Intel: 1 GHz, the fastest Itanium 2 until June 2003; the document of July 2003 does not say",
    );
    let l1 = sheet.cycles(1);
    let atomic = sheet.cycles(11);
    let look = sheet.cycles(2 + 1);
    sheet
        .specified(
            "own_line",
            l1,
            "L1: 1 cycle; T. Lyon et al., \"Data Cache Design Considerations for the Itanium 2 Processor\", ICCD \
             2002",
        )
        .derived(
            "read_modify_write",
            atomic,
            "a semaphore operation is done in L2: two accesses of 5 cycles and one to begin; Intel, \"Itanium 2 \
             Processor Reference Manual\", 2002 (not re-read)",
        )
        .derived(
            "look",
            look,
            "hint @pause: 2 cycles (not measured), and a read of an own line",
        )
        .derived(
            "other_llc",
            195,
            "a line of the other processor on the bus comes in the time of a read of memory: see memory",
        )
        .derived(
            "other_package",
            312,
            "a line of another node comes in the time of a read of that node's memory: see memory_other_package",
        )
        .derived(
            "l2_stream",
            32_000,
            "32 bytes a cycle from L2; T. Lyon et al., \"Data Cache Design Considerations for the Itanium 2 \
             Processor\", ICCD 2002 (width not re-read)",
        )
        .derived(
            "l3_stream",
            32_000,
            "32 bytes a cycle from L3 to L2; T. Lyon et al., \"Data Cache Design Considerations for the Itanium 2 \
             Processor\", ICCD 2002 (width not re-read)",
        )
        .derived(
            "memory_stream",
            3_800,
            "STREAM on one Itanium 2 of 1 GHz in an HP rx2600, which has the same bus; J. McCalpin, STREAM \
             results, 2002 (not re-read)",
        )
        .derived(
            "memory",
            195,
            "35 cycles and 160 ns in an HP rx2600, which has the same bus; I. Pavlov, \
             https://7-cpu.com/cpu/Itanium2.html",
        )
        .derived(
            "memory_other_package",
            312,
            "1.6 times the own memory: the ratio of latencies that E. Focht, home.arcor.de/efocht/sched (not \
             re-read) states of the TX7",
        )
        .specified(
            "llc_bandwidth",
            6_400,
            "Intel: front-side bus of 128 bits at 400 MT/s",
        )
        .derived(
            "node_bandwidth",
            5_200,
            "81.5 % (the share on Genoa-X) of the 6.4 GB/s of the front-side bus; the memory behind it is no slower",
        )
        .derived(
            "link_bandwidth",
            3_250,
            "not published: node_bandwidth divided by 1.6, the ratio of latencies; E. Focht, \
             home.arcor.de/efocht/sched (not re-read)",
        )
        .specified(
            "l2_size",
            256 << 10,
            "Intel: 256 KiB",
        )
        .specified(
            "llc_size",
            3 << 20,
            "Intel: 3 MiB",
        )
        .finish()
}
