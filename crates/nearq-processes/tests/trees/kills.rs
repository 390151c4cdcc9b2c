//! Whichever process of a tree is killed, the remaining ones have all their CPUs, and no process keeps homes
//! that do not exist.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use crate::common::{
    cpus, first_child, folder, has_two_cpus, kill, name, own_cpus, shell, until, with_variable,
};
use nearq_processes::tree::{SUPERVISOR, TableCopy};

/// The variable that identifies the processes of a test.
const MARK: &str = "NEARQ_TEST_MARK";

/// A tree, all of whose processes end with the test.
struct Marked {
    front: Child,
    mark: String,
}

impl Marked {
    fn start(mark: &str, options: &[&str], script: &str) -> Self {
        let mark = format!("{mark}-{}", std::process::id());
        let mut tree = shell(options, script);
        tree.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let front = tree.spawn().expect("the tree can be started");
        Marked { front, mark }
    }

    /// The processes of that name.
    fn named(&self, wanted: &str) -> Vec<u32> {
        let all = with_variable(MARK, &self.mark).into_iter();
        all.filter(|pid| cpus(*pid).is_some() && name(*pid).as_deref() == Some(wanted)).collect()
    }

    /// The process that keeps the table.
    fn supervisor(&self) -> u32 {
        until("a tree has a supervisor", || self.named(SUPERVISOR).first().copied())
    }

    /// Waits until that many processes sleep at home.
    fn sleepers(&self, count: usize) -> Vec<u32> {
        until("programs sleep at home", || {
            let found = self.named("sleep");
            let at_home =
                found.iter().all(|pid| cpus(*pid).is_some_and(|cpus| cpus.len() < own_cpus()));
            (found.len() == count && at_home).then_some(found)
        })
    }

    fn end(&mut self) -> ExitStatus {
        self.front.wait().expect("it is our child")
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = self.front.kill();
        let _ = self.front.wait();
        for pid in with_variable(MARK, &self.mark) {
            kill(pid, libc::SIGKILL);
        }
    }
}

/// Whether the processes are alive, with all CPUs.
fn are_free(pids: &[u32]) {
    let begin = std::time::Instant::now();
    while !pids.iter().all(|pid| cpus(*pid).is_some_and(|cpus| cpus.len() == own_cpus())) {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let what = |pid: &u32| {
            let variable = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let variable = String::from_utf8_lossy(&variable).replace('\0', " ");
            let variable =
                variable.split(' ').find(|word| word.starts_with("NEARQ_TREE=")).map(String::from);
            (*pid, cpus(*pid), variable)
        };
        let all: Vec<_> = pids.iter().map(what).collect();
        assert!(begin.elapsed() < crate::common::PATIENCE, "not all have all CPUs: {all:?}");
    }
}

/// The command waits for its sleeping processes: one of them is in a session of its own, another is the child of a further shell.
const SLEEPS: &str = "sleep 1000 & setsid sleep 1000 & sh -c 'sleep 1000 & wait' & wait";

#[test]
fn processes_that_outlive_the_command_have_all_cpus() {
    if !has_two_cpus() {
        return;
    }
    let folder = folder("left");
    let script = format!(
        "{} while [ ! -e {}/go ]; do sleep 0.01; done",
        SLEEPS.trim_end_matches("wait"),
        folder.display()
    );
    let mut tree = Marked::start("left", &[], &script);
    let long = || {
        let line = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        tree.named("sleep")
            .into_iter()
            .filter(|pid| line(pid).ends_with(b"1000\0"))
            .collect::<Vec<_>>()
    };
    let sleepers = until("three sleep", || Some(long()).filter(|found| found.len() == 3));
    until("they are at home", || {
        sleepers
            .iter()
            .all(|pid| cpus(*pid).is_some_and(|cpus| cpus.len() < own_cpus()))
            .then_some(())
    });
    fs::write(folder.join("go"), "").unwrap();
    assert_eq!(tree.end().code(), Some(0));
    are_free(&sleepers);
    assert_eq!(tree.named(SUPERVISOR), []);
}

#[test]
fn killing_nearq_restores_all_cpus() {
    if !has_two_cpus() {
        return;
    }
    let mut tree = Marked::start("front", &[], SLEEPS);
    let sleepers = tree.sleepers(3);
    let supervisor = tree.supervisor();
    kill(tree.front.id(), libc::SIGKILL);
    assert_eq!(tree.end().signal(), Some(libc::SIGKILL));
    are_free(&sleepers);
    until("the supervisor and the command end", || {
        let commands = tree.named("sh").len();
        // The inner shell waits for its own commands.
        (cpus(supervisor).is_none() && commands == 1).then_some(())
    });
}

#[test]
fn killing_the_supervisor_restores_all_cpus() {
    if !has_two_cpus() {
        return;
    }
    let mut tree = Marked::start("supervisor", &[], SLEEPS);
    let sleepers = tree.sleepers(3);
    kill(tree.supervisor(), libc::SIGKILL);
    assert_eq!(tree.end().signal(), Some(libc::SIGTERM), "the command was ended");
    are_free(&sleepers);
}

#[test]
fn killing_both_at_once_restores_all_cpus() {
    if !has_two_cpus() {
        return;
    }
    let folder = folder("both");
    let script = format!(
        "setsid sh -c 'while [ ! -e {0}/go ]; do sleep 0.01; done; exec sleep 1000' & \
         setsid sh -c 'while [ ! -e {0}/go ]; do sleep 0.01; done; sh -c \"sleep 1000; true\"; true' & wait",
        folder.display()
    );
    let mut tree = Marked::start("both", &["strict"], &script);
    let supervisor = tree.supervisor();
    until("both loops run", || (tree.named("sh").len() >= 3).then_some(()));
    kill(tree.front.id(), libc::SIGSTOP);
    kill(supervisor, libc::SIGKILL);
    kill(tree.front.id(), libc::SIGKILL);
    tree.end();
    until("the table is gone", || cpus(supervisor).is_none().then_some(()));
    fs::write(folder.join("go"), "").unwrap();
    // Programs that are executed from now on find no table, and give back what they inherited.
    let free = until("both sleep", || {
        let found = tree.named("sleep");
        let line = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let long: Vec<u32> =
            found.into_iter().filter(|pid| line(pid).ends_with(b"1000\0")).collect();
        (long.len() == 2).then_some(long)
    });
    are_free(&free);
}

/// The table of a tree, as other processes see it now.
fn table(supervisor: u32) -> Option<TableCopy> {
    let files = fs::read_dir(format!("/proc/{supervisor}/fd")).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    paths.find_map(|path: PathBuf| {
        let target = fs::read_link(&path).ok()?;
        target.to_str()?.starts_with("/memfd:nearq-tree").then(|| TableCopy::of(&path))?
    })
}

#[test]
fn killed_members_are_removed() {
    if !has_two_cpus() {
        return;
    }
    let script = "i=0; while [ $i -lt 40 ]; do sh -c 'while :; do /bin/true; done' & i=$((i+1)); done; sleep 1000; exit";
    let tree = Marked::start("members", &[], script);
    let supervisor = tree.supervisor();
    until("it has a table", || table(supervisor));
    // Meanwhile the processes execute one program after the other, so some die with a home just taken or just given back. The command
    // sleeps once it has started all of them; after that there are more shells only while a loop forks.
    let mut loops = until("forty loops and the command run", || {
        tree.named("sleep").first()?;
        Some(tree.named("sh")).filter(|loops| loops.len() == 41)
    });
    let mut random = fastrand::Rng::with_seed(11);
    random.shuffle(&mut loops);
    let command = until("the command is known", || first_child(supervisor));
    for pid in loops.iter().filter(|pid| **pid != command) {
        kill(*pid, libc::SIGKILL);
    }
    for pid in tree.named("true") {
        kill(pid, libc::SIGKILL);
    }
    until("the dead are taken out, and counted out", || {
        let table = table(supervisor)?;
        let view = table.view()?;
        let living: BTreeSet<u32> = view.entries().map(|(_, entry, _)| entry.pid).collect();
        let all_live = living.iter().all(|pid| cpus(*pid).is_some());
        let given: u32 = (0..2).map(|home| view.given(home)).sum();
        // The shell, and what it waits for.
        (all_live && living.len() == 2 && given == 2).then_some(())
    });
}
