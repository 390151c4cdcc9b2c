//! The unit tests of rayon's own crate, from its source, and what they use of its inside. See `build.rs`.

include!(concat!(env!("OUT_DIR"), "/tests.rs"));

pub(crate) mod unwind {
    //! As in rayon's own crate.

    use std::panic::{AssertUnwindSafe, catch_unwind};

    pub(crate) fn halt_unwinding<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
        catch_unwind(AssertUnwindSafe(f))
    }
}
