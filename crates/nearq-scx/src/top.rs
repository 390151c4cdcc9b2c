//! `nearq-scx top`: what the scheduler does, by what happened in the last second, again and again.
//!
//! On a terminal the table is drawn over the last one; elsewhere one follows the other. Keys are heard without their echo; the terminal
//! is as it was before however this ends, but for a signal that cannot be caught.

use std::io::{self, IsTerminal as _, Read as _};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use libbpf_rs::MapHandle;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::output::{self, Failure, percent, time};
use crate::pins::{self, Access};
use crate::state::Now;
use crate::status;

const LEGEND: &str = "\
The columns are those of `nearq-scx status`; CAME, RETURNED, HOME% and the
counts below are of the last period, for each second. `q` or Ctrl-C ends it.

Examples:
  nearq-scx top
  nearq-scx top --seconds 5
  nearq-scx top --times 3 | cat";

/// What `nearq-scx top` can be told.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// How long a period is
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// End after so many tables
    #[arg(long, value_name = "TIMES")]
    times: Option<u64>,
}

/// What ends it.
enum Happened {
    Signal,
    Key(u8),
}

/// Carries it out.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    status::is_there()?;
    let state = pins::open(pins::STATE, Access::Read)?;
    let (sender, receiver) = mpsc::channel();
    let signals = sender.clone();
    nearq_command::signals::on_first(move |_, _| {
        // Nobody listens any more: it ends anyway.
        let _ = signals.send(Happened::Signal);
    })?;
    let terminal = Keys::take();
    if terminal.is_some() {
        thread::spawn(move || {
            let mut key = [0];
            while io::stdin().read_exact(&mut key).is_ok() {
                if sender.send(Happened::Key(key[0])).is_err() {
                    return;
                }
            }
        });
    }
    let (mut before, mut at) = (look(&state)?, Instant::now());
    let mut shown = 0;
    loop {
        let wait = Duration::from_secs(options.seconds).saturating_sub(at.elapsed());
        match receiver.recv_timeout(wait) {
            Ok(Happened::Signal | Happened::Key(b'q' | b'Q')) => return Ok(()),
            Ok(Happened::Key(_)) => continue,
            Err(RecvTimeoutError::Timeout) => {}
            // There is no keyboard: then time alone passes.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(wait),
        }
        // Its maps can be read as long as we have them, whether it is loaded or not.
        status::is_there()?;
        let now = look(&state)?;
        let text = table(&now.since(&before), at.elapsed());
        (before, at) = (now, Instant::now());
        let drawn = if io::stdout().is_terminal() {
            // Home, each line to its end, and what is left below.
            format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
        } else {
            text + "\n"
        };
        if shown == 0 && io::stdout().is_terminal() {
            output::print("\x1b[2J")?;
        }
        shown += 1;
        if !output::try_print(&drawn)? || options.times.is_some_and(|times| shown >= times) {
            return Ok(());
        }
    }
}

fn look(state: &MapHandle) -> Result<Now, Failure> {
    Ok(Now::of(&*pins::machine(state)?))
}

/// What happened in a period, by the second.
fn table(since: &Now, elapsed: Duration) -> String {
    let mut since = since.clone();
    let rate = |count: u64| (count as f64 / elapsed.as_secs_f64()).round() as u64;
    for node in &mut since.nodes {
        node.counts = node.counts.map(rate);
    }
    let (home, away) = since.cpu_time();
    let mut text = status::nodes(&since);
    text += &format!(
        "\n{} of {} of CPU time at home\n\n",
        percent(home, home + away),
        time(home + away)
    );
    text + &status::counts(&since)
}

/// A terminal that gives keys as they are pressed, and does not show them.
struct Keys {
    before: Termios,
}

impl Keys {
    fn take() -> Option<Self> {
        let terminal = io::stdin();
        if !terminal.is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let before = tcgetattr(&terminal).ok()?;
        let mut now = before.clone();
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Now, &now).ok()?;
        Some(Keys { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{event, made_up};

    #[test]
    fn counts_are_by_the_second() {
        let mut nq = made_up();
        let before = Now::of(&nq);
        nq.on_cpu[5].events[event("left")] += 30;
        nq.on_cpu[5].away_ns += 1_000_000_000;
        nq.on_cpu[0].home_ns += 3_000_000_000;
        let text = table(&Now::of(&nq).since(&before), Duration::from_secs(10));
        let second = text.lines().nth(2).unwrap();
        assert!(second.starts_with("   2  4-7 ") && second.contains("  0.0%     3 "), "{text}");
        assert!(text.contains("\n75.0% of 4.0s of CPU time at home\n"), "{text}");
        assert!(text.contains("\nleft             3   0   3  tasks that began"), "{text}");
        assert!(text.contains("\ncrossed          0   0   0  "), "{text}");
    }
}
