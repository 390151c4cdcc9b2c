//! The numbered workers of a pool, and the closures that they are to run.
//!
//! A pool is a work queue with a team ([`nearq::team`]). The workers that run its closures are members of the team. Each holds a number
//! below the pool's size, the index of rayon's interface; a number is never held by two members at once. A member keeps its number while it
//! waits or blocks. So a blocked worker can be replaced as long as there is a number left.
//!
//! | closures | where they wait | who runs them |
//! |---|---|---|
//! | halves of `join`, closures of scopes | in the deque of the worker that offers them (nearq's) | that worker, or one that steals them |
//! | `spawn` in a member | the member's own list | the member, newest first; or any other one, oldest first |
//! | `spawn`, `install` and the like outside of the pool | the list of injected closures | any member |
//! | `broadcast` | the mailbox of each number | the member that holds the number, also while it waits |
//!
//! A member that waits for a part of its own computation runs other parts of that and the closures of its mailbox, and nothing else: an
//! unrelated closure might want a lock that it holds. A member that waits for another pool runs anything of its own pool, if no number is
//! left for another worker: the other pool may be waiting for this one.
//!
//! # The number of an attached thread
//! The thread that has built a pool with `use_current_thread` is a member of it, and no worker. It has the number 0. While it waits for a
//! pool, it lends the number to workers (`lend`): what it waits for may need it. It takes the number back before it runs anything else: the
//! number is wanted then, and a worker that has it gives it back between two closures (`must_leave`). The thread may be a worker of another
//! pool meanwhile; it is attached all the same (`ATTACHED`).
//!
//! # Who may touch what
//! All lists have locks, and no foreign code runs under them. Each has a count that is changed under the lock (`SeqCst`) and read without
//! it; an entry of `fifo` is counted by the entry of `own` that stands for it. In the child of a fork all of it is replaced at once
//! (`after_fork_in_child`): a lock may be held by a thread that is not there.
//!
//! # How a member that waits for another pool is woken
//! A thread that adds a closure changes `shared`, then reads `elsewhere` (`wake_waiting`). The member says in `elsewhere` that it sleeps
//! (`sleeps`), then reads `shared` (`has_urgent`). All of these are `SeqCst`, so one of the two sees the other.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};

use nearq::team::{Closure, Team, TeamBell, Wait};
use nearq_platform::{Linux, LockPlatform};

use crate::registry::Registry;

/// See the head of the file.
pub(crate) struct Members {
    size: usize,
    /// How many members should run at once, if there is work.
    parallelism: usize,
    /// The pool, for functions that are called in a member.
    pub(crate) registry: Weak<Registry>,
    state: AtomicPtr<State>,
}

/// What is replaced in the child of a fork.
struct State {
    slots: Box<[Slot]>,
    numbers: Mutex<Numbers>,
    /// As in `numbers`, or `NONE`; a hint for workers, which read it between two closures.
    wanted: AtomicUsize,
    /// How many numbers are held by workers.
    held: AtomicUsize,
    /// Notified when a number that a thread wants has been given back.
    returned: Condvar,
    injected: Mutex<VecDeque<Numbered>>,
    /// The next number of an injected or posted closure.
    next: AtomicU64,
    /// Closures that any member may run: injected ones, and those on members' own lists.
    shared: AtomicUsize,
    /// Closures in mailboxes.
    mail: AtomicUsize,
    /// Members that sleep while they wait for another pool.
    elsewhere: AtomicUsize,
}

/// No number.
const NONE: usize = usize::MAX;

/// What belongs to a number.
#[repr(align(128))]
#[derive(Default)]
struct Slot {
    own: Mutex<VecDeque<Own>>,
    own_len: AtomicUsize,
    /// Closures of `spawn_fifo`, oldest first.
    fifo: Mutex<VecDeque<Closure>>,
    mail: Mutex<VecDeque<Numbered>>,
    mail_len: AtomicUsize,
    /// The bell of the member that holds the number.
    bell: Mutex<Option<TeamBell>>,
    /// Whether that member sleeps while it waits for another pool.
    elsewhere: AtomicBool,
}

/// A closure that the thread which has added it may take back by the number.
struct Numbered {
    number: u64,
    closure: Closure,
}

/// Removes the closure with that number.
fn remove(list: &mut VecDeque<Numbered>, number: u64) -> Option<Closure> {
    let place = list.iter().rposition(|entry| entry.number == number)?;
    list.remove(place).map(|entry| entry.closure)
}

/// An entry of a member's own list.
enum Own {
    Closure(Closure),
    /// Stands for the oldest entry of `fifo` when it is taken.
    Fifo,
}

struct Numbers {
    free: Vec<usize>,
    /// The number that the thread which has built the pool wants back (`use_current_thread`).
    wanted: Option<usize>,
    /// Whether workers may use that thread's number: it is free, or one has it.
    is_lent: bool,
}

/// The member that the current thread is.
#[derive(Clone, Copy)]
struct Current {
    members: *const Members,
    number: usize,
    /// The process in which it became one.
    epoch: u64,
    /// It is no worker: it has built the pool, and keeps a number of it.
    is_attached: bool,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
    /// The attached member that the thread is. It stays while the thread serves another pool; then it is the current one again.
    static ATTACHED: Cell<Option<Current>> = const { Cell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A member, as the thread sees it that is one.
#[derive(Clone, Copy)]
pub(crate) struct Member {
    current: Current,
}

impl Member {
    /// The member that the current thread is, if it is one.
    #[inline]
    pub(crate) fn current() -> Option<Member> {
        let current = CURRENT.get()?;
        // In the child of a fork, the thread that forked is no worker any more; if it is attached, it still is.
        if current.is_attached || current.epoch == Linux::fork_epoch() {
            Some(Member { current })
        } else {
            Self::attached()
        }
    }

    /// The attached member that the current thread is, if it is one. Meanwhile it may be a worker of another pool.
    pub(crate) fn attached() -> Option<Member> {
        ATTACHED.get().map(|current| Member { current })
    }

    pub(crate) fn number(&self) -> usize {
        self.current.number
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.current.is_attached
    }

    fn members(&self) -> &Members {
        // SAFETY: a worker is a member only while it runs an item of the queue, and the queue keeps its team until its items have ended. An
        // attached thread has a reference to its team that is never given back (`attach`).
        unsafe { &*self.current.members }
    }

    /// The size of its pool.
    pub(crate) fn size(&self) -> usize {
        self.members().size
    }

    /// Its pool; none if it is an attached thread, and the pool is gone.
    pub(crate) fn registry(&self) -> Option<std::sync::Arc<Registry>> {
        self.members().registry.upgrade()
    }

    /// Lets workers use its number until what is returned is dropped. It is attached, and the current thread, which runs no closure with
    /// that number meanwhile. None if the number is lent already. The caller then calls a thief.
    pub(crate) fn lend(&self) -> Option<Lent<'_>> {
        debug_assert!(self.is_attached());
        let members = self.members();
        let mut numbers = lock(&members.state().numbers);
        if numbers.is_lent {
            return None;
        }
        numbers.is_lent = true;
        numbers.free.push(self.current.number);
        Some(Lent { members, number: self.current.number, epoch: Linux::fork_epoch() })
    }

    pub(crate) fn is_of(&self, members: &Members) -> bool {
        std::ptr::eq(self.current.members, members)
    }

    /// Whether it has offered or spawned closures that no worker has begun.
    pub(crate) fn has_pending(&self) -> bool {
        let slot = &self.members().state().slots[self.current.number];
        nearq::team::has_own_jobs::<Linux>() || slot.own_len.load(Ordering::SeqCst) != 0
    }

    /// Adds a closure to its own list. It runs after closures that are added later, unless another member takes it.
    pub(crate) fn spawn(&self, closure: Closure) {
        self.members().push_own(self.current.number, Own::Closure(closure));
    }

    /// As [`spawn`](Self::spawn), but closures that are added like this run in the order in which they are added.
    pub(crate) fn spawn_fifo(&self, closure: Closure) {
        let members = self.members();
        lock(&members.state().slots[self.current.number].fifo).push_back(closure);
        members.push_own(self.current.number, Own::Fifo);
    }

    /// Runs a closure that the member has offered, spawned, or been sent. False if there was none.
    pub(crate) fn run_local(&self) -> bool {
        if nearq::team::run_own_job::<Linux>() {
            return true;
        }
        let closure = self.members().take_own_of(self.current.number);
        closure.map(|closure| closure()).is_some()
    }

    /// Runs any closure of the pool. False if there was none.
    pub(crate) fn run_any(&self) -> bool {
        if self.run_local() || nearq::team::run_stolen_job::<Linux>() {
            return true;
        }
        self.members().take_any().map(|closure| closure()).is_some()
    }
}

impl Members {
    pub(crate) fn new(size: usize, parallelism: usize, registry: Weak<Registry>) -> Self {
        Members { size, parallelism, registry, state: AtomicPtr::new(State::new(size)) }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    fn state(&self) -> &State {
        // SAFETY: made as a box, and freed when `self` is dropped. It is replaced only in the child of a fork, where the former one stays.
        unsafe { &*self.state.load(Ordering::Acquire) }
    }

    fn push_own(&self, number: usize, own: Own) {
        let state = self.state();
        let slot = &state.slots[number];
        let mut list = lock(&slot.own);
        list.push_back(own);
        slot.own_len.store(list.len(), Ordering::SeqCst);
        state.shared.fetch_add(1, Ordering::SeqCst);
    }

    fn pop_own(&self, number: usize, newest: bool) -> Option<Closure> {
        let state = self.state();
        let slot = &state.slots[number];
        if slot.own_len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut list = lock(&slot.own);
        let own = if newest { list.pop_back() } else { list.pop_front() }?;
        slot.own_len.store(list.len(), Ordering::SeqCst);
        state.shared.fetch_sub(1, Ordering::SeqCst);
        drop(list);
        match own {
            Own::Closure(closure) => Some(closure),
            // Each entry was added after a closure.
            Own::Fifo => lock(&slot.fifo).pop_front(),
        }
    }

    fn take_mail(&self, number: usize) -> Option<Closure> {
        let state = self.state();
        let slot = &state.slots[number];
        if slot.mail_len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut mail = lock(&slot.mail);
        let entry = mail.pop_front()?;
        slot.mail_len.store(mail.len(), Ordering::SeqCst);
        state.mail.fetch_sub(1, Ordering::SeqCst);
        Some(entry.closure)
    }

    fn take_own_of(&self, number: usize) -> Option<Closure> {
        self.pop_own(number, true).or_else(|| self.take_mail(number))
    }

    fn take_any(&self) -> Option<Closure> {
        let state = self.state();
        if state.shared.load(Ordering::SeqCst) == 0 {
            return None;
        }
        // Each number begins with the next one, so that they do not all meet at the first.
        let first = Member::current().map_or(0, |member| member.number() + 1);
        let numbers = (0..self.size).map(|offset| (first + offset) % self.size);
        numbers.into_iter().find_map(|number| self.pop_own(number, false)).or_else(|| {
            let mut injected = lock(&state.injected);
            let entry = injected.pop_front()?;
            state.shared.fetch_sub(1, Ordering::SeqCst);
            Some(entry.closure)
        })
    }

    /// Puts a closure into the mailbox of a number. The caller then calls a thief, for the case that no member holds that number. Returns a
    /// number of the closure's own.
    pub(crate) fn post(&self, number: usize, closure: Closure) -> u64 {
        let state = self.state();
        let slot = &state.slots[number];
        let entry = state.numbered(closure);
        let posted = entry.number;
        let mut mail = lock(&slot.mail);
        mail.push_back(entry);
        slot.mail_len.store(mail.len(), Ordering::SeqCst);
        state.mail.fetch_add(1, Ordering::SeqCst);
        drop(mail);
        let bell = lock(&slot.bell).clone();
        if let Some(bell) = bell {
            bell.ring();
        }
        posted
    }

    /// Takes a posted closure back, unless a member has taken it.
    pub(crate) fn take_back(&self, number: usize, posted: u64) -> Option<Closure> {
        let state = self.state();
        let slot = &state.slots[number];
        let mut mail = lock(&slot.mail);
        let closure = remove(&mut mail, posted)?;
        slot.mail_len.store(mail.len(), Ordering::SeqCst);
        state.mail.fetch_sub(1, Ordering::SeqCst);
        Some(closure)
    }

    /// The current thread, which is no worker, takes the number 0 for as long as it exists.
    pub(crate) fn attach(self: &std::sync::Arc<Self>) {
        let mut numbers = lock(&self.state().numbers);
        numbers.free.retain(|number| *number != 0);
        drop(numbers);
        // Never freed: the thread may be there longer than the pool.
        let members = std::sync::Arc::into_raw(std::sync::Arc::clone(self));
        let epoch = Linux::fork_epoch();
        ATTACHED.set(Some(Current { members, number: 0, epoch, is_attached: true }));
        CURRENT.set(ATTACHED.get());
    }

    /// Whether every number is held.
    fn is_full(&self) -> bool {
        lock(&self.state().numbers).free.is_empty()
    }
}

/// The number of an attached thread while workers may use it. When it is dropped, the thread takes the number back: it waits until a worker
/// that has it gives it back.
pub(crate) struct Lent<'a> {
    members: &'a Members,
    number: usize,
    /// The process in which it was lent.
    epoch: u64,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // In the child of a fork the thread has it already.
        if self.epoch != Linux::fork_epoch() {
            return;
        }
        let state = self.members.state();
        let mut numbers = lock(&state.numbers);
        // A worker that has it sees between two closures that it is wanted.
        while numbers.take(|number| number == self.number).is_none() {
            numbers.wanted = Some(self.number);
            state.wanted.store(self.number, Ordering::Relaxed);
            numbers = state.returned.wait(numbers).unwrap_or_else(PoisonError::into_inner);
        }
        numbers.wanted = None;
        state.wanted.store(NONE, Ordering::Relaxed);
        numbers.is_lent = false;
        drop(numbers);
        // A thread that added a closure while the number was free has woken none of them.
        self.members.wake_waiting();
    }
}

impl Numbers {
    /// Whether one is left for a thief.
    fn has_room(&self) -> bool {
        self.free.iter().any(|number| Some(*number) != self.wanted)
    }

    fn take(&mut self, is_right: impl Fn(usize) -> bool) -> Option<usize> {
        let place = self.free.iter().rposition(|number| is_right(*number))?;
        Some(self.free.swap_remove(place))
    }
}

impl State {
    fn new(size: usize) -> *mut State {
        let state = State {
            slots: (0..size).map(|_| Slot::default()).collect(),
            // The lowest one is taken first.
            numbers: Mutex::new(Numbers {
                free: (0..size).rev().collect(),
                wanted: None,
                is_lent: false,
            }),
            wanted: AtomicUsize::new(NONE),
            held: AtomicUsize::new(0),
            returned: Condvar::new(),
            injected: Mutex::default(),
            next: AtomicU64::new(0),
            shared: AtomicUsize::new(0),
            mail: AtomicUsize::new(0),
            elsewhere: AtomicUsize::new(0),
        };
        Box::into_raw(Box::new(state))
    }

    fn numbered(&self, closure: Closure) -> Numbered {
        // Relaxed: only the number counts.
        Numbered { number: self.next.fetch_add(1, Ordering::Relaxed), closure }
    }

    fn has_mail(&self, number: usize) -> bool {
        self.slots[number].mail_len.load(Ordering::SeqCst) != 0
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // SAFETY: made as a box by `State::new`, and this is the last access.
        drop(unsafe { Box::from_raw(*self.state.get_mut()) });
    }
}

/// The member that the current thread is, for functions that only members call.
fn caller() -> Current {
    CURRENT.get().expect("a member of the team calls this")
}

impl Team for Members {
    fn size(&self) -> usize {
        self.size
    }

    fn is_short(&self) -> bool {
        self.state().held.load(Ordering::Relaxed) < self.parallelism
    }

    fn enter(&self, bell: TeamBell) -> bool {
        let state = self.state();
        let mut numbers = lock(&state.numbers);
        let wanted = numbers.wanted;
        let may = |number| Some(number) != wanted;
        let posted = (state.mail.load(Ordering::SeqCst) != 0)
            .then(|| numbers.take(|number| may(number) && state.has_mail(number)))
            .flatten();
        let Some(number) = posted.or_else(|| numbers.take(may)) else { return false };
        state.held.fetch_add(1, Ordering::Relaxed);
        let is_last = numbers.free.is_empty();
        drop(numbers);
        if is_last {
            self.wake_waiting();
        }
        *lock(&state.slots[number].bell) = Some(bell);
        let epoch = Linux::fork_epoch();
        CURRENT.set(Some(Current { members: self, number, epoch, is_attached: false }));
        true
    }

    fn leave(&self) -> bool {
        let state = self.state();
        let Current { number, .. } = caller();
        CURRENT.set(ATTACHED.get());
        *lock(&state.slots[number].bell) = None;
        let mut numbers = lock(&state.numbers);
        let was_full = !numbers.has_room();
        numbers.free.push(number);
        state.held.fetch_sub(1, Ordering::Relaxed);
        if numbers.wanted == Some(number) {
            state.returned.notify_one();
        }
        was_full
    }

    fn has_room(&self) -> bool {
        lock(&self.state().numbers).has_room()
    }

    fn must_leave(&self) -> bool {
        // Relaxed: a member that reads it too late runs one closure more.
        self.state().wanted.load(Ordering::Relaxed) == caller().number
    }

    fn take_own(&self) -> Option<Closure> {
        self.take_own_of(caller().number)
    }

    fn take_shared(&self) -> Option<Closure> {
        self.take_any()
    }

    fn has_shared(&self) -> bool {
        let state = self.state();
        if state.shared.load(Ordering::SeqCst) == 0 && state.mail.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let numbers = lock(&state.numbers);
        let mut free = numbers.free.iter().filter(|number| Some(**number) != numbers.wanted);
        if state.shared.load(Ordering::SeqCst) != 0 {
            free.next().is_some()
        } else {
            free.any(|number| state.has_mail(*number))
        }
    }

    fn take_urgent(&self, wait: Wait) -> Option<Closure> {
        let mail = self.take_mail(caller().number);
        if mail.is_some() || wait == Wait::Within || !self.is_full() {
            return mail;
        }
        self.take_any()
    }

    fn has_urgent(&self, wait: Wait) -> bool {
        let state = self.state();
        state.has_mail(caller().number)
            || wait == Wait::Elsewhere && state.shared.load(Ordering::SeqCst) != 0 && self.is_full()
    }

    fn sleeps(&self, wait: Wait, begins: bool) {
        if wait == Wait::Elsewhere {
            let state = self.state();
            state.slots[caller().number].elsewhere.store(begins, Ordering::SeqCst);
            if begins {
                state.elsewhere.fetch_add(1, Ordering::SeqCst);
            } else {
                state.elsewhere.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    fn inject(&self, closure: Closure) -> u64 {
        let state = self.state();
        let entry = state.numbered(closure);
        let number = entry.number;
        let mut injected = lock(&state.injected);
        injected.push_back(entry);
        state.shared.fetch_add(1, Ordering::SeqCst);
        drop(injected);
        self.wake_waiting();
        number
    }

    fn retract(&self, number: u64) -> Option<Closure> {
        let state = self.state();
        let mut injected = lock(&state.injected);
        let closure = remove(&mut injected, number)?;
        state.shared.fetch_sub(1, Ordering::SeqCst);
        Some(closure)
    }

    fn after_fork_in_child(&self) {
        // The former state stays: a lock in it may be held, and the closures are the parent's.
        self.state.store(State::new(self.size), Ordering::Release);
        let is_ours = |current: &Current| std::ptr::eq(current.members, self);
        if let Some(current) = ATTACHED.get().filter(is_ours) {
            lock(&self.state().numbers).free.retain(|number| *number != current.number);
        }
    }
}

impl Members {
    /// If no number is left for another worker, wakes the members that wait for other pools: one of them must run what is there.
    pub(crate) fn wake_waiting(&self) {
        let state = self.state();
        if state.elsewhere.load(Ordering::SeqCst) == 0 || !self.is_full() {
            return;
        }
        for slot in &state.slots {
            if slot.elsewhere.load(Ordering::SeqCst) {
                if let Some(bell) = lock(&slot.bell).clone() {
                    bell.ring();
                }
            }
        }
    }
}
