//! `nearq-scx start`: loads the scheduler, follows it, and unloads it, however it ends.
//!
//! One thread does everything. It waits for messages (a signal came, the command has ended) and wakes up at least four times a second to
//! check whether the kernel has unloaded the scheduler. Once a second it checks the CPUs and where memory is. Dropping the loaded scheduler
//! unloads it; if this process is killed, the kernel does that itself.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use nearq_command::threads;
use nearq_scx_policy::layout::{Nq, Weights};
use nearq_topology::{CpuSet, Topology};
use rustix::process::{Pid, Signal, kill_process};

use crate::hotplug::Watch;
use crate::load::{self, Loaded, UnloadReason};
use crate::memory::Memory;
use crate::output::{self, Failure, print_notice};
use crate::pins::{self, Lock, Tellers};
use crate::{checks, decisions, state, weights};

/// How often the thread checks whether the kernel has unloaded the scheduler.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often the thread checks CPUs and memory.
const PERIOD: Duration = Duration::from_secs(1);
/// The exit status of a command that cannot be started, as in shells.
const NO_COMMAND: u8 = 127;

fn legend() -> String {
    format!(
        "\
Weights, with their defaults:
{}

Without a command, it runs until SIGINT, SIGTERM or SIGHUP, or until the kernel
unloads the scheduler. With a command, it ends when the command does; SIGTERM
and SIGHUP are passed on to the command.

Homes can be set with `nearq-scx tell`, and by programs that know them.
--tellers says which users may do that: such a home is only a preference, but it
can be set for tasks of any user. The default is the group `nearq` if it exists,
else root only.

Exit status: the command's, or 0 after a signal; 1 if the kernel unloaded the
scheduler or something went wrong; 2 if this machine does not support it; 127 if
there is no such command.

Examples:
  nearq-scx start
  nearq-scx start --weight stay=50ms --weight imbalance=2000
  nearq-scx start -- make -j64",
        weights::Legend
    )
}

/// The options of `nearq-scx start`.
#[derive(Args, Debug)]
#[command(after_help = legend())]
pub(crate) struct Options {
    /// Start with this weight instead of its default; may be given several times
    #[arg(long = "weight", value_name = "NAME=VALUE")]
    weights: Vec<String>,

    /// Do not check where the memory of processes is; homes then do not follow it
    #[arg(long)]
    no_memory: bool,

    /// Which users may set homes: root, everybody, or the name of a group
    #[arg(long, value_name = "WHO")]
    tellers: Option<String>,

    /// Load the scheduler even on a machine with one node
    #[arg(long)]
    anyway: bool,

    /// Print the messages of libbpf and the kernel while the scheduler is loaded
    #[arg(long, short, conflicts_with = "quiet")]
    verbose: bool,

    /// Print only refusals and errors
    #[arg(long, short)]
    quiet: bool,

    /// Run this command under the scheduler, and end when it ends
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

/// What the thread waits for.
enum Event {
    Signal(i32, &'static str),
    Ended(ExitStatus),
}

/// How `start` ends.
enum End {
    /// By this signal.
    Signalled(&'static str),
    /// The command has ended.
    Command(ExitStatus),
    /// The kernel has unloaded the scheduler.
    Unloaded(UnloadReason),
}

/// What to do after the scheduler was followed.
enum Next {
    End(End),
    /// Load it again, for this reason.
    Again(String),
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let mut chosen = Weights::default();
    for assignment in &options.weights {
        weights::apply(&mut chosen, assignment)?;
    }
    let groups = fs::read_to_string("/etc/group").unwrap_or_default();
    let tellers = Tellers::parse(options.tellers.as_deref(), &groups)?;
    load::set_verbose(options.verbose);
    let root = Path::new("/");
    checks::kernel(root)?;
    // The process that has it loaded holds the lock, which says more than the kernel does.
    let _lock = Lock::take()?;
    checks::is_free(root)?;
    let (_, nq) = machine()?;
    checks::nodes(&nq, options.anyway)?;
    pins::mount()?;
    if pins::exist() {
        pins::remove();
        decisions::remove();
        say(options, "removed the pins of an earlier nearq-scx that was killed");
    }
    if tellers != Tellers::Root && !pins::is_open() {
        print_notice(
            "only root may enter /sys/fs/bpf, so other users cannot set homes; run chmod 0755 /sys/fs/bpf to allow it",
        );
    }

    let (sender, receiver) = mpsc::channel();
    let signals = sender.clone();
    nearq_command::signals::on_first(move |number, name| {
        // If the receiver is gone, the program ends anyway.
        let _ = signals.send(Event::Signal(number, name));
    })?;
    let mut session = Session {
        options,
        memory: (!options.no_memory).then(Memory::new),
        receiver,
        sender,
        child: None,
    };
    let end = session.load_and_follow(chosen, &tellers);
    match end {
        Ok(End::Signalled(name)) => {
            say(
                options,
                format_args!("unloaded ({name}): the kernel uses its own scheduler again"),
            );
            Ok(ExitCode::SUCCESS)
        }
        Ok(End::Command(status)) => {
            say(options, "unloaded: the command has ended");
            Ok(code(status))
        }
        Ok(End::Unloaded(reason)) => {
            print_notice(format_args!(
                "the kernel has unloaded the scheduler and uses its own again: {reason}"
            ));
            session.finish_command();
            Ok(ExitCode::from(output::RUN))
        }
        Err(failure) => {
            session.finish_command();
            Err(failure)
        }
    }
}

/// The machine now, if it can be read completely, and what the scheduler knows of it when it begins.
fn machine() -> Result<(Topology, Box<Nq>), Failure> {
    let machine = checks::machine(Path::new("/"))?;
    let nq = nearq_scx_policy::describe(&machine, machine.online()).map_err(Failure::input)?;
    Ok((machine, nq))
}

fn say(options: &Options, line: impl std::fmt::Display) {
    if !options.quiet {
        print_notice(line);
    }
}

/// The state of `start` besides the scheduler.
struct Session<'a> {
    options: &'a Options,
    memory: Option<Memory>,
    receiver: Receiver<Event>,
    sender: Sender<Event>,
    /// The command, once it runs.
    child: Option<u32>,
}

impl Session<'_> {
    /// Loads the scheduler, and follows it until `start` ends.
    fn load_and_follow(&mut self, chosen: Weights, tellers: &Tellers) -> Result<End, Failure> {
        let begun = Instant::now();
        let (mut machine, mut nq) = machine()?;
        nq.weights = chosen;
        let mut storage = load::ObjectStorage::uninit();
        let mut loaded = Loaded::new(&mut storage, &nq)?;
        let pinned = loaded.pin(tellers);
        let whole = format!(
            "loaded in {} ms: {} CPUs, {} caches, {} nodes; homes may be set by {tellers}",
            begun.elapsed().as_millis(),
            machine.online().len(),
            state::caches(&nq),
            nq.nodes,
        );
        let end = pinned.and_then(|()| {
            say(self.options, whole);
            loop {
                let why = match self.follow(&loaded, &machine)? {
                    Next::End(end) => return Ok(end),
                    Next::Again(why) => why,
                };
                let begun = Instant::now();
                // Settings made in the meantime must last.
                let weights = loaded.machine().weights;
                match self::machine() {
                    Ok(now) => (machine, nq) = now,
                    // The scheduler goes on with what it knows; the next check comes later.
                    Err(failure) => {
                        print_notice(format_args!("cannot restart: {failure}"));
                        continue;
                    }
                }
                nq.weights = weights;
                loaded.begin_again(&nq)?;
                let took = begun.elapsed().as_millis();
                say(self.options, format_args!("restarted in {took} ms: {why}"));
            }
        });
        loaded.unload();
        end
    }

    fn follow(&mut self, loaded: &Loaded<'_>, machine: &Topology) -> Result<Next, Failure> {
        if self.child.is_none() && !self.options.command.is_empty() {
            self.begin_command()?;
        }
        let mut watch = Watch::new(machine.online());
        let mut next = Instant::now() + PERIOD;
        // Half a megabyte, allocated once.
        let mut nq = loaded.machine();
        if let Some(memory) = &mut self.memory {
            memory.begin(machine);
        }
        loop {
            match self.receiver.recv_timeout(POLL_INTERVAL) {
                Ok(Event::Signal(number, name)) => {
                    if !self.pass_on(number) {
                        return Ok(Next::End(End::Signalled(name)));
                    }
                }
                Ok(Event::Ended(status)) => return Ok(Next::End(End::Command(status))),
                Err(RecvTimeoutError::Timeout) => {}
                // We hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender"),
            }
            if let Some(reason) = loaded.unload_reason() {
                return Ok(Next::End(End::Unloaded(reason)));
            }
            if Instant::now() < next {
                continue;
            }
            next = Instant::now() + PERIOD;
            loaded.copy_machine(&mut nq);
            if let Some(why) = check_cpus(&mut watch, &nq) {
                return Ok(Next::Again(why));
            }
            if let Some(memory) = &mut self.memory {
                for decision in memory.run_round(&nq, loaded) {
                    say(self.options, decision);
                }
            }
        }
    }

    /// Starts the command, and a thread that waits for its end.
    fn begin_command(&mut self) -> Result<(), Failure> {
        let (program, arguments) = self.options.command.split_first().expect("it is not empty");
        let mut child = Command::new(program).args(arguments).spawn().map_err(|error| {
            Failure::with_status(NO_COMMAND, format!("{program}: cannot be started: {error}"))
        })?;
        self.child = Some(child.id());
        let sender = self.sender.clone();
        let wait = move || {
            let status = child.wait().expect("it is a child of ours that no other code waits for");
            // If the receiver is gone, we end anyway.
            let _ = sender.send(Event::Ended(status));
        };
        threads::start("command", wait)
    }

    /// Passes a signal on to the command. Returns whether there is one. SIGINT is not passed on, because the terminal has sent it to the
    /// command too.
    fn pass_on(&self, number: i32) -> bool {
        let Some(child) = self.child else { return false };
        if let (Some(pid), Some(signal)) =
            (Pid::from_raw(child.cast_signed()), Signal::from_named_raw(number))
            && signal != Signal::INT
        {
            // The command may have ended just now; its PID is not reused until it has been waited for.
            let _ = kill_process(pid, signal);
        }
        true
    }

    /// The command, if there is one, goes on without the scheduler, and we end with it.
    fn finish_command(&self) {
        if self.child.is_none() {
            return;
        }
        print_notice("the command continues without it");
        loop {
            match self.receiver.recv() {
                Ok(Event::Signal(number, _)) => drop(self.pass_on(number)),
                Ok(Event::Ended(_)) | Err(_) => return,
            }
        }
    }
}

/// Why the scheduler should be loaded again because of CPUs, if it should.
fn check_cpus(watch: &mut Watch, nq: &Nq) -> Option<String> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let online = CpuSet::parse_list(online.trim()).ok()?;
    watch.check(nq, &online, || machine().ok())
}

/// The exit status that says how the command ended, as in shells.
fn code(status: ExitStatus) -> ExitCode {
    let signal = || 128 + status.signal().unwrap_or(0);
    ExitCode::from(status.code().unwrap_or_else(signal) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        let same = |raw: i32, expected: u8| {
            let code = code(ExitStatus::from_raw(raw));
            assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(expected)));
        };
        same(0, 0);
        same(7 << 8, 7);
        same(9, 137);
    }

    #[test]
    fn the_legend_fits_into_80_columns() {
        let text = legend();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
