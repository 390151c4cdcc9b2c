//! The thread that queries the process. It is separate so that keys work even if the process answers slowly or not at all.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{GetDump, GetSettings, GetStatistics, Set, Settings, Statistics};
use nearq_processes::proc;

use super::state::{Answer, Question};
use super::terminal::{Guard, UiEvent};

/// The second sample comes early, so that there is something to show.
const FIRST_INTERVAL: Duration = Duration::from_millis(300);

/// Why there will be no more answers, in words.
pub(super) fn why_gone(pid: u32, error: &ClientError) -> String {
    if ended(pid) {
        format!("process {pid} has ended")
    } else {
        format!("process {pid} no longer answers: {error}")
    }
}

/// Whether a process has ended: it does not exist, or its exit status has not been fetched yet.
fn ended(pid: u32) -> bool {
    // Without /proc this is unknown.
    proc::stat(pid).map_or_else(|| Path::new("/proc/self").exists(), proc::Stat::has_ended)
}

/// Takes one sample.
pub(super) fn sample(client: &mut Client, timing: bool) -> Result<Statistics, ClientError> {
    client.call(&GetStatistics { timing }).map(|reply| reply.statistics)
}

/// Queries one process, in a thread of its own.
pub(super) struct Source {
    /// The process.
    pub(super) pid: u32,
    /// The connection to it.
    pub(super) client: Client,
    /// The time between samples.
    pub(super) interval: Duration,
    /// Whether items must be timed.
    pub(super) timing: bool,
    /// Where answers go.
    pub(super) answers: Sender<UiEvent>,
}

impl Source {
    /// Queries the process at the end of each interval and whenever a question arrives, until the receiver is gone or the process no longer
    /// answers.
    pub(super) fn run(mut self, questions: &Receiver<Question>) {
        let _guard = Guard(self.answers.clone());
        let mut pools = false;
        let mut next = Instant::now();
        // One sample alone gives no rates.
        let mut until_next = self.interval.min(FIRST_INTERVAL);
        loop {
            let question =
                match questions.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(question) => question,
                    Err(RecvTimeoutError::Timeout) => Question::Sample,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
            let result = match question {
                Question::Sample => {
                    next = Instant::now() + until_next;
                    until_next = self.interval;
                    self.sample(pools)
                }
                Question::Every(interval) => {
                    self.interval = interval;
                    until_next = interval;
                    next = Instant::now() + interval;
                    Ok(())
                }
                Question::Pools(wanted) => {
                    pools = wanted;
                    if wanted { self.dump() } else { Ok(()) }
                }
                Question::Settings(queue) => self.settings(queue),
                Question::Set { queue, key, value } => self.set(queue, &key, &value),
            };
            let sent = match result {
                Ok(()) => Ok(()),
                Err(ClientError::Refused(refusal)) => {
                    self.send(Answer::Refused(refusal.to_string()))
                }
                Err(error) => {
                    // The last message: no other thread reports this.
                    let _ = self.send(Answer::Gone(why_gone(self.pid, &error)));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn sample(&mut self, pools: bool) -> Result<(), ClientError> {
        let statistics = sample(&mut self.client, self.timing)?;
        self.send(Answer::Sample(Box::new(statistics)))?;
        if pools { self.dump() } else { Ok(()) }
    }

    fn dump(&mut self) -> Result<(), ClientError> {
        let reply = self.client.call(&GetDump::default())?;
        self.send(Answer::Dump(Box::new(reply.dump)))
    }

    fn settings(&mut self, queue: Option<u64>) -> Result<(), ClientError> {
        let settings = self.client.call(&GetSettings { queue: by_number(queue) })?.settings;
        self.send(Answer::Settings(settings, None))
    }

    /// Asks for the settings separately afterwards: the answer to a change need not contain all of them.
    fn set(&mut self, queue: Option<u64>, key: &str, value: &str) -> Result<(), ClientError> {
        let changes = [(key.to_owned(), value.to_owned())].into();
        self.client.call(&Set { queue: by_number(queue), changes, until_closed: false })?;
        let settings: Settings =
            self.client.call(&GetSettings { queue: by_number(queue) })?.settings;
        self.send(Answer::Settings(settings, Some(key.to_owned())))
    }

    fn send(&self, answer: Answer) -> Result<(), ClientError> {
        let gone = |_| ClientError::Io(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        self.answers.send(UiEvent::Answer(answer)).map_err(gone)
    }
}

/// A queue by its number: several may have the same name.
fn by_number(queue: Option<u64>) -> Option<String> {
    queue.map(|id| format!("#{id}"))
}
