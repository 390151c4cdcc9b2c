//! The platform that is the machine itself.
//!
//! [`platform`] answers each item of the trait in a few lines; what takes more is in a file of its own. The
//! calls are in `crate::sys`; the texts for refused calls are in [`refusal`].

#[cfg(all(test, not(miri)))]
mod bpf_folder;
mod ending;
mod exec;
mod fences;
mod fork;
mod home_hint;
mod machine;
mod memory;
mod others;
mod platform;
mod process;
mod refusal;
mod retry;
mod run_state;
mod spawn;
mod thread;
mod thread_start_gate;
mod wake_hint;

pub use exec::{NotSpawned, ProcessSpec, Spawned, Spawner};
pub use platform::Linux;
pub use process::Peer;

#[cfg(test)]
#[path = "../../tests/common/tsan.rs"]
mod tsan;
