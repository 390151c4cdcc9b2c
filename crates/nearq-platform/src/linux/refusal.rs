//! Why the kernel refuses a call, and what would allow it.
//! The texts are for users who did not write the program: they name
//! the privilege or the limit, what it is
//! now, and the command that changes it.

use std::borrow::Cow;
use std::path::Path;

use nearq_topology::Limits;

use super::thread::{self, Thread};
use crate::OsError;
use crate::sys::{self, Errno};

/// The call `what` was refused with `error`; `remedy` says what would allow it.
pub(super) fn refused(what: String, error: Errno, remedy: Cow<'static, str>) -> OsError {
    OsError::new(what, error.raw_os_error(), remedy)
}

/// A thread that has ended. There is no remedy.
pub(super) fn gone(what: String) -> OsError {
    refused(what, Errno::SRCH, Cow::Borrowed("the thread has ended"))
}

const OTHER_USER: &str = "the thread belongs to another user; needs CAP_SYS_NICE";

/// For calls that every kernel has: only a filter can refuse them.
const FILTER: &str = "a filter on system calls (seccomp) forbids it; containers have an option for that, such as \
     --security-opt seccomp=unconfined";

/// For calls that every thread may make about itself: a refusal has nothing to do with users or privileges.
const OWN: &str = "a filter on system calls (seccomp) or a security policy of the container refuses it; containers have an option for \
     that, such as --security-opt seccomp=unconfined";

/// A thread that could not be created.
pub(super) fn spawning(error: Errno) -> Cow<'static, str> {
    Cow::Borrowed(match error {
        Errno::AGAIN => {
            "a limit on threads is reached: RLIMIT_NPROC (ulimit -u), pids.max of the control group, or \
             kernel.threads-max"
        }
        Errno::NOMEM => {
            "there is not enough memory for the stack: request a smaller stack, or raise RLIMIT_AS (ulimit -v), \
             memory.max of the control group or vm.max_map_count"
        }
        Errno::PERM | Errno::NOSYS => FILTER,
        _ => "",
    })
}

/// A process that could not be created.
pub(super) fn processes(error: Errno) -> Cow<'static, str> {
    Cow::Borrowed(match error {
        Errno::AGAIN => {
            "a limit on processes is reached: RLIMIT_NPROC (ulimit -u), pids.max of the control group, or kernel.pid_max"
        }
        Errno::NOMEM => {
            "there is not enough memory: see memory.max of the control group, or the machine's memory"
        }
        Errno::PERM | Errno::NOSYS => FILTER,
        _ => "",
    })
}

/// Only a nice value, of a thread of this process. The kernel reports a missing privilege as `EACCES`, so `EPERM` has another cause.
pub(super) fn nice(nice: i32, error: Errno) -> Cow<'static, str> {
    match error {
        Errno::PERM => Cow::Borrowed(OWN),
        _ => scheduling(nice, error, true),
    }
}

/// A nice value, class or slice of a thread of this process. `lacks` says that the change takes a privilege that the process may not have.
pub(super) fn scheduling(nice: i32, error: Errno, lacks: bool) -> Cow<'static, str> {
    match error {
        Errno::PERM if !lacks => Cow::Borrowed(OWN),
        Errno::ACCESS | Errno::PERM => {
            // The kernel's own arithmetic: nice 19 to -20 is a limit of 1 to 40.
            let wanted = 20 - nice.clamp(-20, 19);
            let now = match sys::nice_limit() {
                Some(limit) => format!("it is {limit}"),
                None => {
                    "it has no limit, so a container or a security policy refuses it".to_owned()
                }
            };
            Cow::Owned(format!(
                "needs CAP_SYS_NICE, or RLIMIT_NICE of at least {wanted} (ulimit -e {wanted}; {now})"
            ))
        }
        Errno::NOSYS => Cow::Borrowed(FILTER),
        _ => Cow::Borrowed(""),
    }
}

/// The CPUs of a thread of this process.
pub(super) fn affinity(error: Errno) -> Cow<'static, str> {
    match error {
        Errno::PERM | Errno::ACCESS => Cow::Borrowed(OWN),
        _ => affinity_of_others(error),
    }
}

/// The CPUs of a thread of another process.
pub(super) fn affinity_of_others(error: Errno) -> Cow<'static, str> {
    match error {
        Errno::INVAL => Cow::Owned(allowed_cpus()),
        Errno::PERM => Cow::Borrowed(OTHER_USER),
        Errno::NOSYS => Cow::Borrowed(FILTER),
        _ => Cow::Borrowed(""),
    }
}

/// The CPUs that an affinity may name, as text. The affinity that a thread has now does not limit the next one.
fn allowed_cpus() -> String {
    let affinity = thread::affinity(Thread::first()).unwrap_or_default();
    let limits = Limits::read(Path::new("/"), affinity);
    match limits.cpuset {
        Some(cpuset) => format!(
            "this process may use CPUs {} (its cpuset and online)",
            cpuset.intersection(&limits.online)
        ),
        None => format!("this process may use CPUs {} (the online CPUs)", limits.online),
    }
}

/// A memory policy on `nodes`.
pub(super) fn memory(error: Errno) -> Cow<'static, str> {
    match error {
        Errno::INVAL => match allowed_nodes() {
            Some(nodes) => Cow::Owned(format!("this process may use memory of nodes {nodes}")),
            None => {
                Cow::Borrowed("the policy names no node that exists and that this process may use")
            }
        },
        Errno::PERM | Errno::ACCESS => Cow::Borrowed(
            "a container's filter on system calls (seccomp) forbids it; needs CAP_SYS_NICE in the container \
             (--cap-add SYS_NICE)",
        ),
        Errno::NOSYS => Cow::Borrowed(
            "this kernel is built without NUMA (CONFIG_NUMA), or a container's filter on system calls \
             (seccomp) forbids it",
        ),
        Errno::NOMEM => Cow::Borrowed(
            "the kernel has no memory left for the policy, or part of the range is not mapped",
        ),
        _ => Cow::Borrowed(""),
    }
}

/// The nodes that this process may have memory from, as the kernel writes them: "0-3,6".
fn allowed_nodes() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"))?;
    Some(line.trim().to_owned())
}
