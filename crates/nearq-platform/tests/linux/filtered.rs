//! What a thread hears of itself where a filter refuses the calls, as in many containers.

use crate::common::in_thread;
use crate::skipped::skipped;
use nearq_platform::{Linux, Platform, Refused, SchedPolicy, Scheduling, ThreadSpec};
use nearq_topology::CpuSet;

/// From now on the kernel refuses these calls of the caller, a thread of its own, with `EPERM`. Whether it has such filters.
fn refuse(calls: &[libc::c_long]) -> bool {
    let step = |code: u32, value: u32, yes: u8, no: u8| libc::sock_filter {
        code: code as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    // The number of the call is the first word of what a filter sees.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, *call as u32, 0, 1));
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
        filter.push(step(libc::BPF_RET | libc::BPF_K, refusal, 0, 0));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: validity: numbers alone. Thread: it is of the caller, which ends with its test.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: validity: the program and its steps live until the call returns, and are only read. Thread: as above.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    (bound, set) == (0, 0)
}

fn is_the_filters(refused: &Refused) {
    let text = refused.to_string();
    assert_eq!(refused.errno(), libc::EPERM, "{text}");
    let said = ["seccomp", "container", "--security-opt"];
    assert!(said.iter().all(|part| text.contains(part)), "{text}");
    let others = ["another user", "CAP_SYS_NICE", "RLIMIT_NICE"];
    assert!(!others.iter().any(|part| text.contains(part)), "{text}");
}

#[test]
fn what_a_filter_refuses_a_thread_of_itself_is_not_put_down_to_users_or_privileges() {
    in_thread(ThreadSpec::default(), || {
        let me = Linux::current_thread();
        let (cpus, nice) = (Linux::affinity(me).unwrap(), Linux::nice(me).unwrap());
        let calls = [libc::SYS_sched_setaffinity, libc::SYS_setpriority, libc::SYS_sched_setattr];
        if !refuse(&calls) {
            let why = "the kernel has no filters on system calls";
            return skipped("refusals by a filter", why, "a kernel with CONFIG_SECCOMP_FILTER");
        }
        is_the_filters(&Linux::set_affinity(me, &cpus).unwrap_err());
        let own = u32::try_from(Linux::thread_id(me)).unwrap();
        is_the_filters(&Linux::set_affinity_of(own, &CpuSet::single(0)).unwrap_err());
        // Which privilege it would take is not known before the filter lets the call through.
        for wanted in [nice, nice - 1] {
            is_the_filters(&Linux::set_nice(me, wanted).unwrap_err());
            let wanted = Scheduling { policy: SchedPolicy::Normal, nice: wanted, slice: None };
            is_the_filters(&Linux::favour(me, wanted).unwrap_err());
        }
        is_the_filters(&Linux::set_scheduling(me, SchedPolicy::Normal, nice, None).unwrap_err());
        is_the_filters(&Linux::set_scheduling(me, SchedPolicy::Idle, nice, None).unwrap_err());
    });
}

#[test]
fn a_machine_is_known_where_a_filter_does_not_let_the_kernel_tell_of_cpus() {
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
        let machine = Linux::machine().expect("/proc and /sys tell");
        assert_eq!(machine.limits.effective(), before.limits.effective());
        assert_eq!(machine.topology, before.topology);
    });
}
