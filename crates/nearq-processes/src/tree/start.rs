//! Starts a tree, with two processes between the tree and its starter.
//!
//! ```text
//! shell ──► nearq ──► nq/steward ──► the command ──► all that it starts
//!           waits,    keeps the
//!           passes    table
//!           on
//! ```
//!
//! There are two processes, so that if either is killed the other undoes the changes to the tree. Both adopt the orphans of their
//! descendants (subreapers), so that each knows the whole tree. When the supervisor is gone, the command ends by SIGTERM; when the
//! first process is gone, the supervisor ends the command.
//!
//! **Terminal and signals.** The command is in the process group of the first process, and the supervisor is in a group of its own. Signals
//! from the terminal go to the first process, which ignores them, and to the command. A signal from another process to the first is passed
//! on to the command. When the command stops, so does the first process, by the same signal; that is what a shell waits for.
//!
//! **The end.** The first process ends when the command has ended and everything is undone. Processes that the command leaves
//! behind continue without homes, with all CPUs; a preference for a node's memory stays until a program is executed.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fmt, panic, process};

use nearq_home::{Nodes, Weights};
use nearq_topology::CpuSet;

use super::supervisor::{Summary, Supervisor, TreeOptions};
use super::table::Table;
use super::{relatives, variable};
use crate::proc;
use crate::search::{Found, search};
use crate::system::{self, Child, SignalSet};

/// The folders that are searched if there is no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The name of the supervisor, the process that keeps the table, as `ps` shows it.
pub const SUPERVISOR: &str = "nq/steward";

/// When programs of a tree choose their home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choose {
    /// When they are executed; their forks live where they live.
    #[default]
    Exec,
    /// Also when they fork.
    Fork,
    /// When they have used some CPU time; small programs never.
    Lazy,
}

impl Choose {
    /// The name of the choice.
    pub fn as_str(self) -> &'static str {
        match self {
            Choose::Exec => "exec",
            Choose::Fork => "fork",
            Choose::Lazy => "lazy",
        }
    }
}

/// A tree of processes to start.
#[derive(Debug)]
pub struct Tree {
    /// The existing homes.
    pub nodes: Nodes,
    /// The CPUs that the tree may have at most.
    pub widest: CpuSet,
    /// How homes are kept.
    pub weights: Weights,
    /// When programs choose their home.
    pub choose: Choose,
    /// The index of the one home of all programs, if they do not choose.
    pub fixed: Option<usize>,
    /// No process is let out of its home.
    pub strict: bool,
    /// Variables of the command's environment, with their values.
    pub variables: Vec<(OsString, OsString)>,
    /// The library that is loaded into programs.
    pub library: PathBuf,
    /// The command and its arguments.
    pub command: Vec<OsString>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended with this exit status.
    Exited(u8),
    /// It was ended by this signal.
    Signalled(i32),
}

impl End {
    /// Ends this process in the same way.
    pub fn follow(self) -> ! {
        match self {
            End::Exited(status) => process::exit(status.into()),
            End::Signalled(signal) => system::die_by(signal),
        }
    }
}

/// Why a command was not started, or is not known to have ended.
pub enum Error {
    /// There is no such command.
    NotFound(OsString),
    /// The command exists, but cannot be executed.
    NotExecutable(OsString, io::Error),
    /// The system refuses something else that a tree needs.
    Refused(&'static str, io::Error),
}

impl Error {
    /// The exit status that shells use for this error.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::NotFound(_) => 127,
            Error::NotExecutable(..) => 126,
            Error::Refused(..) => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound(name) => {
                let name = name.display();
                write!(
                    out,
                    "{name}: there is no such command; give a path, or the name of a program in PATH"
                )
            }
            // The file was found.
            Error::NotExecutable(name, error) if error.kind() == io::ErrorKind::NotFound => {
                let name = name.display();
                write!(
                    out,
                    "{name}: cannot be executed: its interpreter or loader does not exist; `head -n 1` shows a script's interpreter"
                )
            }
            Error::NotExecutable(name, error) => {
                write!(
                    out,
                    "{}: cannot be executed: {error}; give a program; if it is your program, run `chmod +x` on it",
                    name.display()
                )
            }
            Error::Refused(what, error) => write!(out, "a tree of processes needs {what}: {error}"),
        }
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}

/// Runs the command unchanged, with these variables in its environment: this process becomes the command.
///
/// # Errors
/// The command cannot be executed.
pub fn become_command(command: &[OsString], variables: &[(OsString, OsString)]) -> Error {
    let Some(name) = command.first() else { return Error::NotFound(OsString::new()) };
    let path = match find(name) {
        Ok(path) => path,
        Err(error) => return error,
    };
    let error = Command::new(path)
        .arg0(name)
        .args(&command[1..])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .exec();
    Error::NotExecutable(name.clone(), error)
}

/// The file that a command's name means, as a shell finds it.
fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let refused = |error: io::Error| Error::NotExecutable(name.to_owned(), error);
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    match search(name, &path) {
        Found::Program(file) => Ok(file),
        Found::NotExecutable(file) if name.as_bytes().contains(&b'/') => {
            if file.is_dir() {
                return Err(refused(io::ErrorKind::IsADirectory.into()));
            }
            // The system gives the reason when it is asked to execute the file.
            Ok(file)
        }
        Found::NotExecutable(file) if file.is_file() => {
            Err(refused(io::ErrorKind::PermissionDenied.into()))
        }
        Found::Unreadable(error) => Err(refused(error)),
        // A folder is not a command.
        Found::NotExecutable(_) | Found::Nothing => Err(Error::NotFound(name.to_owned())),
    }
}

/// What the supervisor reports to the first process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Started(u32),
    Stopped(i32),
    Exited(i32),
    Signalled(i32),
    NotExecuted(i32),
    NoTable(i32),
}

impl Message {
    fn to_bytes(self) -> [u8; 8] {
        let (kind, value) = match self {
            Message::Started(pid) => (1_i32, pid.cast_signed()),
            Message::Stopped(signal) => (2, signal),
            Message::Exited(status) => (3, status),
            Message::Signalled(signal) => (4, signal),
            Message::NotExecuted(error) => (5, error),
            Message::NoTable(error) => (6, error),
        };
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    fn of_bytes(bytes: [u8; 8]) -> Option<Self> {
        let part = |at: usize| {
            i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let value = part(4);
        Some(match part(0) {
            1 => Message::Started(value.cast_unsigned()),
            2 => Message::Stopped(value),
            3 => Message::Exited(value),
            4 => Message::Signalled(value),
            5 => Message::NotExecuted(value),
            6 => Message::NoTable(value),
            _ => return None,
        })
    }
}

impl Tree {
    /// Starts the command and waits until it has ended. `notice` is called with notices for the user while the command runs; `report` is
    /// called once at the end, in a process other than this one, which then ends.
    ///
    /// # Errors
    /// The command cannot be executed, or the system refuses what a tree needs. This process has more than one thread.
    pub fn run(self, notice: &dyn Fn(&str), report: impl FnOnce(&Summary)) -> Result<End, Error> {
        let name = self.command.first().cloned().unwrap_or_default();
        let path = find(&name)?;
        let needs = |what| move |error| Error::Refused(what, error);
        if proc::threads(process::id()).len() > 1 {
            let error = io::Error::other("there are other threads");
            return Err(Error::Refused("a process with one thread", error));
        }
        let (front_end, supervisor_end) = UnixStream::pair().map_err(needs("a socket"))?;
        let before = SignalSet::from_outside().block();
        let signals = SignalSet::from_outside().file().map_err(needs("a file of signals"))?;
        system::adopt_orphans().map_err(needs("to adopt the orphans of its processes"))?;
        // SAFETY: there is one thread, as was seen above.
        let supervisor = unsafe { system::fork() }.map_err(needs("a second process"))?;
        if supervisor == 0 {
            drop(front_end);
            let going = panic::AssertUnwindSafe(|| {
                keep(&self, &path, supervisor_end, &signals, before, notice, report);
            });
            // The other process continues with the contents of the caller's stack.
            process::exit(i32::from(panic::catch_unwind(going).is_err()));
        }
        drop(supervisor_end);
        let mut front = Front { supervisor, socket: front_end, signals, command: None, end: None };
        let end = front.wait();
        before.restore();
        match end {
            Ok(end) => Ok(end),
            Err(Failed::Begin(error)) => Err(Error::Refused("a table in memory", error)),
            Err(Failed::Execute(error)) => Err(Error::NotExecutable(name, error)),
            Err(Failed::Keep) => {
                let still = relatives::undo(process::id(), &self.nodes, &self.widest, u64::MAX);
                notice(&format!(
                    "the process that keeps homes was killed: the command is ended, the other processes continue without homes{}",
                    if still > 0 {
                        format!("; {still} threads stay restricted to few CPUs")
                    } else {
                        String::new()
                    }
                ));
                Ok(front.wait_without_supervisor())
            }
        }
    }
}

/// Why the supervisor did not say how the command ended.
enum Failed {
    Begin(io::Error),
    Execute(io::Error),
    Keep,
}

/// The first process.
struct Front {
    supervisor: u32,
    socket: UnixStream,
    signals: OwnedFd,
    command: Option<(u32, OwnedFd)>,
    end: Option<Result<End, Failed>>,
}

impl Front {
    fn wait(&mut self) -> Result<End, Failed> {
        // The supervisor first reports whether the command was started. Until then signals, which are meant for the command, wait in the
        // signal descriptor.
        let mut running = self.listen();
        while running {
            let files = [self.socket.as_fd(), self.signals.as_fd()];
            let ready = system::wait_any(&files, None);
            while let Some(received) = system::next_signal(&self.signals) {
                self.pass_on(received);
            }
            running = !ready[0] || self.listen();
        }
        system::wait_for(self.supervisor);
        self.end.take().unwrap_or(Err(Failed::Keep))
    }

    /// Reads what the supervisor reports; false when the supervisor is gone.
    fn listen(&mut self) -> bool {
        let mut bytes = [0; 8];
        if self.socket.read_exact(&mut bytes).is_err() {
            return false;
        }
        match Message::of_bytes(bytes) {
            Some(Message::Started(pid)) => {
                self.command = system::open_process(pid).ok().map(|file| (pid, file));
            }
            Some(Message::Stopped(signal)) => system::stop_by(signal),
            Some(Message::Exited(status)) => self.end = Some(Ok(End::Exited(status as u8))),
            Some(Message::Signalled(signal)) => self.end = Some(Ok(End::Signalled(signal))),
            Some(Message::NotExecuted(error)) => {
                self.end = Some(Err(Failed::Execute(io::Error::from_raw_os_error(error))));
            }
            Some(Message::NoTable(error)) => {
                self.end = Some(Err(Failed::Begin(io::Error::from_raw_os_error(error))));
            }
            None => {}
        }
        true
    }

    fn pass_on(&self, received: system::ReceivedSignal) {
        let is_about_children = received.signal == libc::SIGCHLD;
        if let Some((_, command)) = &self.command
            && received.by_process
            && !is_about_children
        {
            system::send(command, received.signal);
        }
    }

    /// The command is now a child of this process, because no process is between them any more.
    fn wait_without_supervisor(&self) -> End {
        let lost = End::Signalled(libc::SIGTERM);
        let Some((command, file)) = &self.command else { return lost };
        system::send(file, libc::SIGTERM);
        system::send(file, libc::SIGCONT);
        match system::wait_for(*command) {
            Some(Child::Exited(status)) => End::Exited(status as u8),
            Some(Child::Signalled(signal)) => End::Signalled(signal),
            _ => lost,
        }
    }
}

/// The second process, from its beginning to its end.
fn keep(
    tree: &Tree,
    path: &Path,
    mut socket: UnixStream,
    signals: &OwnedFd,
    before: SignalSet,
    notice: &dyn Fn(&str),
    report: impl FnOnce(&Summary),
) {
    system::name_self(SUPERVISOR);
    let mut send = |message: Message| {
        // A closed other end is noticed below.
        let _ = socket.write_all(&message.to_bytes());
    };
    let begun = system::adopt_orphans().and_then(|()| {
        let sets_memory = system::has_usual_memory();
        let table = Table::create(&tree.nodes, &tree.widest, sets_memory)?;
        let is_still = tree.strict && tree.choose != Choose::Lazy;
        let table = if is_still { table } else { table.with_moves() };
        Ok(match tree.fixed {
            Some(home) => table.with_fixed(home),
            None => table,
        })
    });
    let table = match begun {
        Ok(table) => table,
        Err(error) => {
            return send(Message::NoTable(error.raw_os_error().unwrap_or(libc::EINVAL)));
        }
    };
    let mut command = command(tree, path, &table, before);
    let command = match command.spawn() {
        Ok(child) => child.id(),
        Err(error) => {
            return send(Message::NotExecuted(error.raw_os_error().unwrap_or(libc::ENOEXEC)));
        }
    };
    send(Message::Started(command));
    let options = TreeOptions { strict: tree.strict, choose: tree.choose };
    let mut supervisor = Supervisor::new(
        table,
        tree.nodes.clone(),
        tree.widest.clone(),
        tree.weights.clone(),
        options,
        notice,
    );
    // Only now, so that the command is in the first process's group. That group may have no number here: its leader may be outside of
    // this PID namespace.
    system::leave_group();
    let process = system::open_process(command).ok();
    let mut next = Instant::now();
    let mut is_alone = false;
    let end = loop {
        if Instant::now() >= next {
            next = Instant::now() + supervisor.step();
        }
        let timeout = next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let ready = system::wait_any(&[signals.as_fd(), socket.as_fd()], Some(timeout));
        while let Some(received) = system::next_signal(signals) {
            // A signal to the supervisor is meant for the command.
            if received.by_process
                && received.signal != libc::SIGCHLD
                && let Some(process) = &process
            {
                system::send(process, received.signal);
            }
        }
        let mut end = None;
        while let Ok(Some((pid, child, _))) = system::next_child() {
            match child {
                Child::Stopped(signal) if pid == command => {
                    let _ = socket.write_all(&Message::Stopped(signal).to_bytes());
                }
                Child::Exited(status) if pid == command => end = Some(Message::Exited(status)),
                Child::Signalled(signal) if pid == command => {
                    end = Some(Message::Signalled(signal))
                }
                // Orphans of other processes.
                _ => {}
            }
        }
        if end.is_some() {
            break end;
        }
        // The first process sends nothing; the only event from it is its end.
        if ready[1] && !is_alone {
            is_alone = true;
            if let Some(process) = &process {
                system::send(process, libc::SIGTERM);
                system::send(process, libc::SIGCONT);
            }
            break None;
        }
    };
    if let Some(end) = end {
        let _ = socket.write_all(&end.to_bytes());
    }
    let summary = supervisor.end();
    if !is_alone {
        report(&summary);
    }
}

/// The command with which the tree begins.
fn command(tree: &Tree, path: &Path, table: &Table, before: SignalSet) -> Command {
    let mut command = Command::new(path);
    command.arg0(&tree.command[0]).args(&tree.command[1..]);
    command.envs(tree.variables.iter().map(|(name, value)| (name, value)));
    command.env(variable::VARIABLE, table.value(&tree.widest));
    command.env(variable::CHOOSE, tree.choose.as_str());
    command.env("LD_PRELOAD", preload(env::var_os("LD_PRELOAD"), &tree.library));
    let supervisor = process::id();
    let prepare = move || {
        system::die_with_parent(libc::SIGTERM)?;
        if system::parent() != supervisor {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        before.restore();
        Ok(())
    };
    // SAFETY: system calls only, between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command
}

/// The libraries that are preloaded already, followed by our library.
fn preload(before: Option<OsString>, library: &Path) -> OsString {
    let Some(before) = before.filter(|before| !before.is_empty()) else {
        return library.into();
    };
    let is_there = before
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .any(|part| part == library.as_os_str().as_bytes());
    if is_there {
        return before;
    }
    let mut all = before;
    all.push(":");
    all.push(library);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_encoding_and_decoding() {
        for message in [
            Message::Started(u32::MAX),
            Message::Stopped(20),
            Message::Exited(255),
            Message::Signalled(9),
            Message::NotExecuted(13),
            Message::NoTable(12),
        ] {
            assert_eq!(Message::of_bytes(message.to_bytes()), Some(message));
        }
        assert_eq!(Message::of_bytes([0; 8]), None);
    }

    #[test]
    fn libraries_of_the_user_are_preloaded_first() {
        let preload = |before: Option<&str>| {
            preload(before.map(Into::into), Path::new("/l/x.so")).into_string().unwrap()
        };
        assert_eq!(preload(None), "/l/x.so");
        assert_eq!(preload(Some("")), "/l/x.so");
        assert_eq!(preload(Some("/a.so b.so")), "/a.so b.so:/l/x.so");
        assert_eq!(preload(Some("/a.so:/l/x.so")), "/a.so:/l/x.so");
    }

    #[test]
    fn commands_are_found_as_by_a_shell() {
        assert!(find("sh".as_ref()).unwrap().is_absolute());
        let status = |name: &str| find(name.as_ref()).unwrap_err().exit_status();
        assert_eq!(status("/nowhere/at-all"), 127);
        assert_eq!(status("no-such-command-anywhere"), 127);
        assert_eq!(status(""), 127);
        assert_eq!(status("/"), 126);
    }
}
