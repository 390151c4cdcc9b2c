//! The mutex under the model checker and on simulated machines.

mod loom_mutex;
mod snapshot_simulated;
mod switching;
