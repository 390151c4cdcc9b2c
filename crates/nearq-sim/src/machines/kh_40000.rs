//! Two Zhaoxin KaiSheng KH-40000/32 (Yongfeng cores, 2022), the machine "32+32 cores" of 2024: 8 L3 caches of 8 MiB
//! over 4 cores each a package, no SMT. Shape, sizes and clock are those of a real one in hwloc's collection of test
//! machines ("Zhaoxin-2xCentaurHauls-KaiSheng-KH-40000.xml"), which shows one node for both packages; here each
//! package is one, as its own memory controllers are.
//!
//! The distance between packages is the kernel's default, 20.
//!
//! **Next to nothing about its caches and links has been published.** Nearly every cost here is taken from relatives:
//! Zhaoxin's KX-6640A, Centaur's CHA, and AMD's Naples, which too joins clusters of 4 cores.

use nearq_topology::Topology;

use super::sheet::Sheet;
use crate::machine::Machine;

const SHAPE: &str = "pack:2 numa:1 l3:8(size=8MiB) l2:4(size=256KiB) core:1";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .and_then(|topology| topology.with_distances(&super::distances(2, 1, 10, 20)))
        .expect("well formed")
        .with_model_name("ZHAOXIN KaiSheng KH-40000/32@2GHz");
    let sheet = Sheet::new(
        super::KH_40000,
        "2 x Zhaoxin KH-40000/32: 64 cores, 16 L3 caches, 2 nodes",
        topology,
        2_000,
        "2 GHz in the name that the processor gives of itself (hwloc's test machine)",
    );
    let l1 = sheet.cycles(5);
    let atomic = sheet.cycles(17);
    let look = sheet.cycles(3 + 5);
    let sheet = sheet
        .derived(
            "own_line",
            l1,
            "L1: 5 cycles, as on Lujiazui, the core before; G. Cozma and C. Lam, \"The Weird and Wacky World of \
             VIA Part 2\", Chips and Cheese, 2021",
        )
        .derived(
            "read_modify_write",
            atomic,
            "not published: as on Zen 1, 17 cycles",
        )
        .derived(
            "look",
            look,
            "not published: PAUSE as on Zen 1, 3 cycles, and a read of an own line",
        );
    let llc = sheet.transfer(42);
    let other = sheet.transfer(141);
    let socket = sheet.transfer(370);
    sheet
        .derived(
            "same_llc",
            llc,
            "bounce of 42 ns: 32.5 ns at 2.6 GHz on the KX-6640A, whose 4 cores share their last cache too, times \
             2.6 / 2.0; KCORES core-to-core-latency-plus, \"ZHAOXIN KaiXian KX-6640A by Glavo\" (2024), \
             https://github.com/KCORES/core-to-core-latency-plus",
        )
        .derived(
            "other_llc",
            other,
            "bounce of 141 ns: that under one L3 times 128 / 38, the ratio on EPYC 7601",
        )
        .derived(
            "other_package",
            socket,
            "bounce of 370 ns: that to another L3 times 336 / 128, the ratio on EPYC 7601",
        )
        .derived(
            "l2_stream",
            32_000,
            "not published: 16 bytes a cycle, twice what its last-level cache gives",
        )
        .derived(
            "l3_stream",
            16_000,
            "8 bytes a cycle, which Lujiazui could not quite get from its last-level cache; G. Cozma and C. Lam, \
             \"The Weird and Wacky World of VIA Part 2\", Chips and Cheese, 2021",
        )
        .derived(
            "memory_stream",
            8_000,
            "not published: half of what the last-level cache gives",
        )
        .derived(
            "memory",
            92,
            "as on Centaur's CHA, where the other package takes 92 ns more, \"about as much as local memory\"; C. \
             Lam, \"Centaur CHA's Probably Unfinished Dual Socket Implementation\", Chips and Cheese, 2022 (read \
             in a summary)",
        )
        .derived(
            "memory_other_package",
            184,
            "92 ns more than own memory, as on Centaur's CHA; C. Lam, \"Centaur CHA's Probably Unfinished Dual \
             Socket Implementation\", Chips and Cheese, 2022 (read in a summary)",
        )
        .derived(
            "llc_bandwidth",
            32_000,
            "not published: 16 bytes a cycle, as much as two of its cores stream",
        )
        .derived(
            "node_bandwidth",
            166_900,
            "81.5 % (the share on Genoa-X) of 8 channels of DDR4-3200; the channels: Tom's Hardware on Zhaoxin's \
             KH-50000, 2025",
        )
        .derived(
            "link_bandwidth",
            16_000,
            "128 Gbit/s a package over ZPI 2.0, of the generation before; golem.de, \"Zhaoxin spricht ueber \
             2-Sockel-Plattform\", 2019",
        )
        .specified(
            "l2_size",
            256 << 10,
            "256 KiB a core (hwloc's test machine)",
        )
        .specified(
            "llc_size",
            8 << 20,
            "8 MiB for 4 cores (hwloc's test machine)",
        )
        .finish()
}
