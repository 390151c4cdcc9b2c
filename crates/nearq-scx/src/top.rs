//! `nearq-scx top`: shows repeatedly what the scheduler did in the last second.
//!
//! On a terminal each table is drawn over the last one; otherwise the tables follow one another. Keys are read without echo. The terminal's
//! settings are restored however the command ends, except by a signal that cannot be caught.

use std::io::{self, IsTerminal as _, Read};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use libbpf_rs::MapHandle;
use nearq_command::threads;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};

use crate::output::{self, Failure, percent, time};
use crate::pins::{self, Access};
use crate::state::Now;
use crate::status;

const LEGEND: &str = "\
The columns are those of `nearq-scx status`; CAME, RETURNED, HOME% and the
counts below are for the last period, per second. `q` or Ctrl-C ends it.

Examples:
  nearq-scx top
  nearq-scx top --seconds 5
  nearq-scx top --times 3 | cat";

/// The options of `nearq-scx top`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The length of a period
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// End after this many tables
    #[arg(long, value_name = "TIMES")]
    times: Option<u64>,
}

/// What ends the command.
enum Event {
    Signal,
    Key(u8),
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    status::is_there()?;
    let state = pins::open(pins::STATE, Access::Read)?;
    let (sender, receiver) = mpsc::channel();
    let signals = sender.clone();
    nearq_command::signals::on_first(move |_, _| {
        // If the receiver is gone, the command ends anyway.
        let _ = signals.send(Event::Signal);
    })?;
    let is_watched = io::stdin().is_terminal() && io::stdout().is_terminal();
    let keys = if is_watched { Keys::of(io::stdin()) } else { None };
    if keys.is_some() {
        threads::start("keys", move || read_keys(io::stdin(), &sender))?;
    }
    let (mut before, mut at) = (read_state(&state)?, Instant::now());
    let mut shown = 0;
    loop {
        if must_end(&receiver, at + Duration::from_secs(options.seconds)) {
            return Ok(());
        }
        // The scheduler's maps can be read while we have them open, even if it is no longer loaded.
        status::is_there()?;
        let now = read_state(&state)?;
        let text = table(&now.since(&before), at.elapsed());
        (before, at) = (now, Instant::now());
        shown += 1;
        if !output::redraw(&(text + "\n"))? || options.times.is_some_and(|times| shown >= times) {
            return Ok(());
        }
    }
}

/// Passes keys on until the input ends or the receiver is gone.
fn read_keys(mut keys: impl Read, sender: &Sender<Event>) {
    let mut key = [0];
    while keys.read_exact(&mut key).is_ok() && sender.send(Event::Key(key[0])).is_ok() {}
}

/// Waits until `then`. Returns whether the command must end before.
fn must_end(receiver: &Receiver<Event>, then: Instant) -> bool {
    loop {
        let wait = then.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(wait) {
            Ok(Event::Signal | Event::Key(b'q' | b'Q')) => return true,
            Ok(Event::Key(_)) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            // There is no keyboard: only time passes.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(wait);
                return false;
            }
        }
    }
}

fn read_state(state: &MapHandle) -> Result<Now, Failure> {
    Ok(Now::of(&*pins::machine(state)?))
}

/// The counts of a period, per second.
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

/// A terminal that delivers keys as they are pressed, and does not echo them.
struct Keys<T: AsFd> {
    terminal: T,
    before: Termios,
}

impl<T: AsFd> Keys<T> {
    /// None if it is not a terminal.
    fn of(terminal: T) -> Option<Self> {
        let before = tcgetattr(&terminal).ok()?;
        let mut now = before.clone();
        now.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        now.special_codes[SpecialCodeIndex::VMIN] = 1;
        now.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&terminal, OptionalActions::Now, &now).ok()?;
        Some(Keys { terminal, before })
    }
}

impl<T: AsFd> Drop for Keys<T> {
    fn drop(&mut self) {
        // An error cannot be reported any more.
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{event, made_up};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::ffi::OsStr;
    use std::fs::File;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn counts_are_shown_per_second() {
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

    /// Whether the command ends on that message, and whether the wait returned before the end of the period; no other message is sent.
    fn ends(events: Vec<Event>, period: Duration) -> (bool, bool) {
        let (sender, receiver) = mpsc::channel();
        for event in events {
            sender.send(event).unwrap();
        }
        let then = Instant::now() + period;
        (must_end(&receiver, then), Instant::now() < then)
    }

    #[test]
    fn q_and_signals_end_top_at_once() {
        let long = Duration::from_mins(10);
        for event in [Event::Key(b'q'), Event::Key(b'Q'), Event::Signal] {
            assert_eq!(ends(vec![Event::Key(b'x'), event], long), (true, true));
        }
    }

    #[test]
    fn other_keys_neither_end_top_nor_refresh_it_early() {
        let keys = || b"x\n\x1b[A ".map(Event::Key).into();
        assert_eq!(ends(keys(), Duration::from_millis(50)), (false, false));
        // It does not end either when no sender is left.
        let (sender, receiver) = mpsc::channel();
        drop(sender);
        let then = Instant::now() + Duration::from_millis(50);
        assert!(!must_end(&receiver, then) && Instant::now() >= then);
    }

    #[test]
    fn keys_are_passed_on_until_the_input_or_the_receiver_ends() {
        let (sender, receiver) = mpsc::channel();
        read_keys(&b"aq"[..], &sender);
        drop(sender);
        let received: Vec<u8> = receiver
            .iter()
            .map(|event| match event {
                Event::Key(key) => key,
                Event::Signal => panic!("there was no signal"),
            })
            .collect();
        assert_eq!(received, b"aq");
        let (sender, receiver) = mpsc::channel();
        drop(receiver);
        // Without a check the command would go on for ever.
        read_keys(io::repeat(b'x'), &sender);
    }

    #[test]
    fn the_terminal_settings_are_restored() {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal can be opened");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let terminal = File::open(OsStr::from_bytes(name.as_bytes())).expect("it is there");
        let modes = || tcgetattr(&terminal).unwrap().local_modes;
        let before = format!("{:?}", tcgetattr(&terminal).unwrap());
        assert!(modes().contains(LocalModes::ICANON | LocalModes::ECHO));
        let keys = Keys::of(&terminal).expect("it is a terminal");
        assert!(!modes().intersects(LocalModes::ICANON | LocalModes::ECHO));
        assert!(modes().contains(LocalModes::ISIG), "Ctrl-C is a signal as ever");
        drop(keys);
        assert_eq!(format!("{:?}", tcgetattr(&terminal).unwrap()), before);
        assert!(Keys::of(File::open("/dev/null").unwrap()).is_none(), "no terminal");
    }
}
