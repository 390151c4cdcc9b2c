//! Machines that strangers describe can be drawn.

use nearq_report::drawing::{self, View};
use nearq_topology::Topology;
use proptest::prelude::*;

use crate::checked;
use crate::descriptions::description;
use crate::files::corpus;
use crate::shown::shown;

#[test]
fn every_machine_of_the_corpora_can_be_drawn() {
    let folder = std::env::temp_dir().join(format!("nearq-report-drawn-{}", std::process::id()));
    corpus("hwloc").iter().filter_map(|bytes| checked::xml(bytes)).for_each(|one| shown(&one));
    let trees = corpus("sysfs");
    trees.iter().filter_map(|bytes| checked::sysfs(bytes, &folder)).for_each(|one| shown(&one));
    std::fs::remove_dir_all(&folder).expect("it was made");
}

#[test]
fn a_long_name_is_cut_in_the_text() {
    let name = "x".repeat(100_000);
    let xml = format!(
        "<topology version='2.0'><object type='Machine'><info name='CPUModel' value='{name}'/>\
         <object type='PU' os_index='0'/></object></topology>"
    );
    let machine = Topology::from_hwloc_xml(&xml).expect("a machine");
    let text = drawing::text(&View::new(&machine));
    assert_eq!(text.lines().next().map(str::len), Some(200));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_machine_can_be_drawn(text in description(), size in 0_usize..12) {
        let machine = Topology::from_synthetic(&text).unwrap();
        let view = View { shard_size: size, ..View::new(&machine) };
        prop_assert!(drawing::text(&view).contains("cache_shard"));
        prop_assert!(roxmltree::Document::parse(&drawing::svg(&view)).is_ok());
    }
}
