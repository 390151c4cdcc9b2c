//! What may be used after a panic was caught.
//!
//! Foreign code never runs while the runtime changes something: closures, hooks, wakers and destructors run outside its locks, and their
//! panics are contained where they occur. So a panic leaves nothing of the runtime half changed, whatever it passes through.

use core::panic::{RefUnwindSafe, UnwindSafe};

use nearq_platform::Platform;

use crate::homes::{Home, Registered};
use crate::queue::flush::{DrainedQueue, FlushedQueue};
use crate::queue::runtime::Runtime;
use crate::task::cancel_on_drop::CancelOnDrop;
use crate::task::join::JoinHandle;
use crate::task::waiting::Flushed;
use crate::task::work::Work;
use crate::user::at_home::AtHome;
use crate::user::bounded::{Bounded, BoundedWork, Permit, Reserve};
use crate::user::builder::RuntimeBuilder;
use crate::user::cancel::{CancelToken, Cancelled};
use crate::user::handle::Handle;
use crate::user::readers::{TimingGuard, Tracer};
use crate::user::scope::Scope;
use crate::user::set::{JoinNext, JoinSet};
use crate::user::settings::WorkqueueBuilder;
use crate::user::task_builder::TaskBuilder;
use crate::user::view::QueueView;
use crate::user::workqueue::Workqueue;

macro_rules! unwind_safe {
    ($($kind:ident)*) => {
        $(
            impl<P: Platform> UnwindSafe for $kind<P> {}
            impl<P: Platform> RefUnwindSafe for $kind<P> {}
        )*
    };
}

unwind_safe! {
    AtHome Bounded BoundedWork CancelToken Cancelled Flushed Handle Home QueueView Registered Runtime RuntimeBuilder TimingGuard Tracer Work Workqueue WorkqueueBuilder
}

impl<P: Platform> UnwindSafe for TaskBuilder<'_, P> {}
impl<P: Platform> RefUnwindSafe for TaskBuilder<'_, P> {}
impl<P: Platform> UnwindSafe for Permit<'_, P> {}
impl<P: Platform> RefUnwindSafe for Permit<'_, P> {}
impl<P: Platform> UnwindSafe for Reserve<'_, P> {}
impl<P: Platform> RefUnwindSafe for Reserve<'_, P> {}
impl<P: Platform> UnwindSafe for DrainedQueue<'_, P> {}
impl<P: Platform> RefUnwindSafe for DrainedQueue<'_, P> {}
impl<P: Platform> UnwindSafe for FlushedQueue<'_, P> {}
impl<P: Platform> RefUnwindSafe for FlushedQueue<'_, P> {}
impl<P: Platform> RefUnwindSafe for Scope<'_, '_, P> {}
impl<T, P: Platform> UnwindSafe for JoinHandle<T, P> {}
impl<T, P: Platform> RefUnwindSafe for JoinHandle<T, P> {}
impl<T, P: Platform> UnwindSafe for CancelOnDrop<T, P> {}
impl<T, P: Platform> RefUnwindSafe for CancelOnDrop<T, P> {}
impl<T: Send + 'static, P: Platform> UnwindSafe for JoinSet<T, P> {}
impl<T: Send + 'static, P: Platform> RefUnwindSafe for JoinSet<T, P> {}
impl<T: Send + 'static, P: Platform> UnwindSafe for JoinNext<'_, T, P> {}
impl<T: Send + 'static, P: Platform> RefUnwindSafe for JoinNext<'_, T, P> {}
