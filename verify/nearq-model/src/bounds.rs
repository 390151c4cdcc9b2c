//! How much of a model is explored, and how much of another test is done: a little each time the tests run, everything in the long run.
//!
//! A model of two threads finishes in milliseconds with two preemptions and in minutes with four. So a model names two bounds. The
//! quick one is the smallest with which the model still finds the mistakes that it is for; the long one is what fits into minutes, and
//! applies if the environment has the variable `NEARQ_LONG`, as for all tests that have two sizes.

use std::env;

/// The bound of a test that would take too long each time with the `long` one.
#[must_use]
pub fn bound<T>(quick: T, long: T) -> T {
    if env::var_os("NEARQ_LONG").is_some() { long } else { quick }
}
