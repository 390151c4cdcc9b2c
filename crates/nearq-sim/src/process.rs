//! Processes: threads that belong together, started by `fork`, given another program by `exec`.
//!
//! A simulated process has only the properties that a scheduler and a memory manager see: an identity, a name, threads and pages. It is not
//! a protection boundary. All processes are one program with one memory, so a child that reads its parent's data finds the data where the
//! parent's accesses put it; no memory is copied on fork. A page counts for the process that first touched it.
//!
//! The first process is number 1. A process ends with its last thread; the run ends with the first function, whatever
//! other processes do.

use std::collections::BTreeMap;

use nearq_platform::{OsError, ThreadSpec};

use crate::context;
use crate::platform::{Sim, gone, start, system_call, wait_for_end};
use crate::sched::Reason;
use crate::thread::{Thread, cut_name};
use crate::trace::Kind;
use crate::world::World;

/// `EBUSY`: the process has other threads.
const EBUSY: i32 = 16;

/// A process that was started by [`Sim::fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process {
    id: u64,
}

impl Process {
    /// Its number. The first process of a run is 1.
    pub fn id(self) -> u64 {
        self.id
    }
}

/// What the simulated kernel knows about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Its number.
    pub id: u64,
    /// Its name: that of the program that it runs.
    pub name: String,
    /// How many threads it has.
    pub threads: usize,
    /// How many of its pages are on each node, by node number.
    pub resident: Vec<usize>,
}

/// A process that has threads.
#[derive(Debug, Default)]
struct Entry {
    name: String,
    /// Slots of its threads, in the order in which they joined.
    threads: Vec<usize>,
}

/// The processes that have threads, by number.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    entries: BTreeMap<u64, Entry>,
    made: u64,
}

impl Processes {
    /// A new process, of the thread in `slot`.
    fn add(&mut self, name: &str, slot: usize) -> u64 {
        self.made += 1;
        self.entries.insert(self.made, Entry { name: name.to_owned(), threads: vec![slot] });
        self.made
    }

    fn at(&mut self, id: u64) -> &mut Entry {
        self.entries.get_mut(&id).expect("the process of a thread exists")
    }
}

impl World {
    /// The thread in `slot` is the first of a process.
    pub(crate) fn begin_process(&mut self, name: &str, slot: usize) {
        let id = self.processes.add(name, slot);
        self.threads.at_mut(slot).process = id;
    }

    /// A thread that the running thread has just made joins its process and gets its memory policy.
    pub(crate) fn join_process(&mut self, slot: usize) {
        let (process, placing) = (self.me().process, self.me().placing.clone());
        self.processes.at(process).threads.push(slot);
        let thread = self.threads.at_mut(slot);
        (thread.process, thread.placing) = (process, placing);
    }

    /// A thread that was just made in the running thread's process becomes the first of a new process instead.
    pub(crate) fn found_process(&mut self, name: &str, slot: usize) {
        let parent = self.threads.at(slot).process;
        self.processes.at(parent).threads.retain(|other| *other != slot);
        self.begin_process(name, slot);
    }

    /// The eldest thread of a process, if the process has threads.
    pub(crate) fn first_thread(&self, process: Process) -> Option<Thread> {
        let slot = *self.processes.entries.get(&process.id)?.threads.first()?;
        Some(Thread { slot, id: self.threads.at(slot).id })
    }

    /// The thread in `slot` ends, and so does its process if this was the last thread.
    pub(crate) fn leave_process(&mut self, slot: usize) {
        let id = self.threads.at(slot).process;
        let process = self.processes.at(id);
        process.threads.retain(|other| *other != slot);
        if process.threads.is_empty() {
            self.processes.entries.remove(&id);
            self.memory.bytes.forget_process(id);
        }
    }

    /// The running thread is placed as if it were new, because its process has a new program. It has left its CPU.
    pub(crate) fn placed_anew(&mut self) -> bool {
        let (slot, cpu, now) = (self.slot, self.cpu, self.now());
        self.stop(cpu, true);
        self.make_ready(slot, now, Reason::Exec);
        self.go_on(cpu);
        true
    }
}

impl Sim {
    /// Starts a process: its first thread, which has the process's name `name`, runs `main` with the caller's affinity, nice value,
    /// scheduling class and memory policy. Costs `fork`, and can be refused as [`Threads::spawn`](nearq_platform::Threads::spawn) can.
    ///
    /// The process shares the caller's memory: all processes see what it changes.
    ///
    /// # Errors
    /// If the thread could not be created.
    pub fn fork(name: &str, main: impl FnOnce() + Send + 'static) -> Result<Process, OsError> {
        let shared = context::expect("Sim::fork");
        // Creating the thread is part of the cost.
        shared.step_in_kernel(|world| world.costs.fork.saturating_sub(world.costs.spawn));
        let spec = ThreadSpec { name: name.to_owned(), ..ThreadSpec::default() };
        let thread = start(spec, true, main)?.0;
        // No time has passed since the thread was made: it has not run yet.
        let id = shared.world.borrow().threads.at(thread.slot).process;
        Ok(Process { id })
    }

    /// Gives the caller's process a new program, `name`: it keeps its number, affinity, nice value, class and memory
    /// policy. Its pages are forgotten because they are replaced. The caller's slot becomes null, and the caller gets
    /// the process's name. The scheduler may place it again. Costs `exec`.
    ///
    /// The calling function goes on, and plays the part of the new program.
    ///
    /// # Errors
    /// `EBUSY` if the process has other threads. (Linux would end them; a simulated thread cannot be ended.)
    pub fn exec(name: &str) -> Result<(), OsError> {
        let shared = context::expect("Sim::exec");
        shared.step_in_kernel(|world| world.costs.exec);
        {
            let mut world = shared.world.borrow_mut();
            let id = world.me().process;
            let process = world.processes.at(id);
            let others = process.threads.len() - 1;
            if others > 0 {
                return Err(OsError::new(
                    format!("give process {id} the program {name} beside {others} other threads"),
                    EBUSY,
                    "join the process's other threads first",
                ));
            }
            name.clone_into(&mut process.name);
            world.memory.bytes.forget_process(id);
            let me = world.me_mut();
            me.worker_slot = std::ptr::null();
            me.name = cut_name(name);
            world.record(Kind::Exec, id);
            world.trace.text(name);
        }
        shared.block(World::placed_anew);
        Ok(())
    }

    /// Waits until all threads of a process have ended.
    pub fn wait_process(process: Process) {
        let shared = system_call("Sim::wait_process");
        loop {
            let thread = {
                let world = shared.world.borrow();
                let Some(thread) = world.first_thread(process) else { return };
                thread
            };
            wait_for_end(shared, thread);
        }
    }

    /// The eldest thread of a process, for callers that set its affinity or read its statistics; `None` once the process has ended.
    pub fn first_thread(process: Process) -> Option<Thread> {
        context::expect("Sim::first_thread").world.borrow().first_thread(process)
    }

    /// The process that a thread belongs to.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn process(thread: Thread) -> Result<ProcessInfo, OsError> {
        let shared = system_call("Sim::process");
        let world = shared.world.borrow();
        let id = world.threads.find(thread).ok_or_else(|| gone(thread))?.process;
        let entry = &world.processes.entries[&id];
        Ok(ProcessInfo {
            id,
            name: entry.name.clone(),
            threads: entry.threads.len(),
            resident: world.memory.bytes.resident(id),
        })
    }
}
