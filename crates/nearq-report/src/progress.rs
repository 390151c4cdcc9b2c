//! The progress of an experiment, for the user who waits.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearq_command::screen;

/// The progress of an experiment. On a terminal that can clear a line, it is shown as a bar on standard error; elsewhere nothing is
/// printed.
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

    /// Begins an experiment of that many steps.
    pub fn begin(&self, steps: usize) {
        let style = ProgressStyle::with_template("{bar:20} {pos}/{len} {eta} left  {wide_msg}");
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

    /// How many steps have ended.
    pub fn position(&self) -> usize {
        self.0.position() as usize
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::{FromRawFd as _, OwnedFd};
    use std::process::{Command, Stdio};

    /// The bar as shown by a process whose standard error is a terminal of that kind.
    fn shown(term: &str) -> String {
        let (mut person, mut program) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: two numbers to fill in, no name, no settings, and a size to read.
        let made = unsafe {
            libc::openpty(
                &raw mut person,
                &raw mut program,
                none,
                none.cast(),
                (&raw const size).cast_mut(),
            )
        };
        assert_eq!(made, 0, "a terminal is available");
        // SAFETY: both were opened just now, and nothing else has them.
        let (mut person, program) =
            unsafe { (File::from_raw_fd(person), OwnedFd::from_raw_fd(program)) };
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["--exact", "--ignored", "progress::tests::a_bar_can_be_drawn_in_a_test"]);
        command.env("TERM", term).stdout(Stdio::null()).stderr(program);
        assert!(command.status().expect("it starts").success());
        // The process has the other side of the terminal.
        drop(command);
        let mut bytes = Vec::new();
        // Reading fails when the other side is closed.
        let _ = person.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    #[ignore = "the next test runs it in a separate process"]
    fn a_bar_can_be_drawn_in_a_test() {
        let progress = Progress::stderr();
        progress.begin(2);
        progress.step("the first step".into());
        progress.done();
        progress.end();
    }

    #[test]
    fn a_terminal_that_can_only_print_gets_no_bar() {
        let usual = shown("xterm");
        assert!(usual.contains("the first step") && usual.contains('\u{1b}'), "{usual:?}");
        for term in ["dumb", ""] {
            assert_eq!(shown(term), "", "TERM={term:?}");
        }
    }
}
