//! Two AMD Opteron 2435 ("Istanbul", 2009): 6 cores and one L3 cache of 6 MiB a package, which is one node.
//!
//! The document of 2013 says "dual socket opteron" and no more; a build with 20 jobs suggests some 12 to 16 CPUs. This
//! is the one of that size and time whose latencies are published; lines and streams were measured on the Opteron
//! 2384, whose die has 4 such cores. The distance between packages is the kernel's default, 20.

use nearq_topology::Topology;

use super::sheet::Sheet;
use crate::machine::Machine;

const SHAPE: &str = "pack:2 numa:1 l3:1(size=6MiB) l2:6(size=512KiB) core:1";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .and_then(|topology| topology.with_distances(&super::distances(2, 1, 10, 20)))
        .expect("well formed")
        .with_model_name("Six-Core AMD Opteron(tm) Processor 2435");
    let sheet = Sheet::new(
        super::OPTERON,
        "2 x AMD Opteron 2435: 12 cores, 2 L3 caches, 2 nodes",
        topology,
        2_600,
        "AMD: 2.6 GHz",
    );
    let l1 = sheet.cycles(3);
    let atomic = sheet.cycles(18);
    let look = sheet.cycles(3 + 3);
    let sheet = sheet
        .measured(
            "own_line",
            l1,
            "L1: 3 cycles; AnandTech, \"AMD's 12-core Magny-Cours Opteron 6174 vs. Intel's 6-core Xeon\", 2010, p. 5",
        )
        .measured(
            "read_modify_write",
            atomic,
            "a locked instruction on K10: 18 cycles; A. Fog, \"Instruction tables\" (not re-read)",
        )
        .measured(
            "look",
            look,
            "PAUSE on K10: 3 cycles (A. Fog, \"Instruction tables\", not re-read), and a read of an own line",
        );
    sheet
        .derived(
            "same_llc",
            44,
            "44 ns to read a modified line of another core of the die, on the Opteron 2384; D. Hackenberg, D. \
             Molka and W. Nagel, \"Comparing Cache Architectures and Coherency Protocols on x86-64 Multicore SMP \
             Systems\", MICRO 2009 (not re-read)",
        )
        .derived(
            "other_package",
            83,
            "83 ns to read a modified line of a core of the other package, on the Opteron 2384; D. Hackenberg, D. \
             Molka and W. Nagel, \"Comparing Cache Architectures and Coherency Protocols on x86-64 Multicore SMP \
             Systems\", MICRO 2009 (not re-read)",
        )
        .derived(
            "l2_stream",
            20_700,
            "21.5 GB/s on the Opteron 2384, times 2.6 / 2.7 GHz; D. Hackenberg, D. Molka and W. Nagel, \"Comparing \
             Cache Architectures and Coherency Protocols on x86-64 Multicore SMP Systems\", MICRO 2009 (not \
             re-read)",
        )
        .derived(
            "l3_stream",
            9_900,
            "10.3 GB/s on the Opteron 2384, times 2.6 / 2.7 GHz; D. Hackenberg, D. Molka and W. Nagel, \"Comparing \
             Cache Architectures and Coherency Protocols on x86-64 Multicore SMP Systems\", MICRO 2009 (not \
             re-read)",
        )
        .derived(
            "memory_stream",
            5_500,
            "5.5 GB/s on the Opteron 2384; D. Hackenberg, D. Molka and W. Nagel, \"Comparing Cache Architectures \
             and Coherency Protocols on x86-64 Multicore SMP Systems\", MICRO 2009 (not re-read)",
        )
        .measured(
            "memory",
            78,
            "78 ns in systems of 2 packages, family 10h revision D0, 2.6 GHz; J. McCalpin, \"AMD Opteron Local \
             Memory Latency Chart\", 2010, \
             https://sites.utexas.edu/jdm4372/2010/10/01/amd-opteron-memory-latency-chart/ (AnandTech, at random \
             and with TLB misses: 113 ns)",
        )
        .derived(
            "memory_other_package",
            118,
            "118 ns on the Opteron 2384; D. Hackenberg, D. Molka and W. Nagel, \"Comparing Cache Architectures and \
             Coherency Protocols on x86-64 Multicore SMP Systems\", MICRO 2009 (not re-read)",
        )
        .derived(
            "llc_bandwidth",
            10_400,
            "one L3 a node: as the node's memory, see node_bandwidth",
        )
        .derived(
            "node_bandwidth",
            10_400,
            "81.5 % (the share on Genoa-X) of 2 channels of DDR2-800, 12.8 GB/s",
        )
        .specified(
            "link_bandwidth",
            9_600,
            "AMD: HyperTransport 3 at 4.8 GT/s, 16 bits wide, one way",
        )
        .specified(
            "l2_size",
            512 << 10,
            "AMD: 512 KiB a core",
        )
        .specified(
            "llc_size",
            6 << 20,
            "AMD: 6 MiB a package",
        )
        .finish()
}
