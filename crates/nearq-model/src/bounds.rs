//! How much of a model is looked at: a little each time the tests run, all of it in the long run.
//!
//! A model of two threads is through in milliseconds with two preemptions and in minutes with four. So a model names two bounds. The
//! quick one is the smallest with which the model still finds the mistakes that it is for; the long one is what fits into
//! minutes, and holds where the environment variable `NEARQ_MODELS` is `long`.

use std::env;

/// Whether the long bounds hold.
fn is_long() -> bool {
    match env::var("NEARQ_MODELS") {
        Ok(value) if value == "long" => true,
        Ok(value) => panic!("NEARQ_MODELS is \"{value}\"; it may be \"long\", or not be set"),
        Err(_) => false,
    }
}

/// The bound of a model that is too large to be looked at with the `long` one each time.
#[must_use]
pub fn bound<T>(quick: T, long: T) -> T {
    if is_long() { long } else { quick }
}
