//! Any machine that can be shown can be simulated: every experiment runs on it, or refuses with a reason. No panic, no endless run.
//!
//! The machines are drawn: trees of `/sys` in which files are missing, empty, wrong or contradict each other, and CPUs are offline. The number of
//! the draw is printed if it fails.

use fastrand::Rng;
use nearq_experiments as experiments;
use nearq_experiments::Common;
use nearq_model::bound;
use nearq_report::drawing;
use nearq_report::{Error, Machine, Progress, Report};
use nearq_topology::Topology;
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CPUS: &str = "sys/devices/system/cpu";

/// What may be wrong with a drawn machine.
struct Draw {
    root: PathBuf,
    random: Rng,
    /// The numbers of its CPUs.
    cpus: Vec<usize>,
    /// How many files of a hundred are not as they should be.
    wrong: u32,
}

impl Draw {
    fn make(root: &Path, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let (step, count) = (random.usize(1..3), random.usize(1..7));
        let first = random.usize(0..2);
        let cpus = (0..count).map(|cpu| first + cpu * step).collect();
        let wrong = *random.choice(&[0, 10, 40, 80]).expect("one of them");
        let mut draw = Draw { root: root.into(), random, cpus, wrong };
        draw.lists();
        draw.parts();
        draw.nodes();
    }

    /// Writes a file that should hold `text`: or does not write it, or writes something else.
    fn file(&mut self, name: &str, text: &str) {
        let text = if self.random.u32(0..100) >= self.wrong {
            text.to_owned()
        } else {
            let any = self.random.usize(0..10);
            match self.random.u32(0..7) {
                0 | 1 => return,
                2 => String::new(),
                3 => "0".into(),
                4 => format!("{any}"),
                5 => format!("{any}-{}", any + self.random.usize(0..9)),
                _ => "garbage".into(),
            }
        };
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a new folder");
        fs::write(path, text + "\n").expect("a new file");
    }

    /// The CPUs of the part that a CPU is in, if each part has `size` CPUs.
    fn part(&self, index: usize, size: usize) -> String {
        let parts = self.cpus.chunks(size).nth(index / size).expect("it is in one");
        parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    fn lists(&mut self) {
        let all = self.part(0, self.cpus.len());
        let count = self.random.usize(0..=self.cpus.len());
        let some = if self.random.bool() { all.clone() } else { self.part(0, count.max(1)) };
        for (name, text) in [("possible", "0-15"), ("present", &all), ("online", &some)] {
            self.file(&format!("{CPUS}/{name}"), text);
        }
    }

    fn parts(&mut self) {
        let (smt, package) = (self.random.usize(1..3), self.random.usize(1..5));
        let sharing = [smt, smt, smt.max(2), package];
        for (index, cpu) in self.cpus.clone().into_iter().enumerate() {
            let folder = format!("{CPUS}/cpu{cpu}");
            for (name, size) in [
                ("thread_siblings_list", smt),
                ("core_siblings_list", package),
                ("cluster_cpus_list", 2),
            ] {
                let text = self.part(index, size);
                self.file(&format!("{folder}/topology/{name}"), &text);
            }
            self.file(
                &format!("{folder}/topology/physical_package_id"),
                &format!("{}", index / package),
            );
            self.file(&format!("{folder}/topology/cluster_id"), &format!("{}", index / 2));
            if self.wrong > 0 && self.random.bool() {
                let capacity = *self.random.choice(&[1, 20, 400, 1024]).expect("one of them");
                self.file(&format!("{folder}/cpu_capacity"), &format!("{capacity}"));
            }
            for (number, size) in sharing.into_iter().enumerate().take(self.random.usize(2..5)) {
                let cache = format!("{folder}/cache/index{number}");
                let shared = self.part(index, size);
                let kind = ["Data", "Instruction", "Unified", "Unified"][number];
                for (name, text) in [
                    ("level", ["1", "1", "2", "3"][number]),
                    ("type", kind),
                    ("size", "512K"),
                    ("coherency_line_size", "64"),
                    ("shared_cpu_list", &shared),
                ] {
                    self.file(&format!("{cache}/{name}"), text);
                }
            }
        }
    }

    fn nodes(&mut self) {
        let (count, size) = (self.random.usize(0..4), self.random.usize(1..4));
        let row = |from: usize| {
            (0..count).map(|to| if from == to { "10" } else { "21" }).collect::<Vec<_>>().join(" ")
        };
        for node in 0..count {
            let folder = format!("sys/devices/system/node/node{}", node * self.random.usize(1..3));
            let index = node * size;
            let cpus = if index < self.cpus.len() { self.part(index, size) } else { String::new() };
            self.file(&format!("{folder}/cpulist"), &cpus);
            self.file(&format!("{folder}/distance"), &row(node));
            self.file(&format!("{folder}/meminfo"), &format!("Node {node} MemTotal: 4194304 kB"));
        }
    }
}

/// An experiment, as small as it can be.
type Experiment = fn(Common) -> Result<Report, Error>;

const EXPERIMENTS: [(&str, Experiment); 10] = [
    ("scopes", |common| {
        let options = experiments::ScopesOptions { common, ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("sensitivity", |common| {
        let options = experiments::SensitivityOptions {
            machine: Some(common.machine),
            experiment: Some("dispatch".into()),
            costs: vec!["wake_up".into()],
            quick: true,
            runs: Some(1),
            ..experiments::SensitivityOptions::default()
        };
        experiments::sensitivity(&options, &Progress::hidden())
    }),
    ("blocking", |common| {
        let common = Common { duration: None, ..common };
        let options =
            experiments::BlockingOptions { common, items: Some(40), ..Default::default() };
        experiments::blocking(&options, &Progress::hidden())
    }),
    ("join", |common| {
        let common = Common { duration: None, ..common };
        let options = experiments::JoinOptions { common, ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("highpri", |common| {
        let options =
            experiments::HighpriOptions { common, threads: Some(20), ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("lock", |common| {
        let options =
            experiments::LockOptions { common, writers: Some(vec![2]), ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("rwlock", |common| {
        let (threads, writes) = (Some(vec![2]), Some(vec![10]));
        let options = experiments::RwlockOptions { common, threads, writes, ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("home", |common| {
        let common = Common { duration: None, ..common };
        let options = experiments::HomeOptions {
            common,
            tasks: Some(vec![2]),
            passes: Some(1),
            ..Default::default()
        };
        experiments::run(&options, &Progress::hidden())
    }),
    ("numa", |common| {
        let common = Common { duration: None, ..common };
        let options = experiments::NumaOptions { common, files: Some(8), ..Default::default() };
        experiments::run(&options, &Progress::hidden())
    }),
    ("dispatch", |common| {
        let common = Common { duration: None, ..common };
        let options =
            experiments::DispatchOptions { common, idle_samples: Some(3), items: Some(5) };
        experiments::run(&options, &Progress::hidden())
    }),
];

/// Prints what failed, whatever the failure.
struct CurrentCase(Cell<String>);

impl Drop for CurrentCase {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed: {}", self.0.take());
        }
    }
}

#[test]
fn every_valid_machine_is_simulated_or_refused_with_a_reason() {
    let root =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("machines-{}", std::process::id()));
    let current_case = CurrentCase(Cell::default());
    let (mut shown, mut run) = (0, [0; EXPERIMENTS.len()]);
    for seed in 0..bound(2 * EXPERIMENTS.len() as u64, 200) {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a new folder");
        Draw::make(&root, seed);
        current_case.0.set(format!("draw {seed}"));
        let Ok(topology) = Topology::from_sysfs(&root) else { continue };
        shown += 1;
        let view = drawing::View::new(&topology);
        assert!([drawing::text(&view), drawing::svg(&view)].iter().all(|text| !text.is_empty()));
        let name = format!("sysfs:{}", root.display());
        if let Err(error) = Machine::named(&name) {
            assert!(error.exit_status() == 2 && !error.to_string().is_empty(), "{error}");
            continue;
        }
        // One of the experiments each time, or all of them: the one that has run least, because some machines are too small for it.
        let which = (0..EXPERIMENTS.len()).min_by_key(|&number| run[number]).expect("several");
        for (number, (experiment, make)) in EXPERIMENTS.iter().enumerate() {
            if bound(number == which, true) {
                current_case.0.set(format!("draw {seed}, {experiment}\n{}", drawing::text(&view)));
                let common = Common {
                    machine: name.clone(),
                    runs: Some(1),
                    duration: Some(Duration::from_millis(10)),
                    quick: true,
                    goals: false,
                    ..Common::default()
                };
                match make(common) {
                    Ok(_) => run[number] += 1,
                    Err(error) => assert_eq!(error.exit_status(), 2, "{error}"),
                }
            }
        }
    }
    let _ = fs::remove_dir_all(&root);
    let all: usize = run.iter().sum();
    assert!(shown > 10 && all > shown / 2, "{shown} shown, {run:?} run");
    assert!(run.iter().all(|&times| times > 0), "an experiment was never run: {run:?}");
}
