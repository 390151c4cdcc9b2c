//! Setting up a simulated machine and running a program on it.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use nearq_platform::{Instant, ThreadSpec};
use nearq_topology::{Limits, Topology};

use crate::context::{self, Shared};
use crate::costs::Costs;
use crate::events::LAST;
use crate::faults::Faults;
use crate::hardware::Hardware;
use crate::machine::Machine;
use crate::outcome::{Activity, Ending, Outcome, Progressed, Unfinished};
use crate::priorities::Priorities;
use crate::sched::{Disordered, Fair, Scheduler};
use crate::thread::State;
use crate::trace::{Trace, TraceLevel};
use crate::world::{Next, World};

/// Virtual time after which a run is ended, unless set otherwise: ten minutes.
const TIME_LIMIT: Duration = Duration::from_mins(10);
/// The longest run: the largest time that an event can have.
const MOST_TIME: u64 = LAST - 1;
/// Progress is reported after this many events and accesses.
const REPORT_EVERY: u64 = 100_000;

/// How the simulated kernel chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Fairly, as described at [`Fair`](crate::Fair).
    #[default]
    Fair,
    /// At random if there is a choice; threads are also disturbed at random: for finding interleavings.
    Random,
    /// By random priorities that change at random points: finds a bug that needs `depth` orderings of steps with a
    /// probability that has a lower bound.
    ///
    /// After Burckhardt, Kothari, Musuvathi and Nagarakatte, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"
    /// (ASPLOS, 2010). In the paper, one thread runs at a time: the thread with the highest priority. Here many CPUs run at once, so:
    /// - Each thread draws a priority when it is made. Each step of any thread, that is each platform call, counts. At `depth - 1` randomly
    ///   drawn steps, the priority of the thread that does the step falls below all others.
    /// - Which thread gets a CPU: of the threads that wait for it, the one with the highest priority. It takes the CPU at once from a
    ///   thread with a lower priority, even from a thread that holds a lock. After a slice or a yield the fair scheduler chooses once, so
    ///   that no thread starves.
    /// - Which CPU goes first: before each step a thread stands still while another thread with a higher priority is on a CPU and does not
    ///   spin, but no longer than a millisecond of virtual time. Without this bound, a program that waits for a low-priority thread in a
    ///   way that cannot be detected would stop.
    ///
    /// The number of steps of a run is not known beforehand: each change point is drawn below a power of two, which is
    /// drawn from 2^7 to 2^16. So for a run of `k` steps in that range and `n` threads the paper's bound,
    /// 1 / (n * k ^ (depth - 1)), holds up to a factor of 20 for each change point.
    Pct {
        /// How many orderings of steps the schedule must find at once; 1 means that priorities do not change.
        depth: u32,
    },
}

/// The description of a simulated machine, and a seed.
///
/// A run is a function of the machine, the program and the seed, down to every line of the trace.
///
/// ```
/// use nearq_platform::{LockPlatform, ThreadSpec, Threads};
/// use nearq_sim::{Sim, Simulation, compute};
/// use nearq_topology::Topology;
/// use std::time::Duration;
///
/// let machine = Topology::from_synthetic("numa:2 l3:2 core:4 pu:2")?;
/// let outcome = Simulation::new(machine, 42).run(|| {
///     let second = Duration::from_secs(1);
///     let threads = [(); 32].map(|()| Sim::spawn(ThreadSpec::default(), move || compute(second)).unwrap());
///     threads.into_iter().for_each(Sim::join);
///     Sim::now()
/// });
/// // 32 CPUs on 16 cores: two that share a core do 62 % of their full speed each, so a second's work takes 1.613.
/// assert_eq!(outcome.expect().as_nanos() / 1_000_000, 1_613);
/// # Ok::<(), nearq_topology::TopologyError>(())
/// ```
#[derive(Clone)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    topology: Topology,
    seed: u64,
    limits: Limits,
    costs: Costs,
    schedule: Schedule,
    faults: Faults,
    jitter: bool,
    time_limit: Duration,
    trace: TraceLevel,
    settings: Vec<(String, String)>,
    scheduler: Option<MakeScheduler>,
    progress: Option<Tell>,
}

/// Reports how far a run has got.
type Tell = Rc<RefCell<dyn FnMut(Progressed)>>;

/// Makes a scheduler for a machine of this shape.
type MakeScheduler = Rc<dyn Fn(&Topology) -> Box<dyn Scheduler>>;

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("cpus", self.topology.possible())
            .field("seed", &self.seed)
            .field("schedule", &self.schedule)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

impl Simulation {
    /// A machine with its costs, all of whose CPUs the program may use; those that the machine isolates are isolated.
    pub fn on(machine: &Machine, seed: u64) -> Self {
        Self::new(machine.topology().clone(), seed).costs(*machine.costs())
    }

    /// A machine with default costs by distance, all of whose CPUs the program may use.
    pub fn new(topology: Topology, seed: u64) -> Self {
        let mut limits = Limits::unlimited(topology.possible().clone());
        limits.isolated = topology.isolated().clone();
        Simulation {
            topology,
            seed,
            limits,
            costs: Costs::DEFAULT,
            schedule: Schedule::Fair,
            faults: Faults::NONE,
            jitter: true,
            time_limit: TIME_LIMIT,
            trace: TraceLevel::Hash,
            settings: Vec::new(),
            scheduler: None,
            progress: None,
        }
    }

    /// What the program may use of the machine at the start.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Costs other than the machine's.
    pub fn costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        self
    }

    /// How the simulated kernel chooses.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// A scheduler other than [`Fair`]: `make` is given the machine's shape. [`Schedule::Random`] disturbs threads under
    /// it as well, but leaves its choices alone.
    pub fn scheduler<S: Scheduler + 'static>(
        mut self,
        make: impl Fn(&Topology) -> S + 'static,
    ) -> Self {
        self.scheduler = Some(Rc::new(move |topology| Box::new(make(topology))));
        self
    }

    /// What goes wrong; nothing by default.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Whether costs vary at random by up to an eighth, by seed. They do by default.
    pub fn jitter(mut self, jitter: bool) -> Self {
        self.jitter = jitter;
        self
    }

    /// After how much virtual time the run is ended; ten minutes by default, 52 days at most.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// What is recorded; the hash alone by default.
    pub fn trace(mut self, level: TraceLevel) -> Self {
        self.trace = level;
        self
    }

    /// Has `report` called from time to time, about every hundred thousand events and accesses: for a progress bar. The function runs
    /// outside the simulation and cannot influence it. A clone of this simulation calls the same function.
    pub fn progress(mut self, report: impl FnMut(Progressed) + 'static) -> Self {
        self.progress = Some(Rc::new(RefCell::new(report)));
        self
    }

    /// Sets the value that [`LockPlatform::setting`](nearq_platform::LockPlatform::setting) returns for `name`.
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Runs a program: `main` is its first thread, named `main`. When `main` returns the run is over, whatever other
    /// threads are doing, as when a process exits; they are left where they are, neither run nor unwound.
    ///
    /// # Panics
    /// If called from within a simulation, or if the limits leave no CPU of the machine.
    pub fn run<R: 'static>(self, main: impl FnOnce() -> R + 'static) -> Outcome<R> {
        assert!(context::current().is_none(), "a simulation cannot run inside another one");
        let cpus = self.limits.effective();
        let (possible, online) = (self.topology.possible(), self.topology.online());
        assert!(
            cpus.intersects(online) && cpus.is_subset(possible),
            "the limits allow CPUs {cpus}, but the machine has {possible}, of which {online} are online"
        );
        let scheduler: Box<dyn Scheduler> = match (&self.scheduler, self.schedule) {
            (Some(make), _) => make(&self.topology),
            (None, Schedule::Fair) => Box::new(Fair::new()),
            (None, Schedule::Random) => Box::new(Disordered::at_random(self.seed)),
            (None, Schedule::Pct { .. }) => Box::new(Disordered::by_priority()),
        };
        let hardware = Hardware::new(self.topology, &self.costs);
        let (trace, limits) = (Trace::new(self.trace), self.limits);
        let mut world = World::new(hardware, &self.costs, limits, self.seed, trace, scheduler);
        world.settings = self.settings.into_iter().collect();
        world.schedule = self.schedule;
        if let Schedule::Pct { depth } = self.schedule {
            world.priorities = Some(Priorities::new(depth, self.seed));
        }
        world.start_faults(self.faults, self.seed);
        world.jitter = self.jitter;
        world.time_limit = u64::try_from(self.time_limit.as_nanos())
            .map_or(MOST_TIME, |limit| limit.min(MOST_TIME));
        let spec = ThreadSpec { name: "main".to_owned(), ..ThreadSpec::default() };
        let first = world.usable.first().expect("checked above");
        let limits = world.limits.clone();
        world.set_quota(&limits, 0);
        let thread = world.threads.add(&spec, cpus, 0, first, self.costs.slice);
        world.main = Some(thread.slot);
        world.begin_process(&spec.name, thread.slot);

        let shared = Shared::new(world);
        let result = Rc::new(RefCell::new(None));
        let place = Rc::clone(&result);
        shared
            .add_fiber(thread.slot, None, move || {
                let result = main();
                *place.borrow_mut() = Some(result);
            })
            .unwrap_or_else(|refused| panic!("{refused}"));
        shared.world.borrow_mut().begin(thread.slot, 0);
        let progress = self.progress;
        let mut reported = 0;
        let ending = loop {
            let next = shared.world.borrow_mut().next();
            if let Some(report) = &progress {
                let progressed = shared.world.borrow().progressed();
                let done = progressed.events + progressed.accesses;
                if done >= reported + REPORT_EVERY {
                    reported = done;
                    (*report.borrow_mut())(progressed);
                }
            }
            match next {
                Next::Run { slot } => shared.resume(slot),
                Next::End(ending) => break ending,
            }
        };
        let result = result.borrow_mut().take();
        finish(shared.abandon(), ending, result)
    }
}

/// Makes the outcome from the final state of the machine.
fn finish<R>(world: World, ending: Ending, result: Option<R>) -> Outcome<R> {
    let end = match ending {
        Ending::Returned => world.now(),
        Ending::Deadlock => world.cpus.iter().map(|cpu| cpu.clock).max().unwrap_or(0),
        Ending::TimeLimit => world.time_limit,
    };
    let mut unfinished: Vec<Unfinished> = world
        .threads
        .slots()
        .into_iter()
        .map(|slot| {
            let thread = world.threads.at(slot);
            let asleep =
                !matches!(thread.state, State::Running | State::Ready | State::StandingStill);
            Unfinished {
                thread: thread.id,
                name: thread.name.clone(),
                cpu: thread.cpu,
                activity: match thread.state {
                    State::Running | State::Ready | State::StandingStill => Activity::Runnable,
                    State::Sleeping => Activity::Sleeping,
                    State::Joining { thread: other } => Activity::Joining {
                        thread: other.id,
                        name: world
                            .threads
                            .find(other)
                            .map_or_else(String::new, |other| other.name.clone()),
                    },
                    State::Waiting { address, expected } => Activity::Waiting {
                        line: world.memory.line(address).unwrap_or(0),
                        offset: address % 64,
                        expected,
                    },
                },
                since: asleep.then(|| Instant::from_nanos(thread.asleep_since)),
                deadline: thread.deadline.map(Instant::from_nanos),
            }
        })
        .collect();
    unfinished.sort_by_key(|thread| thread.thread);
    let (trace_hash, trace) = world.trace.finish();
    Outcome {
        result,
        ending,
        end: Instant::from_nanos(end),
        trace_hash,
        trace,
        panics: world.panics,
        unfinished,
        warnings: world.warnings,
        accesses: world.accesses,
        switches: world.switches,
        events: world.event_count,
        faults: world.injection.counts,
    }
}
