//! A thread by its number: where it may run, its priority, and how long it ran.

use core::fmt;
use core::time::Duration;

use nearq_topology::CpuSet;

use super::refusal::{self, gone, refused};
use crate::sys::{self, Errno, Tid};
use crate::{OsError, SchedPolicy, Scheduling};

/// A thread of this process, by the number that the kernel and its tools know.
///
/// Four bytes; its CPU-time clock is computed from the number. Numbers of threads that have ended are reused, in
/// the order of a counter that wraps around after millions. Two values whose threads live at the same time are
/// equal exactly if the threads are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Thread(Tid);

impl Thread {
    pub(super) fn current() -> Self {
        Thread(sys::tid())
    }

    /// The thread that the process began with.
    pub(super) fn first() -> Self {
        Thread(Tid::of_first_thread())
    }

    pub(super) fn id(self) -> u64 {
        u64::from(self.0.as_raw().unsigned_abs())
    }

    /// The number, if it is still that of a thread of this process.
    pub(super) fn alive(self) -> Option<Tid> {
        sys::is_thread_of_this_process(self.0).then_some(self.0)
    }

    /// For tests: the thread that has that number, if any.
    #[cfg(test)]
    pub(super) fn from_raw(raw: i32) -> Self {
        Thread(Tid::from_raw(raw).expect("a positive number"))
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Thread({})", self.id())
    }
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.id())
    }
}

pub(super) fn affinity(thread: Thread) -> Result<CpuSet, OsError> {
    let what = || format!("read the CPUs of {thread}");
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    let words = sys::affinity(tid).map_err(|error| refused(what(), error, "".into()))?;
    Ok(CpuSet::from_words(&words))
}

pub(super) fn set_affinity(thread: Thread, cpus: &CpuSet) -> Result<(), OsError> {
    let what = || match cpus.len() {
        0 => format!("restrict {thread} to no CPU at all"),
        1 => format!("restrict {thread} to CPU {cpus}"),
        _ => format!("restrict {thread} to CPUs {cpus}"),
    };
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    sys::set_affinity(tid, cpus.as_words())
        .map_err(|error| refused(what(), error, refusal::affinity(error)))
}

pub(super) fn nice(thread: Thread) -> Result<i32, OsError> {
    let what = || format!("read the nice value of {thread}");
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    sys::nice(tid).map_err(|error| refused(what(), error, "".into()))
}

pub(super) fn set_nice(thread: Thread, nice: i32) -> Result<(), OsError> {
    let what = || format!("give {thread} nice {nice}");
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    sys::set_nice(tid, nice).map_err(|error| refused(what(), error, refusal::nice(nice, error)))
}

/// Whether giving the thread that nice value and a class takes a privilege: the limit does not allow the value, and the thread does not
/// have one as low already.
fn needs_privilege(tid: Tid, nice: i32) -> bool {
    // The kernel's own arithmetic: nice 19 to -20 is a limit of 1 to 40.
    let wanted = u64::from((20 - nice.clamp(-20, 19)).unsigned_abs());
    if sys::nice_limit().is_none_or(|limit| limit >= wanted) {
        return false;
    }
    // To leave SCHED_IDLE, a thread needs the privilege for the nice value that it has.
    let is_idle = sys::scheduling(tid).map_or(true, |has| is(has.policy, libc::SCHED_IDLE));
    is_idle || sys::nice(tid).map_or(true, |now| nice < now)
}

pub(super) fn set_scheduling(
    thread: Thread,
    policy: SchedPolicy,
    nice: i32,
    slice: Option<Duration>,
) -> Result<(), OsError> {
    let what = || {
        let policy = match policy {
            SchedPolicy::Normal => "SCHED_OTHER",
            SchedPolicy::Idle => "SCHED_IDLE",
        };
        let slice = slice.map(|slice| format!(" and slices of {slice:?}")).unwrap_or_default();
        format!("give {thread} {policy} with nice {nice}{slice}")
    };
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    // In the class SCHED_IDLE, the kernel ignores the nice value in that call and keeps the previous one. So the nice value is set first,
    // and a refusal leaves everything as it was.
    let nice_apart = match policy {
        SchedPolicy::Normal => Ok(()),
        SchedPolicy::Idle => sys::set_nice(tid, nice),
    };
    let slice = slice.unwrap_or(Duration::ZERO);
    nice_apart.and_then(|()| sys::set_scheduling(tid, policy, nice, slice)).map_err(|error| {
        // Leaving SCHED_IDLE needs the privilege for the nice value that the thread already has.
        let most_favoured = sys::nice(tid).map_or(nice, |now| now.min(nice));
        let lacks = needs_privilege(tid, most_favoured);
        refused(what(), error, refusal::scheduling(most_favoured, error, lacks))
    })
}

pub(super) fn scheduling(thread: Thread) -> Result<Scheduling, OsError> {
    let what = || format!("read the class and nice value of {thread}");
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    match sys::scheduling(tid) {
        Ok(has) => Ok(Scheduling {
            policy: if is(has.policy, libc::SCHED_IDLE) {
                SchedPolicy::Idle
            } else {
                SchedPolicy::Normal
            },
            nice: has.nice,
            slice: Some(Duration::from_nanos(has.runtime)).filter(|slice| !slice.is_zero()),
        }),
        // A filter on system calls refused it: the older call does most of it.
        Err(_) => sys::nice(tid)
            .map(|nice| Scheduling { policy: SchedPolicy::Normal, nice, slice: None })
            .map_err(|error| refused(what(), error, "".into())),
    }
}

/// Whether a class, as the kernel reports it, is that one.
fn is(policy: u32, class: i32) -> bool {
    policy == class.unsigned_abs()
}

/// The nice value nearest to `wanted` that the limit lets the thread have.
fn nearest_allowed(tid: Tid, wanted: i32) -> i32 {
    let now = sys::nice(tid).unwrap_or(wanted);
    // The kernel's own arithmetic: a limit of 1 to 40 is nice 19 to -20.
    let limit = sys::nice_limit().map_or(40, |limit| limit.min(40)) as i32;
    now.min(wanted.max(20 - limit))
}

pub(super) fn attainable_nice(wanted: i32) -> i32 {
    let wanted = wanted.clamp(-20, 19);
    let tid = sys::tid();
    let Ok(now) = sys::nice(tid) else { return wanted };
    if wanted >= now {
        return wanted;
    }
    // Only trying shows it: a capability may be valid only in a container, and the kernel does not count such a capability.
    let allowed = match sys::set_nice(tid, wanted) {
        Ok(()) => wanted,
        Err(_) => nearest_allowed(tid, wanted),
    };
    // Raising the nice value is always allowed.
    let _ = sys::set_nice(tid, now);
    allowed
}

pub(super) fn favour(thread: Thread, wanted: Scheduling) -> Result<(), OsError> {
    let Scheduling { policy, nice, slice } = wanted;
    let what = || match policy {
        SchedPolicy::Normal => format!("give {thread} nice {nice}"),
        SchedPolicy::Idle => format!("give {thread} the class SCHED_IDLE"),
    };
    let tid = thread.alive().ok_or_else(|| gone(what()))?;
    let has = sys::scheduling(tid).ok();
    // The nice value by itself: every kernel and every container knows that call.
    let outcome = sys::set_nice(tid, nice);
    let mut reached = nice;
    if outcome.is_err() {
        reached = nearest_allowed(tid, nice);
        let _ = sys::set_nice(tid, reached);
    }
    // If the attributes cannot be read, they cannot be set either: the kernel is older than 3.14, or a filter refuses the call.
    if let Some(has) = has {
        let leave = [libc::SCHED_FIFO, libc::SCHED_RR, libc::SCHED_DEADLINE, libc::SCHED_IDLE];
        let class = match policy {
            SchedPolicy::Idle => libc::SCHED_IDLE.unsigned_abs(),
            // An inherited real-time class is replaced; SCHED_BATCH, or the class of a loaded scheduler, is kept.
            SchedPolicy::Normal if !leave.into_iter().any(|class| is(has.policy, class)) => {
                has.policy
            }
            SchedPolicy::Normal => libc::SCHED_OTHER.unsigned_abs(),
        };
        let runtime = slice.map_or(0, |slice| u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX));
        let flags = has.flags & sys::RESET_ON_FORK;
        let set = sys::Attributes { policy: class, flags, nice: reached, runtime };
        let taken = sys::set_attributes(tid, set);
        // Leaving SCHED_IDLE needs the privilege for the nice value that the thread has.
        if let Err(error) = taken {
            if policy == SchedPolicy::Normal && is(has.policy, libc::SCHED_IDLE) {
                let what = format!("bring {thread} out of the class SCHED_IDLE to nice {nice}");
                let wanted = reached.min(nice);
                let lacks = needs_privilege(tid, wanted);
                return Err(refused(what, error, refusal::scheduling(wanted, error, lacks)));
            }
        }
    }
    match (outcome, policy) {
        (Err(error), SchedPolicy::Normal) => {
            Err(refused(what(), error, refusal::nice(nice, error)))
        }
        _ => Ok(()),
    }
}

pub(super) fn cpu_time(thread: Thread) -> Result<Duration, OsError> {
    // The kernel itself answers only for threads of this process.
    sys::cpu_time(thread.0).map(Duration::from_nanos).map_err(|error| {
        let what = format!("read the CPU time of {thread}");
        if error == Errno::SRCH { gone(what) } else { refused(what, error, "".into()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of a thread of another program: init's, which is in every process namespace, and is never
    /// ours if the tests run under a shell.
    fn not_ours() -> Thread {
        Thread::from_raw(1)
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri does not know threads by number")]
    fn a_thread_of_another_program_is_not_touched() {
        if std::process::id() == 1 {
            return;
        }
        let cpus = affinity(Thread::current()).unwrap();
        let gone = libc::ESRCH;
        assert_eq!(affinity(not_ours()).unwrap_err().errno(), gone);
        assert_eq!(set_affinity(not_ours(), &cpus).unwrap_err().errno(), gone);
        assert_eq!(nice(not_ours()).unwrap_err().errno(), gone);
        assert_eq!(set_nice(not_ours(), 0).unwrap_err().errno(), gone);
        assert_eq!(cpu_time(not_ours()).unwrap_err().errno(), gone);
        let refused = set_scheduling(not_ours(), SchedPolicy::Normal, 0, None).unwrap_err();
        assert_eq!(refused.errno(), gone);
        assert!(refused.to_string().contains("thread 1 "), "{refused}");
    }

    #[test]
    fn a_thread_shows_its_number() {
        assert_eq!(format!("{:?}", Thread::from_raw(17)), "Thread(17)");
        assert_eq!(Thread::from_raw(17).id(), 17);
    }
}
