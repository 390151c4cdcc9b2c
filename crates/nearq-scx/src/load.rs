//! The scheduler in the kernel: filled in, attached, pinned, followed, and unloaded.
//!
//! The kernel goes back to its own scheduler as soon as no process holds the link, however this process ends. For that reason the link is
//! not pinned; only the maps that other processes read are.

use std::ffi::CStr;
use std::io::{self, Write as _};
use std::mem::{MaybeUninit, offset_of};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject, PrintLevel};
use nearq_scx_policy::layout::{Nq, Process, Task, Told};

use crate::memory::{Kernel, is_told};
use crate::output::Failure;
use crate::{checks, decisions, pins};

// Written by a tool.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks)]
mod bpf {
    include!(concat!(env!("OUT_DIR"), "/main.skel.rs"));
}

use bpf::{MainSkel, MainSkelBuilder, types};

/// The beginning of the scheduler's name in `/sys/kernel/sched_ext/root/ops`.
pub(crate) const NAME: &str = "nearq_home";

/// The offset of the machine in the memory that the kernel shares with us, in bytes, and the size of that memory.
pub(crate) const NQ_AT: usize = offset_of!(types::bss, nq);
pub(crate) const SHARED: usize = size_of::<types::bss>();

/// How many processes fit into the list of those that ran.
const RAN: usize = size_of::<types::ran_list>() / size_of::<u32>() - 1;

const _: () = assert!(size_of::<types::nq>() == size_of::<Nq>(), "both are of one header");
const _: () = assert!(align_of::<Nq>() <= 4096 && NQ_AT.is_multiple_of(align_of::<Nq>()));

/// Why the kernel has unloaded the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    kind: i32,
    code: i64,
    reason: String,
    message: String,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Gone { kind, code, reason, message } = self;
        match reason.as_str() {
            "" => write!(f, "kind {kind}")?,
            reason => write!(f, "{reason}")?,
        }
        if !message.is_empty() {
            write!(f, ": {message}")?;
        }
        if *code != 0 {
            write!(f, " (code {code:#x})")?;
        }
        Ok(())
    }
}

/// Chooses whether the messages of libbpf and the kernel are printed while the scheduler is loaded.
pub(crate) fn set_verbose(verbose: bool) {
    let print: fn(PrintLevel, String) = |_, text| {
        // For debugging; it does not matter if it cannot be written.
        let _ = write!(io::stderr(), "{text}");
    };
    libbpf_rs::set_print(verbose.then_some((PrintLevel::Debug, print)));
}

/// A scheduler that the kernel runs.
pub(crate) struct Loaded<'a> {
    /// The link of the hook at the start of programs, and the scheduler's. Dropped before what they link.
    links: Vec<Link>,
    skeleton: MainSkel<'a>,
    /// The memory that we share with the kernel's part; it lives as long as the skeleton. Its contents may change at any time.
    shared: NonNull<types::bss>,
}

/// How long the kernel may take to unload it: the kernel waits for each task.
const PATIENCE: Duration = Duration::from_mins(1);

/// Storage for what a [`Loaded`] refers to.
pub(crate) type Room = MaybeUninit<OpenObject>;

impl<'a> Loaded<'a> {
    /// Loads it for the machine that `nq` describes, and makes the kernel use it.
    pub(crate) fn new(room: &'a mut Room, nq: &Nq) -> Result<Self, Failure> {
        let refused = |what: &str, error: &libbpf_rs::Error| Failure::run(explain(what, error));
        let mut open =
            MainSkelBuilder::default().open(room).map_err(|error| refused("opened", &error))?;
        let shared = open.maps.bss_data.as_mut().expect("the program has such memory");
        let target = ptr::from_mut(&mut shared.nq).cast::<u8>();
        let bytes = nq.bytes();
        // SAFETY: both are of the same length, as is asserted above, and the target is borrowed for us alone.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        // A round in which no process was listed.
        shared.ran.round = 1;
        let mut skeleton = open.load().map_err(|error| refused("loaded", &error))?;
        // From here on it is only used by that pointer, because no reference may exist to memory that others change.
        let shared = skeleton.maps.bss_data.take().expect("the program has such memory");
        let shared = NonNull::from(shared);
        let looks =
            skeleton.progs.home_exec.attach().map_err(|error| refused("started", &error))?;
        let mut loaded = Loaded { links: vec![looks], skeleton, shared };
        loaded.begin()?;
        Ok(loaded)
    }

    /// Makes the kernel use it.
    fn begin(&mut self) -> Result<(), Failure> {
        let link = self.skeleton.maps.nearq_home.attach_struct_ops();
        self.links.push(link.map_err(|error| Failure::run(explain("started", &error)))?);
        Ok(())
    }

    /// Makes the kernel stop using it, and then use it again for the machine that `nq` describes. Homes that were told stay; everything
    /// else that it has learned is forgotten. This is much faster than loading the program again, because the kernel has already verified
    /// it.
    pub(crate) fn begin_again(&mut self, nq: &Nq) -> Result<(), Failure> {
        // When the scheduler is unloaded, the entry of each task in the map is deleted.
        let told = pins::all_told(&self.skeleton.maps.told);
        self.links.truncate(1);
        let deadline = Instant::now() + PATIENCE;
        while checks::loaded(Path::new("/")).is_some() {
            if Instant::now() > deadline {
                return Err(Failure::run("the kernel does not unload the scheduler"));
            }
            thread::sleep(Duration::from_millis(1));
        }
        let shared = self.shared.as_ptr();
        // SAFETY: memory of that type, shared with a program that does not run now: none of its hooks is called while it is not the
        // scheduler, and the hook at the start of programs does nothing for tasks that the scheduler does not have.
        unsafe {
            ptr::copy_nonoverlapping(
                nq.bytes().as_ptr(),
                (&raw mut (*shared).nq).cast::<u8>(),
                size_of::<Nq>(),
            );
            (&raw mut (*shared).exit_info).write_bytes(0, 1);
        }
        for (pid, _) in self.processes() {
            // The entries of tasks that ended in between.
            let _ = self.skeleton.maps.processes.delete(&pid.to_ne_bytes());
        }
        for (pid, told) in told {
            if is_told(told) {
                self.tell(pid, told);
            }
        }
        self.begin()
    }

    /// Pins its maps, so that other processes find them.
    pub(crate) fn pin(&mut self, tellers: &pins::Tellers) -> Result<(), Failure> {
        let maps = &mut self.skeleton.maps;
        pins::folder()?;
        for (map, name) in [
            (&mut maps.bss, pins::STATE),
            (&mut maps.tasks, pins::TASKS),
            (&mut maps.processes, pins::PROCESSES),
            (&mut maps.told, pins::TOLD),
        ] {
            let path = pins::path(name);
            map.pin(&path).map_err(|error| {
                Failure::run(format!("{}: cannot be pinned: {error}", path.display()))
            })?;
        }
        pins::open_to(tellers)
    }

    /// Why the kernel has unloaded it; none while it has not.
    pub(crate) fn gone(&self) -> Option<Gone> {
        // SAFETY: shared memory that lives as long as the skeleton; only read, by a plain copy of each field, of which any bytes are a
        // value. The program writes `kind` last.
        let info = unsafe { &raw const (*self.shared.as_ptr()).exit_info };
        // SAFETY: within the shared memory, which lives as long as the skeleton; a plain number, copied at once.
        let kind = unsafe { (&raw const (*info).kind).read_volatile() };
        if kind == 0 {
            return None;
        }
        // SAFETY: within the shared memory, which lives as long as the skeleton; the program wrote all of it before `kind`, and any
        // bytes are a value.
        let copy = unsafe { info.read_volatile() };
        Some(Gone {
            kind,
            code: copy.code,
            reason: text(&copy.reason.map(i8::cast_unsigned)),
            message: text(&copy.message.map(i8::cast_unsigned)),
        })
    }

    /// A copy of the machine as the scheduler knows it now.
    pub(crate) fn machine(&self) -> Box<Nq> {
        let mut copy = Nq::zeroed();
        self.copy_machine(&mut copy);
        copy
    }

    /// The same into existing memory.
    pub(crate) fn copy_machine(&self, copy: &mut Nq) {
        // SAFETY: shared memory of that size that lives as long as the skeleton; it is copied as it is, and any bytes are a value.
        unsafe {
            let from = (&raw const (*self.shared.as_ptr()).nq).cast::<u8>();
            ptr::copy_nonoverlapping(from, ptr::from_mut(copy).cast::<u8>(), size_of::<Nq>());
        }
    }

    /// The PIDs of the processes that ran since the last call. None if there were more than fit into the list.
    fn take_list(&self) -> Option<Vec<u32>> {
        // SAFETY: shared memory that lives as long as the skeleton, of plain numbers that are read and written one by one. `round` is only
        // written here.
        unsafe {
            let ran = &raw mut (*self.shared.as_ptr()).ran;
            let round = (&raw const (*ran).round).read_volatile();
            let next = round.wrapping_add(1);
            let [written, read] =
                [next, round].map(|round| &raw mut (*ran).list[round as usize % 2]);
            (&raw mut (*written).count).write_volatile(0);
            // A reader that sees the next round sees its list empty: pairs with the program's read of `round`, by which it finds the list.
            fence(Ordering::Release);
            (&raw mut (*ran).round).write_volatile(next);
            let count = (&raw const (*read).count).read_volatile() as usize;
            let first = (&raw const (*read).pids).cast::<u32>();
            (count <= RAN).then(|| (0..count).map(|at| first.add(at).read_volatile()).collect())
        }
    }

    /// Unloads it; the kernel goes on with its own scheduler.
    pub(crate) fn unload(mut self) {
        pins::remove();
        decisions::remove();
        self.links.clear();
    }
}

impl Kernel for Loaded<'_> {
    fn processes(&self) -> Vec<(u32, Process)> {
        pins::processes(&self.skeleton.maps.processes)
    }

    fn ran(&self) -> Option<Vec<(u32, Process)>> {
        let mut pids = self.take_list()?;
        pids.sort_unstable();
        pids.dedup();
        let known = |pid| Some((pid, self.process(pid)?));
        Some(pids.into_iter().filter_map(known).collect())
    }

    fn process(&self, pid: u32) -> Option<Process> {
        pins::process(&self.skeleton.maps.processes, pid)
    }

    fn task(&self, pid: u32) -> Option<Task> {
        pins::task(&self.skeleton.maps.tasks, pid, false)
    }

    fn tell(&self, pid: u32, told: Told) {
        // If a home was already told from outside, that one counts; if the map is full, this one is dropped.
        let _ = pins::tell(&self.skeleton.maps.told, pid, told, MapFlags::NO_EXIST);
    }

    fn forget(&self, pid: u32) {
        let map = &self.skeleton.maps.told;
        // Another process may have told one in the meantime.
        if pins::told(map, pid).is_some_and(|told| !is_told(told)) {
            // The kernel's part may have forgotten it first.
            let _ = map.delete(&pid.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Loaded<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// The error if the kernel refuses, with what can be done.
fn explain(what: &str, error: &libbpf_rs::Error) -> String {
    let hint = match error.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => {
            "; run it as root and outside of containers; a user namespace or the kernel's lockdown may also prevent it"
        }
        libbpf_rs::ErrorKind::NotFound | libbpf_rs::ErrorKind::Unsupported => {
            "; the kernel lacks something: boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT and CONFIG_DEBUG_INFO_BTF; --verbose shows the kernel's messages"
        }
        libbpf_rs::ErrorKind::WouldBlock => {
            "; another scheduler is loaded, or the kernel is switching schedulers at this moment; try again"
        }
        _ => "; --verbose shows the kernel's messages",
    };
    format!("the scheduler cannot be {what}: {error}{hint}")
}

/// A text that ends with its first zero.
fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    String::from_utf8_lossy(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_is_gone_is_one_sentence() {
        let gone = |reason: &str, message: &str, code| Gone {
            kind: 1026,
            code,
            reason: reason.into(),
            message: message.into(),
        };
        let stall = gone("runnable task stall", "sh[77] failed to run for 10.1s", 0);
        assert_eq!(stall.to_string(), "runnable task stall: sh[77] failed to run for 10.1s");
        assert_eq!(gone("", "", 0x20).to_string(), "kind 1026 (code 0x20)");
        assert_eq!(text(b"abc\n\0def"), "abc");
        assert_eq!(text(b"abc"), "abc");
    }
}
