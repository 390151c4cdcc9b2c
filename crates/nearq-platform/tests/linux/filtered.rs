//! What a thread learns about itself if a filter refuses the calls, as in many containers.

use crate::common::in_thread;
use crate::filter::refuse;
use crate::skipped::skipped;
use nearq_platform::{Linux, OsError, Placement, SchedPolicy, Scheduling, ThreadSpec, Threads};
use nearq_topology::CpuSet;

fn names_the_filter(refused: &OsError) {
    let text = refused.to_string();
    assert_eq!(refused.errno(), libc::EPERM, "{text}");
    let parts = ["seccomp", "container", "--security-opt"];
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    let others = ["another user", "CAP_SYS_NICE", "RLIMIT_NICE"];
    assert!(!others.iter().any(|part| text.contains(part)), "{text}");
}

#[test]
fn refusals_by_a_filter_are_not_attributed_to_users_or_privileges() {
    in_thread(ThreadSpec::default(), || {
        let me = Linux::current_thread();
        let (cpus, nice) = (Linux::affinity(me).unwrap(), Linux::nice(me).unwrap());
        let calls = [libc::SYS_sched_setaffinity, libc::SYS_setpriority, libc::SYS_sched_setattr];
        if !refuse(&calls) {
            let why = "the kernel has no filters on system calls";
            return skipped("refusals by a filter", why, "a kernel with CONFIG_SECCOMP_FILTER");
        }
        names_the_filter(&Linux::set_affinity(me, &cpus).unwrap_err());
        let own_id = u32::try_from(Linux::thread_id(me)).unwrap();
        names_the_filter(&Linux::set_affinity_of(own_id, &CpuSet::single(0)).unwrap_err());
        // The required privilege is not known until the filter lets the call through.
        for wanted in [nice, nice - 1] {
            let wanted = Scheduling { policy: SchedPolicy::Normal, nice: wanted, slice: None };
            names_the_filter(&Linux::favour(me, wanted).unwrap_err());
        }
        names_the_filter(&Linux::set_scheduling(me, SchedPolicy::Normal, nice, None).unwrap_err());
        names_the_filter(&Linux::set_scheduling(me, SchedPolicy::Idle, nice, None).unwrap_err());
    });
}

#[test]
fn a_machine_is_detected_although_a_filter_blocks_sched_getaffinity() {
    in_thread(ThreadSpec::default(), || {
        let before = Linux::machine().expect("readable");
        if !refuse(&[libc::SYS_sched_getaffinity]) {
            let why = "the kernel has no filters on system calls";
            return skipped(
                "a machine without affinity",
                why,
                "a kernel with CONFIG_SECCOMP_FILTER",
            );
        }
        Linux::affinity(Linux::current_thread()).expect_err("the filter refuses it");
        let machine = Linux::machine().expect("/proc and /sys are readable");
        assert_eq!(machine.limits.effective(), before.limits.effective());
        assert_eq!(machine.topology, before.topology);
    });
}
