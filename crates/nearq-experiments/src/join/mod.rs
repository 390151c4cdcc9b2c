//! `nearq bench join`: what does a fork cost, and how long do recursive programs take, beside other pools that fork and join?
//!
//! Programs without a cut-off fork for next to nothing, so they show what a join costs. Others have a grain, and show how well a pool
//! shares them. Each is written once and runs in every pool; every result is verified. A small tree shows how soon an idle pool helps.
//! chili makes the calling thread one of its threads, and publishes jobs at a heartbeat; nearq and rayon call their own threads.
//!
//! On a simulated machine there is one scenario, `cache-sized`: a program that gains if its parts stay within a cache. The other pools,
//! which are Linux programs, do not take part there; a plain pool that steals at random does.

mod goals;
mod load;
mod numeric;
mod pools;
mod program;
pub(crate) mod render;
mod simulated;
mod sorts;
mod stealing;
mod trees;

pub use goals::Goal;

use crate::harness::options::{named, number, too_small, within};
use crate::harness::{self, Common, Experiment, Run};
use crate::{Error, Machine};
use clap::Args;
use load::CONTESTANTS;
use nearq_report::metric;
use nearq_topology::{AffinityScope, CpuSet};
use pools::{Pool as _, Sequential};
use program::{Kind, SCENARIOS, Scenario, Size};
use serde_json::{Value, json};
use simulated::Declared;
pub(crate) use simulated::{CACHE, times};
use std::time::Duration;

/// The options of `join`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct JoinOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many threads and CPUs every pool has, from 1 to the CPUs of the machine; all of them if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub threads: Option<usize>,

    /// Run only one program: `fib`, `tree-sum`, `n-queens`, `uts`, `merge-sort`, `quick-sort`, `matmul`, `nbody`, `sieve`, `map-reduce` or `small-tree`
    #[arg(long, value_name = "NAME")]
    pub scenario: Option<String>,
}

/// Rounds: by default, and for a quick run.
const ROUNDS: [usize; 2] = [7, 3];
/// The same on a simulated machine.
const SEEDS: [usize; 2] = [5, 2];
/// How long a pool runs a program again and again in a round: by default, and for a quick run.
const TIME: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(50)];

/// What will be done.
#[derive(Clone, Debug)]
pub struct Plan {
    rounds: usize,
    time: Duration,
    cpus: CpuSet,
    size: Size,
    /// The programs; none on a simulated machine.
    scenarios: Vec<&'static Scenario>,
}

/// What is found besides the figures.
#[derive(Debug, Default)]
pub struct Found {
    /// The joins of each program.
    joins: Vec<u64>,
    /// What is declared, on a simulated machine.
    declared: Option<Declared>,
}

type Facts<'f> = harness::Facts<'f, JoinOptions>;

impl Experiment for JoinOptions {
    const NAME: &'static str = "join";
    type Plan = Plan;
    type Found = Found;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Plan, Error> {
        let quick = usize::from(self.common.quick);
        let all = machine.pods(AffinityScope::System).remove(0);
        let size = if self.common.quick { Size::Quick } else { Size::Usual };
        if machine.model().is_some() {
            let given = [
                ("--threads", self.threads.is_some()),
                ("--scenario", self.scenario.is_some()),
                ("--duration", self.common.duration.is_some()),
            ];
            if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
                return Err(Error::input(format!(
                    "{option}: a simulated machine has one scenario, which uses all of its CPUs until it is done; leave the option out"
                )));
            }
            let (rounds, time) = (self.common.runs.unwrap_or(SEEDS[quick]), Duration::ZERO);
            return Ok(Plan { rounds, time, cpus: all, size, scenarios: Vec::new() });
        }
        let threads = self.threads.unwrap_or(machine.parallelism());
        within("--threads", threads, 1, all.len())?;
        let known: Vec<_> = SCENARIOS.iter().map(|scenario| (scenario.name, scenario)).collect();
        let scenarios = match &self.scenario {
            None => SCENARIOS.iter().collect(),
            Some(name) => vec![named("--scenario", name, &known)?],
        };
        Ok(Plan {
            rounds: self.common.runs.unwrap_or(ROUNDS[quick]),
            time: self.common.duration.unwrap_or(TIME[quick]),
            cpus: all.iter().take(threads).collect(),
            size,
            scenarios,
        })
    }

    fn measure(&self, run: &mut Run<'_>, plan: &mut Plan) -> Result<Found, Error> {
        match run.machine.model() {
            None => here(run, plan),
            Some(model) => simulated(run, plan, Declared::on(model, plan.size)),
        }
    }

    fn too_small(&self, machine: &Machine, plan: &Plan) -> Result<Option<String>, Error> {
        if machine.model().is_some() {
            return Ok(too_small(machine, [plan.rounds, SEEDS[1]], &[]));
        }
        let time = [plan.time, TIME[1]].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [plan.rounds, ROUNDS[1]], &[("--duration", time)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Goal> {
        if facts.too_small.is_some() { Vec::new() } else { goals::judge(&facts.rows) }
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let (plan, found) = (&facts.plan, &facts.found);
        let mut parameters = json!({
            "rounds": plan.rounds,
            "threads": plan.cpus.len(),
            "targets": facts.verdict,
        });
        if let Some(declared) = found.declared {
            parameters["declared"] = json!(declared);
            return parameters;
        }
        let scenario = |(scenario, joins): (&&Scenario, &u64)| {
            let size = scenario.size(plan.size);
            let about = json!({ "kind": scenario.kind, "size": size, "unit": scenario.unit, "joins": joins });
            (scenario.name.to_owned(), about)
        };
        let scenarios = plan.scenarios.iter().zip(&found.joins).map(scenario);
        parameters["duration_s"] = plan.time.as_secs_f64().into();
        parameters["cpus"] = plan.cpus.to_list().into();
        parameters["scenarios"] = Value::Object(scenarios.collect());
        parameters
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// On the real machine. Rounds are the outer loop, so that each program meets the machine at different times.
fn here(run: &mut Run<'_>, plan: &Plan) -> Result<Found, Error> {
    run.says("computing what each program must compute".into());
    let prepare = |scenario: &&'static Scenario| scenario.prepare(plan.size);
    let mut programs = plan.scenarios.iter().map(prepare).collect::<Result<Vec<_>, Error>>()?;
    run.begin(plan.rounds * programs.len() * CONTESTANTS.len());
    for round in 0..plan.rounds {
        for prepared in &mut programs {
            let Scenario { name, kind, .. } = *prepared.scenario;
            let what = |one: &load::Contestant| format!("round {}, {name}: {}", round + 1, one.row);
            let samples = run.round(round, &CONTESTANTS, what, |contestant| {
                Ok((contestant.row, (contestant.measure)(prepared, &plan.cpus, plan.time)?))
            })?;
            let sequential = samples.iter().find(|(row, _)| *row == Sequential::NAME);
            let sequential = sequential.expect("it takes part").1.cpu.as_secs_f64();
            for (row, sample) in &samples {
                let (elapsed, cpu) = (sample.elapsed.as_secs_f64(), sample.cpu.as_secs_f64());
                run.figures.add(name, row, metric::ELAPSED, elapsed);
                run.figures.add(name, row, metric::CPU_SECONDS, cpu);
                if kind == Kind::Joins && *row != Sequential::NAME {
                    let per_join = (cpu - sequential) / prepared.joins as f64 * 1e9;
                    run.figures.add(name, row, metric::PER_JOIN, per_join);
                }
            }
        }
    }
    let joins = programs.iter().map(|prepared| prepared.joins).collect();
    Ok(Found { joins, declared: None })
}

/// On a simulated machine, where each row has a fresh one and the seed is the number of the round.
fn simulated(run: &mut Run<'_>, plan: &Plan, declared: Declared) -> Result<Found, Error> {
    let machine = run.machine;
    let rows = simulated::rows(machine);
    let tasks: Vec<_> =
        (0..plan.rounds as u64).flat_map(|seed| rows.iter().map(move |row| (seed, *row))).collect();
    let what = |_, (seed, row): &(u64, &str)| format!("seed {seed}: {row}");
    let samples =
        run.all(&tasks, what, |(seed, row)| simulated::run(machine, row, declared, *seed))?;
    for ((_, row), sample) in tasks.iter().zip(samples) {
        let mut add = |metric, value| run.figures.add(simulated::SCENARIO, row, metric, value);
        add(metric::ELAPSED, sample.elapsed.as_secs_f64());
        add(metric::STEALS, sample.stolen as f64);
        if sample.stolen > 0 {
            let percent = sample.within as f64 / sample.stolen as f64 * 100.0;
            add(metric::STEALS_WITHIN_PERCENT, percent);
        }
    }
    Ok(Found { joins: Vec::new(), declared: Some(declared) })
}

#[cfg(test)]
mod tests;
