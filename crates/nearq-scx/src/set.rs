//! `nearq-scx set` and `nearq-scx tell`: what can be changed while the scheduler runs.

use std::ffi::c_void;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use libbpf_rs::{MapCore as _, MapFlags as MapUpdate, MapHandle};
use nearq_scx_policy::layout::{Nq, Told};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::os::fd::AsFd as _;

use crate::load::{NQ_AT, SHARED};
use crate::output::{self, Failure};
use crate::pins::{self, Access};
use crate::state::{node_id, node_index};
use crate::weights;

/// The policy's number of a home that somebody has told.
const WHY_TOLD: u32 = 4;

fn set_legend() -> String {
    format!(
        "\
Weights, as they are usually:
{}

`nearq-scx status` shows what they are now. A change lasts until the scheduler
is unloaded.

Examples:
  nearq-scx set stay 50ms
  nearq-scx set imbalance 2000",
        weights::Legend
    )
}

/// What `nearq-scx set` can be told.
#[derive(Args, Debug)]
#[command(after_help = set_legend())]
pub(crate) struct SetOptions {
    /// The weight
    #[arg(value_name = "NAME")]
    name: String,

    /// What it is from now on
    #[arg(value_name = "VALUE")]
    value: String,
}

const TELL_LEGEND: &str = "\
A process's number stands for all its threads, also those that it makes later; a
thread's for itself. A home that was told stays: it does not follow the memory,
and a program that the process begins later keeps it; processes that it forks
from then on begin there too. `--forget` gives it back: then it stays where it
is until there is a reason, and processes that it forked before keep theirs.

Examples:
  nearq-scx tell 4711 1
  nearq-scx tell 4711 --forget";

/// What `nearq-scx tell` can be told.
#[derive(Args, Debug)]
#[command(after_help = TELL_LEGEND)]
pub(crate) struct TellOptions {
    /// The process or the thread
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pid: u32,

    /// Its home, as the system numbers nodes
    #[arg(value_name = "NODE", required_unless_present = "forget")]
    node: Option<u32>,

    /// Take back what was told
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
        .map_err(|error| Failure::run(format!("{} cannot be set: {error}", weight.name)))?
        .store(NQ_AT + offset_of!(Nq, weights) + weight.offset(), value);
    let (before, after) = (weight.text(before), weight.text(value));
    output::print(&format!("{}: {after} (was {before})\n", weight.name))
}

/// Carries out `tell`.
pub(crate) fn tell(options: &TellOptions) -> Result<(), Failure> {
    let (pid, map) = (options.pid, pins::open(pins::TOLD, Access::Write)?);
    let refused = |error: &libbpf_rs::Error| {
        let path = pins::path(pins::TOLD);
        Failure::run(format!("{}: cannot be written: {error}", path.display()))
    };
    let Some(node) = options.node else {
        return match map.delete(&pid.to_ne_bytes()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => {
                Err(Failure::input(format!("{pid}: no home was told of it")))
            }
            Err(error) => Err(refused(&error)),
        };
    };
    let nq = pins::machine(&pins::open(pins::STATE, Access::Read)?)?;
    if node_index(&nq, node).is_none() {
        let known: Vec<String> =
            (0..nq.nodes).filter_map(|index| Some(node_id(&nq, index)?.to_string())).collect();
        return Err(Failure::input(format!(
            "node {node}: there is no such node with CPUs; there are {}",
            known.join(", ")
        )));
    }
    if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
        return Err(Failure::input(format!("{pid}: there is no such process or thread")));
    }
    pins::tell(&map, pid, Told { node, why: WHY_TOLD }, MapUpdate::ANY)
        .map_err(|error| refused(&error))
}

/// The memory that the kernel's part shares, in this process.
struct Shared {
    start: *mut c_void,
    length: usize,
}

impl Shared {
    fn map(state: &MapHandle) -> rustix::io::Result<Self> {
        let page = rustix::param::page_size();
        let length = SHARED.next_multiple_of(page);
        let fd: BorrowedFd<'_> = state.as_fd();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: new memory at a place that the kernel chooses, of a map whose size was compared when it was opened.
        let start = unsafe { mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0) }?;
        Ok(Shared { start, length })
    }

    /// Writes a number at a place in it, at once.
    fn store(&self, at: usize, value: u64) {
        assert!(at.is_multiple_of(8) && at + 8 <= SHARED);
        // SAFETY: within the mapping and aligned, as is asserted; it lives as long as `self`, and all others read and write it as
        // whole words too.
        let word = unsafe { AtomicU64::from_ptr(self.start.byte_add(at).cast()) };
        // Relaxed: a number by itself; the kernel's part reads it when it needs it.
        word.store(value, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nobody refers any more. That it cannot be undone is no harm: the process ends.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}
