//! Starting programs as processes that are placed before their first instruction: CPUs, memory, process group, signals.

use core::ffi::{CStr, c_char};
use std::ffi::CString;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use nearq_topology::CpuSet;

use super::memory;
use super::refusal::{self, refused};
use crate::sys::{self, SignalMask, Stack};
use crate::{MemoryPolicy, OsError};

/// What to start, and how.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSpec<'a> {
    /// The file. `PATH` is not searched.
    pub program: &'a CStr,
    /// The program's arguments, its own name first.
    pub arguments: &'a [CString],
    /// Its environment, as `NAME=value`.
    pub environment: &'a [CString],
    /// The files that become its standard input, output and error; `None` means the caller's own.
    pub files: [Option<BorrowedFd<'a>>; 3],
    /// Whether it leads a process group of its own: then signals reach it and what it starts, and no other process.
    pub own_group: bool,
    /// The signal that it gets when the thread that starts it ends, however that happens. A set-user-ID program gets none.
    pub parent_death_signal: Option<i32>,
    /// The CPUs that it may use; `None` means the caller's.
    pub affinity: Option<&'a CpuSet>,
    /// Where its memory comes from, including that of the program itself; `None` means the caller's policy.
    pub memory: Option<&'a MemoryPolicy>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Spawned {
    /// The process, a child of the caller; the caller must wait for its end.
    pub pid: u32,
    /// Why it does not have the CPUs that were requested; it has the caller's then.
    pub affinity_refused: Option<OsError>,
    /// Why it does not have the memory policy that was requested; it has the caller's then.
    pub memory_refused: Option<OsError>,
}

/// Why a program does not run.
#[derive(Clone, PartialEq, Eq)]
pub enum NotSpawned {
    /// The process could not be created. If `errno` is `EAGAIN`, a limit was reached: the start can be tried again when other processes
    /// have ended.
    NoProcess(OsError),
    /// The process could not be prepared.
    NotSetUp(OsError),
    /// The program could not be executed; `errno` says why: `ENOENT`, `EACCES`, `ENOEXEC`, ...
    NotExecuted(OsError),
}

impl NotSpawned {
    /// What was refused.
    pub fn refused(&self) -> &OsError {
        let (Self::NoProcess(refused) | Self::NotSetUp(refused) | Self::NotExecuted(refused)) =
            self;
        refused
    }
}

impl fmt::Display for NotSpawned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refused().fmt(f)
    }
}

nearq_topology::debug_as_display!(NotSpawned);

impl std::error::Error for NotSpawned {}

/// Starts programs, one after the other.
///
/// A child borrows the parent's memory until the program is executed, so a start costs the same whatever the parent's size.
///
/// ```
/// use nearq_platform::{ProcessSpec, Spawner};
///
/// let mut spawner = Spawner::new();
/// let spawned = spawner.spawn(&ProcessSpec {
///     program: c"/bin/sh",
///     arguments: &[c"sh".into(), c"-c".into(), c"exit 3".into()],
///     environment: &[],
///     files: [None; 3],
///     own_group: true,
///     parent_death_signal: None,
///     affinity: None,
///     memory: None,
/// })?;
/// # let _ = spawned;
/// # Ok::<(), nearq_platform::NotSpawned>(())
/// ```
pub struct Spawner {
    stack: Stack,
    mask: SignalMask,
    defaults: Vec<i32>,
}

impl Spawner {
    /// Notes what programs will find: the signals that the calling thread has blocked now, and the default action for those that
    /// have a handler now and for SIGPIPE, which Rust programs ignore. Ignored signals stay ignored.
    pub fn new() -> Self {
        let mut defaults = sys::handled_signals();
        defaults.push(libc::SIGPIPE);
        Spawner { stack: Stack::new(), mask: SignalMask::of_caller(), defaults }
    }

    /// Starts a program; returns when it has been executed. A placement that is refused is no error.
    ///
    /// # Errors
    /// Nothing runs: the process could not be created, the process could not be prepared (a descriptor of `files` is below 3), or the
    /// program cannot be executed.
    pub fn spawn(&mut self, spec: &ProcessSpec<'_>) -> Result<Spawned, NotSpawned> {
        let (arguments, environment) = (pointers(spec.arguments), pointers(spec.environment));
        let spawn = sys::Spawn {
            path: spec.program,
            arguments: &arguments,
            environment: &environment,
            files: spec.files.map(|file| file.map_or(-1, |file| file.as_raw_fd())),
            own_group: spec.own_group,
            parent_death_signal: spec.parent_death_signal.unwrap_or(0),
            mask: &self.mask,
            defaults: &self.defaults,
            affinity: spec.affinity.map_or(&[], CpuSet::as_words),
            policy: spec.memory.map(|policy| sys::Policy {
                mode: memory::mode(policy),
                nodes: memory::nodes(policy),
            }),
        };
        match sys::spawn(&mut self.stack, &spawn) {
            Ok((pid, placed)) => Ok(Spawned {
                pid: pid.unsigned_abs(),
                affinity_refused: placed.affinity.map(|error| {
                    let cpus = spec.affinity.map(CpuSet::to_list).unwrap_or_default();
                    let what = format!("have a program run on CPUs {cpus}");
                    refused(what, error, refusal::affinity(error))
                }),
                memory_refused: placed.policy.map(|error| {
                    let text = spec.memory.map(memory::text).unwrap_or_default();
                    let what = format!("have a program's memory come from {text}");
                    refused(what, error, refusal::memory(error))
                }),
            }),
            Err(error) => Err(not_spawned(spec.program, error)),
        }
    }
}

impl Default for Spawner {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").field("defaults", &self.defaults).finish_non_exhaustive()
    }
}

fn not_spawned(program: &CStr, error: sys::NotSpawned) -> NotSpawned {
    let program = program.to_string_lossy();
    match error {
        sys::NotSpawned::NoProcess(error) => NotSpawned::NoProcess(refused(
            format!("start a process for {program}"),
            error,
            refusal::processes(error),
        )),
        sys::NotSpawned::NotSetUp(error) => NotSpawned::NotSetUp(refused(
            format!("prepare a process for {program}"),
            error,
            "".into(),
        )),
        sys::NotSpawned::NotExecuted(error) => {
            NotSpawned::NotExecuted(refused(format!("execute {program}"), error, "".into()))
        }
    }
}

/// The texts as C has them: pointers, the last of which is null.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([core::ptr::null()]).collect()
}

// The thread sanitizer takes a child that borrows its parent's memory for a fork, and ends the program.
#[cfg(all(test, not(tsan)))]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsFd as _;

    const PLAIN: ProcessSpec<'static> = ProcessSpec {
        program: c"/bin/true",
        arguments: &[],
        environment: &[],
        files: [None; 3],
        own_group: false,
        parent_death_signal: None,
        affinity: None,
        memory: None,
    };

    fn texts(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    /// The status of a child as `wait` returns it, in the kernel's packed form.
    fn wait(pid: u32) -> i32 {
        let mut status = 0;
        // SAFETY: validity: the place is an int. Aliasing: the only reference is the one passed. Thread: no other thread waits for
        // it.
        let returned = unsafe { libc::waitpid(pid.cast_signed(), &raw mut status, 0) };
        assert_eq!(returned, pid.cast_signed());
        status
    }

    /// Runs `script` in a shell with its output in a file, and returns the output and the status.
    fn sh(script: &str, wanted: ProcessSpec<'_>) -> (String, i32) {
        let arguments = texts(&["sh", "-c", script]);
        let environment = texts(&["PATH=/usr/bin:/bin", "NAME=value"]);
        let path = std::env::temp_dir().join(format!(
            "nearq-exec-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let output = file.try_clone().unwrap();
        let spec = ProcessSpec {
            program: c"/bin/sh",
            arguments: &arguments,
            environment: &environment,
            files: [None, Some(output.as_fd()), None],
            ..wanted
        };
        let spawned = Spawner::new().spawn(&spec).unwrap();
        assert_eq!((spawned.affinity_refused, spawned.memory_refused), (None, None));
        let status = wait(spawned.pid);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        (text, status)
    }

    #[test]
    fn arguments_environment_files_and_the_exit_status_are_passed() {
        assert_eq!(sh("echo $NAME; exit 3", PLAIN), ("value\n".to_owned(), 3 << 8));
    }

    #[test]
    fn the_program_leads_a_process_group_if_requested() {
        // The fifth field of `stat` is the group.
        let script = "read _ _ _ _ group _ < /proc/$$/stat; echo $(($group == $$))";
        assert_eq!(sh(script, ProcessSpec { own_group: true, ..PLAIN }).0, "1\n");
        assert_eq!(sh(script, PLAIN).0, "0\n");
    }

    #[test]
    fn the_program_starts_with_the_specified_cpus_and_signals() {
        let cpu = super::super::thread::affinity(super::super::thread::Thread::first()).unwrap();
        let one = CpuSet::single(cpu.last().unwrap());
        let script = "grep -E 'Cpus_allowed_list|SigIgn|SigBlk' /proc/self/status";
        let (text, _) = sh(script, ProcessSpec { affinity: Some(&one), ..PLAIN });
        assert!(text.contains(&format!("Cpus_allowed_list:\t{one}\n")), "{text}");
        let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert_eq!(ignored & (1 << (libc::SIGPIPE - 1)), 0, "SIGPIPE is Rust's business: {text}");
        assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
    }

    #[test]
    fn a_refused_placement_does_not_stop_the_program() {
        let arguments = texts(&["true"]);
        let nowhere = CpuSet::single(nearq_topology::MAX_CPU_COUNT - 1);
        let policy = MemoryPolicy::Preferred(1_000);
        let spec = ProcessSpec {
            arguments: &arguments,
            parent_death_signal: Some(libc::SIGKILL),
            affinity: Some(&nowhere),
            memory: Some(&policy),
            ..PLAIN
        };
        let spawned = Spawner::new().spawn(&spec).unwrap();
        assert_eq!(wait(spawned.pid), 0);
        assert_eq!(spawned.affinity_refused.unwrap().errno(), libc::EINVAL);
        let text = spawned.memory_refused.unwrap().to_string();
        assert!(text.contains("node 1000"), "{text}");
    }

    #[test]
    fn a_failed_execution_returns_an_error_and_leaves_no_process() {
        let arguments = texts(&["it"]);
        let mut spec = ProcessSpec { program: c"/no/such/program", arguments: &arguments, ..PLAIN };
        let mut spawner = Spawner::new();
        let errno = |error: NotSpawned| match error {
            NotSpawned::NotExecuted(refused) => refused.errno(),
            other => panic!("{other:?}"),
        };
        assert_eq!(errno(spawner.spawn(&spec).unwrap_err()), libc::ENOENT);
        spec.program = c"/etc/passwd";
        assert_eq!(errno(spawner.spawn(&spec).unwrap_err()), libc::EACCES);
        let standard = std::io::stdout();
        spec.files[0] = Some(standard.as_fd());
        assert!(matches!(spawner.spawn(&spec), Err(NotSpawned::NotSetUp(_))));
    }

    #[test]
    fn a_started_program_may_be_killed_with_its_parent() {
        let (text, status) = sh(
            "kill -0 $$ && echo alive",
            ProcessSpec { parent_death_signal: Some(libc::SIGKILL), ..PLAIN },
        );
        assert_eq!((text.as_str(), status), ("alive\n", 0), "the parent is alive");
        let arguments = texts(&["sleep", "1000"]);
        let orphan = std::thread::spawn(move || {
            let spec = ProcessSpec {
                program: c"/bin/sleep",
                arguments: &arguments,
                parent_death_signal: Some(libc::SIGKILL),
                ..PLAIN
            };
            Spawner::new().spawn(&spec).unwrap().pid
        });
        let pid = orphan.join().unwrap();
        assert_eq!(wait(pid), libc::SIGKILL, "the thread that started it has ended");
    }
}
