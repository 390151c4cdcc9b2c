//! A thread that does something for others after a while: the "somebody else" who wakes an item that is blocked.

use crate::Error;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

type Action = Box<dyn FnOnce() + Send>;

/// The thread. Everybody asks it for the same delay, so the first to ask is the first to be served.
#[derive(Debug)]
pub(super) struct Alarm {
    delay: Duration,
    /// Taken when it is dropped: the thread ends when nobody can ask any more.
    sender: Option<Sender<(Instant, Action)>>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    /// Starts the thread.
    pub(super) fn start(delay: Duration) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::channel::<(Instant, Action)>();
        let body = move || {
            for (at, action) in receiver {
                thread::sleep(at.saturating_duration_since(Instant::now()));
                action();
            }
        };
        let thread = thread::Builder::new()
            .name("alarm".into())
            .spawn(body)
            .map_err(|error| Error::run(format!("no thread to wake items up: {error}")))?;
        Ok(Self { delay, sender: Some(sender), thread: Some(thread) })
    }

    /// Has `action` done after the delay.
    pub(super) fn ask(&self, action: impl FnOnce() + Send + 'static) {
        let sender = self.sender.as_ref().expect("taken in drop alone");
        let request = (Instant::now() + self.delay, Box::new(action) as Action);
        assert!(sender.send(request).is_ok(), "the thread ends after the sender");
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_come_in_order_never_early_and_all_before_the_end() {
        let delay = Duration::from_millis(5);
        let alarm = Alarm::start(delay).unwrap();
        let (sender, receiver) = mpsc::channel();
        let asked = Instant::now();
        for number in 0..3 {
            let sender = sender.clone();
            alarm.ask(move || sender.send((number, asked.elapsed())).unwrap());
        }
        drop((alarm, sender));
        let came: Vec<_> = receiver.into_iter().collect();
        assert_eq!(came.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(came.iter().all(|(_, after)| *after >= delay), "{came:?}");
    }
}
