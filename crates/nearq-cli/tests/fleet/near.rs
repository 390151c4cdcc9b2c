//! Jobs of a queue near devices: `nearq run --near ... --from ...`.
//!
//! The machine of the test may have one node and no GPU. In a mount namespace its `/sys` is covered by a machine of two nodes, each with one
//! of the CPUs that the test may use and a GPU.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use crate::common::{errors, skipped};
use crate::nats::{Server, lines};

/// The first two CPUs that this process may use.
fn two_cpus() -> Option<[usize; 2]> {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim();
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let mut cpus = ranges.flatten();
    Some([cpus.next()?, cpus.next()?])
}

/// Writes the `/sys` of a machine with these two CPUs.
fn write_machine(sys: &str, cpus: [usize; 2]) {
    let file = |path: &str, text: &str| {
        let path = format!("{sys}/{path}");
        fs::create_dir_all(path.rsplit_once('/').unwrap().0).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    let online = format!("{},{}", cpus[0], cpus[1]);
    for list in ["possible", "present", "online"] {
        file(&format!("devices/system/cpu/{list}"), &online);
    }
    file("devices/system/node/online", "0-1");
    fs::create_dir_all(format!("{sys}/bus/pci/devices")).unwrap();
    for (node, cpu) in cpus.into_iter().enumerate() {
        for (name, text) in [
            ("core_cpus_list", cpu.to_string()),
            ("package_cpus_list", cpu.to_string()),
            ("physical_package_id", node.to_string()),
        ] {
            file(&format!("devices/system/cpu/cpu{cpu}/topology/{name}"), &text);
        }
        file(&format!("devices/system/node/node{node}/cpulist"), &cpu.to_string());
        let memory = format!("Node {node} MemTotal: 4096 kB\nNode {node} MemFree: 1 kB");
        file(&format!("devices/system/node/node{node}/meminfo"), &memory);
        let gpu = format!("0000:{node}1:00.0");
        let folder = format!("devices/pci0000:{node}0/{gpu}");
        file(&format!("{folder}/class"), "0x030200");
        file(&format!("{folder}/vendor"), "0x10de");
        file(&format!("{folder}/numa_node"), &node.to_string());
        symlink(format!("../../../{folder}"), format!("{sys}/bus/pci/devices/{gpu}")).unwrap();
    }
}

/// A worker that sees the folder as its `/sys`; `None`, after a line that says why, where that cannot be.
fn worker_with(server: &Server, sys: &str, arguments: &[&str], log: &str) -> Option<Output> {
    let worker = server.worker(arguments);
    let script = "mount --bind \"$0\" /sys 2>/dev/null || exit 77; exec \"$@\"";
    let run = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(way).args(["--mount", "sh", "-c", script, sys]);
        command.arg(worker.get_program()).args(worker.get_args()).env("LOG", log);
        command.output().ok().filter(|output| {
            output.status.code() != Some(77) && !errors(output).contains("unshare failed")
        })
    };
    let output = run(&[]).or_else(|| run(&["--map-root-user"]));
    if output.is_none() {
        skipped(
            "jobs of a queue near a device",
            "no mount namespace may be made",
            "run the tests as root",
        );
    }
    output
}

#[test]
fn jobs_of_a_queue_run_near_a_device_and_each_has_a_gpu_for_itself() {
    let Some(server) = Server::start("fleet-near") else { return };
    let Some(cpus) = two_cpus() else {
        return skipped(
            "jobs of a queue near a device",
            "there is one CPU",
            "a machine with two CPUs",
        );
    };
    let sys = server.folder.path("sys");
    write_machine(&sys, cpus);
    let inputs: Vec<String> = (1..=8).map(|number| number.to_string()).collect();
    // What a job sees at its first instruction: no program has run before it.
    let job = "while read -r name value rest; do \
               [ \"$name\" != Cpus_allowed_list: ] || cpus=$value; done </proc/self/status; \
               begin=$(date +%s%N); sleep 0.05; \
               echo \"$1 $cpus ${CUDA_VISIBLE_DEVICES-all} $CUDA_DEVICE_ORDER $begin $(date +%s%N)\" >>\"$LOG\"";
    let ran = |near: &str, log: &str| {
        server.submit(&(inputs.join("\n") + "\n"), &[]);
        let arguments = ["--near", near, "--until-empty", "--", "sh", "-c", job, "sh", "{}"];
        let output = worker_with(&server, &sys, &arguments, log)?;
        assert!(output.status.success(), "{output:?}");
        let ran: Vec<Vec<String>> =
            lines(log).iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
        let numbers: BTreeSet<&str> = ran.iter().map(|job| &*job[0]).collect();
        assert_eq!((ran.len(), numbers.len()), (8, 8), "each once: {ran:?}");
        assert_eq!(server.jobs()["jobs"], 0);
        Some(ran)
    };
    // All of them near one GPU; each sees every GPU, in the order of nearq's numbers.
    let Some(of_second) = ran("gpu:1", &server.folder.path("of-second")) else { return };
    for job in &of_second {
        assert_eq!(job[1..4], [cpus[1].to_string(), "all".into(), "PCI_BUS_ID".into()], "{job:?}");
    }
    // As many jobs at a time as GPUs, each with one of them.
    let Some(of_each) = ran("gpu", &server.folder.path("of-each")) else { return };
    for (gpu, cpu) in cpus.iter().enumerate() {
        let mut of_gpu: Vec<&Vec<String>> =
            of_each.iter().filter(|job| job[2] == gpu.to_string()).collect();
        assert!(!of_gpu.is_empty(), "no job had GPU {gpu}: {of_each:?}");
        assert!(of_gpu.iter().all(|job| job[1] == cpu.to_string()), "{of_each:?}");
        let time = |job: &[String], field: usize| job[field].parse::<u64>().unwrap();
        of_gpu.sort_by_key(|job| time(job, 4));
        for two in of_gpu.windows(2) {
            assert!(time(two[0], 5) <= time(two[1], 4), "two jobs at a time: {of_each:?}");
        }
    }
}
