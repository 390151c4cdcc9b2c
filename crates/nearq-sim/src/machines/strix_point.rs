//! AMD Ryzen AI 9 HX 370 ("Strix Point", 2024), a machine of unequal parts: 4 Zen 5 cores under an L3 cache of 16 MiB
//! and 8 slower Zen 5c cores under one of 8 MiB, SMT, one node. Costs are those of the fast cores; the slow ones have a
//! capacity of 656 out of 1024, which is 3.3 of 5.15 GHz.

use nearq_topology::Topology;

use super::SMT_ZEN2;
use super::sheet::Sheet;
use crate::machine::Machine;

/// Clusters differ, so that no synthetic description fits. Siblings are numbered n and n + 12.
const SHAPE: &str = include_str!("strix_point.xml");

pub(super) fn machine() -> Machine {
    let topology = Topology::from_hwloc_xml(SHAPE).expect("well formed");
    let sheet = Sheet::new(
        super::STRIX_POINT,
        "AMD Ryzen AI 9 HX 370: 4 fast and 8 slow cores, SMT, 2 L3 caches",
        topology,
        5_150,
        "up to 5.15 GHz (the slow cores 3.3 GHz); C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and \
         Cheese, 2024, https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
    );
    let l1 = sheet.cycles(4);
    let atomic = sheet.cycles(8);
    let look = sheet.cycles(64 + 4);
    let sheet = sheet
        .measured(
            "own_line",
            l1,
            "L1: 4 cycles; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .derived(
            "read_modify_write",
            atomic,
            "as on Zen 4, 8 cycles: LOCK ADD m64, r64; uops.info (not re-read)",
        )
        .derived(
            "look",
            look,
            "PAUSE as on Zen 4: 64 cycles (uops.info, not re-read), and a read of an own line",
        );
    let core = sheet.transfer(5);
    let llc = sheet.transfer(20);
    let other = sheet.transfer(180);
    let l2 = sheet.bytes_a_cycle(6400);
    let l3 = sheet.bytes_a_cycle(3200);
    sheet
        .derived(
            "same_core",
            core,
            "bounce of 5.3 ns on a Ryzen 9 7950X (Zen 4); nviennot/core-to-core-latency, README (2022), \
             https://github.com/nviennot/core-to-core-latency",
        )
        .derived(
            "same_llc",
            llc,
            "bounce of 20 ns, the middle of 17 to 23 ns on a Ryzen 9 9950X, whose cores are the same; \
             nviennot/core-to-core-latency issue 107 (2024). On this one: \"excellent\"; C. Lam, \"AMD's Strix \
             Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .measured(
            "other_llc",
            other,
            "bounce of about 180 ns in the figure (not re-read), \"higher than expected\"; C. Lam, \"AMD's Strix \
             Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile. A Ryzen 9 9950X with its first \
             firmware: 190 to 230 ns; nviennot/core-to-core-latency issue 107 (2024)",
        )
        .specified(
            "l2_stream",
            l2,
            "64 bytes a cycle; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .measured(
            "l3_stream",
            l3,
            "32 bytes a cycle for one core; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, \
             2024, https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .derived(
            "memory_stream",
            33_000,
            "53 % of what an L3 cache gets from memory (62 GB/s), as one Zen 4 core gets 37 of just under 70 GB/s; \
             G. Cozma, \"Genoa-X: Server V-Cache Round 2\", Chips and Cheese, 2023",
        )
        .measured(
            "memory",
            128,
            "around 128 ns; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .measured(
            "llc_bandwidth",
            61_900,
            "just under 62 GB/s for one cluster; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and \
             Cheese, 2024, https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .measured(
            "node_bandwidth",
            79_900,
            "79.9 GB/s; C. Lam, \"AMD's Strix Point: Zen 5 Hits Mobile\", Chips and Cheese, 2024, \
             https://chipsandcheese.com/p/amds-strix-point-zen-5-hits-mobile",
        )
        .specified(
            "l2_size",
            1 << 20,
            "AMD: 1 MiB a core",
        )
        .specified(
            "llc_size",
            16 << 20,
            "AMD: 16 MiB for the fast cores; the shape has the 8 MiB of the others",
        )
        .derived(
            "smt_percent",
            66,
            SMT_ZEN2,
        )
        .finish()
}
