//! The engine's end of the queue: a source of jobs for `nearq run`.
//!
//! The engine has one thread, the connection another one. Two channels join them: orders go to the worker, news comes back, and an eventfd
//! says that there is news, which the engine polls beside everything else.
//!
//! **Credits.** Each free place of the engine is a credit of one job. `granted` counts the credits of the whole run and only grows; a job
//! that arrives uses one. So while the connection holds, the sum of what waits here, what is on its way and what is asked for is never more
//! than the free places.
//! After a lost connection, jobs may come for an old request and for a new one: more than were granted. They wait here, and are said to be
//! alive; what is granted next counts from the jobs that have come.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nearq_processes::jobs::{Job, Needs, Report, Source, is_asked_to_end};
use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::server::Server;
use crate::worker;

/// How much of the end of a job's standard output is in its result, and of its standard error in its dead letter.
const ENDS: [usize; 2] = [256 << 10, 2048];

/// How often it is asked, while the connection is made, whether the run is to end.
const LOOK: Duration = Duration::from_millis(100);

/// How long the worker may take to end, which the end of the program waits for. What it could not send then, the server finds out itself.
const LAST: Duration = Duration::from_secs(5);

/// What a worker is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the jobs are.
    pub server: Server,
    /// The stream of the jobs.
    pub stream: String,
    /// The consumer that shares them out among workers; it is made if there is none.
    pub consumer: String,
    /// How long the server waits for a sign of life of a job, if the consumer is made now.
    pub ack_wait: Duration,
    /// A job that fails is given up if it has been delivered so many times, and one without an end after twice as many; `None` for any
    /// number. Needs `dead`.
    pub tries: Option<u64>,
    /// How long until a job that has failed is tried again; twice as long after each further failure.
    pub backoff: Duration,
    /// The subject of dead letters.
    pub dead: Option<String>,
    /// The exit statuses of jobs that are not tried again. Needs `dead`.
    pub dead_on: Vec<u8>,
    /// The subject of results.
    pub results: Option<String>,
    /// Whether the run ends when nobody has a job any more.
    pub until_empty: bool,
    /// How many inputs of a job the command for all jobs names, as `{1}` and `{2}`; `None` if each message has its own command.
    pub inputs: Option<usize>,
    /// How many jobs run at a time; workers say so when they are asked.
    pub places: usize,
}

/// What is to be known of a run afterwards.
#[derive(Debug, Default)]
pub struct Tally {
    /// Relaxed: a count that is read when the run is over.
    dead: AtomicU64,
}

impl Tally {
    /// How many jobs this worker has put aside as dead.
    pub fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn one_is_dead(&self) {
        self.dead.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the engine tells the worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// So many jobs may be given to the engine in all.
    Grant(u64),
    /// These jobs are alive.
    Alive(Vec<u64>),
    /// A job has ended.
    Ended(Box<Report>, [Vec<u8>; 2]),
    /// A job has not run.
    GiveBack(u64),
    /// A job has not run, and must not run any more, because its deadline has passed. The only check of deadlines is where jobs start.
    Late(u64),
    /// No more jobs are wanted.
    Stop,
}

/// What the worker tells the engine.
#[derive(Debug)]
pub(crate) enum News {
    /// The worker is ready, with a consumer that waits so long for signs of life; or why it is not.
    Began(Result<Duration, String>),
    /// A job, and until when it may start.
    Job(Box<Job>, Option<SystemTime>),
    /// How many jobs nobody has got yet.
    Left(u64),
    /// The server knows how this job has ended.
    Settled,
    /// A line for the user.
    Notice(String),
    /// No more jobs come; why, if that is an error.
    Over(Option<String>),
}

/// Where the worker puts news.
#[derive(Clone, Debug)]
pub(crate) struct Outlet {
    sender: Sender<News>,
    event: Arc<OwnedFd>,
}

impl Outlet {
    pub(crate) fn send(&self, news: News) {
        // Without an engine nobody needs news.
        let _ = self.sender.send(news);
        // The count is far from overflowing.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }

    pub(crate) fn notice(&self, text: impl Into<String>) {
        self.send(News::Notice(text.into()));
    }
}

/// A queue of jobs on a server.
#[derive(Debug)]
pub struct Fleet {
    plan: Plan,
    tally: Arc<Tally>,
    link: Option<Link>,
    /// Jobs that have come and have not been started, each with the time until which it may start.
    ready: VecDeque<(Job, Option<SystemTime>)>,
    /// How many jobs were asked for, and how many have come.
    granted: u64,
    received: u64,
    left: u64,
    /// Jobs whose end the server need not know yet, or does not know.
    unsettled: usize,
    is_over: bool,
    /// Whether the engine takes no more jobs: those that still come are given back.
    is_stopped: bool,
    /// Whether the consumer is gone, so that nobody can be told how jobs end.
    is_gone: bool,
    notices: Vec<String>,
}

/// The thread of the worker.
#[derive(Debug)]
struct Link {
    orders: UnboundedSender<Order>,
    news: Receiver<News>,
    event: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Fleet {
    /// A queue that is not connected yet.
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            tally: Arc::default(),
            link: None,
            ready: VecDeque::new(),
            granted: 0,
            received: 0,
            left: 0,
            unsettled: 0,
            is_over: false,
            is_stopped: false,
            is_gone: false,
            notices: Vec::new(),
        }
    }

    /// What is counted; it stays readable after the run.
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    fn order(&self, order: Order) {
        if let Some(link) = &self.link {
            // The worker ends after this object only.
            let _ = link.orders.send(order);
        }
    }
}

impl Source for Fleet {
    fn begin(&mut self) -> Result<Needs, String> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = Arc::new(event.map_err(|error| format!("no eventfd: {error}"))?);
        let (sender, news) = mpsc::channel();
        let (orders, ordered) = unbounded_channel();
        let outlet = Outlet { sender, event: Arc::clone(&event) };
        let (plan, tally) = (self.plan.clone(), self.tally());
        let thread = thread::Builder::new().name("fleet".into());
        let thread = thread.spawn(move || worker::run(plan, tally, ordered, outlet));
        let thread = thread.map_err(|error| format!("no thread can be started: {error}"))?;
        let began = loop {
            match news.recv_timeout(LOOK) {
                Ok(News::Began(began)) => break began,
                Ok(News::Notice(text)) => self.notices.push(text),
                Err(RecvTimeoutError::Timeout) if is_asked_to_end() => {
                    break Err("ended while it was connecting".to_owned());
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    break Err("the thread of the connection has ended".to_owned());
                }
            }
        };
        let ack_wait = began?;
        self.link = Some(Link { orders, news, event, thread });
        Ok(Needs { beat: Some(ack_wait / 3), ends: ENDS, drains: true })
    }

    fn take(&mut self, places: usize) -> Option<Job> {
        let coming = self.granted.saturating_sub(self.received) + self.ready.len() as u64;
        let more = (places as u64).saturating_sub(coming);
        if more > 0 && !self.is_over {
            self.granted = self.granted.max(self.received) + more;
            self.order(Order::Grant(self.granted));
        }
        while let Some((job, deadline)) = self.ready.pop_front() {
            if !deadline.is_some_and(|deadline| has_passed(deadline, SystemTime::now())) {
                return Some(job);
            }
            self.order(Order::Late(job.number));
        }
        None
    }

    fn left(&self) -> (u64, bool) {
        (self.left + self.ready.len() as u64, self.is_over)
    }

    fn is_over(&self) -> bool {
        self.is_over && self.ready.is_empty()
    }

    fn wanted(&self, _jobs: bool) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.event.as_fd())
    }

    fn fill(&mut self) -> Result<(), String> {
        let Some(link) = &self.link else { return Ok(()) };
        let mut count = [0; 8];
        // If it is not readable, there is nothing to reset.
        let _ = rustix::io::read(&*link.event, &mut count);
        let mut failure = None;
        loop {
            match link.news.try_recv() {
                Ok(News::Job(job, deadline)) => {
                    self.received += 1;
                    self.unsettled += 1;
                    if self.is_stopped {
                        self.order(Order::GiveBack(job.number));
                    } else {
                        self.ready.push_back((*job, deadline));
                    }
                }
                Ok(News::Left(left)) => self.left = left,
                Ok(News::Settled) => self.unsettled -= 1,
                Ok(News::Notice(text)) => self.notices.push(text),
                Ok(News::Over(why)) => {
                    self.is_over = true;
                    self.left = 0;
                    self.is_gone |= why.is_some();
                    failure = failure.or(why);
                }
                Ok(News::Began(_)) => {}
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => {
                    self.is_over = true;
                    failure.get_or_insert("the thread of the connection has ended".to_owned());
                    self.link = None;
                    break;
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn ended(&mut self, report: &Report, ends: [Vec<u8>; 2]) {
        self.order(Order::Ended(Box::new(report.clone()), ends));
    }

    fn give_back(&mut self, number: u64) {
        self.order(Order::GiveBack(number));
    }

    fn alive(&mut self, numbers: &[u64]) {
        let ready = self.ready.iter().map(|(job, _)| job.number);
        self.order(Order::Alive(numbers.iter().copied().chain(ready).collect()));
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.order(Order::Stop);
        for (job, _) in std::mem::take(&mut self.ready) {
            self.give_back(job.number);
        }
    }

    fn unsettled(&self) -> usize {
        if self.link.is_none() || self.is_gone { 0 } else { self.unsettled }
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(Link { orders, news, thread, .. }) = self.link.take() {
            drop(orders);
            // The worker sends what it has begun to send, and ends within seconds.
            if has_ended(&news, LAST) {
                let _ = thread.join();
            }
        }
    }
}

/// Waits until the worker is gone, at most that long; returns whether it is.
fn has_ended(news: &Receiver<News>, most: Duration) -> bool {
    let begin = Instant::now();
    loop {
        match news.recv_timeout(most.saturating_sub(begin.elapsed())) {
            Ok(_) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return true,
            Err(mpsc::RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Whether a time has passed, by this machine's clock.
pub(crate) fn has_passed(deadline: SystemTime, now: SystemTime) -> bool {
    deadline < now && now > UNIX_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::UnboundedReceiver;

    fn fleet() -> Fleet {
        Fleet::new(Plan {
            server: Server::default(),
            stream: "J".into(),
            consumer: "w".into(),
            ack_wait: Duration::from_secs(30),
            tries: None,
            backoff: Duration::from_secs(1),
            dead: None,
            dead_on: Vec::new(),
            results: None,
            until_empty: false,
            inputs: Some(0),
            places: 2,
        })
    }

    #[test]
    fn a_free_place_is_granted_once() {
        let mut fleet = fleet();
        assert!(fleet.take(2).is_none() && fleet.take(2).is_none());
        assert_eq!(fleet.granted, 2);
        // One has come and was started: there is one place, and the other job is still on its way.
        fleet.received = 1;
        assert!(fleet.take(1).is_none());
        assert_eq!(fleet.granted, 2);
        // It waits here.
        fleet.received = 2;
        fleet.ready.push_back((Job::of(2, Vec::new()), None));
        assert_eq!(fleet.take(1).map(|job| job.number), Some(2));
        assert_eq!(fleet.granted, 2);
    }

    /// A fleet whose worker is the test.
    fn linked() -> (Fleet, Outlet, UnboundedReceiver<Order>) {
        let mut fleet = fleet();
        let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let (sender, news) = mpsc::channel();
        let (orders, ordered) = unbounded_channel();
        let outlet = Outlet { sender, event: Arc::clone(&event) };
        fleet.link = Some(Link { orders, news, event, thread: thread::spawn(|| ()) });
        (fleet, outlet, ordered)
    }

    #[test]
    fn a_job_that_waits_until_its_deadline_has_passed_does_not_start() {
        let (mut fleet, outlet, mut ordered) = linked();
        let soon = SystemTime::now() + Duration::from_millis(20);
        for (number, deadline) in [(1, Some(soon)), (2, None), (3, Some(soon))] {
            outlet.send(News::Job(Box::new(Job::of(number, Vec::new())), deadline));
        }
        fleet.fill().unwrap();
        assert_eq!(fleet.take(1).map(|job| job.number), Some(1));
        thread::sleep(Duration::from_millis(40));
        assert_eq!(fleet.take(1).map(|job| job.number), Some(2));
        assert!(fleet.take(1).is_none());
        let late = std::iter::from_fn(|| ordered.try_recv().ok());
        let late = late.filter_map(|order| match order {
            Order::Late(number) => Some(number),
            _ => None,
        });
        assert_eq!(late.collect::<Vec<_>>(), [3]);
        assert_eq!(fleet.unsettled(), 3, "the server does not know yet");
    }

    #[test]
    fn a_job_that_comes_after_the_stop_is_given_back() {
        let (mut fleet, outlet, mut ordered) = linked();
        outlet.send(News::Job(Box::new(Job::of(1, Vec::new())), None));
        fleet.fill().unwrap();
        fleet.stop();
        outlet.send(News::Job(Box::new(Job::of(2, Vec::new())), None));
        fleet.fill().unwrap();
        assert_eq!((fleet.unsettled(), fleet.left().0), (2, 0));
        let mut given_back = Vec::new();
        while let Ok(order) = ordered.try_recv() {
            if let Order::GiveBack(number) = order {
                given_back.push(number);
            }
        }
        assert_eq!(given_back, [1, 2]);
    }

    #[test]
    fn the_end_does_not_wait_for_ever_for_a_worker_that_hangs() {
        let (sender, news) = mpsc::channel();
        sender.send(News::Left(1)).unwrap();
        assert!(!has_ended(&news, Duration::from_millis(10)));
        drop(sender);
        assert!(has_ended(&news, Duration::from_mins(10)));
    }

    #[test]
    fn more_jobs_than_were_granted_do_not_stop_the_run() {
        let mut fleet = fleet();
        fleet.take(2);
        // After a lost connection each of two requests was answered, and all four jobs have run.
        fleet.received = 4;
        fleet.take(2);
        assert_eq!(
            fleet.granted, 6,
            "the worker compares it with the number of jobs that it has handed over"
        );
    }

    #[test]
    fn only_a_time_before_now_has_passed() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert!(has_passed(now - Duration::from_secs(1), now));
        assert!(!has_passed(now, now) && !has_passed(now + Duration::from_secs(1), now));
    }
}
