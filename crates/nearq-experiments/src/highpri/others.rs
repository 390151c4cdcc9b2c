//! Those to compare with: a plain thread, rayon and tokio, ordinary and favoured, and a real-time thread that only sleeps. All of
//! them are Linux programs.

use super::contestant::{Contestant, Privilege, row};
use super::issuer::{Plan, Start, Target, as_issuer, measure, on_thread};
use super::privilege::{self, MOST_FAVOURED};
use super::samples::Samples;
use crate::Error;
use crate::harness::Host as _;
use crate::peers::{Peer, Plain, Rayon, Tokio, alone};
use nearq_platform::{Instant, Linux, Platform as _, ThreadSpec};
use nearq_topology::CpuSet;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A pool with one thread on the crowd's CPU.
struct Pool<Q> {
    row: &'static str,
    about: &'static str,
    nice: i32,
    pool: PhantomData<Q>,
}

/// A real-time thread that sleeps.
struct Hiccup;

/// All of them.
pub(crate) fn contestants() -> Vec<Rc<dyn Contestant>> {
    fn pool<Q: Peer>(row: &'static str, about: &'static str, nice: i32) -> Rc<dyn Contestant> {
        Rc::new(Pool { row, about, nice, pool: PhantomData::<Q> })
    }
    vec![
        pool::<Plain>("thread", "a thread that is woken", 0),
        pool::<Plain>("thread nice -20", "the same, favoured", MOST_FAVOURED),
        pool::<Tokio>("tokio", "a worker of tokio", 0),
        pool::<Tokio>("tokio nice -20", "the same, favoured", MOST_FAVOURED),
        pool::<Rayon>("rayon", "a worker of rayon", 0),
        pool::<Rayon>("rayon nice -20", "the same, favoured", MOST_FAVOURED),
        Rc::new(Hiccup),
    ]
}

impl<Q: Peer> Contestant for Pool<Q> {
    fn row(&self) -> &'static str {
        self.row
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn needs(&self) -> Privilege {
        if self.nice < 0 { Privilege::Favoured } else { Privilege::None }
    }

    fn measure(&self, plan: &Plan) -> Result<Samples, Error> {
        alone(|| {
            // None of the pools has a way to say where its threads run and how favoured they are: they inherit it.
            let (nice, cpu) = (self.nice, CpuSet::single(plan.cpu));
            let spec = ThreadSpec { affinity: Some(cpu), ..ThreadSpec::default() };
            let pool = on_thread::<Linux, Q>(spec, move || {
                if nice != 0 {
                    privilege::favour(nice)
                        .map_err(|error| Error::run(format!("nice {nice}: {error}")))?;
                }
                Q::start(1)
            })?;
            let plan = plan.clone();
            as_issuer::<Linux, _>(plan.issuer_cpu, move || {
                let start = Start::new();
                let mut target = Sent { pool, start: Arc::clone(&start) };
                measure(&mut target, &start, &plan)
            })
        })
    }
}

struct Sent<Q> {
    pool: Q,
    start: Arc<Start<Linux>>,
}

impl<Q: Peer> Target<Linux> for Sent<Q> {
    fn send(&mut self, _interval: Duration) -> Instant {
        let start = Arc::clone(&self.start);
        let now = Linux::now();
        self.pool.detach(move || start.mark());
        now
    }
}

impl Contestant for Hiccup {
    fn row(&self) -> &'static str {
        row::HICCUP
    }

    fn about(&self) -> &'static str {
        "a real-time thread that sleeps: what the machine adds"
    }

    fn needs(&self) -> Privilege {
        Privilege::RealTime
    }

    fn measure(&self, plan: &Plan) -> Result<Samples, Error> {
        let plan = plan.clone();
        let cpu = CpuSet::single(plan.cpu);
        let spec = ThreadSpec { affinity: Some(cpu), ..ThreadSpec::default() };
        on_thread::<Linux, _>(spec, move || {
            privilege::real_time()
                .map_err(|error| Error::run(format!("a real-time thread: {error}")))?;
            Linux::wake_exactly();
            let mut clock = Linux::steal(plan.cpu);
            let mut samples = Samples::default();
            let end = Linux::now() + plan.duration;
            let mut stolen = Linux::stolen(&mut clock);
            loop {
                let expected = Linux::now() + plan.interval;
                if expected >= end {
                    return Ok(samples);
                }
                Linux::sleep(plan.interval);
                let now = Linux::now();
                let before = std::mem::replace(&mut stolen, Linux::stolen(&mut clock));
                samples.add(now.saturating_since(expected), stolen != before);
            }
        })
    }
}
