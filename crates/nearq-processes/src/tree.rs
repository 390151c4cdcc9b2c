//! Homes for all processes of a tree. Each process chooses its home when it is executed. This module has the table that the processes
//! share, the process that keeps the table, and the start of a tree.
//!
//! The idea is that of the node affine scheduler (Erich Focht, 2003): a task gets its home at exec, when its memory is not yet touched, on
//! the node with the least load. There the kernel chose. Here the process chooses, before its `main`, through a small library that its
//! loader loads (`nearq-tree`). A process of `nearq`, the supervisor, does everything that the process cannot do itself.
//!
//! | file | holds |
//! |---|---|
//! | `nearq-tree`, a crate | the library, and what it has in common with nearq: the table's layout, what a member does, the variable |
//! | `library` | the file of the library, for the loader |
//! | `table` | nearq's own table: made, corrected; and tables of others, read |
//! | `joined` | the table of another process, in which a process takes a home at run time, without the library |
//! | `supervisor` | the process that keeps a table: finds members, removes those that have ended, lets out and brings back |
//! | `relatives` | what descendants know about the tree, and how changes to them are undone |
//! | `start` | the two processes between a shell and the command, signals, the end |
//!
//! # The protocol
//! An entry is two words: its holder and a time. A member writes its own entry. nearq writes the entry's state and, when the process has
//! ended, removes the entry.
//!
//! ```text
//!            member: compare-exchange 0 ──► (pid, home, how, Home); then the time
//!   free ◄──────────────────────────────────────────────────────────────────────────► taken
//!            member at exit, nearq for the dead: time to 0; compare-exchange ──► 0
//!                                     nearq: compare-exchange of the state (Home, Out, Own)
//! ```
//!
//! 1. *All that must fit together is in the first word*, and changes at once. A member that dies at any point leaves a complete
//!    entry, or none.
//! 2. *The time is a hint*: zero while the word is new. By it nearq distinguishes a process from a later one of the same number, which
//!    began after the entry was made. It is zeroed before the word is freed (release), and written after the word was taken (acquire), so a
//!    new holder never has the time of the old holder.
//! 3. *Counts may be wrong for a moment.* A member adds itself to the count of its home before it writes its entry, so two members that
//!    choose at once do not choose the same home. A member that dies between these two steps is counted although it is gone, until nearq
//!    counts again, once a period.
//! 4. *Nothing is trusted.* Numbers are bounded where they are read, places come from a layout that is checked against the mapping, and
//!    loops are bounded. A process can write nonsense into the table of its own tree; the worst effect is that other members choose badly.
//! 5. *An entry is found from the process's number*, in the `WINDOW` places that start there. A process that finds an earlier place free
//!    when it executes another program has two entries for a moment; the older one is removed.
//!
//! Further safeguards of the table: the file has no name, its length is sealed, and the number of its supervisor, its descriptor and a
//! random token are in the environment. If any of the three does not match, the process does not use the table.

mod joined;
pub mod library;
mod relatives;
mod start;
mod supervisor;
mod table;

use nearq_tree::{layout, member, variable, view};

pub use joined::{JoinedTable, leave, release_ended, take};
pub use layout::{
    Entry, FILE, How, Layout, MAX_ENTRIES, MAX_HOMES, MAX_MASK_WORDS, State, USUAL_ENTRIES,
};
pub use member::sets_memory;
pub use start::{Choose, End, Error, SUPERVISOR, Tree, become_command};
pub use supervisor::{ENOUGH, Summary};
pub use table::{Counts, Table, TableCopy};
pub use view::View;

#[cfg(test)]
mod tests;
