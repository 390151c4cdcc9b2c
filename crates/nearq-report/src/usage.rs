//! The CPU time that this process uses, and the context switches of its threads.

use std::time::Duration;

fn of(who: libc::c_int) -> libc::rusage {
    // SAFETY: rusage is made of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into a live rusage. The call cannot fail with the arguments that it is given here.
    unsafe { libc::getrusage(who, &raw mut usage) };
    usage
}

fn times(usage: &libc::rusage) -> (Duration, Duration) {
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (time(usage.ru_utime), time(usage.ru_stime))
}

/// Context switches of the process so far, wanted and unwanted, all threads together.
pub fn switches() -> u64 {
    let usage = of(libc::RUSAGE_SELF);
    (usage.ru_nvcsw + usage.ru_nivcsw) as u64
}

/// User and system time of the process so far, all threads together.
pub fn user_and_system() -> (Duration, Duration) {
    times(&of(libc::RUSAGE_SELF))
}

/// User and system time of the processes that this process has started and waited for, and of those that these have started and waited for.
pub fn of_children() -> (Duration, Duration) {
    times(&of(libc::RUSAGE_CHILDREN))
}

/// User and system time of the process so far, added.
pub fn cpu_time() -> Duration {
    let (user, system) = user_and_system();
    user + system
}

/// The same, plus the time of the processes that it started, as far as it has waited for them.
pub(crate) fn cpu_time_of_all() -> Duration {
    let (user, system) = of_children();
    cpu_time() + user + system
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn sleeping_switches_context() {
        let before = switches();
        std::thread::sleep(Duration::from_millis(1));
        assert!(switches() > before);
    }

    #[test]
    fn computing_uses_wall_time_and_cpu_time() {
        let (wall, cpu) = (Instant::now(), cpu_time());
        while cpu_time().saturating_sub(cpu) < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        assert!(wall.elapsed() > Duration::from_millis(1));
    }
}
