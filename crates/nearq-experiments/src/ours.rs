//! nearq as the queue of `scopes`: the only file of it that knows how its library is called.

use crate::executor::{Counts, Executor, Item, MOST_ACTIVE, Placement, Queues};
use crate::host::{Census, Host, Role};
use crate::scopes::{MakeQueues, ScopesOptions, run_on, simulate_on};
use crate::{Error, Machine, Progress};
use nearq::{LinkStatistics, Runtime, Work, Workqueue};
use nearq_platform::Linux;
use nearq_report::Report;
use std::sync::Arc;

/// Runs `nearq bench scopes`.
pub fn scopes(options: &ScopesOptions, progress: &Progress) -> Result<Report, Error> {
    let result = scopes_on(options, &options.common.on()?, progress);
    progress.end();
    result
}

/// The same on a machine that is given instead of named, for example with other costs.
pub fn scopes_on(
    options: &ScopesOptions,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    if machine.model().is_some() {
        return simulate_on(options, machine, simulated_queues(), progress);
    }
    run_on(options, machine, &Nearq::<Linux> { census: Census::default() }, progress)
}

/// What makes the queues of a run on a simulated machine.
pub(crate) fn simulated_queues() -> MakeQueues {
    |census| Box::new(Nearq { census })
}

/// A queue, or why there is none.
fn built<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Error> {
    result.map_err(|error| Error::run(error.to_string()))
}

/// The queues of `scopes`: each on a runtime of its own, so that no worker of one run is left for the next.
#[derive(Debug)]
struct Nearq<H: Host> {
    /// Where workers are counted.
    census: Census<H>,
}

impl<H: Host> Queues for Nearq<H> {
    fn queue(&self, placement: Placement) -> Result<Box<dyn Executor>, Error> {
        let census = self.census.clone();
        let runtime =
            Runtime::<H>::builder_in().on_worker_start(move |_| census.enter(Role::Worker)).build();
        let queue = built(runtime)?
            .workqueue("scopes")
            .scope(placement.scope)
            .strict(placement.strict)
            .localize(placement.localize)
            .helping(placement.helping)
            .max_active(MOST_ACTIVE)
            .build_in();
        Ok(Box::new(Queue(Arc::new(built(queue)?))))
    }

    fn name(&self) -> &'static str {
        "an unbound nearq workqueue"
    }
}

/// A queue, which keeps its runtime alive.
struct Queue<H: Host>(Arc<Workqueue<H>>);

impl<H: Host> Executor for Queue<H> {
    fn item(&self, mut function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
        let work = Work::new_in(move |_: &Work<H>| function());
        Box::new(Queued { queue: Arc::clone(&self.0), work })
    }

    fn counts(&self) -> Option<Counts> {
        let add = |sum: Counts, link: &LinkStatistics| Counts {
            completed: sum.completed + link.completed,
            helped: sum.helped + link.helped,
            repatriated: sum.repatriated + link.repatriated,
        };
        Some(self.0.statistics().iter().fold(Counts::default(), add))
    }
}

struct Queued<H: Host> {
    queue: Arc<Workqueue<H>>,
    work: Work<H>,
}

impl<H: Host> Item for Queued<H> {
    fn queue(&self) -> bool {
        self.queue.queue(&self.work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Common;
    use nearq_report::metric;
    use std::time::Duration;

    fn short() -> Common {
        Common {
            runs: Some(1),
            duration: Some(Duration::from_millis(20)),
            goals: true,
            ..Common::default()
        }
    }

    #[test]
    fn scopes_runs_on_workqueues_and_everything_verifies() {
        let verifies = |duration| {
            let common = Common { duration: Some(duration), ..short() };
            let options = ScopesOptions { common, in_flight: Some(5), ..ScopesOptions::default() };
            let report = scopes(&options, &Progress::hidden()).unwrap();
            let throughput = report.find("HIGH", "system", metric::THROUGHPUT).unwrap();
            throughput.summary.median > 0.0
        };
        // On a busy machine nothing may come round in a short time.
        assert!([20, 200, 2_000, 20_000].map(Duration::from_millis).into_iter().any(verifies));
    }

    fn simulated(machine: &str, seeds: usize) -> Report {
        let common = Common { machine: machine.into(), runs: Some(seeds), ..short() };
        // Few in flight, so that some are verified within a short run.
        let options = ScopesOptions { common, in_flight: Some(8), ..ScopesOptions::default() };
        scopes(&options, &Progress::hidden()).unwrap()
    }

    #[test]
    fn a_simulated_run_is_the_same_each_time() {
        let _judged = crate::options::tests::AnySize::new();
        let report = simulated("l3:2 core:2 pu:2", 2);
        assert_eq!(report.to_json(), simulated("l3:2 core:2 pu:2", 2).to_json());
        assert_eq!(report.machine, "l3:2 core:2 pu:2");
        for scenario in ["HIGH", "MED", "LOW"] {
            for row in ["system", "cache+strict", "cache+local", "cpu+strict", "cache+helping"] {
                let throughput = report.find(scenario, row, metric::THROUGHPUT).unwrap();
                let cpu = report.find(scenario, row, metric::CPU_PERCENT).unwrap().summary;
                assert!(throughput.summary.min > 1.0, "{scenario} {row}");
                let of_items = |metric| report.find(scenario, row, metric).unwrap().summary.mean;
                let helped = of_items(metric::HELPED_PERCENT);
                assert!(helped == 0.0 || row == "cache+helping", "{scenario} {row}: {helped}");
                assert!((1.0..100.5).contains(&of_items(metric::ISSUER_CPU_PERCENT)));
                assert!(cpu.min > 5.0 && cpu.max < 100.5, "{scenario} {row}: {cpu:?}");
            }
        }
        let system = report.find("HIGH", "system", metric::THROUGHPUT).unwrap().summary;
        assert!(system.deviation > 0.0, "another seed is another run");
        assert_eq!(report.parameters["declared"]["item_percent"], 400);
        let judgements = report.parameters["judgements"].as_array().unwrap();
        assert!(
            judgements.iter().all(|one| one["published"].is_null()),
            "not the document's machine"
        );
        assert_eq!(judgements.len(), 6);
        assert!(report.text.contains("Targets") && report.svg.contains("cache+helping"));
        assert!(crate::redraw::is_drawn_from_the_json(&report));
    }

    #[test]
    fn the_items_work_decides_how_much_there_is_for_the_workers() {
        let machine = Machine::named("core:4").unwrap();
        let busy = |item_percent| {
            let options = ScopesOptions {
                common: Common { runs: Some(1), ..short() },
                issuers: Some(1),
                item_percent: Some(item_percent),
                ..ScopesOptions::default()
            };
            let report = scopes_on(&options, &machine, &Progress::hidden()).unwrap();
            report.find("1 issuer", "system", metric::CPU_PERCENT).unwrap().summary.mean
        };
        let (little, much) = (busy(100), busy(1000));
        assert!(little < 65.0 && much > 95.0, "{little} % and {much} % of four CPUs");
    }

    #[test]
    fn what_a_machine_cannot_do_is_refused() {
        let refused = |machine: &str, options: ScopesOptions| {
            let common = Common { machine: machine.into(), ..short() };
            let error =
                scopes(&ScopesOptions { common, ..options }, &Progress::hidden()).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        let file = ScopesOptions { file: Some("scratch".into()), ..ScopesOptions::default() };
        assert!(refused("core:2", file).starts_with("--file scratch: a simulated machine"));
        let work =
            |percent| ScopesOptions { item_percent: Some(percent), ..ScopesOptions::default() };
        assert!(refused("core:2", work(0)).starts_with("--item-work 0: give a number from 1 to"));
        assert!(refused("here", work(5)).starts_with("--item-work is for simulated machines"));
        assert!(refused("cray-1", work(5)).starts_with("--on \"cray-1\""));
    }
}
