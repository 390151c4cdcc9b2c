//! Two AMD EPYC 9654 (Zen 4, "Genoa", 2022), the machine on which NUMA-aware locks were measured by cache domain: a
//! package is 12 dies, each one L3 cache of 32 MiB over 8 cores, and one node.
//!
//! The distance between packages is 32, as AMD's firmware has had it since Naples (see the EPYC 7551). Bandwidths
//! were measured on Genoa-X, which has the same dies, links and memory and more L3.

use nearq_topology::Topology;

use super::SMT_ZEN2;
use super::sheet::Sheet;
use crate::machine::Machine;

const SHAPE: &str = "pack:2 numa:1 l3:12(size=32MiB) l2:8(size=1MiB) core:1 pu:2(indexes=core)";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .and_then(|topology| topology.with_distances(&super::distances(2, 1, 10, 32)))
        .expect("well formed")
        .with_model_name("AMD EPYC 9654 96-Core Processor");
    let sheet = Sheet::new(
        super::EPYC_9654,
        "2 x AMD EPYC 9654: 192 cores, SMT, 24 L3 caches, 2 nodes",
        topology,
        3_550,
        "AMD: 3.55 GHz with all cores boosted (base 2.4, up to 3.7 GHz)",
    );
    let l1 = sheet.cycles(4);
    let atomic = sheet.cycles(8);
    let look = sheet.cycles(64 + 4);
    let sheet = sheet
        .specified(
            "own_line",
            l1,
            "L1: 4 cycles on Zen 4; C. Lam, \"AMD's Mild Hybrid Strategy: Ryzen Z1 in ASUS's ROG Ally\", Chips and \
             Cheese, 2024",
        )
        .measured(
            "read_modify_write",
            atomic,
            "LOCK ADD m64, r64 on Zen 4: 8 cycles; uops.info (not re-read)",
        )
        .measured(
            "look",
            look,
            "PAUSE on Zen 4: 64 cycles (uops.info, not re-read), and a read of an own line",
        );
    let core = sheet.transfer(10);
    let llc = sheet.transfer(27);
    let other = sheet.transfer(99);
    let socket = sheet.transfer(192);
    let l2 = sheet.bytes_a_cycle(3200);
    sheet
        .derived(
            "same_core",
            core,
            "bounce of 10.3 ns, the median on the smaller EPYC 9454; KCORES core-to-core-latency-plus, \"Dual AMD \
             EPYC 9454 by fwyzard\" (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "same_llc",
            llc,
            "bounce of 27 ns, the median; KCORES core-to-core-latency-plus, \"Dual AMD EPYC 9654 by leavelet\" \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "other_llc",
            other,
            "bounce of 99 ns, the median; KCORES core-to-core-latency-plus, \"Dual AMD EPYC 9654 by leavelet\" \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured(
            "other_package",
            socket,
            "bounce of 192 ns, the median; KCORES core-to-core-latency-plus, \"Dual AMD EPYC 9654 by leavelet\" \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .derived(
            "l2_stream",
            l2,
            "32 bytes a cycle, as on the Zen 4 cores of a Ryzen Z1; C. Lam, \"AMD's Mild Hybrid Strategy: Ryzen Z1 in \
             ASUS's ROG Ally\", Chips and Cheese, 2024",
        )
        .measured(
            "l3_stream",
            90_000,
            "around 90 GB/s from one core; G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023",
        )
        .measured(
            "memory_stream",
            37_000,
            "around 37 GB/s from one core; G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023",
        )
        .derived(
            "memory",
            130,
            "as on EPYC 9355P (Zen 5) on the same platform: the \"over 220 ns\" of a machine that interleaves its \
             packages is \"nearly 90 ns\" more; Chips and Cheese on 2 x EPYC 9575F in NPS0 mode, 2025",
        )
        .measured(
            "llc_bandwidth",
            69_000,
            "just under 70 GB/s for one die; G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023",
        )
        .measured(
            "node_bandwidth",
            375_000,
            "375 of 460 GB/s; G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023",
        )
        .measured(
            "link_bandwidth",
            128_000,
            "about 128 GB/s one way between the packages, over 3 links; G. Cozma, \"Genoa-X: Server V-Cache Round \
             2\", Chips and Cheese, 2023",
        )
        .specified(
            "l2_size",
            1 << 20,
            "AMD: 1 MiB a core",
        )
        .specified(
            "llc_size",
            32 << 20,
            "AMD: 384 MiB in 12 L3 caches a package",
        )
        .derived(
            "smt_percent",
            66,
            SMT_ZEN2,
        )
        .finish()
}
