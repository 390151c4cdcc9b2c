//! Trees of real processes on two pretended homes: which processes get a home, which do not, and how the
//! command ends.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;

use crate::common::{chosen, compile, figure, folder, has_two_cpus, own_cpus, parse, shell};
use crate::skipped::skipped;

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A shell's command that prints which CPUs it may use.
const CPUS: &str = "grep Cpus_allowed_list: /proc/self/status";

/// The CPU lists that were printed.
fn lists(printed: &str) -> Vec<Vec<usize>> {
    printed.lines().filter_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(parse).collect()
}

#[test]
fn the_command_ends_as_it_would_without_nearq() {
    if !has_two_cpus() {
        return;
    }
    let ended = |script: &str| shell(&[], script).output().unwrap().status;
    assert_eq!(ended("exit 7").code(), Some(7));
    assert_eq!(ended("exit 255").code(), Some(255));
    assert_eq!(ended("kill -TERM $$").signal(), Some(15));
    assert_eq!(ended("kill -KILL $$").signal(), Some(9));
    let status = |command: &str| {
        let mut tree = std::process::Command::new(crate::common::pretended());
        tree.args(["--", command]).output().unwrap().status.code()
    };
    assert_eq!([status("/nowhere/at/all"), status("no-such-command")], [Some(127); 2]);
    assert_eq!([status("/"), status("/etc/passwd")], [Some(126); 2]);
}

#[test]
fn programs_spread_over_homes_with_their_memory() {
    if !has_two_cpus() {
        return;
    }
    let summary = folder("spread").join("summary");
    let option = format!("summary={}", summary.display());
    // There are so many that other work on this machine does not make one home the best for all.
    let script = "i=0; while [ $i -lt 40 ]; do sh -c 'grep Cpus_allowed_list: /proc/self/status; \
                  grep -m1 -o prefer:0 /proc/self/numa_maps; sleep 1' & i=$((i+1)); done; wait";
    let output = shell(&[&option], script).output().unwrap();
    let (printed, complained) = text(&output);
    let lists = lists(&printed);
    assert_eq!(lists.len(), 40, "{printed}{complained}");
    let half = own_cpus() / 2;
    assert!(lists.iter().all(|list| list.len() <= own_cpus() - half), "{lists:?}");
    if fs::read_to_string("/proc/self/numa_maps").is_ok() && !complained.contains("refused") {
        assert_eq!(printed.matches("prefer:0").count(), 40, "{printed}");
    }
    let chosen = chosen(&summary);
    assert!(chosen.iter().all(|chosen| *chosen >= 4), "{chosen:?}");
    assert_eq!(figure(&summary, "still_narrow"), 0);
}

#[test]
fn one_home_can_be_set_for_all_processes() {
    if !has_two_cpus() {
        return;
    }
    let output = shell(&["home=1", "strict"], &format!("{CPUS}; {CPUS}; {CPUS}")).output().unwrap();
    let lists = lists(&text(&output).0);
    let first = parse(&fs::read_to_string("/proc/self/status").map_or(String::new(), |status| {
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().to_owned()
    }));
    assert_eq!(lists, vec![first[first.len() / 2..].to_vec(); 3]);
}

#[test]
fn a_program_that_chooses_its_cpus_is_left_alone_with_its_children() {
    if !has_two_cpus() || std::process::Command::new("taskset").arg("--version").output().is_err() {
        return;
    }
    let summary = folder("own").join("summary");
    let option = format!("summary={}", summary.display());
    let cpu = parse(&format!("{}", first_cpu()))[0];
    let script = format!("taskset -c {cpu} sh -c '{CPUS}; ({CPUS}; {CPUS}; true)'; {CPUS}");
    for _ in 0..3 {
        let output = shell(&[&option], &script).output().unwrap();
        let lists = lists(&text(&output).0);
        assert_eq!(lists[..3], vec![vec![cpu]; 3]);
        assert!(figure(&summary, "left_alone") >= 4);
    }
}

fn first_cpu() -> usize {
    crate::common::cpus(std::process::id()).unwrap()[0]
}

#[test]
fn homes_are_chosen_at_fork_on_request() {
    if !has_two_cpus() {
        return;
    }
    // Subshells execute nothing: `read` and `echo` are the shell's own.
    let print_cpus = "while read -r name value; do case $name in Cpus_allowed_list:) echo $name $value;; esac; done \
               < /proc/self/status";
    let script =
        format!("i=0; while [ $i -lt 24 ]; do ({print_cpus}; sleep 0.5) & i=$((i+1)); done; wait");
    let spread = |options: &[&str]| {
        let output = shell(options, &script).output().unwrap();
        let mut lists = lists(&text(&output).0.replace("list: ", "list:"));
        lists.sort();
        lists.dedup();
        lists.len()
    };
    assert_eq!(spread(&["choose=exec", "strict"]), 1, "a child has the home of its parent");
    assert_eq!(spread(&["choose=fork", "strict"]), 2);
}

#[test]
fn small_programs_choose_no_home_in_lazy_mode() {
    if !has_two_cpus() {
        return;
    }
    let summary = folder("lazy").join("summary");
    let option = format!("summary={}", summary.display());
    let small = format!("{CPUS}; {CPUS}");
    let output = shell(&[&option, "choose=lazy"], &small).output().unwrap();
    assert!(lists(&text(&output).0).iter().all(|list| list.len() == own_cpus()));
    assert_eq!(figure(&summary, "used"), 0);
    // Repeated until the process has got a home.
    let large = format!(
        "while [ $({CPUS} | tr -d '\\n' | cut -f2 | wc -c) -lt 0 ]; do :; done; \
         while :; do for i in 1 2 3 4 5 6 7 8 9; do :; done; \
         while read -r name value; do case $name in Cpus_allowed_list:) list=$value;; esac; done < /proc/$$/status; \
         [ $list != {} ] && break; done; {CPUS}",
        list_of_own_cpus()
    );
    let output = shell(&[&option, "choose=lazy", "strict"], &large).output().unwrap();
    let (printed, complained) = text(&output);
    assert!(figure(&summary, "used") >= 1, "{printed}{complained}");
    let lists = lists(&printed);
    assert_eq!(
        lists.last().map(Vec::len),
        Some(own_cpus()),
        "the program that it executes chooses again"
    );
}

fn list_of_own_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    list.trim().to_owned()
}

#[test]
fn statically_linked_programs_are_left_out_with_one_notice() {
    if !has_two_cpus() {
        return;
    }
    let folder = folder("static");
    let source = "#include <unistd.h>\nint main(void) { return read(0, &(char){0}, 1) != 0; }\n";
    let Some(program) = compile(&folder, "waits", source, &["-static"]) else { return };
    let summary = folder.join("summary");
    let option = format!("summary={}", summary.display());
    // The processes end when the fifo is closed, and so live long enough to be seen.
    let script = format!("(sleep 3.5 | {0}) & (sleep 3.5 | {0}) & wait", program.display());
    let output = shell(&[&option], &script).output().unwrap();
    let (_, complained) = text(&output);
    assert_eq!(complained.matches("chooses no home").count(), 1, "{complained}");
    assert!(complained.contains("statically linked"), "{complained}");
    assert_eq!(figure(&summary, "statically_linked"), 2);
}

#[test]
fn privileged_programs_are_left_out() {
    if !has_two_cpus() {
        return;
    }
    let folder = folder("rights");
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
                  int main(void) { puts(getenv(\"LD_PRELOAD\") ? \"told\" : \"not told\"); return 0; }\n";
    let Some(program) = compile(&folder, "more", source, &[]) else { return };
    let nobody = Some(65534);
    let given = chown(&program, nobody, nobody)
        .and_then(|()| fs::set_permissions(&program, PermissionsExt::from_mode(0o6755)));
    if let Err(error) = given {
        return skipped("a set-user-ID program", error, "run the tests as root");
    }
    let summary = folder.join("summary");
    let option = format!("summary={}", summary.display());
    let output = shell(&[&option], &format!("{}; exit 3", program.display())).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let (printed, _) = text(&output);
    if printed.contains("\ntold") || printed.starts_with("told") {
        skipped("a set-user-ID program", "the folder is mounted nosuid", "build elsewhere");
    }
    // Only the shell, and no other process.
    assert!(chosen(&summary).iter().sum::<u64>() <= 2);
}

#[test]
fn two_thousand_short_programs_run() {
    if !has_two_cpus() {
        return;
    }
    let summary = folder("short").join("summary");
    let option = format!("summary={}", summary.display());
    let script = "i=0; while [ $i -lt 500 ]; do \
                  /bin/true & /bin/true & /bin/true & /bin/true; wait; i=$((i+1)); done";
    let output = shell(&[&option], script).output().unwrap();
    assert!(output.status.success(), "{:?}", text(&output));
    let chosen = chosen(&summary);
    assert_eq!(chosen.iter().sum::<u64>(), 2001, "{chosen:?}");
    assert_eq!((figure(&summary, "full"), figure(&summary, "strangers")), (0, 0));
}

#[test]
fn a_project_builds_as_it_does_without_nearq() {
    if !has_two_cpus() || std::process::Command::new("make").arg("--version").output().is_err() {
        return;
    }
    let folder = folder("project");
    if compile(&folder, "trial", "int main(void) { return 0; }\n", &[]).is_none() {
        return;
    }
    let mut objects = String::new();
    let mut sum = String::from("0");
    for part in 0..12 {
        let text = format!("int part{part}(int x) {{ return x + {part}; }}\n");
        fs::write(folder.join(format!("part{part}.c")), text).unwrap();
        write!(objects, " part{part}.o").unwrap();
        write!(sum, " + part{part}(1)").unwrap();
    }
    let mut main = String::from("#include <stdio.h>\n");
    for part in 0..12 {
        writeln!(main, "int part{part}(int);").unwrap();
    }
    writeln!(main, "int main(void) {{ printf(\"%d\\n\", {sum}); return 0; }}").unwrap();
    fs::write(folder.join("main.c"), main).unwrap();
    let makefile = format!("all: program\nprogram: main.o{objects}\n\tcc -o $@ $^\n");
    fs::write(folder.join("Makefile"), makefile).unwrap();
    for choose in ["exec", "fork", "lazy"] {
        let summary = folder.join("summary");
        let options = [format!("summary={}", summary.display()), format!("choose={choose}")];
        let script = "make -s clean 2>/dev/null; rm -f *.o program; make -s -j6 && ./program";
        let mut tree = shell(&[&options[0], &options[1]], script);
        let output = tree.current_dir(&folder).output().unwrap();
        let (printed, complained) = text(&output);
        assert_eq!(printed, "78\n", "{choose}: {complained}");
        assert_eq!(output.status.code(), Some(0));
        let chosen: u64 = chosen(&summary).iter().sum();
        assert_eq!(chosen >= 30, choose != "lazy", "{choose}: {chosen}");
        assert_eq!(figure(&summary, "still_narrow"), 0);
    }
}

#[test]
fn there_may_be_more_processes_than_descriptors() {
    if !has_two_cpus() {
        return;
    }
    let summary = folder("descriptors").join("summary");
    let option = format!("summary={}", summary.display());
    let pretended = crate::common::pretended();
    let tree = "i=0; while [ $i -lt 120 ]; do sleep 2 & i=$((i+1)); done; wait";
    let script = format!("ulimit -n 100; exec {} {option} -- sh -c '{tree}'", pretended.display());
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{:?}", text(&output));
    assert_eq!(chosen(&summary).iter().sum::<u64>(), 121);
    assert_eq!((figure(&summary, "strangers"), figure(&summary, "still_narrow")), (0, 0));
}
