//! Starting a thread, and what the thread does before it runs `main`.
//!
//! What each thread does, in order:
//!
//! 1. The creator blocks all its signals; the new thread inherits that.
//! 2. The new thread names itself, lets its own faults through, takes its class and nice value, restricts
//!    itself to its CPUs, reports what was refused, and runs `main`.
//! 3. The creator, at the same time, gets its signals back.
//!
//! A fork waits while a thread is between 1 and 2, or ends (`thread_start_gate`).

use std::thread::{Builder, JoinHandle};

use nearq_topology::safe_text;

use super::fences;
use super::refusal::{self, refused};
use super::thread::{self, Thread};
use super::thread_start_gate::{Begins, Ends};
use crate::sys::{self, BlockedSignals, Errno};
use crate::{OsError, ThreadSpec};

/// What the kernel keeps of a name, in bytes (`TASK_COMM_LEN` less the zero at the end).
const LONGEST_NAME: usize = 15;

pub(super) fn spawn(
    mut spec: ThreadSpec,
    main: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, OsError> {
    fences::prepare();
    let mut builder = Builder::new();
    let name = kernel_name(&spec.name);
    if !name.is_empty() {
        // The new thread takes the name before it does anything else; panic messages show it too.
        builder = builder.name(name.to_owned());
    }
    if let Some(bytes) = spec.stack_size {
        builder = builder.stack_size(bytes);
    }
    let what = format!("start the thread {:?}", core::mem::take(&mut spec.name));

    let begins = Begins::new();
    let signals = BlockedSignals::block();
    let started = builder.spawn(move || {
        drop(begins);
        let _ends = Ends::new();
        match spec.signals {
            Some(mask) => sys::SignalMask::of_bits(mask.0).apply(),
            None => sys::unblock_synchronous_signals(),
        }
        settle(&spec);
        main();
    });
    drop(signals);

    started.map_err(|error| {
        let error = Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EAGAIN));
        refused(what, error, refusal::spawning(error))
    })
}

/// Gives the calling thread, which is new, its CPUs and its nice value.
fn settle(spec: &ThreadSpec) {
    let report = |outcome: Result<(), OsError>| {
        if let (Err(refused), Some(report_refusal)) = (outcome, spec.refused) {
            report_refusal(&refused);
        }
    };
    // This comes first: on its new CPUs, the thread may have to wait for its turn.
    if let Some(scheduling) = spec.scheduling {
        // A caller that cares asks for the result.
        let _ = thread::favour(Thread::current(), scheduling);
    }
    if let Some(cpus) = &spec.affinity {
        report(thread::set_affinity(Thread::current(), cpus));
    }
    if let Some(nice) = spec.nice {
        report(thread::set_nice(Thread::current(), nice));
    }
}

/// The part of a name that the kernel keeps: at most 15 bytes of whole characters, up to a zero byte.
fn kernel_name(name: &str) -> &str {
    let name = name.split('\0').next().unwrap_or_default();
    safe_text::beginning(name, LONGEST_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_to_whole_characters() {
        assert_eq!(kernel_name("nq/12:3"), "nq/12:3");
        assert_eq!(kernel_name(""), "");
        assert_eq!(kernel_name("nq/u1234567:123456"), "nq/u1234567:123");
        assert_eq!(kernel_name("nq/R-größenwahn"), "nq/R-größenwa");
        assert_eq!(kernel_name("a\0b"), "a");
    }
}
