//! What newer kernels have for those who wait and those who are waited for: for the whole process, and only where it is asked for.
//!
//! By the environment it is asked for when the first thread has to wait; what the kernel refuses is said once then, and all goes on
//! without.

use nearq_platform::{Platform, Refused, SWITCH, parse_switch, read_setting};

use crate::room::Room;
use crate::settings::Settings;
use crate::table::Table;

const NODE_SLEEPERS: &str = "NEARQ_LOCK_NUMA_FUTEX";
const SLICE_EXTENSION: &str = "NEARQ_LOCK_SLICE";

impl Settings {
    /// From now on, a thread that waits for a mutex of this process for the first time has the kernel keep it on its node
    /// while it sleeps, where otherwise sleepers are wherever a hash puts them (`FUTEX2_NUMA`). Threads that have waited before go on as
    /// they did. For sleeping on the mutex itself, which the one does whose turn it is, nothing changes: a mutex of four bytes has no
    /// room for a node.
    ///
    /// The same as `NEARQ_LOCK_NUMA_FUTEX=1` in the environment at the start. Off by default: `docs/results` has what was measured.
    ///
    /// # Errors
    /// The kernel has no such thing: it came with Linux 6.16. Nothing has changed then.
    ///
    /// ```
    /// use nearq_lock::Settings;
    /// use nearq_lock::platform::Linux;
    ///
    /// if let Err(refused) = Settings::use_node_sleepers::<Linux>() {
    ///     println!("{refused}");
    /// }
    /// ```
    pub fn use_node_sleepers<P: Platform>() -> Result<(), Refused> {
        keep_by_node(&Room::<P>::get().table)
    }

    /// From now on, who takes a mutex of this process that others wait for asks the kernel not to be preempted before it gives the
    /// mutex back, for 5 µs at most (the extension of time slices by rseq). A mutex that is free when it is taken and that nobody waits
    /// for costs what it did; a holder that others come to wait for afterwards does not ask.
    ///
    /// The same as `NEARQ_LOCK_SLICE=1` in the environment at the start. Off by default: `docs/results` has what was measured.
    ///
    /// # Errors
    /// The kernel or the C library has no such thing: it needs Linux 7.0, built with `CONFIG_RSEQ_SLICE_EXTENSION`, and the GNU C
    /// library 2.41. Nothing has changed then.
    ///
    /// ```
    /// use nearq_lock::Settings;
    /// use nearq_lock::platform::Linux;
    ///
    /// if let Err(refused) = Settings::use_slice_extension::<Linux>() {
    ///     println!("{refused}");
    /// }
    /// ```
    pub fn use_slice_extension<P: Platform>() -> Result<(), Refused> {
        P::use_slice_extension()
    }
}

fn keep_by_node<P: Platform>(table: &Table<P>) -> Result<(), Refused> {
    P::knows_node_sleepers()?;
    table.keep_by_node();
    Ok(())
}

/// What the environment asks for, before the first record is taken.
pub(crate) fn at_start<P: Platform>(table: &Table<P>) {
    heed::<P>(NODE_SLEEPERS, || keep_by_node(table));
    heed::<P>(SLICE_EXTENSION, P::use_slice_extension);
}

/// Turns on what is asked for by a setting of that name, and says so where it is refused, or where the setting is none.
fn heed<P: Platform>(name: &str, turn_on: impl FnOnce() -> Result<(), Refused>) {
    let parse = |text: &str| parse_switch(text).ok_or_else(|| SWITCH.to_owned());
    if let Ok(Some(true)) = read_setting::<P, _>(name, "Going on without", parse)
        && let Err(refused) = turn_on()
    {
        P::warn(&format!("{name}: {refused}. Going on without"));
    }
}
