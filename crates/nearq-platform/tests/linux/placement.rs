//! Where threads run: affinity of one's own and of other threads, and the current CPU.

use crate::common::{Sleeper, in_thread};
use nearq_platform::{Linux, LockPlatform, Placement, ThreadSpec, Threads};
use nearq_topology::CpuSet;

/// More than any machine has; the kernel ignores what it does not know.
const FAR: usize = 60_000;

fn allowed() -> CpuSet {
    Linux::affinity(Linux::current_thread()).unwrap()
}

#[test]
fn an_affinity_reads_back_as_set() {
    in_thread(ThreadSpec::default(), || {
        let me = Linux::current_thread();
        let all = allowed();
        for cpu in &all {
            let only = CpuSet::single(cpu);
            Linux::set_affinity(me, &only).unwrap();
            assert_eq!(Linux::affinity(me).unwrap(), only);
            assert_eq!(Linux::current_cpu(), cpu, "the caller runs there when the call returns");
        }
        Linux::set_affinity(me, &all).unwrap();
        assert_eq!(Linux::affinity(me).unwrap(), all);
    });
}

#[test]
fn another_thread_can_be_moved() {
    let sleeper = Sleeper::start(ThreadSpec::default());
    let all = allowed();
    let last = CpuSet::single(all.last().unwrap());
    Linux::set_affinity(sleeper.thread, &last).unwrap();
    assert_eq!(Linux::affinity(sleeper.thread).unwrap(), last);
    assert_eq!(allowed(), all, "the caller stays as it was");
}

#[test]
fn masks_of_more_than_1024_cpus_are_accepted() {
    in_thread(ThreadSpec::default(), || {
        let all = allowed();
        let mut with_far = all.clone();
        with_far.insert(FAR);
        Linux::set_affinity(Linux::current_thread(), &with_far).unwrap();
        assert_eq!(allowed(), all);
        // A mask of all ones, which includes all CPUs that the machine will ever have.
        Linux::set_affinity(Linux::current_thread(), &CpuSet::all(nearq_topology::CPU_ID_LIMIT))
            .unwrap();
        assert!(all.is_subset(&allowed()));
    });
}

#[test]
fn a_nonexistent_cpu_is_refused_and_the_error_lists_the_cpus() {
    let before = allowed();
    let me = Linux::current_thread();
    let refused = Linux::set_affinity(me, &CpuSet::single(FAR)).unwrap_err();
    assert_eq!(refused.errno(), libc::EINVAL);
    let text = refused.to_string();
    let what = format!("could not restrict thread {} to CPU {FAR}: ", Linux::thread_id(me));
    assert!(text.starts_with(&what), "{text}");
    assert!(text.contains("; this process may use CPUs "), "{text}");
    assert!(text.contains(&before.to_string()), "{text} must name {before}");
    assert_eq!(allowed(), before);

    let text = Linux::set_affinity(me, &CpuSet::new()).unwrap_err().to_string();
    assert!(text.contains("to no CPU at all"), "{text}");
}

#[test]
fn the_current_cpu_is_an_allowed_cpu() {
    let allowed = allowed();
    for _ in 0..10_000 {
        assert!(allowed.contains(Linux::current_cpu()));
    }
}

#[test]
fn the_current_cpu_matches_the_c_library() {
    for cpu in &allowed() {
        let spec = ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
        let (nearqs, c_librarys) = in_thread(spec, || {
            // SAFETY: validity: no arguments. Aliasing: none. Thread: answers for the caller.
            (Linux::current_cpu(), unsafe { libc::sched_getcpu() })
        });
        assert_eq!((nearqs, c_librarys), (cpu, i32::try_from(cpu).unwrap()));
    }
}

#[test]
fn the_machine_is_that_of_the_process_and_not_of_a_restricted_thread() {
    let all = allowed();
    let spec = ThreadSpec {
        affinity: Some(CpuSet::single(all.first().unwrap())),
        ..ThreadSpec::default()
    };
    let machine = in_thread(spec, || Linux::machine().unwrap());
    assert_eq!(machine.limits.affinity, all);
    assert!(all.is_subset(&machine.limits.online));
}
