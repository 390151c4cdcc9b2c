//! `nearq-scx set` and `nearq-scx tell`: what can be changed while the scheduler runs.

use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use libbpf_rs::{MapCore as _, MapFlags as MapUpdate};
use nearq_scx_policy::layout::{HomeHint, HomeReason, Nq};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::load::{NQ_AT, SHARED};
use crate::output::{self, Failure};
use crate::pins::{self, Access};
use crate::state::{node_id, node_index};
use crate::weights::{self, Weight};

fn set_legend() -> String {
    format!(
        "\
Weights, with their defaults:
{}

`nearq-scx status` shows the present values. A change lasts until the scheduler
is unloaded.

Examples:
  nearq-scx set stay 50ms
  nearq-scx set imbalance 2000",
        weights::Legend
    )
}

/// The options of `nearq-scx set`.
#[derive(Args, Debug)]
#[command(after_help = set_legend())]
pub(crate) struct SetOptions {
    /// The weight's name
    #[arg(value_name = "NAME")]
    name: String,

    /// Its new value
    #[arg(value_name = "VALUE")]
    value: String,
}

const TELL_LEGEND: &str = "\
The number of a process means all its threads, also those that it creates later;
the number of another thread means only that thread. A home set by `tell` is
fixed: it does not follow the memory, the process keeps it when it executes
another program, and processes that it forks from then on start with it.
`--forget` undoes this: the home may then move again, for a reason; processes
that were forked before keep theirs.

Examples:
  nearq-scx tell 4711 1
  nearq-scx tell 4711 --forget";

/// The options of `nearq-scx tell`.
#[derive(Args, Debug)]
#[command(after_help = TELL_LEGEND)]
pub(crate) struct TellOptions {
    /// The process or thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,

    /// Its home: the system's number of a node
    #[arg(value_name = "NODE", required_unless_present = "forget")]
    node: Option<u32>,

    /// Undo an earlier `tell`
    #[arg(long, conflicts_with = "node")]
    forget: bool,
}

/// Carries out `set`.
pub(crate) fn set(options: &SetOptions) -> Result<(), Failure> {
    let weight = weights::find(&options.name)?;
    let value = weight.parse(&options.value)?;
    let state = pins::open(pins::STATE, Access::Write)?;
    let before = weight.get(&pins::machine(&state)?.weights);
    Shared::map(&state)
        .map_err(|error| Failure::run(format!("{} cannot be changed: {error}", weight.name)))?
        .store(NQ_AT + offset_of!(Nq, weights) + weight.offset(), value);
    output::print(&changed(weight, before, value))
}

/// The message about a weight that was set.
fn changed(weight: &Weight, before: u64, after: u64) -> String {
    format!("{}: {} (was {})\n", weight.name, weight.text(after), weight.text(before))
}

/// Carries out `tell`.
pub(crate) fn tell(options: &TellOptions) -> Result<(), Failure> {
    let (pid, map) = (options.pid, pins::open(pins::TOLD, Access::Write)?);
    let Some(node) = options.node else {
        return map.delete(&pid.to_ne_bytes()).map_err(|error| not_forgotten(pid, &error));
    };
    has_node(&*pins::machine(&pins::open(pins::STATE, Access::Read)?)?, node)?;
    exists(Path::new("/proc"), pid)?;
    pins::set_home_hint(&map, pid, HomeHint { node, why: HomeReason::Told as u32 }, MapUpdate::ANY)
        .map_err(|error| not_written(&error))
}

/// Whether tasks can be at home on a node.
fn has_node(nq: &Nq, node: u32) -> Result<(), Failure> {
    if node_index(nq, node).is_some() {
        return Ok(());
    }
    let known: Vec<String> =
        (0..nq.nodes).filter_map(|index| Some(node_id(nq, index)?.to_string())).collect();
    Err(Failure::input(format!(
        "node {node}: there is no such node with CPUs; the nodes are {}",
        known.join(", ")
    )))
}

/// Whether a process or thread of that number exists. A thread that does not lead its process has a folder too, although it is not listed.
fn exists(processes: &Path, pid: u32) -> Result<(), Failure> {
    if processes.join(pid.to_string()).exists() {
        return Ok(());
    }
    Err(Failure::input(format!("{pid}: there is no such process or thread")))
}

/// Why a home that was told cannot be removed.
fn not_forgotten(pid: u32, error: &libbpf_rs::Error) -> Failure {
    if error.kind() == libbpf_rs::ErrorKind::NotFound {
        return Failure::input(format!("{pid}: no home was told of it"));
    }
    not_written(error)
}

fn not_written(error: &libbpf_rs::Error) -> Failure {
    let path = pins::path(pins::TOLD);
    Failure::run(format!("{}: cannot be written: {error}", path.display()))
}

/// The memory that is shared with the kernel's part, as mapped in this process.
struct Shared {
    start: *mut c_void,
    length: usize,
}

impl Shared {
    fn map(state: &impl AsFd) -> rustix::io::Result<Self> {
        let page = rustix::param::page_size();
        let length = SHARED.next_multiple_of(page);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory at a place that the kernel chooses, of a map whose size was compared when it was opened.
        let start =
            unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, state, 0) }?;
        Ok(Shared { start, length })
    }

    /// Writes a number at a place in it, at once.
    fn store(&self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= SHARED);
        // SAFETY: the place is within the mapping and aligned, as is asserted; the mapping lives as long as `self`, and all other code
        // reads and writes it as whole words too.
        let word = unsafe { AtomicU64::from_ptr(self.start.byte_add(at).cast()) };
        // Relaxed: no other memory depends on this number; the kernel's part reads it when it needs it.
        word.store(value, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, to which no reference is left. A failure to unmap it does no harm: the process ends.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::made_up;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    fn refused(name: &str, value: &str) -> String {
        set(&SetOptions { name: name.into(), value: value.into() }).unwrap_err().to_string()
    }

    #[test]
    fn invalid_settings_are_refused_before_the_scheduler_is_asked() {
        let text = refused("stray", "1ms");
        assert!(
            text.starts_with("stray: there is no such weight; the weights are slice, "),
            "{text}"
        );
        let text = refused("stay", "20");
        assert_eq!(text, "stay=20: must be a time from 0ns to 10s, with its unit: s, ms, us or ns");
        assert_eq!(
            refused("imbalance", "1000001"),
            "imbalance=1000001: must be thousandths from 1 to 1000000"
        );
    }

    #[test]
    fn a_change_is_reported_with_the_previous_value() {
        let message = |name, before, after| changed(weights::find(name).unwrap(), before, after);
        assert_eq!(message("stay", 20_000_000, 50_000_000), "stay: 50ms (was 20ms)\n");
        assert_eq!(message("stay", 1_500_000, 0), "stay: 0ns (was 1500us)\n");
        assert_eq!(message("imbalance", 1000, 2000), "imbalance: 2000 (was 1000)\n");
    }

    #[test]
    fn setting_a_weight_changes_no_other_field() {
        let file = File::from(memfd_create("state", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, SHARED as u64).unwrap();
        let stay = weights::find("stay").unwrap();
        let at = NQ_AT + offset_of!(Nq, weights) + stay.offset();
        Shared::map(&file).unwrap().store(at, 0x0102_0304_0506_0708);
        let mut bytes = vec![0; SHARED];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let nq = Nq::from_bytes(&bytes[NQ_AT..NQ_AT + size_of::<Nq>()]).unwrap();
        assert_eq!(stay.get(&nq.weights), 0x0102_0304_0506_0708);
        bytes[at..at + 8].fill(0);
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_node_without_cpus_is_refused_with_the_possible_ones() {
        let nq = made_up();
        assert_eq!((has_node(&nq, 0), has_node(&nq, 2)), (Ok(()), Ok(())));
        let refusal = "node 1: there is no such node with CPUs; the nodes are 0, 2";
        assert_eq!(has_node(&nq, 1), Err(Failure::input(refusal)));
        assert!(has_node(&nq, u32::MAX).is_err());
    }

    #[test]
    fn a_process_that_does_not_exist_is_refused() {
        let processes = Path::new("/proc");
        assert_eq!(exists(processes, std::process::id()), Ok(()));
        // This is a thread that does not lead its process.
        let of_thread = std::thread::spawn(move || {
            let number = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            (number, exists(processes, number))
        });
        let (number, found) = of_thread.join().unwrap();
        assert!(number != std::process::id() && found.is_ok(), "{number}: {found:?}");
        let unused_pid = i32::MAX.cast_unsigned();
        let refusal = Failure::input("2147483647: there is no such process or thread");
        assert_eq!(exists(processes, unused_pid), Err(refusal));
    }

    #[test]
    fn forgetting_a_home_that_was_never_set_is_an_input_error() {
        let error = libbpf_rs::Error::from_raw_os_error;
        let missing = not_forgotten(11, &error(libc::ENOENT));
        assert_eq!(missing, Failure::input("11: no home was told of it"));
        let refused = not_forgotten(11, &error(libc::EPERM)).to_string();
        assert!(refused.starts_with("/sys/fs/bpf/nearq/told: cannot be written: "), "{refused}");
    }
}
