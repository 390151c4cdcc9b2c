//! Finds the processes that jobs leave behind.
//!
//! The engine is the reaper of all that its jobs start (`PR_SET_CHILD_SUBREAPER`): when a process of a job ends, its children become the
//! engine's own, so the engine can always find every descendant. A process that has made a session of its own (`setsid`, as daemons do) has
//! left its job, and is left alone.

use rustix::process::{Pid, getpgid};

use crate::proc;

/// The processes below `root`, as far as they can be seen now.
fn below(root: u32) -> Vec<u32> {
    proc::descendants(root).into_iter().map(|(pid, _)| pid).collect()
}

/// The live descendants of this process that have not made a session of their own. None are returned if `/proc` belongs to another PID
/// namespace: its numbers belong to other processes.
pub(crate) fn left_over() -> Vec<u32> {
    if !proc::is_of_this_namespace() {
        return Vec::new();
    }
    let Some(this_process) = proc::stat(std::process::id()) else { return Vec::new() };
    let is_left = |pid: &u32| {
        proc::stat(*pid)
            .is_some_and(|stat| stat.session == this_process.session && !stat.has_ended())
    };
    below(std::process::id()).into_iter().filter(is_left).collect()
}

/// The live descendants of this process that are in that process group. None are returned if `/proc` belongs to another PID namespace.
pub(crate) fn in_group(group: u32) -> Vec<u32> {
    if !proc::is_of_this_namespace() {
        return Vec::new();
    }
    let is_in = |pid: &u32| {
        let of = Pid::from_raw(pid.cast_signed()).and_then(|pid| getpgid(Some(pid)).ok());
        of.is_some_and(|of| of.as_raw_pid() == group.cast_signed())
            && proc::stat(*pid).is_some_and(|stat| !stat.has_ended())
    };
    below(std::process::id()).into_iter().filter(is_in).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    #[test]
    fn a_tree_has_all_descendants_except_those_that_left_it() {
        let script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("sh -c '{script}'; true")]).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let mut pid = || lines.next().unwrap().unwrap().parse::<u32>().unwrap();
        let (stays, leaves) = (pid(), pid());
        let number = |pid: u32| rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        while proc::stat(leaves).unwrap().session != leaves {
            std::thread::yield_now();
        }
        let (all, left) = (below(shell.id()), left_over());
        for &pid in all.iter().chain([&shell.id()]) {
            rustix::process::kill_process(number(pid), rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert!(all.contains(&stays) && all.contains(&leaves), "{all:?}");
        assert!(left.contains(&stays) && !left.contains(&leaves), "{left:?}");
    }
}
