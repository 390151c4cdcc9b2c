//! Code that knows nothing of work: waiting, errors, forks, memory that is kept, and small tools. It imports nothing from the other
//! folders.
//!
//! | file | what it holds |
//! |---|---|
//! | `wait_queue`, `bell`, `rundown_ref` | threads and wakers that wait; a worker that waits; threads that touch a queue without a handle |
//! | `service_thread` | a thread of the runtime's own: started, refused, tried again, ended |
//! | `executing`, `ending`, `outcome` | what the current thread executes; ends that are put off; panics |
//! | `arena`, `numa_box`, `once`, `pad`, `shared` | memory: kept until the end, near a node, made when needed, apart from other writers, recovered from its address |
//! | `forked`, `pause`, `error`, `ids` | single words in the child of a fork; waiting for the holder of a word; errors; numbers of queues and pools |
//!
//! The folder owns the words of a wait queue and of a rundown reference, and the list of ends that are put off, which is on a thread's
//! stack.

pub(crate) mod arena;
pub(crate) mod bell;
pub(crate) mod ending;
pub(crate) mod error;
pub(crate) mod executing;
pub(crate) mod forked;
pub(crate) mod ids;
pub(crate) mod numa_box;
pub(crate) mod once;
pub(crate) mod outcome;
pub(crate) mod pad;
pub(crate) mod pause;
pub(crate) mod rundown_ref;
pub(crate) mod service_thread;
pub(crate) mod shared;
pub(crate) mod wait_queue;
