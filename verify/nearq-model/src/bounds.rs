//! How much of a model is looked at, and how much of another test is done: a little each time the tests run, all of it in the long run.
//!
//! A model of two threads is through in milliseconds with two preemptions and in minutes with four. So a model names two bounds. The
//! quick one is the smallest with which the model still finds the mistakes that it is for; the long one is what fits into
//! minutes, and holds where the environment has the variable `NEARQ_LONG`, as for all tests that have two sizes.

use std::env;

/// The bound of a test that takes too long with the `long` one to be run each time.
#[must_use]
pub fn bound<T>(quick: T, long: T) -> T {
    if env::var_os("NEARQ_LONG").is_some() { long } else { quick }
}
