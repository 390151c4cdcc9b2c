//! How threads wait for a mutex: under the model checker, and on real threads with every mode.

mod linux;
#[cfg(not(any(miri, tsan)))]
mod model;
