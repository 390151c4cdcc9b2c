//! Spawned threads: name, signals, stack, affinity from the first instruction, and what they report.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a thread that is not of the platform is what some tests are about"
)]

use std::hint::black_box;

use crate::common::{OneShot, Sleeper, eventually, in_thread};
use nearq_platform::{
    Linux, LockPlatform, OsError, Placement, RunState, SchedPolicy, SignalMask, ThreadSpec, Threads,
};
use nearq_topology::CpuSet;

fn own_name() -> String {
    std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim_end_matches('\n').to_owned()
}

fn named(name: &str) -> ThreadSpec {
    ThreadSpec { name: name.to_owned(), ..ThreadSpec::default() }
}

#[test]
fn names_are_kept_or_truncated() {
    assert_eq!(in_thread(named("nq/0:1"), own_name), "nq/0:1");
    assert_eq!(in_thread(named("a (b) c) S 1"), own_name), "a (b) c) S 1");
    assert_eq!(in_thread(named("nq/u1234567:123456"), own_name), "nq/u1234567:123");
    assert_eq!(in_thread(named("nq/größenwahnsinn"), own_name), "nq/größenwahn");
    assert_eq!(in_thread(named("nq\0hidden"), own_name), "nq");
    assert_eq!(in_thread(named(""), own_name), own_name(), "inherited");
}

#[test]
fn a_panic_in_a_thread_ends_that_thread_alone() {
    let handle = Linux::spawn(named("nq/panics"), || panic!("as the test wants")).unwrap();
    Linux::join(handle);
}

/// The caller's mask, as the kernel sees it: bit `n - 1` is signal `n`.
fn blocked_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

fn has(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

#[test]
fn asynchronous_signals_are_blocked_and_faults_are_not() {
    let before = blocked_signals();
    let inside = in_thread(ThreadSpec::default(), blocked_signals);
    assert_eq!(blocked_signals(), before, "the creator has its own mask again");
    for signal in 1..=31 {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue; // no thread can block them
        }
        assert_eq!(has(inside, signal), !FAULTS.contains(&signal), "signal {signal}");
    }
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        assert!(has(inside, signal), "signal {signal}");
    }
}

#[test]
fn faults_are_let_through_even_if_the_creator_blocks_them() {
    // In a thread of its own, whose mask no other thread inherits.
    std::thread::spawn(|| {
        // SAFETY: validity: an all-zero set is an empty one. Aliasing and thread: a local value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        for signal in FAULTS {
            // SAFETY: validity: the set is initialised. Aliasing and thread: a local value.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        // SAFETY: validity: the set is initialised. Aliasing: only read. Thread: the caller's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        let inside = in_thread(ThreadSpec::default(), blocked_signals);
        assert!(FAULTS.iter().all(|&signal| !has(inside, signal)));
        assert!(FAULTS.iter().all(|&signal| has(blocked_signals(), signal)));
    })
    .join()
    .unwrap();
}

#[test]
fn a_thread_gets_the_specified_signal_mask() {
    let given = SignalMask(1 << (libc::SIGUSR2 - 1) | 1 << (libc::SIGRTMAX() - 1));
    let spec = ThreadSpec { signals: Some(given), ..ThreadSpec::default() };
    let inside = in_thread(spec, || (blocked_signals(), Linux::signal_mask()));
    assert_eq!(inside, (given.0, given), "as the kernel has it, and as it is read back");
    let masks = in_thread(ThreadSpec::default(), || (blocked_signals(), Linux::signal_mask()));
    // The signals between the ordinary and the real-time ones are the C library's, which hides them.
    let known = |mask: u64| mask & !(0b11 << 31);
    assert_eq!(known(masks.0), known(masks.1.0));
}

#[test]
fn the_stack_has_the_requested_size() {
    const LARGE: usize = 12 << 20;
    #[inline(never)]
    #[expect(clippy::large_stack_arrays, reason = "a large stack is what this is about")]
    fn use_stack() -> u8 {
        let block = [1_u8; LARGE];
        black_box(&block)[LARGE / 2]
    }
    let spec = ThreadSpec { stack_size: Some(2 * LARGE), ..ThreadSpec::default() };
    assert_eq!(in_thread(spec, use_stack), 1);
    // A size smaller than the system allows becomes the smallest that it allows.
    let spec = ThreadSpec { stack_size: Some(1), ..ThreadSpec::default() };
    assert_eq!(in_thread(spec, || 1), 1);
}

#[test]
fn a_stack_that_is_too_large_is_refused_with_the_reason() {
    let spec =
        ThreadSpec { stack_size: Some(1 << 60), name: "nq/huge".into(), ..ThreadSpec::default() };
    let refused = Linux::spawn(spec, || {}).map(Linux::join).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("start the thread \"nq/huge\""), "{text}");
    assert!(!refused.remedy().is_empty(), "{text}");
}

#[test]
fn a_thread_runs_on_its_cpu_from_its_first_instruction() {
    let allowed = Linux::affinity(Linux::current_thread()).unwrap();
    for cpu in &allowed {
        for _ in 0..20 {
            let only = CpuSet::single(cpu);
            let spec = ThreadSpec { affinity: Some(only.clone()), ..ThreadSpec::default() };
            let (first, mask) = in_thread(spec, || {
                (Linux::current_cpu(), Linux::affinity(Linux::current_thread()).unwrap())
            });
            assert_eq!(first, cpu);
            assert_eq!(mask, only);
        }
    }
    assert_eq!(Linux::affinity(Linux::current_thread()).unwrap(), allowed, "the creator stays");
}

static REPORTS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

fn report(refused: &OsError) {
    REPORTS.lock().unwrap().push(refused.to_string());
}

#[test]
fn a_refused_affinity_is_reported_and_the_thread_runs() {
    let nowhere = CpuSet::single(60_000);
    let spec = ThreadSpec {
        affinity: Some(nowhere.clone()),
        nice: Some(19),
        refused: Some(report),
        ..ThreadSpec::default()
    };
    let nice = in_thread(spec, || Linux::nice(Linux::current_thread()).unwrap());
    assert_eq!(nice, 19, "the later steps are done all the same");
    let reports = REPORTS.lock().unwrap();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("CPU 60000"), "{reports:?}");

    let unreported = ThreadSpec { affinity: Some(nowhere), ..ThreadSpec::default() };
    in_thread(unreported, || ());
}

#[test]
fn a_thread_runs_on_without_its_handle() {
    let (sender, receiver) = OneShot::pair();
    drop(Linux::spawn(named("nq/alone"), move || sender.send(own_name())).unwrap());
    assert_eq!(receiver.receive(), "nq/alone");
    // No thread joins that thread: see `OneShot`.
    std::mem::forget(receiver);
}

#[test]
fn threads_are_distinguished() {
    let me = Linux::current_thread();
    assert_eq!(me, Linux::current_thread());
    let sleeper = Sleeper::start(named("nq/other"));
    assert_ne!(me, sleeper.thread);
    let id = Linux::thread_id(sleeper.thread);
    let comm = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap();
    assert_eq!(comm, "nq/other\n");
}

#[test]
fn an_exited_thread_is_gone() {
    let gone = Sleeper::start(ThreadSpec::default()).end();
    // The kernel wakes the joiner a little before it forgets the thread.
    eventually("the thread is gone", || Linux::affinity(gone).is_err());
    let errno = |refused: OsError| refused.errno();
    assert_eq!(Linux::affinity(gone).map_err(errno), Err(libc::ESRCH));
    assert_eq!(Linux::set_affinity(gone, &CpuSet::all(1)).map_err(errno), Err(libc::ESRCH));
    assert_eq!(Linux::nice(gone).map_err(errno), Err(libc::ESRCH));
    let less = || Linux::set_scheduling(gone, SchedPolicy::Normal, 1, None);
    assert_eq!(less().map_err(errno), Err(libc::ESRCH));
    assert_eq!(Linux::cpu_time(gone).map_err(errno), Err(libc::ESRCH));
    assert_eq!(Linux::run_state(gone), Ok(RunState::Ended));
    let text = less().unwrap_err().to_string();
    assert!(text.contains("the thread has ended"), "{text}");
}
