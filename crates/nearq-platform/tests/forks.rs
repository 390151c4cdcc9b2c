//! Forks are counted, in the child only, and the hooks are called around them, in both.

#![cfg(not(miri))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests are Linux programs")]

mod common;

use nearq_platform::{ForkHooks, Linux, LockPlatform, Ordering, ThreadSpec, Threads};

type Word = <Linux as LockPlatform>::AtomicU32;

/// How often each hook of a subject was called.
struct Counted {
    prepare: Word,
    parent: Word,
    child: Word,
}

impl Counted {
    const HOOKS: ForkHooks = ForkHooks {
        prepare: |subject| Self::of(subject).count(|counted| &counted.prepare),
        parent: |subject| Self::of(subject).count(|counted| &counted.parent),
        child: |subject| {
            assert!(Linux::fork_epoch() > 0, "counted before the hooks are called");
            Self::of(subject).count(|counted| &counted.child);
        },
    };

    fn new() -> Self {
        Counted { prepare: Word::new(0), parent: Word::new(0), child: Word::new(0) }
    }

    fn count(&self, which: impl FnOnce(&Self) -> &Word) {
        which(self).fetch_add(1, Ordering::Relaxed);
    }

    fn of<'a>(subject: *const ()) -> &'a Self {
        // SAFETY: the tests follow values that live until they are unfollowed.
        unsafe { &*subject.cast() }
    }

    fn follow(&self) {
        // SAFETY: unfollowed below, before the value is moved or dropped.
        unsafe { Linux::follow_forks(core::ptr::from_ref(self).cast(), &Self::HOOKS) };
    }

    fn unfollow(&self) {
        Linux::unfollow_forks(core::ptr::from_ref(self).cast());
    }

    fn counts(&self) -> [u32; 3] {
        [&self.prepare, &self.parent, &self.child].map(|word| word.load(Ordering::Relaxed))
    }
}

/// Forks; the child ends with what `child` says, which the parent gets.
fn fork(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs what follows, and ends without returning to the test's harness.
    match unsafe { libc::fork() } {
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(99);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(code) }
        }
        pid => {
            assert!(pid > 0, "{}", std::io::Error::last_os_error());
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status), "the child ended by status {status}");
            libc::WEXITSTATUS(status)
        }
    }
}

/// Forks and their hooks concern the whole process: one test at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A test that has failed leaves nothing to the next one.
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn hooks_and_the_epoch_follow_forks() {
    let _alone = alone();
    let (first, second) = (Counted::new(), Counted::new());
    first.follow();
    second.follow();
    let epoch = Linux::fork_epoch();
    let code = fork(|| {
        assert_eq!(first.counts(), [1, 0, 1]);
        assert_eq!(second.counts(), [1, 0, 1]);
        assert_eq!(Linux::fork_epoch(), epoch + 1);
        // The grandchild is another epoch again.
        let code = fork(|| {
            assert_eq!(first.counts(), [2, 0, 2]);
            i32::try_from(Linux::fork_epoch() - epoch).unwrap()
        });
        assert_eq!(code, 2);
        assert_eq!(first.counts(), [2, 1, 1]);
        assert_eq!(Linux::fork_epoch(), epoch + 1);
        // A child may follow and unfollow.
        second.unfollow();
        assert_eq!(fork(|| i32::from(second.counts() != [2, 1, 1])), 0);
        7
    });
    assert_eq!(code, 7);
    assert_eq!(Linux::fork_epoch(), epoch, "nothing changes in the process that forked");
    assert_eq!(first.counts(), [1, 1, 0]);
    second.unfollow();
    assert_eq!(fork(|| i32::from(first.counts() != [2, 1, 1])), 0);
    assert_eq!(second.counts(), [1, 1, 0], "an unregistered hook is not called");

    // Threads that come and go as subjects do not disturb forks, and vice versa.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let subject = Counted::new();
                        subject.follow();
                        subject.unfollow();
                        let [prepare, parent, child] = subject.counts();
                        assert_eq!(
                            (prepare, child),
                            (parent, 0),
                            "the hook was removed while it ran"
                        );
                    }
                })
            })
            .collect();
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            assert_eq!(fork(|| 3), 3);
        }
    });
    first.unfollow();
}

/// What `Command` does without `pre_exec` is not reported as a fork, and works as always.
#[test]
fn a_command_runs() {
    let _alone = alone();
    let output = std::process::Command::new("/bin/echo").arg("x").output().unwrap();
    assert_eq!(output.stdout, b"x\n");
}

/// Starts a thread, and waits for its end.
fn start_one() {
    let handle = Linux::spawn(ThreadSpec::default(), || {}).expect("a thread can be started");
    Linux::join(handle);
}

/// In a process of its own, where no other test forks or starts threads; a child that hangs is ended by its
/// alarm.
#[test]
#[cfg_attr(tsan, ignore = "ThreadSanitizer starts no thread in a child of several threads")]
fn a_child_can_start_threads_after_forking_during_thread_starts() {
    const CHILDREN: u32 = 500;
    let _alone = alone();
    let counted = Counted::new();
    let code = fork(move || {
        counted.follow();
        let over: &'static Word = Box::leak(Box::new(Word::new(0)));
        for _ in 0..6 {
            let busy = move || {
                while over.load(Ordering::Relaxed) == 0 {
                    start_one();
                }
            };
            Linux::spawn(ThreadSpec::default(), busy).expect("a thread can be started");
        }
        for number in 0..CHILDREN {
            let code = fork(|| {
                // SAFETY: validity: no pointer. The signal ends this process only.
                unsafe { libc::alarm(120) };
                start_one();
                0
            });
            assert_eq!(code, 0, "child {number}");
        }
        over.store(1, Ordering::Relaxed);
        0
    });
    assert_eq!(code, 0);
}
