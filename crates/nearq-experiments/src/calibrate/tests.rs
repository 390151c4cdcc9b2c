use super::*;
use nearq_sim::Noise;

/// The CPUs that this process may use.
pub(crate) fn cpus() -> Vec<usize> {
    Machine::here().unwrap().usable().iter().collect()
}

/// One of them.
pub(crate) fn a_cpu() -> usize {
    cpus()[0]
}

const TINY: Size = Size { samples: 5, wake_ups: 100, most_bytes: 1 << 26 };

/// A file in a folder for temporary ones, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nearq-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn this_machine_is_measured_and_the_file_is_a_machine_that_can_be_simulated() {
    let here = Machine::here().unwrap();
    let calibration = measure(&here, TINY, Path::new("/"), &Progress::hidden()).unwrap();
    let Calibrated { text, file } = settled(here.topology(), calibration.clone(), true);
    assert!(text.contains("read, latency") && text.contains("samples disturbed"), "{text}");
    let written = File::new("here.machine", &file.unwrap());
    let name = written.0.to_str().unwrap();
    let read = Machine::named(name).unwrap();
    let model = read.model().unwrap();
    assert_eq!(model.calibration(), Some(&calibration), "what was measured is read again");
    assert_eq!(read.topology().possible(), here.topology().possible());
    assert_eq!(read.topology().llcs().len(), here.topology().llcs().len());
    // What any machine of the last twenty years costs, measured by a debug build on a busy one.
    let bounds = [
        ("own_line", 1, 100),
        ("read_modify_write", 1, 500),
        ("look", 1, 1_000),
        ("fence", 1, 1_000),
        ("memory", 5, 5_000),
        ("memory_stream", 10, 1_000_000),
        ("clock", 5, 10_000),
        ("system_call", 10, 50_000),
        ("context_switch", 1, 1_000_000),
        ("spawn", 1_000, 100_000_000),
        ("page_fault", 50, 1_000_000),
    ];
    for (cost, least, most) in bounds {
        let value = model.costs().get(cost).unwrap();
        assert!((least..=most).contains(&value), "{cost}: {value}");
        let source = model.sources().iter().find(|source| source.cost == cost).unwrap();
        assert_eq!(source.origin, nearq_sim::Origin::Measured, "{cost}: {}", source.text);
    }
    assert!((400..8_000).contains(&model.clock_mhz()), "{} MHz", model.clock_mhz());
    let outcome = read.simulation(1).unwrap().run(|| 7);
    assert_eq!(outcome.expect(), 7);
}

fn planted(noise: Noise) -> Calibration {
    let measurement = |name: &str, medians: [f64; 2]| Measurement {
        name: name.into(),
        unit: "ns".into(),
        quartiles: [medians[0]; 3],
        medians,
        samples: 5,
    };
    let measurements = vec![
        measurement("cycle", [0.3, 0.3]),
        measurement("read, latency", [1.2, 1.2]),
        measurement("system call", [100.0, 150.0]),
        // Nothing follows from it: it may drift.
        measurement("move", [1000.0, 9000.0]),
    ];
    let noisy = noise::reasons(&noise, &measurements, &costs::names());
    Calibration { noise, noisy, measurements, ..Calibration::default() }
}

#[test]
fn a_noisy_machine_is_refused_with_the_reasons_unless_the_user_accepts_it() {
    let topology = Topology::from_synthetic("l3:1(size=8MiB) l2:2(size=1MiB) core:1").unwrap();
    let noise = Noise { steal_percent: Some(31.5), ..Noise::default() };
    let refused = settled(&topology, planted(noise), false).file.unwrap_err();
    assert_eq!(refused.exit_status(), 1);
    let text = refused.to_string();
    for part in ["too noisy", "31.5 %", "system call drifted by 50 %", "5 %", "--accept-noise"] {
        assert!(text.contains(part), "{part} is missing from {text}");
    }
    assert!(!text.contains("move") && !text.contains('\n'), "{text}");
    let accepted = settled(&topology, planted(noise), true).file.unwrap();
    assert!(accepted.contains("while it was noisy") && accepted.contains("31.5 %"), "{accepted}");
    let mut quiet = planted(Noise::default());
    quiet.noisy.clear();
    let file = settled(&topology, quiet, false).file.unwrap();
    assert!(!file.contains("noisy\"}") && !file.contains("while it was noisy"), "{file}");
}

#[test]
fn a_file_that_lacks_a_cost_of_its_shape_says_which_and_gives_its_costs_to_other_shapes() {
    let topology = Topology::from_synthetic("l3:1(size=8MiB) l2:2(size=1MiB) core:1").unwrap();
    let text = settled(&topology, planted(Noise::default()), true).file.unwrap();
    let file = File::new("few.machine", &text);
    let error = Machine::named(file.0.to_str().unwrap()).unwrap_err().to_string();
    assert!(error.contains("no rule gives") && error.contains("read_modify_write"), "{error}");
}

#[test]
fn a_name_that_the_option_on_would_refuse_is_refused() {
    let options =
        |output: &str| CalibrateOptions { output: output.into(), accept_noise: false, quick: true };
    for good in ["my.machine", "/tmp/a.json"] {
        assert_eq!(options(good).check(), Ok(()));
    }
    let refused = options("my.txt").check().unwrap_err();
    assert_eq!(refused.exit_status(), 2);
    assert!(refused.to_string().contains("my.txt") && refused.to_string().contains(".machine"));
}

#[test]
fn the_plan_counts_its_steps() {
    let machine = Machine::here().unwrap();
    let plan = Plan::new(&machine, TINY);
    let progress = Progress::hidden();
    let mut watcher = Watcher::start(Path::new("/"), 1);
    let mut meter = Meter { watcher: &mut watcher, progress: &progress, turn: 1, all: Vec::new() };
    plan.carry_out(&mut meter).unwrap();
    assert_eq!(progress.position(), plan.steps());
}

#[test]
fn the_first_two_turns_that_agree_count() {
    let turn = |median: f64| {
        let values = vec![median - 1.0, median, median + 1.0];
        vec![Samples { values, preempted: 1, ..Samples::new("bounce same_llc", "ns") }]
    };
    let of = |medians: &[f64]| {
        let turns: Vec<_> = medians.iter().copied().map(turn).collect();
        let pair = steadiest(&turns, 0);
        (pair.measurement.medians, pair.preempted)
    };
    assert_eq!(of(&[100.0, 101.0]), ([100.0, 101.0], 2));
    assert_eq!(of(&[100.0, 120.0, 150.0, 151.0, 100.0]), ([150.0, 151.0], 2));
    assert_eq!(
        of(&[100.0, 120.0, 100.0]),
        ([120.0, 100.0], 2),
        "none: the last two, which are refused"
    );
    let turns = [turn(10.0), turn(20.0), turn(20.0)];
    assert_eq!(steadiest(&turns, 0).measurement.quartiles, [19.25, 20.0, 20.75], "of these two");
}
