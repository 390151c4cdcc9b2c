//! A program that runs: what it prints, line by line, and its end. Each wait has a limit, which is only for programs that hang.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// More than any step takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Which of its outputs a program has written a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Output,
    Errors,
}

/// A program that runs. It is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<(From, String)>,
    /// All lines so far, for messages.
    seen: Vec<(From, String)>,
}

impl Program {
    pub(crate) fn start(path: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect(path);
        let (sender, lines) = mpsc::channel();
        send_lines(From::Output, child.stdout.take().expect("piped"), sender.clone());
        send_lines(From::Errors, child.stderr.take().expect("piped"), sender);
        Program { input: child.stdin.take(), child, lines, seen: Vec::new() }
    }

    /// Writes a line to its standard input.
    pub(crate) fn write(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{line}").expect("the program reads");
    }

    /// Its next line; none if both outputs are closed.
    pub(crate) fn line(&mut self) -> Option<(From, String)> {
        match self.lines.recv_timeout(LONG) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("it prints nothing more: {:#?}", self.seen)
            }
        }
    }

    /// Its next line on that output that begins like this, without the beginning. Other lines are passed over.
    pub(crate) fn until(&mut self, from: From, beginning: &str) -> String {
        while let Some((whence, line)) = self.line() {
            if let (true, Some(rest)) = (whence == from, line.strip_prefix(beginning)) {
                return rest.to_owned();
            }
        }
        panic!("it has ended without a line {beginning:?}: {:#?}", self.seen);
    }

    /// What it has printed on that output so far, as far as it has been read.
    pub(crate) fn seen(&self, from: From) -> Vec<&str> {
        self.seen.iter().filter(|(whence, _)| *whence == from).map(|(_, line)| &**line).collect()
    }

    /// Sends it what a terminal sends for Ctrl-C.
    pub(crate) fn interrupt(&self) {
        // SAFETY: no memory is touched; the process is a child that has not been waited for.
        let sent = unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
        assert_eq!(sent, 0);
    }

    /// Reads what is left, and waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        while self.line().is_some() {}
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(begin.elapsed() < LONG, "it does not end: {:#?}", self.seen);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn send_lines(from: From, output: impl Read + Send + 'static, sender: Sender<(From, String)>) {
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send((from, line)).is_err() {
                return;
            }
        }
    });
}
