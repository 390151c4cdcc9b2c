use nearq_home::Weights;
use nearq_platform::Residency;
use nearq_topology::Topology;

use super::*;
use crate::base::ids::QueueKind;
use crate::queue::runtime::Runtime;

fn runtime() -> Runtime<Linux> {
    Runtime::<Linux>::builder().build().unwrap()
}

#[test]
fn a_nonexistent_node_is_refused_and_the_error_lists_the_nodes() {
    let error = Home::on_in(&runtime(), 4096).expect_err("there is no such node");
    assert!(matches!(error, Error::NoHome(_)));
    let text = error.to_string();
    assert!(text.contains("node 4096") && text.contains("there is no such node"), "{text}");
}

#[test]
fn a_home_has_a_node_and_a_reason() {
    let runtime = runtime();
    let home = Home::pick_in(&runtime);
    let node = home.node().expect("it was chosen");
    assert!(home.explain().contains(&format!("node {node}")), "{}", home.explain());
    home.move_to(node).expect("it is there");
    assert!(home.clone() == home && Home::pick_in(&runtime) != home);
    let all = runtime.home_nodes();
    assert!(all.iter().any(|row| row.node == node && !row.cpus.is_empty()));
}

#[test]
fn weights_can_be_set_by_name_and_are_checked() {
    let runtime = runtime();
    runtime.set_home_weight("imbalance", 3000).expect("within bounds");
    assert_eq!(runtime.home_weights().get("imbalance"), Some(3000));
    for (name, value) in [("imbalance", 0), ("nothing", 1)] {
        let error = runtime.set_home_weight(name, value).expect_err("not allowed");
        assert!(matches!(error, Error::Weight(_)), "{error}");
    }
    assert_eq!(runtime.home_weights().get("imbalance"), Some(3000));
}

#[test]
fn the_documentation_of_homes_lists_every_weight() {
    let page = include_str!("../../../../docs/home.md");
    let weights = Weights::default();
    for name in Weights::names() {
        let (least, most) = Weights::bounds(name).expect("it has bounds");
        let usual = weights.get(name).expect("it has a value");
        let row = format!(
            "| `{name}` | {usual} | {least} to {most} | {} |",
            Weights::about(name).unwrap()
        );
        assert!(page.contains(&row), "docs/home.md has no row\n{row}");
    }
}

#[test]
#[cfg(not(miri))]
fn the_environment_sets_weights_and_bad_values_are_warned_of() {
    use nearq_sim::{Sim, Simulation};
    let step = |text: &'static str| {
        let machine = nearq_topology::Topology::from_synthetic("core:2").unwrap();
        let simulation = Simulation::new(machine, 1).setting("NEARQ_HOME_WEIGHTS", text);
        let outcome = simulation.run(|| {
            let runtime = Runtime::<Sim>::builder_in().build().expect("no variable prevents it");
            runtime.home_weights().get("imbalance_step")
        });
        (outcome.warnings.concat(), outcome.expect())
    };
    assert_eq!(step("imbalance=2000, imbalance_step=7"), (String::new(), Some(7)));
    for (text, name) in [("imbalance", "NAME=NUMBER"), ("imbalance=0", "imbalance"), ("x=1", "x")] {
        let (warning, step) = step(text);
        assert!(warning.contains("NEARQ_HOME_WEIGHTS") && warning.contains(name), "{warning}");
        assert_eq!(step, Some(500), "it counts as not set");
    }
}

#[test]
fn names_of_choices_and_memory_policies_round_trip() {
    for choice in HomeChoice::ALL.iter().copied() {
        assert_eq!(choice.to_string().parse(), Ok(choice));
        assert_eq!(HomeChoice::from_number(choice as u32), choice);
    }
    for memory in MemoryPolicy::ALL.iter().copied() {
        assert_eq!(memory.to_string().parse(), Ok(memory));
        assert_eq!(MemoryPolicy::from_number(memory as u32), memory);
    }
    let error = "later".parse::<HomeChoice>().unwrap_err().to_string();
    assert_eq!(error, "there is no choice of homes `later`; give one of now, first-run");
    assert!("".parse::<MemoryPolicy>().is_err());
}

#[test]
fn a_handle_survives_a_round_trip_through_a_pointer() {
    let runtime = runtime();
    let home = Home::pick_in(&runtime);
    let inside = Arc::clone(home.inside());
    let raw = home.into_raw();
    assert!(inside.is_held());
    // SAFETY: from `into_raw`, once.
    drop(unsafe { Home::from_raw(raw) });
    assert!(!inside.is_held());
}

#[test]
fn memory_belongs_to_a_home_until_the_guard_is_dropped() {
    let runtime = runtime();
    let block = vec![1_u64; 4096];
    let home = Home::near_in(&runtime, &[]);
    let registered = home.register_slice(&block);
    // Some systems forbid the query.
    if let Ok(residency) = Residency::of(home_bytes(&block)) {
        assert_eq!(home.inside().pages().pages, residency.pages);
    }
    drop(registered);
    assert!(home.inside().pages().pages.is_empty());
}

fn home_bytes(block: &[u64]) -> &[u8] {
    // SAFETY: numbers are bytes; borrowed as the block is.
    unsafe { core::slice::from_raw_parts(block.as_ptr().cast(), size_of_val(block)) }
}

#[test]
fn a_per_cpu_queue_has_no_home() {
    let runtime = runtime();
    let home = Home::pick_in(&runtime);
    let error = runtime.workqueue_builder("x").per_cpu().home(&home).build().expect_err("refused");
    assert_eq!(error, Error::Unsupported { attribute: "a home", kind: QueueKind::PerCpu });
    let queue = runtime.workqueue_builder("y").per_cpu().build().expect("plain");
    assert!(queue.set_home(&home).is_err() && queue.set_memory(MemoryPolicy::Interleave).is_err());
    queue.set_home(None).expect("it has none anyway");
}

#[test]
fn a_thread_in_a_home_does_not_hide_other_nodes_from_the_process() {
    let runtime = runtime();
    let homes = runtime.homes_of();
    let cpus = |list: &str| -> nearq_topology::CpuSet { list.parse().unwrap() };
    homes.note_entered(&cpus("4-7"), &cpus("0-7"));
    assert_eq!(homes.unentered(cpus("4-7")), cpus("0-7"));
    assert_eq!(homes.unentered(cpus("2-3")), cpus("2-3"), "that restriction is not the home's");
    homes.forget_entered(&cpus("0-7"));
    assert_eq!(homes.unentered(cpus("4-7")), cpus("4-7"));
}

#[test]
fn a_runtime_started_on_an_unreadable_machine_has_one_home_node() {
    let real = Topology::from_synthetic("numa:2 core:2").unwrap();
    let error = Topology::from_sysfs(std::path::Path::new("/nonexistent")).unwrap_err();
    let machine = Topology::of_cpus(real.possible(), &error).unwrap();
    let homes = Homes::<Linux>::new(&machine, real.possible(), Weights::default(), None);
    homes.set_machine(&real, real.possible());
    assert_eq!((homes.has_several(), homes.nodes().len()), (false, 1));
    assert_eq!(&homes.nodes().get(0).cpus, real.possible());
    let homes = Homes::<Linux>::new(&real, real.possible(), Weights::default(), None);
    homes.set_machine(&real, real.possible());
    assert_eq!(homes.nodes().len(), 2);
}
