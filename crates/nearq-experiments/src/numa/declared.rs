//! The job on a simulated machine: the work of a compilation is declared, and the simulator determines the cost of its memory.
//!
//! # What is declared
//! As many issuers as jobs, each a thread: it reads a source file (writes [`Declared::input`] bytes, on whichever CPU it is), queues the
//! compilation for the pod of that CPU, waits for it, and reads the object that comes out ([`Declared::output`]), as the linker does. A
//! compilation reads its input, touches a heap of its own for the first time, walks over it several times, computes in the meantime, and
//! writes the object. So a scope decides how far the input and the output must travel; the heap, which is most of the memory, is made where
//! the item runs. This is why the scope matters least for a build, as the document says.
//!
//! For the rows `writeback` a compilation is a thread of its own, as a compiler is a process of its own: it makes its input itself, as if it
//! had read the file, and leaves its output to an item, which reads it and computes for [`Declared::write_us`]. As many compilations run at
//! a time, and all of their output must have been written away in the end.
//!
//! The sizes are those of one file of the job of a real machine (`gcc -O2`, some 120 functions: text of 0.1 MB and headers,
//! 40 MB at most, of which a small part is used again and again), rounded. The CPU time of an item is cut short from
//! half a second to milliseconds, and the bytes are cut likewise; the ratio of the two is what counts.

use super::job::scope_of;
use super::{HOMES, Plan, Taken, writes_back};
use crate::harness::{Running, failed, on_thread, simulate};
use crate::{DeclaredMemory, Error, Machine};
use nearq::{Runtime, home::Home};
use nearq_platform::{LockPlatform as _, ThreadSpec, Threads as _};
use nearq_sim::{Sim, compute};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// What a compilation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Declared {
    /// Bytes of source that it reads.
    pub input: usize,
    /// Bytes of memory that it uses.
    pub heap: usize,
    /// How often it walks over them.
    pub passes: u32,
    /// Microseconds that it computes, in addition to the cost of its memory.
    pub compute_us: u64,
    /// Bytes of object that it writes.
    pub output: usize,
    /// Microseconds that it takes to write them away, in addition to the cost of reading them.
    pub write_us: u64,
}

impl Declared {
    /// The work of a compilation on every machine.
    pub const USUAL: Declared = Declared {
        input: 512 << 10,
        heap: 2 << 20,
        passes: 4,
        compute_us: 5_000,
        output: 128 << 10,
        write_us: 50,
    };

    fn compile(&self, input: &[u8]) -> DeclaredMemory {
        Sim::read(input);
        let mut heap = DeclaredMemory::new(self.heap);
        let slice = Duration::from_micros(self.compute_us) / self.passes.max(1);
        for _ in 0..self.passes {
            Sim::write(&mut heap);
            compute(slice);
            Sim::read(&heap);
        }
        let mut output = DeclaredMemory::new(self.output);
        Sim::write(&mut output);
        output
    }
}

/// The virtual time after which a run counts as failed, for each file: many times as long as a file takes.
const LIMIT: Duration = Duration::from_millis(500);

/// Does the job once, on a fresh machine; also the hash of what happened.
pub(super) fn run(
    machine: &Machine,
    row: &'static str,
    plan: &Plan,
    seed: u64,
) -> Result<(Taken, u64), Error> {
    let limit = LIMIT * u32::try_from(plan.files).unwrap_or(u32::MAX);
    let (files, jobs) = (plan.files, plan.jobs.min(plan.files));
    let outcome = simulate(machine, seed, limit, move || {
        if writes_back(row) { writeback(row, files, jobs) } else { job(row, files, jobs) }
    })?;
    let elapsed = outcome.result?;
    Ok((Taken { elapsed, user: None, system: None }, outcome.trace_hash))
}

fn job(row: &'static str, files: usize, jobs: usize) -> Result<Duration, Error> {
    let runtime = Runtime::<Sim>::builder_in().build().map_err(failed)?;
    let queue = runtime.workqueue_builder("files").affinity_scope(scope_of(row)).max_active(jobs);
    let queue = Arc::new(queue.build().map_err(failed)?);
    let begin = Sim::now();
    let mut issuers = Vec::new();
    for issuer in 0..jobs {
        let (queue, runtime) = (Arc::clone(&queue), runtime.clone());
        let name = format!("issuer{issuer}");
        let issue = move || {
            let declared = Declared::USUAL;
            // Files are dealt out in turn.
            for _ in (issuer..files).step_by(jobs) {
                let mut input = DeclaredMemory::new(declared.input);
                Sim::write(&mut input);
                let home = (row == HOMES).then(|| Home::near_in(&runtime, &input));
                let item = move || declared.compile(&input);
                let item = match &home {
                    Some(home) => queue.task().home(home).spawn(item),
                    None => queue.spawn(item),
                };
                let output = item.join().expect("a compilation does not panic");
                Sim::read(&output);
            }
        };
        let spec = ThreadSpec { name, ..ThreadSpec::default() };
        issuers.push(Sim::spawn(spec, issue).map_err(failed)?);
    }
    issuers.into_iter().for_each(Sim::join);
    Ok(Sim::now() - begin)
}

/// Does the job with a thread for each compilation; items write away what is made.
fn writeback(row: &'static str, files: usize, jobs: usize) -> Result<Duration, Error> {
    let runtime = Runtime::<Sim>::builder_in().build().map_err(failed)?;
    let queue = runtime.workqueue_builder("writeback").affinity_scope(scope_of(row));
    let queue = Arc::new(queue.build().map_err(failed)?);
    let begin = Sim::now();
    let mut makers = Vec::new();
    for maker in 0..jobs {
        let queue = Arc::clone(&queue);
        let make = move || {
            let mut items = Vec::new();
            for file in (maker..files).step_by(jobs) {
                let queue = Arc::clone(&queue);
                let compile = move || {
                    let declared = Declared::USUAL;
                    let mut input = DeclaredMemory::new(declared.input);
                    Sim::write(&mut input);
                    let output = declared.compile(&input);
                    Ok(queue.spawn(move || {
                        Sim::read(&output);
                        compute(Duration::from_micros(declared.write_us));
                    }))
                };
                let spec = ThreadSpec { name: format!("cc{file}"), ..ThreadSpec::default() };
                items.push(on_thread::<Sim, _>(spec, compile)?);
            }
            for item in items {
                item.join().expect("writing away does not panic");
            }
            Ok(())
        };
        let spec = ThreadSpec { name: format!("make{maker}"), ..ThreadSpec::default() };
        makers.push(Running::<Sim, ()>::start(spec, make)?);
    }
    makers.into_iter().try_for_each(Running::join)?;
    Ok(Sim::now() - begin)
}
