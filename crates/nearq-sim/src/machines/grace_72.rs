//! NVIDIA Grace, as in a GH200 with 480 GB (2023): 72 Arm Neoverse V2 cores on one mesh, one L3 of 114 MiB, one
//! node of LPDDR5X. No SMT.

use nearq_topology::Topology;

use super::LINK_SHARE;
use super::sheet::Sheet;
use crate::machine::Machine;

const SHAPE: &str = "pack:1 numa:1 l3:1(size=114MiB) l2:72(size=1MiB) core:1";

const L2_OF_ALL: &str = "C. Lam, \"Grace Hopper, Nvidia's Halfway APU\", Chips and Cheese, 2024: L2 bandwidth of \
       all 72 cores is around 5 TB/s";

pub(super) fn machine() -> Machine {
    let topology =
        Topology::from_synthetic(SHAPE).expect("well formed").with_model_name("NVIDIA Grace");
    let sheet = Sheet::new(
        super::GRACE_72,
        "NVIDIA Grace: 72 cores, one L3 cache",
        topology,
        3_440,
        "up to 3.44 GHz; C. Lam, \"Grace Hopper, Nvidia's Halfway APU\", Chips and Cheese, 2024",
    );
    let l1 = sheet.cycles(4);
    let atomic = sheet.cycles(6);
    let look = sheet.cycles(35 + 4);
    let sheet = sheet
        .specified("own_line", l1, "L1: 4 cycles; Arm Neoverse V2 Software Optimization Guide (not re-read)")
        .derived(
            "read_modify_write",
            atomic,
            "an LSE atomic on an own line is taken as a load and a store of it: 6 cycles; Arm Neoverse V2 Software \
             Optimization Guide (not re-read)",
        )
        .derived("look", look, "ISB, which spin loops use on Arm, about 10 ns (not measured on Grace), and a read");
    let bounce = sheet.transfer(45);
    sheet
        .derived(
            "same_llc",
            bounce,
            "bounce of 45 ns, the middle of 30 to 60 ns on Graviton 4 (C. Lam, \"Arm's Neoverse V2, in AWS's \
             Graviton 4\", Chips and Cheese, 2024), to which Grace's is \"generally comparable\" (the same, \
             \"Grace Hopper, Nvidia's Halfway APU\", 2024)",
        )
        .measured("l2_stream", 69_400, L2_OF_ALL)
        .derived(
            "l3_stream",
            27_800,
            "a 72nd of the \"over 2 TB/s\" of all cores: a lower bound for one alone; C. Lam, \"Grace Hopper, \
             Nvidia's Halfway APU\", Chips and Cheese, 2024",
        )
        .measured(
            "memory_stream",
            21_000,
            "21 GB/s from one core; C. Lam, \"Grace Hopper, Nvidia's Halfway APU\", Chips and Cheese, 2024",
        )
        .measured(
            "memory",
            208,
            "\"over 200 ns\"; nearly 800 ns to the GPU's memory is 592 ns more; C. Lam, \"Grace Hopper, Nvidia's \
             Halfway APU\", Chips and Cheese, 2024",
        )
        .derived("llc_bandwidth", 311_000, "one L3: as the node's memory, see node_bandwidth")
        .derived("node_bandwidth", 311_000, LINK_SHARE)
        .specified("l2_size", 1 << 20, "NVIDIA: 1 MiB a core")
        .specified("llc_size", 114 << 20, "NVIDIA: 114 MiB")
        .finish()
}
