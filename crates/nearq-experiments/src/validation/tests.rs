use super::*;
use crate::LockOptions;
use crate::harness::Common;
use std::fs;
use std::time::Duration;

fn options(machine: &str, simulated: &str) -> LockOptions {
    let common = Common {
        machine: machine.into(),
        beside_simulated: Some(simulated.into()),
        runs: Some(2),
        duration: Some(Duration::from_millis(10)),
        ..Common::default()
    };
    LockOptions {
        common,
        writers: Some(vec![1]),
        section: Some("short".into()),
        ..LockOptions::default()
    }
}

/// A description of a machine with as many CPUs as this process may use.
fn alike() -> String {
    format!("core:{}", Machine::here().unwrap().parallelism())
}

#[test]
fn one_workload_runs_on_both_machines_and_its_json_goes_onto_the_page() {
    let comparison = beside(&options(HERE, &alike()), &Progress::hidden()).unwrap();
    assert_eq!(comparison.experiment, "lock");
    let rows: Vec<&str> = comparison.compared.iter().map(|one| one.row.as_str()).collect();
    assert!(rows.contains(&"auto") || rows.contains(&crate::lock::AUTO), "{rows:?}");
    assert!(!rows.contains(&"std"), "a row that is not simulated has nothing to be compared with");
    for one in &comparison.compared {
        assert!(one.quartiles[0] <= one.measured && one.measured <= one.quartiles[1], "{one:?}");
    }
    assert_eq!(comparison.machine.costs["same_llc"], Costs::DEFAULT.same_llc);
    let text = comparison.text();
    assert!(text.contains("acquisitions_per_second") && text.contains("signs right"), "{text}");
    let json = comparison.to_json();
    // Numbers in JSON may differ in their last digit when they are read again.
    let again = Comparison::from_json(&json).unwrap();
    assert_eq!(
        (again.compared.len(), again.machine),
        (comparison.compared.len(), comparison.machine.clone())
    );

    let folder = std::env::temp_dir().join(format!("nearq-validation-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let none = page(&folder).unwrap_err().to_string();
    assert!(none.contains("--beside-simulated"), "{none}");
    fs::write(folder.join("mine.json"), &json).unwrap();
    fs::write(folder.join("notes.txt"), "not a comparison").unwrap();
    let text = page(&folder).unwrap();
    assert!(
        text.contains("[mine.json](validation/mine.json)") && text.contains("| lock |"),
        "{text}"
    );
    assert!(text.contains(&comparison.score.line()), "{text}");
    fs::write(folder.join("bad.json"), "{}").unwrap();
    let bad = page(&folder).unwrap_err().to_string();
    fs::remove_dir_all(&folder).unwrap();
    assert!(bad.contains("bad.json") && bad.contains("--beside-simulated"), "{bad}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_a_reason() {
    let refused = |machine: &str, simulated: &str| {
        let error = beside(&options(machine, simulated), &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2, "{error}");
        error.to_string()
    };
    assert!(refused("ryzen-3900x", &alike()).contains("leave --on out"));
    assert!(refused(HERE, HERE).contains("nearq sim calibrate"));
    assert!(refused(HERE, "core:4095").contains("4095 CPUs"));
    assert!(refused(HERE, "cray-1").contains("cray-1"));
}

#[test]
fn a_simulated_crowd_is_as_large_as_the_real_one() {
    let quick = crate::HighpriOptions {
        common: Common { quick: true, ..Common::default() },
        ..Default::default()
    };
    let here = Machine::here().unwrap();
    let simulated = Machine::named(&alike()).unwrap();
    let size = |of: &crate::HighpriOptions, on: &Machine| {
        let plan = of.plan(on).unwrap();
        format!("{plan:?}")
    };
    assert_eq!(size(&quick, &here), size(&quick.sized_as_here(), &simulated));
    assert_ne!(size(&quick, &here), size(&quick, &simulated));
}
