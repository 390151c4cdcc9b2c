//! How far an experiment is, for the person who waits.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearq_command::screen;

/// How far an experiment is. On a terminal that can clear a line it is a bar on standard error; elsewhere nothing is printed.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar on standard error if that is a terminal that can clear a line.
    pub fn stderr() -> Self {
        if !screen::is_steered(&std::io::stderr()) {
            return Self::hidden();
        }
        Self(ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()))
    }

    /// Shows nothing.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Begins, with so many steps to go.
    pub fn begin(&self, steps: usize) {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left  {wide_msg}");
        self.0.set_style(style.expect("the template is a constant"));
        self.0.set_length(steps as u64);
    }

    /// Begins the next step.
    pub fn step(&self, what: String) {
        self.0.set_message(nearq_command::output::flat(&what));
        self.0.tick();
    }

    /// Ends the step.
    pub fn done(&self) {
        self.0.inc(1);
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
