//! Text and pictures of real machines: well formed and complete.

use crate::skipped::skipped;
use nearq_report::drawing;
use nearq_topology::{AffinityScope, CpuSet, Limits, Quota, Topology};
use std::path::{Path, PathBuf};

fn check(name: &str, view: &drawing::View<'_>) {
    let svg = drawing::svg(view);
    let picture =
        roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{name}: {error}"));
    let labels: Vec<&str> = picture.descendants().filter_map(|element| element.text()).collect();
    for cpu in view.topology.cpus() {
        assert!(
            labels.contains(&cpu.id.to_string().as_str()),
            "{name}: CPU {} is not drawn",
            cpu.id
        );
    }
    let text = drawing::text(view);
    for &scope in AffinityScope::ALL {
        assert!(text.contains(&format!("\n  {scope:<12} ")), "{name}: {scope}");
    }
    for note in view.topology.notes() {
        assert!(text.contains(note.as_str()), "{name}: {note}");
    }
}

#[test]
fn this_machine_is_drawn_with_usable_cpus() {
    let root = Path::new("/");
    let machine = Topology::from_sysfs(root).expect("this machine");
    let mut limits = Limits::read(root, CpuSet::new());
    limits.quota = Some(Quota::new(0.5, "/a \"quoted\"\\path"));
    let view = drawing::View::new(&machine).with_limits(&limits);
    check("here", &view);
    assert!(drawing::text(&view).contains("CPU quota: 0.50 CPUs, by /a \"quoted\"\\path"));
}

#[test]
fn real_machines_can_be_drawn() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/machines");
    let folder = std::env::var_os("NEARQ_MACHINES").map_or(default, PathBuf::from).join("xml");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        let why = format!("there are none in {}", folder.display());
        return skipped(
            "real machines as they are shown",
            why,
            "set NEARQ_MACHINES to their folder",
        );
    };
    for entry in entries {
        let name = entry.expect("the folder can be listed").path().to_string_lossy().into_owned();
        let machine =
            Topology::from_description(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
        check(&name, &drawing::View::new(&machine));
    }
}

#[test]
fn offline_and_forbidden_cpus_are_marked() {
    let machine = Topology::from_hwloc_xml(
        r#"<topology version="2.0"><object type="Machine" complete_cpuset="0xf">
             <object type="PU" os_index="0"/><object type="PU" os_index="1"/><object type="PU" os_index="2"/>
           </object></topology>"#,
    )
    .expect("a machine");
    let limits = Limits::unlimited(CpuSet::all(2));
    let view = drawing::View::new(&machine).with_limits(&limits);
    check("offline", &view);
    let svg = drawing::svg(&view);
    // CPU 3 and its legend; CPU 2 and its legend.
    assert_eq!(svg.matches("stroke-dasharray").count(), 2, "{svg}");
    assert_eq!(svg.matches("fill-opacity").count(), 2, "{svg}");
    assert!(drawing::text(&view).contains("4 CPUs, 1 of them offline"));
}
