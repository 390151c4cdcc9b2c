//! The table of another process, mapped by a process that chooses its home at run time and by itself: neither a supervisor nor the library
//! of trees takes part.
//!
//! The process that made the table passes the text of [`Table::value`](super::Table::value) on. If that process is gone, or has another
//! file under the number, there is no table: the text names the file by process and descriptor, and the table repeats the token.
//!
//! No supervisor counts again here. So [`take`] first removes the entries of processes that have ended without [`leave`].

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

use super::layout::{FILE, How, Layout};
use super::member;
use super::supervisor::is_made_by;
use super::table::{Mapping, now};
use super::variable::TreeVariable;
use super::view::View;

/// The table of another process.
///
/// ```
/// use nearq_home::Nodes;
/// use nearq_processes::tree::{self, JoinedTable, Table};
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let nodes = Nodes::of(&machine, machine.online());
/// let table = Table::create(&nodes, &nodes.cpus(), true)?;
/// // Usually in another process.
/// let joined = JoinedTable::open(&table.value(&nodes.cpus()))?;
/// let home = tree::take(&joined.view(), std::process::id(), None).expect("the table has space");
/// assert_eq!(table.view().given(home), 1);
/// tree::leave(&joined.view(), std::process::id());
/// assert_eq!(table.view().given(home), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JoinedTable {
    mapping: Mapping,
    layout: Layout,
}

impl JoinedTable {
    /// Maps the table that a text of [`Table::value`](super::Table::value) names.
    ///
    /// # Errors
    /// The text is no such value; the process that made the table has ended, or cannot be seen from here; or the file is not that table.
    pub fn open(value: &str) -> io::Result<Self> {
        let variable = TreeVariable::of(value.as_bytes()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{value:?} names no table of homes"),
            )
        })?;
        let path = format!("/proc/{}/fd/{}", variable.supervisor, variable.descriptor);
        let gone = || {
            let text = format!(
                "the table of homes is not there: process {} has ended, is in another container, or has closed it",
                variable.supervisor
            );
            io::Error::new(io::ErrorKind::NotFound, text)
        };
        // Opening an arbitrary file of another process with that number could have side effects.
        let link = fs::read_link(&path).map_err(|_| gone())?;
        if !link.as_os_str().as_bytes().starts_with(FILE) {
            return Err(gone());
        }
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|_| gone())?;
        let words = file.metadata()?.size() as usize / size_of::<u64>();
        let mapping = Mapping::of(&file, words)?;
        let layout = View::of(mapping.words(), Some(variable.token)).ok_or_else(gone)?.layout();
        Ok(Self { mapping, layout })
    }

    /// The table for reading and for [`take`].
    pub fn view(&self) -> View<'_> {
        View::known(self.mapping.words(), self.layout)
    }
}

/// Gives the process `pid` the least loaded home; of several, the nearest to the CPU `from`. Returns the home's index, or `None` if the
/// table is full. A process that has a home gives it back first.
pub fn take(view: &View<'_>, pid: u32, from: Option<usize>) -> Option<usize> {
    release_ended(view);
    let from = from.and_then(|cpu| member::home_of_cpu(view, cpu));
    member::choose(view, pid, How::Given, now(), from).map(|claim| claim.home)
}

/// The process `pid` gives its home back; false if it has none.
pub fn leave(view: &View<'_>, pid: u32) -> bool {
    member::entry_of(view, pid).is_some_and(|(slot, _)| member::release(view, slot, pid))
}

/// Removes the entries of processes that have ended, also if a later process has the number of one.
pub fn release_ended(view: &View<'_>) {
    for (slot, entry, since) in view.entries() {
        if !is_made_by(entry.pid, since) {
            member::release(view, slot, entry.pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use nearq_home::Nodes;

    use super::*;
    use crate::tree::Table;

    fn nodes() -> Nodes {
        let places = [(0, "0".parse().unwrap()), (0, "1".parse().unwrap())];
        Nodes::pretended(&places, &[vec![10, 11], vec![11, 10]])
    }

    #[test]
    fn processes_spread_over_the_homes_and_those_that_ended_do_not_count() {
        let nodes = nodes();
        let table = Table::with_entries(&nodes, &nodes.cpus(), false, 64).unwrap();
        let joined = JoinedTable::open(&table.value(&nodes.cpus())).unwrap();
        let view = joined.view();
        let mut children: Vec<_> = (0..4)
            .map(|_| Command::new("cat").stdin(Stdio::piped()).spawn().expect("there is cat"))
            .collect();
        for child in &children {
            assert!(take(&view, child.id(), None).is_some());
        }
        assert_eq!([table.view().given(0), table.view().given(1)], [2, 2]);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let own = take(&view, std::process::id(), Some(1)).unwrap();
        assert_eq!(own, 1, "both homes are empty, and this one is nearer");
        assert_eq!([table.view().given(0), table.view().given(1)], [0, 1]);
        assert!(leave(&view, std::process::id()));
        assert!(!leave(&view, std::process::id()));
    }

    #[test]
    fn an_entry_of_an_earlier_process_of_that_number_does_not_count() {
        let nodes = nodes();
        let table = Table::with_entries(&nodes, &nodes.cpus(), false, 64).unwrap();
        let view = table.view();
        let own = std::process::id();
        // As if this process had begun long after the entry was made.
        let claim = member::settle_at(&view, own, How::Given, 1, 0).unwrap();
        assert_eq!(view.entry(claim.slot).map(|(_, since)| since), Some(1));
        release_ended(&view);
        assert_eq!(view.given(0), 0);
    }

    #[test]
    fn another_file_or_another_token_is_no_table() {
        let nodes = nodes();
        let table = Table::with_entries(&nodes, &nodes.cpus(), false, 8).unwrap();
        let value = table.value(&nodes.cpus());
        let mut parts: Vec<&str> = value.split(':').collect();
        let refused = |text: &str| JoinedTable::open(text).unwrap_err().kind();
        assert_eq!(refused("nonsense"), io::ErrorKind::InvalidInput);
        let token = parts[3];
        parts[3] = "0000000000000001";
        assert_eq!(refused(&parts.join(":")), io::ErrorKind::NotFound);
        // Standard input is no table.
        (parts[3], parts[2]) = (token, "0");
        assert_eq!(refused(&parts.join(":")), io::ErrorKind::NotFound);
        drop(table);
        assert_eq!(refused(&value), io::ErrorKind::NotFound);
    }
}
