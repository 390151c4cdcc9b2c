//! The process's own server: starts it, reports its status, follows forks, and cleans up at the end.
//!
//! # States
//! `STARTED` holds the epoch ([`LockPlatform::fork_epoch`]) for which a server was asked for, plus one; 0 before. The thread that raises it
//! to the value of this process starts the server; all others return. So a child of a fork, whose epoch differs, starts its own with its
//! first use. `RECORD` holds the status of that server. It is made before the thread is started, is never freed, and belongs to another
//! process if its epoch differs.
//!
//! Opening the socket is the thread's work, not the caller's: it takes some system calls, and may have to wait for another process that
//! cleans up the same directory. [`status`] waits for that.
//!
//! # Attempts
//! The system may temporarily refuse the thread or the socket, as it may refuse a worker. Then `STARTED` goes back to 0, and the next call
//! of [`ensure`] tries again: the next worker that starts. An attempt waits until [`PAUSE`] has passed since the last one, twice that after
//! the second, and so on, so repeated failures cost little.
//!
//! # The end
//! A process that exits removes its socket (`atexit`); the thread may be running then, so the value that says what to remove (`FILE`) is
//! never freed. A process that is killed leaves its socket behind, and the next process removes it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearq_platform::{Linux, LockPlatform, NotUnderstood, Threads, read_setting};

use super::service::{Listener, Name, Service};
use super::{Options, descriptor, thread_spec};
use crate::client::Client;
use crate::control_target::ControlTarget;
use crate::protocol::{Access, GetProcess};
use crate::socket::Directory;

/// The variable of the environment.
const VARIABLE: &str = "NEARQ_CONTROL";

/// The least pause between the first failed attempt and the next; each further pause is twice as long.
const PAUSE: Duration = Duration::from_secs(1);

static STARTED: AtomicU64 = AtomicU64::new(0);
static RECORD: AtomicPtr<ServerRecord> = AtomicPtr::new(core::ptr::null_mut());
static FILE: AtomicPtr<Name> = AtomicPtr::new(core::ptr::null_mut());

/// The status of the process's control socket; returned by [`status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The server has not been needed yet: it is started with the first worker.
    NotStarted,
    /// The process listens.
    Listening {
        /// The path of the socket.
        path: PathBuf,
        /// What the server allows to tools of the process's own user.
        access: Access,
    },
    /// There is no socket, for this reason.
    Off(String),
    /// The socket could not be made, for this reason; or the server's thread has ended. If the socket could not be made, a worker that
    /// starts later tries again.
    Failed(String),
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::NotStarted => f.write_str("not started yet"),
            Status::Listening { path, access: Access::Full } => {
                write!(f, "listening on {}, for inspection and changes", path.display())
            }
            Status::Listening { path, .. } => {
                write!(f, "listening on {}, for inspection", path.display())
            }
            Status::Off(why) => write!(f, "off: {why}"),
            Status::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// The state of one process's server.
struct ServerRecord {
    epoch: u64,
    state: Mutex<State>,
    /// Signalled when there is a status again.
    status_set: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` while an attempt to start the server is under way.
    status: Option<Status>,
    /// When the next attempt may be made.
    not_before: Option<Instant>,
    /// How many attempts have failed.
    failures: u32,
}

impl ServerRecord {
    /// Makes the record of this process, whose epoch is `epoch`. Called by the thread that starts the server.
    fn of_this_process(epoch: u64) -> &'static ServerRecord {
        if let Some(record) = Self::of(epoch) {
            return record;
        }
        let (state, status_set) = (Mutex::default(), Condvar::new());
        let record: &'static ServerRecord =
            Box::leak(Box::new(ServerRecord { epoch, state, status_set }));
        // Release: pairs with the acquire in `of`; publishes its contents.
        RECORD.store(core::ptr::from_ref(record).cast_mut(), Ordering::Release);
        record
    }

    fn of(epoch: u64) -> Option<&'static ServerRecord> {
        // Acquire: pairs with the release in `of_this_process`.
        let record = RECORD.load(Ordering::Acquire);
        // SAFETY: null, or never freed; changed through what may be shared only.
        unsafe { record.as_ref() }.filter(|record| record.epoch == epoch)
    }

    /// A thread that panics leaves the state consistent: each step is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt. False if it is too early for one.
    fn begin(&self) -> bool {
        let mut state = self.lock();
        let waits = state.not_before.is_some_and(|earliest| Instant::now() < earliest);
        if !waits {
            state.status = None;
        }
        !waits
    }

    fn set_status(&self, status: Status) {
        self.lock().status = Some(status);
        self.status_set.notify_all();
    }

    /// The attempt failed, and the next call of [`ensure`] must try again.
    fn fail(&self, why: String) {
        let mut state = self.lock();
        // This limits the pause to a day and a half.
        let pause = PAUSE * (1 << state.failures.min(17));
        state.not_before = Some(Instant::now() + pause);
        state.failures += 1;
        state.status = Some(Status::Failed(why));
        drop(state);
        self.status_set.notify_all();
        // Release: pairs with the acquire in `start`; the state is for the thread that tries again.
        STARTED.store(0, Ordering::Release);
    }
}

/// Ensures that the process has a server. Returns at once; if the server has already been started, the call costs one load. `make` is
/// called by the server's thread. If the system refuses the thread or the socket, a later call tries again, after a second at the earliest,
/// and then after pauses that double.
///
/// `NEARQ_CONTROL=off`, `read` or `full` in the environment takes precedence over `options`; any other value causes a warning, and means
/// `off`.
#[inline]
pub fn ensure(make: fn() -> Box<dyn ControlTarget>, options: Options) {
    // Relaxed: a caller that finds it started does nothing more.
    if STARTED.load(Ordering::Relaxed) != Linux::fork_epoch() + 1 {
        start(make, options);
    }
}

#[cold]
fn start(make: fn() -> Box<dyn ControlTarget>, options: Options) {
    descriptor::follow_forks();
    let epoch = Linux::fork_epoch();
    let seen = STARTED.load(Ordering::Relaxed);
    // Acquire: pairs with the release in `ServerRecord::fail`.
    let raised = STARTED.compare_exchange(seen, epoch + 1, Ordering::Acquire, Ordering::Relaxed);
    if seen == epoch + 1 || raised.is_err() {
        return;
    }
    let record = ServerRecord::of_this_process(epoch);
    if !record.begin() {
        // Release: pairs with the acquire in `start` of the thread that tries again.
        STARTED.store(0, Ordering::Release);
        return;
    }
    if Linux::has_more_rights() {
        record.set_status(Status::Off(
            "the program has more privileges than the process that started it".to_owned(),
        ));
        return;
    }
    let access = access(options);
    if access == Access::Off {
        record
            .set_status(Status::Off(format!("{VARIABLE}=off, or the program requested no socket")));
        return;
    }
    let main = move || serve(record, access, make);
    match Linux::spawn(thread_spec(), main) {
        Ok(thread) => drop(thread),
        Err(refused) => record.fail(refused.to_string()),
    }
}

/// The access that is allowed: as the environment says, or else as the program says. If the value in the environment is invalid, nothing is
/// allowed.
fn access(options: Options) -> Access {
    let parse = |text: &str| text.parse().map_err(str::to_owned);
    match read_setting::<Linux, Access>(VARIABLE, "Using off", parse) {
        Ok(access) => access.unwrap_or(options.access),
        Err(NotUnderstood) => Access::Off,
    }
}

/// The thread.
fn serve(record: &'static ServerRecord, access: Access, make: fn() -> Box<dyn ControlTarget>) {
    let made = std::panic::catch_unwind(|| {
        let target = make();
        let has_runtime = target.process().runtime;
        (target, has_runtime)
    });
    let Ok((target, has_runtime)) = made else {
        record.set_status(Status::Failed("the code that produces the answer panicked".to_owned()));
        return;
    };
    let gives_way = |other| has_runtime && has_no_runtime(other);
    let listener = match Directory::of_this_user()
        .and_then(|directory| Listener::open(directory, gives_way))
    {
        Ok(listener) => listener,
        Err(why) => return record.fail(why),
    };
    remove_at_exit(listener.name());
    let path = listener.name().path();
    let service = Service::new(Arc::new(listener), target, access);
    record.set_status(Status::Listening { path, access });
    let why = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| service.run())) {
        Ok(_) => "the program has closed the socket",
        Err(_) => "the thread panicked",
    };
    record.set_status(Status::Failed(why.to_owned()));
}

/// Whether another server has no runtime behind it.
fn has_no_runtime(other: UnixStream) -> bool {
    let process = Client::over(other)
        .and_then(|mut other| other.call(&GetProcess {}).map_err(std::io::Error::other));
    process.is_ok_and(|reply| !reply.process.runtime)
}

fn remove_at_exit(name: &Arc<Name>) {
    let name = Arc::into_raw(Arc::clone(name)).cast_mut();
    // Release: pairs with the acquire in `at_exit`. An older value is a parent's.
    if FILE.swap(name, Ordering::Release).is_null() {
        // If the handler cannot be registered, the file stays, and the next process removes it.
        let _ = Linux::at_exit(at_exit);
    }
}

extern "C" fn at_exit() {
    // Acquire: pairs with the release in `remove_at_exit`.
    let name = FILE.load(Ordering::Acquire);
    // SAFETY: null, or never freed; shared between threads, as an `Arc` allows.
    if let Some(name) = unsafe { name.as_ref() } {
        name.remove();
    }
}

/// Returns the status of the process's control socket: where it listens, or why it does not. If the socket is being made, blocks until that
/// has succeeded or failed.
///
/// ```
/// # mod nearq { pub use nearq_control::server as control; }
/// use nearq::control::{Status, status};
///
/// if let Status::Listening { path, .. } = status() {
///     println!("inspect this process at {}", path.display());
/// }
/// ```
pub fn status() -> Status {
    let Some(record) = ServerRecord::of(Linux::fork_epoch()) else { return Status::NotStarted };
    let mut state = record.lock();
    loop {
        if let Some(status) = &state.status {
            return status.clone();
        }
        state = record.status_set.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}
