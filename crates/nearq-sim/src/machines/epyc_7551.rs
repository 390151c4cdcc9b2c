//! Two AMD EPYC 7551 (Zen 1, "Naples", 2017), the machine of 2024 whose results are given by number of writers: a
//! package is 4 dies, each a node with 2 L3 caches of 8 MiB over 4 cores each.
//!
//! `numactl -H` of such a machine shows 8 nodes, node 0 with CPUs 0-7 and 64-71, and distances of 10, 16 and 32:
//! WyvernTKC/cpuminer-gr-avx2 issue 22 (2021). Lines were measured on its faster sister, the EPYC 7601.

use nearq_topology::Topology;

use super::sheet::Sheet;
use super::{SMT_ZEN2, ZEN2_L2, ZEN4_L3};
use crate::machine::Machine;

const SHAPE: &str = "pack:2 numa:4 l3:2(size=8MiB) l2:4(size=512KiB) core:1 pu:2(indexes=core)";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .and_then(|topology| topology.with_distances(&super::distances(2, 4, 16, 32)))
        .expect("well formed")
        .with_model_name("AMD EPYC 7551 32-Core Processor");
    let sheet = Sheet::new(
        super::EPYC_7551,
        "2 x AMD EPYC 7551: 64 cores, SMT, 16 L3 caches, 8 nodes",
        topology,
        2_550,
        "AMD: 2.55 GHz with all cores boosted (base 2.0, up to 3.0 GHz with some idle)",
    );
    let l1 = sheet.cycles(4);
    let atomic = sheet.cycles(17);
    let look = sheet.cycles(3 + 4);
    let (l2, l3) = (sheet.bytes_a_cycle(3159), sheet.bytes_a_cycle(2400));
    let sheet = sheet
        .specified(
            "own_line",
            l1,
            "L1: 4 cycles; AnandTech, \"AMD Rome Second Generation EPYC Review\", 2019, p. 7",
        )
        .measured(
            "read_modify_write",
            atomic,
            "LOCK ADD m64, r64 on Zen+: 17 cycles; uops.info (not re-read)",
        )
        .measured(
            "look",
            look,
            "PAUSE on Zen+: 3 cycles (uops.info, not re-read), and a read of an own line",
        );
    let (core, llc) = (sheet.transfer(12), sheet.transfer(38));
    let (other, die, socket) = (sheet.transfer(128), sheet.transfer(211), sheet.transfer(336));
    sheet
        .measured(
            "same_core",
            core,
            "bounce of 12 ns to the sibling, the median of those with a CPU of the die where the line is at home, \
             on 2 x EPYC 7601 (2.2 GHz); KCORES core-to-core-latency-plus, \"Dual AMD EPYC 7601 by jstzwj\" \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "same_llc",
            llc,
            "bounce of 38 ns under one L3, the median of those with a CPU of the die where the line is at home, on \
             2 x EPYC 7601 (2.2 GHz); KCORES core-to-core-latency-plus, \"Dual AMD EPYC 7601 by jstzwj\" (2024), \
             https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "other_llc",
            other,
            "bounce of 128 ns to the other L3 of the die, the median of those with a CPU of the die where the line \
             is at home, on 2 x EPYC 7601 (2.2 GHz); KCORES core-to-core-latency-plus, \"Dual AMD EPYC 7601 by \
             jstzwj\" (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "same_package",
            die,
            "bounce of 211 ns to other dies of the package, the median of those with a CPU of the die where the \
             line is at home, on 2 x EPYC 7601 (2.2 GHz); KCORES core-to-core-latency-plus, \"Dual AMD EPYC 7601 \
             by jstzwj\" (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "other_package",
            socket,
            "bounce of 336 ns to the other package, the median of those with a CPU of the die where the line is at \
             home, on 2 x EPYC 7601 (2.2 GHz); KCORES core-to-core-latency-plus, \"Dual AMD EPYC 7601 by jstzwj\" \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .derived("l2_stream", l2, ZEN2_L2)
        .derived("l3_stream", l3, ZEN4_L3)
        .derived(
            "memory_stream",
            22_600,
            "53 % of the port of an L3 cache (42.7 GB/s, see llc_bandwidth), as one Zen 4 core gets 37 of just \
             under 70 GB/s; Chips and Cheese, \"Genoa-X: Server V-Cache Round 2\", 2023",
        )
        .measured(
            "memory",
            90,
            "90 ns to the die's own memory; K. Lepak, \"The Next Generation AMD Enterprise Server Product \
             Architecture\", Hot Chips 29, 2017 (not re-read)",
        )
        .derived(
            "memory_same_package",
            125,
            "1.39 times the own memory: a probe of memory takes 299.77 s from another die and 215.78 s from the \
             own one on this processor; C. Hyser on the kernel's mailing list (preferred node affinity), 27 Feb \
             2024",
        )
        .measured(
            "memory_other_package",
            200,
            "200 ns to the nearest die of the other package; K. Lepak, \"The Next Generation AMD Enterprise Server \
             Product Architecture\", Hot Chips 29, 2017 (not re-read)",
        )
        .derived(
            "llc_bandwidth",
            41_400,
            "97 % of 32 bytes a fabric cycle at 1.33 GHz with DDR4-2666, the share that Strix Point's caches get \
             of such a port (62 of 64 GB/s); C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, \
             2024",
        )
        .measured(
            "node_bandwidth",
            32_500,
            "an eighth of the \"over 260 GB/s\" that Azure states of its HB series, 2 x EPYC 7551; Microsoft, \
             azure-docs, sizes-hpc.md, 2020",
        )
        .specified(
            "link_bandwidth",
            82_850,
            "one direction of 3 links of 42.6 GB/s to the package's other dies and one of 37.9 GB/s to the other \
             package, both ways; AnandTech, \"AMD's Future in Servers: New 7000-Series CPUs Launched and EPYC \
             Analysis\", 2017, p. 2 (the latter figure not re-read)",
        )
        .specified("l2_size", 512 << 10, "AMD: 512 KiB a core")
        .specified("llc_size", 8 << 20, "AMD: 64 MiB in 8 L3 caches a package")
        .derived("smt_percent", 66, SMT_ZEN2)
        .finish()
}
