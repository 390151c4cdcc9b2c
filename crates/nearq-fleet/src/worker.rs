//! The server's end of the queue: the thread that is connected.
//!
//! One task does everything: it receives jobs, hands them to the engine, says that they are alive, and begins a settlement for each that
//! has ended. Settlements run concurrently. Nothing else waits for the server longer than seconds, so that orders are read however long it
//! is away.
//!
//! A job is in `held` from its delivery until the server has confirmed its end. While it is there, it is not run a second time here: if the
//! server delivers it again, because it was silent for too long, that delivery is passed over, and the end of the first one counts.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_nats::{Client, Event, Message, Subscriber};
use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use nearq_processes::jobs::{Job, Report, Template};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{MissedTickBehavior, timeout};

use crate::api::{self, ApiError};
use crate::delivery::{ALIVE, Delivery};
use crate::presence::{self, RunningJob, Worker as Answer};
use crate::puller::{Pulled, Puller};
use crate::server::{Link, SEND, denied, with_refusals};
use crate::settle::Settlement;
use crate::source::{News, Order, Outlet, Plan, Tally};
use crate::streams::{self, Lanes};
use crate::task::{self, Task};
use crate::verdict::{Rules, Verdict};

/// How many jobs may have ended without the server knowing it, until no more are taken.
const MOST_UNSETTLED: usize = 1000;

/// How often a worker that asks for no jobs any more looks whether its consumers are still there, while ends are not confirmed.
const LOOK: Duration = Duration::from_secs(5);

/// How long the last messages may take to be sent.
const LAST: Duration = Duration::from_secs(2);

/// A job that the server counts as ours.
struct Held {
    delivery: Delivery,
    since: Instant,
    /// Whether the engine has it, or had it.
    is_engines: bool,
    /// Whether it has ended.
    is_settling: bool,
}

struct Worker {
    client: Client,
    plan: Arc<Plan>,
    rules: Rules,
    lanes: Lanes,
    outlet: Outlet,
    tally: Arc<Tally>,
    held: HashMap<u64, Held>,
    /// The number of a job that is held, by [`Delivery::key`].
    numbers: HashMap<(u64, u64), u64>,
    last_number: u64,
    granted: u64,
    handed_over: u64,
    /// What is done for the jobs that have ended; each says whether its job is dead.
    settlements: FuturesUnordered<LocalBoxFuture<'static, (u64, bool)>>,
    is_stopped: bool,
    link: Link,
    /// The jobs that were alive when the engine said so last.
    alive: Vec<u64>,
    /// Why the last request for jobs was refused that was.
    last_doubt: String,
    /// Whether the server refuses what a worker must send.
    is_denied: bool,
}

/// Runs the worker until the engine is gone.
pub(crate) fn run(plan: Plan, tally: Arc<Tally>, orders: UnboundedReceiver<Order>, outlet: Outlet) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(connected(plan, tally, orders, outlet));
            // A search for the server's address may take long.
            runtime.shutdown_background();
        }
        Err(error) => outlet.send(News::Began(Err(format!("no asynchronous runtime: {error}")))),
    }
}

async fn connected(
    plan: Plan,
    tally: Arc<Tally>,
    orders: UnboundedReceiver<Order>,
    outlet: Outlet,
) {
    let (events_to, mut events) = unbounded_channel();
    let begun = async {
        let client = plan.server.connect(move |event| drop(events_to.send(event))).await?;
        let named = |error| format!("{}: {error}", plan.server.shown());
        // Consumers are made last, when nothing else is refused.
        let info = streams::find(&client, &plan.stream).await.map_err(named)?;
        let others = streams::without_workers(&plan.stream, &info.config.subjects);
        if !others.is_empty() {
            let (stream, others) = (&plan.stream, others.join(", "));
            outlet.notice(format!(
                "stream {stream} has priorities, and keeps other subjects as well ({others}): no worker takes the jobs of these"
            ));
        }
        for (option, subject) in [("--dead", &plan.dead), ("--publish", &plan.results)] {
            if let Some(subject) = subject {
                let checked = streams::check_other(&client, option, &plan.stream, subject).await;
                checked.map_err(named)?;
            }
        }
        let lanes = streams::lanes(&client, &plan.stream, &plan.consumer, plan.ack_wait).await;
        let lanes = lanes.map_err(named)?;
        let puller = Puller::new(&client, lanes.clone(), plan.until_empty).await.map_err(named)?;
        let asked = client.subscribe(presence::subject(&plan.stream)).await;
        Ok::<_, String>((client, lanes, puller, asked.map_err(|error| named(error.to_string()))?))
    };
    let (client, lanes, puller, asked) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return outlet.send(News::Began(Err(with_refusals(error, &mut events)))),
    };
    outlet.send(News::Began(Ok(lanes.ack_wait)));
    let rules = Rules { tries: plan.tries, dead_on: plan.dead_on.clone(), backoff: plan.backoff };
    let link = Link::new(&plan.server, "jobs run on");
    let worker = Worker {
        client,
        plan: Arc::new(plan),
        rules,
        lanes,
        outlet,
        tally,
        held: HashMap::new(),
        numbers: HashMap::new(),
        last_number: 0,
        granted: 0,
        handed_over: 0,
        settlements: FuturesUnordered::new(),
        is_stopped: false,
        link,
        alive: Vec::new(),
        last_doubt: String::new(),
        is_denied: false,
    };
    worker.serve(puller, asked, orders, events).await;
}

impl Worker {
    async fn serve(
        mut self,
        mut puller: Puller,
        mut asked: Subscriber,
        mut orders: UnboundedReceiver<Order>,
        mut events: UnboundedReceiver<Event>,
    ) {
        let mut is_pulling = true;
        // Who asks for jobs notices by that when a consumer is gone.
        let mut may_be_gone = true;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let credits = (self.granted - self.handed_over.min(self.granted)) as usize;
            let wanted = if self.settlements.len() < MOST_UNSETTLED { credits } else { 0 };
            tokio::select! {
                order = orders.recv() => match order {
                    None => break,
                    Some(Order::Stop) => {
                        self.is_stopped = true;
                        puller.stop().await;
                    }
                    Some(order) => self.obey(order).await,
                },
                pulled = puller.next(wanted), if is_pulling => match pulled {
                    Pulled::Message(message) => self.came(message),
                    Pulled::Stopped => is_pulling = false,
                    Pulled::Empty => is_pulling = !self.is_over().await,
                    Pulled::Doubt(why) => {
                        is_pulling = !self.is_gone().await;
                        if is_pulling {
                            self.doubt(why);
                        }
                    }
                    Pulled::Gone(why) => {
                        is_pulling = false;
                        self.outlet.send(News::Over(Some(why)));
                    }
                },
                Some((number, is_dead)) = self.settlements.next() => self.settled(number, is_dead),
                _ = look.tick(), if self.is_stopped && may_be_gone && !self.link.is_lost() && !self.settlements.is_empty() => {
                    may_be_gone = !self.is_gone().await;
                }
                Some(event) = events.recv() => {
                    is_pulling &= !self.happened(&event, &mut puller).await;
                }
                Some(question) = asked.next() => self.answer(question).await,
            }
        }
        self.is_stopped = true;
        let last = async {
            // What was asked for and comes now goes back at once; otherwise others would get it after AckWait.
            if is_pulling {
                puller.stop().await;
            }
            while is_pulling {
                match puller.next(0).await {
                    Pulled::Message(message) => self.came(message),
                    _ => is_pulling = false,
                }
            }
            while let Some((number, is_dead)) = self.settlements.next().await {
                self.settled(number, is_dead);
            }
            // If the connection is lost, nothing can be sent.
            let _ = self.client.flush().await;
        };
        let _ = timeout(LAST, last).await;
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Grant(granted) => self.granted = granted,
            Order::Alive(numbers) => {
                self.alive = numbers;
                self.tell_alive().await;
            }
            Order::Ended(report, ends) => {
                let number = report.number;
                let Some(held) = self.held.get(&number) else { return };
                let verdict = self.rules.ended(&report, held.delivery.place.tries);
                self.settle(number, verdict, Some(report), ends);
            }
            Order::GiveBack(number) => self.settle(number, Verdict::Back, None, Default::default()),
            Order::Late(number) => {
                let verdict = Verdict::Dead("its deadline has passed".to_owned());
                self.settle(number, verdict, None, Default::default());
            }
            Order::Stop => {}
        }
    }

    /// Tells the server which jobs are alive, unless the connection is lost: then that is done when it is made again.
    async fn tell_alive(&self) {
        if self.link.is_lost() {
            return;
        }
        let alive = self.alive.iter().filter_map(|number| self.held.get(number));
        let settling = self.held.values().filter(|held| held.is_settling);
        let all = async {
            for held in alive.chain(settling) {
                let _ = self.client.publish(held.delivery.reply.clone(), ALIVE).await;
            }
        };
        let _ = timeout(SEND, all).await;
    }

    /// A message has come: a job for the engine, or one that cannot or need not run.
    fn came(&mut self, message: Message) {
        let Some(delivery) = Delivery::of(message) else { return };
        let place = delivery.place.clone();
        self.outlet.send(News::Left(place.left));
        if let Some(number) = self.numbers.get(&delivery.key()) {
            // It was silent for too long, and is still here. The newer delivery counts its tries.
            if let Some(held) = self.held.get_mut(number) {
                held.delivery = delivery;
            }
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        let verdict = match self.job(number, &delivery) {
            Ok((job, deadline)) if !self.is_stopped => {
                self.handed_over += 1;
                self.outlet.send(News::Job(Box::new(job), deadline));
                None
            }
            Ok(_) => Some(Verdict::Back),
            Err(verdict) => Some(verdict),
        };
        let is_engines = verdict.is_none();
        self.numbers.insert(delivery.key(), number);
        let since = Instant::now();
        self.held.insert(number, Held { delivery, since, is_engines, is_settling: false });
        if let Some(verdict) = verdict {
            self.settle(number, verdict, None, Default::default());
        }
    }

    /// The job of a message, and until when it may start; or what is done with the message if it is none.
    fn job(&self, number: u64, delivery: &Delivery) -> Result<(Job, Option<SystemTime>), Verdict> {
        if let Some(verdict) = self.rules.delivered(delivery.place.tries) {
            return Err(verdict);
        }
        let is_none = |why: String| Verdict::Dead(format!("it is no job: {why}"));
        let (header, value) = task::HEADER;
        let is_object = delivery.header(header) == Some(value);
        let task = Task::parse(&delivery.message.payload, is_object).map_err(is_none)?;
        let template = match (task.command, self.plan.inputs) {
            (Some(words), None) => {
                let template = Template::new(&words, task.inputs.len(), false);
                Some(template.map_err(|error| {
                    is_none(format!("its command: {}", task::short(&error.to_string())))
                })?)
            }
            (None, Some(named)) if task.inputs.len() < named => {
                let has = task::number(&task.inputs);
                let why = format!("it has {has}, and the command of its workers names {{{named}}}");
                return Err(is_none(why));
            }
            (None, Some(_)) => None,
            (Some(_), Some(_)) => {
                let why = "it has a command of its own, and its workers were given one; start them without a command";
                return Err(is_none(why.to_owned()));
            }
            (None, None) => {
                let why = "it has no command, and its workers were given none";
                return Err(is_none(why.to_owned()));
            }
        };
        let variable = |name: &str, value: String| {
            CString::new(format!("{name}={value}")).expect("names and numbers have no zero byte")
        };
        let variables = vec![
            variable("NEARQ_JOB", delivery.id()),
            variable("NEARQ_JOB_TRIES", delivery.place.tries.to_string()),
        ];
        Ok((Job { number, inputs: task.inputs, template, variables }, task.deadline))
    }

    /// Begins to make the server know how a job has ended.
    fn settle(
        &mut self,
        number: u64,
        verdict: Verdict,
        report: Option<Box<Report>>,
        ends: [Vec<u8>; 2],
    ) {
        let Some(held) = self.held.get_mut(&number).filter(|held| !held.is_settling) else {
            return;
        };
        held.is_settling = true;
        let settlement = Settlement {
            client: self.client.clone(),
            delivery: held.delivery.clone(),
            verdict,
            report,
            ends,
            outlet: self.outlet.clone(),
        };
        let plan = Arc::clone(&self.plan);
        self.settlements.push(Box::pin(async move { (number, settlement.run(&plan).await) }));
    }

    fn settled(&mut self, number: u64, is_dead: bool) {
        if is_dead {
            self.tally.one_is_dead();
        }
        if let Some(held) = self.held.remove(&number) {
            self.numbers.remove(&held.delivery.key());
            if held.is_engines {
                self.outlet.send(News::Settled);
            }
        }
    }

    /// Whether a worker is of no use if it cannot publish to a subject.
    fn must_publish_to(&self, subject: &str) -> bool {
        let is = |own: &Option<String>| own.as_deref() == Some(subject);
        ["$JS.API.CONSUMER.MSG.NEXT.", "$JS.ACK."].iter().any(|start| subject.starts_with(start))
            || is(&self.plan.dead)
            || is(&self.plan.results)
    }

    /// Takes note of an event. Returns whether this worker can do nothing any more.
    async fn happened(&mut self, event: &Event, puller: &mut Puller) -> bool {
        if let Some(subject) = denied(event).filter(|subject| self.must_publish_to(subject)) {
            if !std::mem::replace(&mut self.is_denied, true) {
                let server = self.plan.server.shown();
                self.outlet.send(News::Over(Some(format!(
                    "{server}: this user may not publish to {subject}, which a worker must (docs/fleet.md lists all that it needs): give it the permission; what has ended is not acknowledged, and its jobs run again"
                ))));
            }
            return true;
        }
        let was_lost = self.link.is_lost();
        if let Some(said) = self.link.follow(event) {
            self.outlet.notice(said);
        }
        if was_lost != self.link.is_lost() {
            puller.connected(was_lost);
            if was_lost {
                self.tell_alive().await;
            }
        }
        false
    }

    /// All consumers were empty: whether the run is over, because it ends with the last job, and nobody has one.
    async fn is_over(&self) -> bool {
        if !self.plan.until_empty || !self.held.is_empty() {
            return false;
        }
        for consumer in &self.lanes.consumers {
            match api::consumer(&self.client, &self.lanes.stream, consumer).await {
                Ok(info) if info.num_pending == 0 && info.num_ack_pending == 0 => {}
                Ok(_) => return false,
                Err(error) => return self.is_end(consumer, &error),
            }
        }
        self.outlet.send(News::Over(None));
        true
    }

    /// A request was not answered: whether a consumer is gone.
    async fn is_gone(&self) -> bool {
        for consumer in &self.lanes.consumers {
            if let Err(error) = api::consumer(&self.client, &self.lanes.stream, consumer).await {
                return self.is_end(consumer, &error);
            }
        }
        false
    }

    fn is_end(&self, consumer: &str, error: &ApiError) -> bool {
        if !matches!(error, ApiError::Absent) {
            return false;
        }
        self.outlet.send(News::Over(Some(self.lanes.gone(consumer))));
        true
    }

    /// A request for jobs was refused, and will be made again: says why, if the last one was not refused for the same reason.
    fn doubt(&mut self, why: String) {
        if !why.is_empty() && self.last_doubt != why {
            let Lanes { stream, .. } = &self.lanes;
            self.outlet.notice(format!(
                "stream {stream}: the server refuses a request for jobs: {why}; it is asked again"
            ));
            self.last_doubt = why;
        }
    }

    async fn answer(&self, question: Message) {
        let Some(reply) = question.reply else { return };
        let running = self.held.values().map(|held| {
            let (tries, seconds) = (held.delivery.place.tries, held.since.elapsed().as_secs_f64());
            (held.delivery.place.sequence, RunningJob { tries, seconds })
        });
        let answer = Answer {
            host: presence::host(),
            pid: std::process::id(),
            consumer: self.plan.consumer.clone(),
            slots: self.plan.places,
            drains: self.is_stopped,
            running: running.collect(),
        };
        let answer = serde_json::to_vec(&answer).expect("its keys are text");
        // Who asked asks again.
        let _ = timeout(SEND, self.client.publish(reply, answer.into())).await;
    }
}
