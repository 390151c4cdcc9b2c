//! `nearq run --near` on a real kernel with devices on several nodes: a virtual machine of four nodes, whose QEMU has a PCI bus at node 1 (a
//! network card and a GPU) and one at node 2 (two disks and a GPU). The kernel shows one of the disks as a virtual one with a controller.
//!
//! `nearq-command/tests/guest` lists the requirements; if something is missing, one line says so and nothing is tested. If numactl is
//! installed, it runs in there too, and must choose the same CPUs.

#![cfg(target_arch = "x86_64")]

use crate::common::Folder;
use crate::guest::{boot_as, script, skipped, static_program};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What QEMU gets besides four nodes of two CPUs, and the modules for it. One disk reads as zeroes; of the other one IMAGE is the file.
const DEVICES: [&str; 9] = [
    "-device pxb,id=first,bus=pci.0,bus_nr=64,numa_node=1",
    "-device pxb,id=second,bus=pci.0,bus_nr=128,numa_node=2",
    "-device virtio-net-pci,bus=first,addr=1,romfile=",
    "-device ati-vga,romfile=,bus=first,addr=2",
    "-drive driver=null-co,size=1048576,if=none,id=disk,read-zeroes=on",
    "-device nvme,serial=1,drive=disk,bus=second,addr=1",
    "-device ati-vga,romfile=,bus=second,addr=2",
    "-drive file=IMAGE,format=raw,if=none,id=other",
    "-device virtio-blk-pci,drive=other,bus=second,addr=3",
];
const MODULES: [&str; 5] = ["virtio_net", "virtio_blk", "nvme", "bonding", "ext4"];

/// Mounts the disk that has a file system, and makes a file there.
const MOUNTED: &str =
    "mkdir -p /data; mount -t ext4 /dev/vda /data; mkdir -p /data/set; touch /data/set/file";

/// Prints the CPUs and the memory policy that a program begins with.
const SHOW: &str = "sed -n 's/^Cpus_allowed_list:[[:space:]]*/cpus /p' /proc/self/status; sed -n '1s/^[^ ]* \\([^ ]*\\).*/memory \\1/p' /proc/self/numa_maps";

/// What is run inside: a name, what is done first, and a command.
fn steps() -> Vec<[String; 3]> {
    let near = |name: &str, first: &str, options: &str| {
        [name.to_owned(), first.to_owned(), format!("./nearq run {options} -- sh show.sh")]
    };
    let gpu = "echo gpu $ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES; sh show.sh";
    vec![
        ["devices".into(), String::new(), "./nearq topo --json".into()],
        near("netdev", "", "--near netdev:eth0"),
        near("block", "", "--near block:nvme0n1"),
        near("gpu", "", "--near gpu:1"),
        near("pci", "", "--near pci:41:02.0 --strict"),
        near("ip", "ip addr add 10.9.0.1/24 dev eth0; ip link set eth0 up", "--near ip:10.9.0.7"),
        near("file", MOUNTED, "--near file:/data/set/file"),
        near(
            "bond",
            "ip link set eth0 down; echo +eth0 > /sys/class/net/bond0/bonding/slaves",
            "--near netdev:bond0",
        ),
        near("both", "", "--near netdev:eth0 --near block:nvme0n1"),
        near("job", "", "--near block:nvme0n1 --ungroup"),
        near("tree", "", "--tree --near netdev:eth0"),
        [
            "each".into(),
            String::new(),
            format!("./nearq run --near gpu --tag --keep-order -- sh -c '{gpu}'"),
        ],
        [
            "narrow".into(),
            String::new(),
            format!("./nearq run --near gpu -j1 --tag --keep-order -- sh -c '{gpu}'"),
        ],
        [
            "inputs".into(),
            String::new(),
            format!("./nearq run --near gpu --keep-order -- sh -c '{gpu}' x ::: a b c d e"),
        ],
        near("unknown", "", "--near netdev:eth9"),
        near("nobody", "", "--near pci:00:01.0"),
        near("memory", "touch /tmp/file", "--near file:/tmp/file"),
        near("virtual", "", "--near netdev:lo"),
        ["masked".into(), String::new(), "taskset 3 ./nearq run --near gpu:0 -- sh show.sh".into()],
        near(
            "root",
            "for file in /sys/bus/pci/devices/*/numa_node; do echo -1 > $file; done",
            "--near gpu:1",
        ),
    ]
}

/// The lines that a step prints on both outputs, by its name.
fn run(files: &[&Path], steps: &[[String; 3]]) -> Option<BTreeMap<String, Vec<String>>> {
    let machine = script()?;
    let nearq = static_program(&["--package", "nearq-cli", "--bin", "nearq"], "nearq")?;
    let folder = Folder::new("near-in-machine");
    let (path, show) = (folder.path("steps.sh"), folder.path("show.sh"));
    fs::write(&show, SHOW).unwrap();
    let mut text = String::from("cd /job\n");
    for [name, first, command] in steps {
        // Not to the terminal, where lines are broken.
        text += &format!(
            "{first}\necho BEGIN {name}\n{command} > /tmp/out 2>&1\nstatus=$?\ncat /tmp/out\n[ $status = 0 ] || echo STATUS $status\n"
        );
    }
    fs::write(&path, text).unwrap();
    let image = folder.path("image");
    fs::write(&image, vec![0; 4 << 20]).unwrap();
    let made =
        Command::new("mke2fs").args(["-q", "-t", "ext4", "-O", "^has_journal", &image]).status();
    if !made.is_ok_and(|status| status.success()) {
        skipped("there is no mke2fs", "apt-get install e2fsprogs");
        return None;
    }
    let devices = DEVICES.map(|device| device.replace("IMAGE", &image));
    let mut options = vec!["-T", "150", "-t", "C"];
    options.extend(MODULES.iter().flat_map(|module| ["-M", module]));
    options.extend(devices.iter().flat_map(|device| ["-q", device]));
    let all: Vec<&Path> = [nearq.as_path(), Path::new(&path), Path::new(&show)]
        .into_iter()
        .chain(files.iter().copied())
        .collect();
    let output = boot_as(&machine, &options, &all, Path::new("sh"), &["/job/steps.sh"])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let parts = text.split("BEGIN ").skip(1).filter_map(|part| part.split_once('\n'));
    let lines = |part: &str| part.lines().map(str::to_owned).collect();
    Some(parts.map(|(name, part)| (name.to_owned(), lines(part))).collect())
}

#[test]
#[ignore = "takes 20 s; .ci/long-steps/near runs it"]
fn programs_begin_with_the_cpus_and_the_memory_of_a_device_s_node() {
    let numactl = numactl();
    let mut all = steps();
    // numactl does not know the node of a disk with a controller, nor of a PCI device behind a bridge.
    let spellings =
        ["netdev:eth0", "block:vda", "pci:0000:40:00.0", "ip:10.9.0.7", "file:/data/set/file"];
    if numactl.is_some() {
        for spelling in spellings {
            let command = "LD_LIBRARY_PATH=/job ./ld.so ./numactl";
            let text = format!("{command} --cpunodebind={spelling} -- /job/busybox sh show.sh");
            // Before the bond, which it does not know either.
            let bond = all.iter().position(|[name, ..]| name == "bond").unwrap();
            all.insert(
                bond,
                [format!("numactl {spelling}"), "ln -sf /bin/busybox busybox".into(), text],
            );
        }
    }
    let files: Vec<PathBuf> = numactl.unwrap_or_default();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let Some(found) = run(&files, &all) else { return };
    let lines =
        |name: &str| found.get(name).unwrap_or_else(|| panic!("{name} is missing: {found:?}"));
    let devices: Value = serde_json::from_str(&lines("devices").join("\n")).unwrap();
    let devices: Vec<Value> = devices["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|device| json!([device["kind"], device["name"], device["node_ids"]]))
        .collect();
    let expected = [
        json!(["gpu", "0", [1]]),
        json!(["gpu", "1", [2]]),
        json!(["netdev", "eth0", [1]]),
        json!(["block", "nvme0n1", [2]]),
        json!(["block", "vda", [2]]),
    ];
    assert_eq!(devices, expected);
    for (name, cpus, memory) in [
        ("netdev", "2-3", "prefer:1"),
        ("block", "4-5", "prefer:2"),
        ("gpu", "4-5", "prefer:2"),
        ("pci", "2-3", "bind:1"),
        ("bond", "2-3", "prefer:1"),
        ("ip", "2-3", "prefer:1"),
        ("file", "4-5", "prefer:2"),
        ("job", "4-5", "prefer:2"),
        ("tree", "2-3", "prefer:1"),
    ] {
        // The kernel also writes "prefer (many)", "prefer=relative:1".
        assert_eq!(
            lines(name).iter().map(String::as_str).collect::<Vec<_>>(),
            [format!("cpus {cpus}"), format!("memory {memory}")],
            "{name}"
        );
    }
    assert_eq!(
        lines("both")[0],
        "nearq: netdev:eth0 and block:nvme0n1 are near different nodes: nodes 1, 2 are used"
    );
    assert_eq!(lines("both")[1..], ["cpus 2-5", "memory default"]);
    assert_eq!(
        lines("each")[..],
        [
            "gpu:0\tgpu 0 0",
            "gpu:0\tcpus 2-3",
            "gpu:0\tmemory prefer:1",
            "gpu:1\tgpu 1 0",
            "gpu:1\tcpus 4-5",
            "gpu:1\tmemory prefer:2",
        ]
    );
    assert_eq!(lines("narrow"), lines("each"), "also one after the other");
    let inputs = lines("inputs");
    assert_eq!(inputs.len(), 15, "{inputs:?}");
    for job in inputs.chunks(3) {
        let expected = if job[0] == "gpu 0 0" {
            ["cpus 2-3", "memory prefer:1"]
        } else {
            ["cpus 4-5", "memory prefer:2"]
        };
        assert!(job[1..] == expected && job[0].starts_with("gpu "), "{inputs:?}");
    }
    for (name, reason) in [
        ("unknown", "no such network interface; this machine has netdev:eth0"),
        ("nobody", "does not say which node pci:0000:00:01.0 is near"),
        ("memory", "it is on tmpfs, which is in memory"),
        ("virtual", "virtual interface with no hardware below it"),
        ("masked", "the affinity mask or the cpuset allows none of its CPUs"),
    ] {
        let lines = lines(name);
        assert!(
            lines.len() == 2 && lines[0].contains(reason) && lines[1] == "STATUS 2",
            "{name}: {lines:?}"
        );
    }
    assert_eq!(
        lines("root")[..],
        [
            "nearq: gpu:1 (0000:81:02.0) names no node itself; the root of its PCI bus is near node 2",
            "cpus 4-5",
            "memory prefer:2"
        ]
    );
    for spelling in spellings.iter().filter(|_| !files.is_empty()) {
        let is_disk = spelling.starts_with("block") || spelling.starts_with("file");
        let cpus = if is_disk { "cpus 4-5" } else { "cpus 2-3" };
        // It may warn of other devices first.
        let lines = lines(&format!("numactl {spelling}"));
        let found = lines.iter().find(|line| line.starts_with("cpus "));
        assert_eq!(
            found.map(String::as_str),
            Some(cpus),
            "numactl and nearq differ for {spelling}: {lines:?}"
        );
    }
}

/// numactl with the libraries that it needs, if it is installed.
fn numactl() -> Option<Vec<PathBuf>> {
    let none = || skipped("no numactl to compare with", "apt-get install numactl");
    let path = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join("numactl"))
        .find(|file| file.is_file());
    let Some(path) = path else {
        none();
        return None;
    };
    let output = Command::new("ldd").arg(&path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let mut files = vec![path];
    for library in libraries {
        let name = library.file_name()?.to_string_lossy().into_owned();
        let name = if name.starts_with("ld-") { "ld.so".to_owned() } else { name };
        // Not a link, whose end would not be copied.
        let file = fs::canonicalize(&library).ok()?;
        files.push(format!("{}:job/{name}", file.display()).into());
    }
    Some(files)
}
