//! The processes of a tree as `/proc` lists them, and how changes to them are undone.

use std::collections::BTreeSet;

use nearq_home::Nodes;
use nearq_platform::Linux;
use nearq_topology::CpuSet;

use super::variable::{self, Inherited, TreeVariable};
use crate::proc;

/// The number of rounds after which undoing stops for processes that start others faster than changes to them can be undone.
const MOST_ROUNDS: usize = 20;

/// What a process's environment says about its tree, if it may be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Membership {
    /// The process is a member of this tree, and has this information about the CPUs that it inherited.
    Member(Inherited),
    /// Its environment names no tree, or another one.
    Nothing,
    /// Its environment may not be read, or it is about to end.
    Unreadable,
}

/// What a process's environment says about the tree whose table has that token.
pub(crate) fn membership_of(process: u32, token: u64) -> Membership {
    let Ok(environment) = proc::environment(process) else { return Membership::Unreadable };
    if environment.is_empty() {
        return Membership::Unreadable;
    }
    let mut variables = environment.split(|byte| *byte == 0);
    let value = variables
        .find_map(|entry| entry.strip_prefix(variable::VARIABLE.as_bytes())?.strip_prefix(b"="));
    match value.and_then(TreeVariable::of) {
        Some(parsed) if parsed.token == token => Membership::Member(parsed.inherited),
        _ => Membership::Nothing,
    }
}

/// The indices of the homes that a mask consists of; `None` if it does not consist of whole homes.
pub(crate) fn homes_of(mask: &CpuSet, nodes: &Nodes) -> Option<Vec<usize>> {
    let homes: Vec<usize> = (0..nodes.len())
        .filter(|home| nodes.get(*home).cpus.intersection(mask) == nodes.get(*home).cpus)
        .collect();
    (!homes.is_empty() && nodes.cpus_of(&homes) == *mask).then_some(homes)
}

/// For the descendants of `root`, gives all threads that have the CPUs of some homes all CPUs of the tree again. Threads that chose their
/// CPUs themselves are left alone. Returns how many threads could not be given all CPUs.
pub(crate) fn undo(root: u32, nodes: &Nodes, widest: &CpuSet, token: u64) -> usize {
    let mut refused = BTreeSet::new();
    for _ in 0..MOST_ROUNDS {
        let mut news = false;
        for (process, threads) in proc::descendants(root) {
            if membership_of(process, token) == Membership::Member(Inherited::Own) {
                continue;
            }
            for thread in threads {
                // A thread that has ended meanwhile has no mask.
                let Ok(mask) = Linux::affinity_of(thread) else { continue };
                if mask == *widest || refused.contains(&thread) || homes_of(&mask, nodes).is_none()
                {
                    continue;
                }
                news = true;
                if Linux::set_affinity_of(thread, widest).is_err() {
                    refused.insert(thread);
                }
            }
        }
        if !news {
            break;
        }
    }
    refused.retain(|thread| Linux::affinity_of(*thread).is_ok());
    refused.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    #[test]
    fn a_mask_of_partial_homes_was_set_by_the_process() {
        let places = ["0-3", "4-7", "8-11"].map(|cpus| (0, cpus.parse().unwrap()));
        let nodes = Nodes::pretended(&places, &vec![vec![10; 3]; 3]);
        let homes = |cpus: &str| homes_of(&cpus.parse().unwrap(), &nodes);
        assert_eq!(homes("4-7"), Some(vec![1]));
        assert_eq!(homes("0-3,8-11"), Some(vec![0, 2]));
        for cpus in ["0", "0-4", "4-7,12", "", "12"] {
            assert_eq!(homes(cpus), None, "{cpus}");
        }
    }

    #[test]
    fn descendants_are_found_and_widened() {
        let widest = Linux::affinity_of(std::process::id()).unwrap();
        let first = CpuSet::single(widest.first().unwrap());
        let rest = widest.difference(&first);
        if rest.is_empty() {
            return skipped("masks of other processes", "there is one CPU", "allow two CPUs");
        }
        let nodes = Nodes::pretended(&[(0, first.clone()), (0, rest)], &vec![vec![10; 2]; 2]);
        /// A process group that ends with the test, however that ends.
        struct Group(std::process::Child);
        impl Drop for Group {
            fn drop(&mut self) {
                // SAFETY: the group of our child, which has not been waited for.
                unsafe { libc::kill(-self.0.id().cast_signed(), libc::SIGKILL) };
                let _ = self.0.wait();
            }
        }
        let mut parent = std::process::Command::new("sh");
        std::os::unix::process::CommandExt::process_group(&mut parent, 0);
        let parent = parent
            .args(["-c", "sleep 1000 & sleep 1000 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut parent = Group(parent);
        let mut line = [0];
        std::io::Read::read_exact(parent.0.stdout.as_mut().unwrap(), &mut line).unwrap();
        let all: Vec<u32> =
            proc::descendants(parent.0.id()).into_iter().map(|(process, _)| process).collect();
        assert_eq!(all.len(), 2);
        for process in &all {
            Linux::set_affinity_of(*process, &first).unwrap();
        }
        assert_eq!(undo(parent.0.id(), &nodes, &widest, 1), 0);
        for process in &all {
            assert_eq!(Linux::affinity_of(*process), Ok(widest.clone()));
        }
    }
}
