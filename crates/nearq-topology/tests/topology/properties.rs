//! What holds for every machine and every set of CPUs.

use nearq_topology::{AffinityScope, CpuSet, Topology};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::collections::BTreeSet;

use crate::checked;
use crate::common::cases;
use crate::descriptions::description;

fn set() -> impl Strategy<Value = CpuSet> {
    prop_oneof![btree_set(0_usize..300, 0..80), btree_set(0_usize..65536, 0..20)]
        .prop_map(|cpus| cpus.into_iter().collect())
}

proptest! {
    #![proptest_config(cases(256, 256))]

    #[test]
    fn a_set_survives_its_list_its_mask_and_its_words(set in set()) {
        prop_assert_eq!(&CpuSet::parse_list(&set.to_list()).unwrap(), &set);
        prop_assert_eq!(&CpuSet::parse_mask(&set.to_mask()).unwrap(), &set);
        prop_assert_eq!(&CpuSet::from_words(set.as_words()), &set);
        prop_assert!(set.as_words().last() != Some(&0));
    }

    #[test]
    fn a_set_behaves_like_a_sorted_set_of_numbers(a in set(), b in set(), cpu in 0_usize..300) {
        let (x, y): (BTreeSet<usize>, BTreeSet<usize>) = (a.iter().collect(), b.iter().collect());
        let same = |set: CpuSet, model: Vec<usize>| set.iter().collect::<Vec<_>>() == model;
        prop_assert!(same(&a | &b, x.union(&y).copied().collect()));
        prop_assert!(same(&a & &b, x.intersection(&y).copied().collect()));
        prop_assert!(same(&a - &b, x.difference(&y).copied().collect()));
        prop_assert_eq!(a.intersects(&b), !x.is_disjoint(&y));
        prop_assert_eq!(a.is_subset(&b), x.is_subset(&y));
        prop_assert_eq!(a.cmp(&b), x.cmp(&y));
        prop_assert_eq!((a.len(), a.first(), a.last()), (x.len(), x.first().copied(), x.last().copied()));
        let (mut more, mut less) = (a.clone(), a.clone());
        prop_assert_eq!((more.insert(cpu), less.remove(cpu), a.contains(cpu)), (!x.contains(&cpu), x.contains(&cpu), x.contains(&cpu)));
        prop_assert_eq!(&more, &(&a | &CpuSet::single(cpu)));
        prop_assert_eq!(&less, &(&a - &CpuSet::single(cpu)));
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "[-0-9a-f,:/x ]{0,40}") {
        if let Ok(set) = CpuSet::parse_list(&text) {
            prop_assert_eq!(CpuSet::parse_list(&set.to_list()), Ok(set));
        }
        if let Ok(set) = CpuSet::parse_mask(&text) {
            prop_assert_eq!(CpuSet::parse_mask(&set.to_mask()), Ok(set));
        }
    }

    #[test]
    fn no_description_makes_the_reader_panic(text in "((pack|numa|l[1-5]|core|pu|die|machine|é|\\[numa\\])(:[0-9]{1,2})?(\\([a-z]{0,7}=[0-9,a-z]{0,4}\\))? ?){0,5}") {
        if let Ok(machine) = Topology::from_synthetic(&text) {
            prop_assert!(!machine.cpus().is_empty());
        }
    }

    #[test]
    fn no_damage_to_an_xml_file_makes_the_reader_panic(at in any::<prop::sample::Index>(), length in 0_usize..30, text in "[-0-9a-fx<>\"/ =,]{0,8}") {
        let whole = r#"<topology version="2.0"><object type="Machine" cpuset="0xf" complete_cpuset="0x1f">
            <object type="NUMANode" os_index="0" gp_index="3" cpuset="0x3" local_memory="4096"/>
            <object type="NUMANode" os_index="1" gp_index="9" cpuset="0xc"/>
            <object type="L3Cache" depth="3" cache_type="0" cache_size="1024" cpuset="0x3"><object type="Core" cpuset="0x3">
            <object type="PU" os_index="0"/><object type="PU" os_index="1"/></object></object></object>
            <distances2 type="NUMANode" kind="5" indexing="gp"><indexes>3 9</indexes><u64values>10 30 40 10</u64values></distances2>
            <cpukind cpuset="0x3"><info name="LinuxCapacity" value="512"/></cpukind></topology>"#;
        let at = at.index(whole.len());
        let damaged = format!("{}{text}{}", &whole[..at], &whole[whole.len().min(at + length)..]);
        if let Ok(machine) = Topology::from_hwloc_xml(&damaged) {
            prop_assert!(!machine.cpus().is_empty());
            for &scope in AffinityScope::ALL {
                prop_assert!(machine.possible().iter().all(|cpu| machine.pods(scope, 8).pod_index(cpu).is_some()));
            }
        }
    }

}

// A machine may have hundreds of pods, and each has a distance to every other.
proptest! {
    #![proptest_config(cases(16, 256))]

    #[test]
    fn pods_partition_the_cpus_and_finer_scopes_stay_within_coarser_ones(text in description(), size in 0_usize..12) {
        let machine = Topology::from_synthetic(&text).unwrap();
        checked::scopes(&machine, size);
    }

}

proptest! {
    #![proptest_config(cases(48, 256))]

    #[test]
    fn shards_hold_whole_cores_and_are_even(text in description(), size in 1_usize..12) {
        let machine = Topology::from_synthetic(&text).unwrap();
        let pods = machine.pods(AffinityScope::CacheShard, size);
        for core in machine.cores() {
            prop_assert!(pods.pods.iter().any(|pod| core.cpus.is_subset(&pod.cpus)));
        }
        for llc in machine.llcs() {
            let inside = pods.pods.iter().filter(|pod| pod.cpus.is_subset(&llc.cpus));
            let of = |cpus: &CpuSet| llc.core_indices.iter().filter(|core| machine.cores()[**core].cpus.is_subset(cpus)).count();
            let counts: Vec<usize> = inside.map(|pod| of(&pod.cpus)).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), llc.core_indices.len());
            prop_assert_eq!(counts.len(), ((llc.core_indices.len() + size / 2) / size).max(1));
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        }
    }

    #[test]
    fn distance_is_symmetric_and_grows_outwards(text in description(), picks in vec(any::<prop::sample::Index>(), 2)) {
        let machine = Topology::from_synthetic(&text).unwrap();
        let [a, b] = [picks[0].index(machine.cpus().len()), picks[1].index(machine.cpus().len())];
        let (a, b) = (machine.cpus()[a].id, machine.cpus()[b].id);
        prop_assert_eq!(machine.cpu_distance(a, b), machine.cpu_distance(b, a));
        checked::distance(&machine, a, b);
    }
}
