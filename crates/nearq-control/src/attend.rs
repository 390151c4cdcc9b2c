//! How the server starts in a program that uses nearq but never calls the server: it starts with the first worker of the process-wide
//! runtime.
//!
//! The runtime does not depend on this crate, and the program calls nothing in this crate. So a function that the system's loader calls
//! before `main` gives the runtime an address, which each of its workers calls when it begins ([`nearq_core::attend_default`]). A program
//! that never starts a worker has no server; the child of a fork gets one with its own first worker.

use std::sync::atomic::{AtomicU8, Ordering};

use nearq_core::Runtime;
use nearq_platform::{Linux, Placement, SchedPolicy, Threads};

use crate::control_target::ControlTarget;
use crate::protocol::Access;
use crate::runtime::RuntimeTarget;
use crate::server::{self, Options};

/// The access that the program allows.
static ALLOWED: AtomicU8 = AtomicU8::new(Access::Read as u8);

#[used]
// SAFETY: the section is a list of functions with this signature, which the loader calls before `main`; this function needs nothing that is
// not initialised by then.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

extern "C" fn before_main() {
    nearq_core::attend_default(attend);
}

/// The function that each worker calls.
fn attend() {
    // Relaxed: a number; it is set before the first worker is started.
    let access = match ALLOWED.load(Ordering::Relaxed) {
        off if off == Access::Off as u8 => Access::Off,
        full if full == Access::Full as u8 => Access::Full,
        _ => Access::Read,
    };
    server::ensure(target, Options { access });
}

/// Called by the server's thread.
fn target() -> Box<dyn ControlTarget> {
    let runtime = Runtime::global();
    reset_thread_placement(runtime);
    Box::new(RuntimeTarget::new(runtime.clone()))
}

/// A worker has started the thread. The thread belongs to no pod and is no more urgent than the program itself. If the system refuses a
/// change to that, the thread stays as it was started.
fn reset_thread_placement(runtime: &Runtime) {
    let thread = Linux::current_thread();
    let _ = Linux::set_affinity(thread, &runtime.allowed_cpus());
    let _ = Linux::set_scheduling(thread, SchedPolicy::Normal, 0, None);
}

/// Sets what tools of the process's own user may do to this process over its control socket; [`Access::Read`] if it is not called. Root may
/// always inspect and change, unless there is no socket ([`Access::Off`]); other users are refused.
///
/// Call it before the first worker is started, for example at the beginning of `main`; a later call has no effect. `NEARQ_CONTROL` in the
/// environment takes precedence.
///
/// ```
/// # mod nearq { pub mod control { pub use nearq_control::{allow, protocol::Access}; } }
/// use nearq::control::{Access, allow};
///
/// allow(Access::Full);
/// ```
pub fn allow(access: Access) {
    ALLOWED.store(access as u8, Ordering::Relaxed);
}
