//! The node affine scheduler on the real machine: loaded by `nearq-scx`, while runs need it.
//!
//! It stays loaded while a command runs that reads from us until the end of the input. So it is unloaded when we end, however we end.

use crate::Error;
use nearq_processes::jobs::find;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command that loads it.
const COMMAND: &str = "nearq-scx";
/// What the kernel says about loaded schedulers.
const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "enabled";
/// The kernel checks the program before it loads it: that takes seconds, on an emulated machine minutes.
const PATIENCE: Duration = Duration::from_mins(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Why it cannot be loaded on this machine, if that can be determined: `nearq-scx` reports other reasons.
pub(in super::super) fn missing(program: &Path) -> Option<String> {
    if !Path::new(STATE).exists() {
        return Some(format!(
            "this kernel cannot load schedulers ({STATE} is missing); boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT"
        ));
    }
    if is_loaded() {
        return Some("a loadable scheduler is loaded already, but the kernel's own is needed for comparison; end it".into());
    }
    let missing = || {
        format!(
            "{COMMAND} is neither beside {} nor in PATH; its README says how to build it",
            program.display()
        )
    };
    command(program).is_none().then(missing)
}

/// The command: in the folder of this program, or in the search path.
fn command(program: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let beside = program.parent().map(Path::to_owned);
    let folders = env::join_paths(beside.into_iter().chain(env::split_paths(&path))).ok()?;
    let found = find(COMMAND.as_bytes(), Some(&folders)).ok()?;
    Some(OsString::from_vec(found.into_bytes()).into())
}

/// Whether the kernel has a loadable scheduler.
fn is_loaded() -> bool {
    fs::read_to_string(STATE).is_ok_and(|state| state.trim() == LOADED)
}

/// The loaded scheduler; dropping this unloads it.
pub(in super::super) struct Loaded {
    child: Child,
    own_bonus: u64,
}

impl Loaded {
    /// Loads it with this weight, and waits until it schedules.
    pub(in super::super) fn load(program: &Path, own_bonus: u64) -> Result<Self, Error> {
        let failed = |why: &dyn std::fmt::Display| Error::run(format!("{COMMAND} start: {why}"));
        let command = command(program).ok_or_else(|| failed(&"it is gone"))?;
        let child = Command::new(command)
            .args(["start", "--quiet", "--weight", &format!("own_bonus={own_bonus}"), "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut loaded = Loaded { child, own_bonus };
        let begin = Instant::now();
        while !is_loaded() {
            if let Some(status) = loaded.child.try_wait().map_err(|error| failed(&error))? {
                return Err(failed(&format!("{status}: {}", loaded.complaints())));
            }
            if begin.elapsed() > PATIENCE {
                return Err(failed(&format!("it was not loaded within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(loaded)
    }

    /// The weight with which it was loaded.
    pub(in super::super) fn own_bonus(&self) -> u64 {
        self.own_bonus
    }

    /// Whether it was loaded all the time: the kernel unloads a scheduler that stalls, and then `nearq-scx` still waits for the command.
    pub(in super::super) fn is_there(&mut self) -> Result<(), Error> {
        if matches!(self.child.try_wait(), Ok(None)) && is_loaded() {
            return Ok(());
        }
        let ended = self.child.wait().map_or_else(|error| error.to_string(), |by| by.to_string());
        Err(Error::run(format!(
            "{COMMAND} or its scheduler ended in the middle of a run: the figures would be those of the kernel's own scheduler. {COMMAND}: {ended}: {}",
            self.complaints()
        )))
    }

    /// What the command has written on standard error, once it has ended.
    fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(errors) = &mut self.child.stderr {
            // The output counts, complete or not.
            let _ = errors.read_to_string(&mut text);
        }
        text.trim().to_owned()
    }
}

impl Drop for Loaded {
    /// Waits until it is unloaded: what comes next is measured without it. Waiting closes what the command reads from.
    fn drop(&mut self) {
        // It cannot be awaited twice, and nothing can be done about a failure here.
        let _ = self.child.wait();
    }
}
