//! `nearq bench rwlock`: one reader-writer lock that many threads want, at several mixes of reads and writes. How often does each class get
//! it, and how long does it wait?
//!
//! Threads that are pinned to CPUs take the lock, compute under it, give it back and compute without it, for a fixed time. All locks take
//! turns within each run, forwards and backwards. On a simulated machine our locks run in virtual time, beside two designs of others that are
//! written for it (`peers`); the locks of other libraries are Linux programs.

mod contestant;
mod goals;
mod load;
mod peers;
pub(crate) mod render;

pub use contestant::{
    AUTO, BRAVO, MUTEX, PARKING_LOT, PLAIN, PTHREAD_READERS, PTHREAD_WRITERS, RWSEM, SHARDED, STD,
};
pub use goals::Goal;

use crate::blocking::{nanoseconds_per_round, rounds_for};
use crate::harness::options::{all_within, number, too_small, within};
use crate::harness::{self, Common, Experiment, Run, simulate};
use crate::highpri;
use crate::lock::load::CpuPlacement;
use crate::{Error, Machine};
use clap::Args;
use contestant::{Contestant, here, simulated};
use load::{Plan, Sample};
use nearq_lock::Settings;
use nearq_platform::Linux;
use nearq_sim::Sim;
use nearq_topology::CpuSet;
use serde_json::{Value, json};
use std::time::Duration;

/// The options of `rwlock`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct RwlockOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many threads want the lock, 1 to 4096: numbers, separated by commas; if not given: 1,2,4,8,16, or up to the machine's CPUs if it is simulated
    #[arg(long, value_name = "N,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    pub threads: Option<Vec<usize>>,

    /// How many of a hundred uses are writes, 0 to 100: numbers, separated by commas; 0,1,10,50,100 if not given, or 1,50 with --quick
    #[arg(long, value_name = "PERCENT,...", value_parser = number, value_delimiter = ',', allow_negative_numbers = true)]
    pub writes: Option<Vec<usize>>,

    /// Where threads are pinned: `compact` fills one cache after the other, `spread` alternates between caches; spread if not given
    #[arg(long, value_name = "PLACE")]
    pub place: Option<String>,

    /// How long each computes with the lock, in nanoseconds, 0 to 1000000; 50 if not given
    #[arg(long = "inside", value_name = "NS", value_parser = number, allow_negative_numbers = true)]
    pub inside_ns: Option<usize>,

    /// How long each computes between two uses, in nanoseconds, 0 to 1000000; 50 if not given
    #[arg(long = "outside", value_name = "NS", value_parser = number, allow_negative_numbers = true)]
    pub outside_ns: Option<usize>,
}

/// The mixes: writes of a hundred uses.
const WRITES: [&[usize]; 2] = [&[0, 1, 10, 50, 100], &[1, 50]];
/// The numbers of threads on the real machine, whatever it is: more threads than CPUs are a case too.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
/// Most threads.
const MOST_THREADS: usize = 4096;
/// Nanoseconds with the lock and between two uses: the default and the maximum.
const WORK_NS: [usize; 2] = [50, 1_000_000];
/// Runs, and for a quick run; each on the real machine and on a simulated one, whose runs vary little.
const RUNS: [usize; 2] = [9, 3];
const SIMULATED_RUNS: [usize; 2] = [3, 2];
/// How long a run lasts.
const DURATION: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(100)];
const SIMULATED_DURATION: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(10)];
/// Virtual time, beyond a run's duration, after which the run counts as failed.
const SIMULATED_LIMIT: Duration = Duration::from_secs(10);

/// A mix and a number of threads, as it stands in the JSON.
fn scenario(writes: usize, threads: usize) -> String {
    format!("{writes}% {threads}")
}

/// What must be done, and how often.
#[derive(Clone, Debug)]
pub struct Job {
    threads: Vec<usize>,
    writes: Vec<usize>,
    place: CpuPlacement,
    cpus: Vec<usize>,
    inside_ns: usize,
    outside_ns: usize,
    /// The same in rounds of computing.
    inside: u64,
    outside: u64,
    duration: Duration,
    runs: usize,
}

impl Job {
    fn plan(&self, writes: usize, threads: usize, seed: u64) -> Plan {
        Plan {
            threads,
            writes,
            cpus: self.cpus.clone(),
            inside: self.inside,
            outside: self.outside,
            duration: self.duration,
            seed,
        }
    }

    fn scenarios(&self) -> impl Iterator<Item = (usize, usize)> {
        let of = |&writes: &usize| self.threads.iter().map(move |&threads| (writes, threads));
        self.writes.iter().flat_map(of)
    }
}

/// The numbers of threads of a simulated machine: powers of two, and as many as it has CPUs.
fn threads_of(cpus: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1), |count| Some(count * 2));
    powers.take_while(|count| *count < cpus).chain([cpus]).collect()
}

type Facts<'f> = harness::Facts<'f, RwlockOptions>;

impl Experiment for RwlockOptions {
    const NAME: &'static str = "rwlock";
    type Plan = Job;
    /// The rows.
    type Found = Vec<&'static str>;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Job, Error> {
        let quick = usize::from(self.common.quick);
        let is_simulated = machine.model().is_some();
        let place = CpuPlacement::named(Some(self.place.as_deref().unwrap_or("spread")))?;
        let cpus = place.order(machine);
        let threads = self.threads.clone().unwrap_or_else(|| {
            if is_simulated { threads_of(cpus.len()) } else { THREADS.to_vec() }
        });
        all_within("--threads", &threads, MOST_THREADS)?;
        let writes = self.writes.clone().unwrap_or_else(|| WRITES[quick].to_vec());
        // None is a mix too.
        all_within("--writes", &writes.iter().map(|percent| percent + 1).collect::<Vec<_>>(), 101)
            .map_err(|_| {
                Error::input(format!(
                    "--writes {}: give different numbers from 0 to 100, with commas between them",
                    writes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
                ))
            })?;
        let inside_ns = self.inside_ns.unwrap_or(WORK_NS[0]);
        let outside_ns = self.outside_ns.unwrap_or(WORK_NS[0]);
        within("--inside", inside_ns, 0, WORK_NS[1])?;
        within("--outside", outside_ns, 0, WORK_NS[1])?;
        let (runs, duration) =
            if is_simulated { (SIMULATED_RUNS, SIMULATED_DURATION) } else { (RUNS, DURATION) };
        Ok(Job {
            threads,
            writes,
            place,
            cpus,
            inside_ns,
            outside_ns,
            // A simulated round is a nanosecond; on Linux it is measured.
            inside: inside_ns as u64,
            outside: outside_ns as u64,
            duration: self.common.duration.unwrap_or(duration[quick]),
            runs: self.common.runs.unwrap_or(runs[quick]),
        })
    }

    fn measure(&self, run: &mut Run<'_>, job: &mut Job) -> Result<Self::Found, Error> {
        let machine = run.machine;
        if machine.model().is_some() {
            return measure(run, job, &simulated(), |contestant, plan| {
                let (contestant, plan) = (*contestant, plan.clone());
                let limit = plan.duration + SIMULATED_LIMIT;
                let seed = plan.seed;
                let run = move || contestant.measure::<Sim>(&plan);
                simulate(machine, seed, limit, run)?.result
            });
        }
        highpri::check_capacity("--threads", job.threads.iter().copied().max().unwrap_or(0))?;
        if job.inside_ns + job.outside_ns > 0 {
            // The least: other programs on the machine make a round longer, never shorter.
            let round = nanoseconds_per_round(&CpuSet::single(job.cpus[0]))?.min;
            let rounds = |nanos: usize| match nanos {
                0 => 0,
                nanos => rounds_for(Duration::from_nanos(nanos as u64), round),
            };
            (job.inside, job.outside) = (rounds(job.inside_ns), rounds(job.outside_ns));
        }
        let before = Settings::of_process();
        let found = measure(run, job, &here(), Contestant::measure::<Linux>);
        before.set_for_process();
        found
    }

    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        let least = Self { common: self.common.of_a_quick_run(), ..self.clone() }.plan(machine)?;
        let duration = [job.duration, least.duration].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [job.runs, least.runs], &[("--duration", duration)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Goal> {
        if facts.too_small.is_some() {
            return Vec::new();
        }
        let job = &facts.plan;
        goals::judge(&facts.rows, &job.writes, &job.threads, facts.model().is_some())
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let job = &facts.plan;
        json!({
            "runs": job.runs,
            "duration_s": job.duration.as_secs_f64(),
            "threads": job.threads,
            "writes_percent": job.writes,
            "place": job.place.name(),
            "cpus": job.cpus,
            "inside_ns": job.inside_ns,
            "outside_ns": job.outside_ns,
            "goals": facts.verdict,
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// Measures every lock at every mix in every run.
fn measure(
    run: &mut Run<'_>,
    job: &Job,
    contestants: &[Contestant],
    measure: impl Fn(&Contestant, &Plan) -> Result<Sample, Error>,
) -> Result<Vec<&'static str>, Error> {
    run.begin(job.runs * job.scenarios().count() * contestants.len());
    for round in 0..job.runs {
        for (writes, threads) in job.scenarios() {
            let plan = job.plan(writes, threads, round as u64);
            let what = |of: &Contestant| {
                format!("run {}, {writes} % writes, {threads} threads: {}", round + 1, of.row)
            };
            let samples = run.round(round, contestants, what, |contestant| {
                Ok((contestant.row, measure(contestant, &plan)?))
            })?;
            goals::collect(&mut run.figures, writes, threads, &samples);
        }
    }
    Ok(contestants.iter().map(|contestant| contestant.row).collect())
}

#[cfg(test)]
mod tests;
