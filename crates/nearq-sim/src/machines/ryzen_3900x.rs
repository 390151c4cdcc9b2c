//! AMD Ryzen 9 3900X (Zen 2, 2019), the machine of the experiments of 2023: 12 cores of 2 CPUs, 4 L3 caches of
//! 16 MiB on 2 dies, one node. Boost was off there: 3.8 GHz.

use nearq_topology::Topology;

use super::sheet::Sheet;
use super::{LINK_SHARE, SMT_ZEN2, ZEN2_L2, ZEN4_L3};
use crate::machine::Machine;
use crate::source::Origin;

/// 2 CPUs of a core are numbered n and n + 12, as Linux does it on AMD's processors.
const SHAPE: &str = "pack:1 numa:1 l3:4(size=16MiB) l2:3(size=512KiB) core:1 pu:2(indexes=core)";

pub(super) fn machine() -> Machine {
    let topology = Topology::from_synthetic(SHAPE)
        .expect("well formed")
        .with_model_name("AMD Ryzen 9 3900X 12-Core Processor");
    let sheet = Sheet::new(
        super::RYZEN_3900X,
        "AMD Ryzen 9 3900X: 12 cores, SMT, 4 L3 caches",
        topology,
        3_800,
        "the setup of the experiments of 2023: boost disabled, all clocks close to 3.8 GHz",
    );
    let l1 = sheet.cycles(4);
    let atomic = sheet.cycles(17);
    let look = sheet.cycles(65 + 4);
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
            "LOCK ADD m64, r64 on Zen 2: 17 cycles; uops.info (not re-read)",
        )
        .measured(
            "look",
            look,
            "PAUSE on Zen 2: 65 cycles (uops.info, not re-read), and a read of an own line",
        );
    let (core, other) = (sheet.transfer(7), sheet.transfer(87));
    let llc = sheet.transfer(33);
    sheet
        .measured(
            "same_core",
            core,
            "bounce of 6.8 ns, the median on this processor; KCORES core-to-core-latency-plus, \"AMD Ryzen 9 3900X \
             by zommiommy\" (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .put(
            "same_llc",
            llc,
            Origin::Setup,
            "bounce of 33 ns: that across L3 caches (87 ns) divided by the 2.6 that the document of 2023 states of \
             its machine. Measurements on Zen 2 disagree by firmware: 17 and 31 ns on one 3950X (AnandTech 2020), \
             24 on a Threadripper 3960X, 41 and 43 on two 3900X (KCORES)",
        )
        .measured(
            "other_llc",
            other,
            "bounce of 87 ns: medians of 88 and 90 ns to the other die and on the own one, 84 and 86 on a second \
             3900X; KCORES core-to-core-latency-plus, \"AMD Ryzen 9 3900X\" by zommiommy and by AlloyBronya \
             (2024), https://github.com/KCORES/core-to-core-latency-plus",
        )
        .measured("l2_stream", l2, ZEN2_L2)
        .derived("l3_stream", l3, ZEN4_L3)
        .derived(
            "memory_stream",
            25_600,
            "half of a die's link (51.2 GB/s, see llc_bandwidth), as one Zen 4 core gets 37 of just under 70 GB/s; \
             Chips and Cheese, \"Genoa-X: Server V-Cache Round 2\", 2023",
        )
        .measured(
            "memory",
            79,
            "78.8 ns with DDR4-3200; AnandTech, \"The AMD 3rd Gen Ryzen Deep Dive Review\", 2019, p. 2 (figure not \
             re-read)",
        )
        .derived(
            "llc_bandwidth",
            25_600,
            "a die's link, 32 bytes a fabric cycle at 1.6 GHz with DDR4-3200 (WikiChip, \"Zen 2\"; not re-read), \
             shared by the two L3 caches on it",
        )
        .derived("node_bandwidth", 41_700, LINK_SHARE)
        .specified("l2_size", 512 << 10, "AMD: 512 KiB a core")
        .specified("llc_size", 16 << 20, "AMD: 64 MiB in 4 L3 caches")
        .measured("smt_percent", 66, SMT_ZEN2)
        .finish()
}
