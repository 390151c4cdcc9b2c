//! `nearq sim soak`: random programs over the runtime on simulated machines with faults.

use clap::Args;
use nearq_command::Failure;
use nearq_command::output::print;
use nearq_report::Progress;
use nearq_soak::{ManyOptions, SeedOptions, Verdict, run_many, run_seed};

pub(crate) const EXAMPLES: &str = "\
A seed determines a machine; a program that queues, joins, changes and drops things in several threads; faults (refused threads, long
preemptions, spurious wake-ups, late timers, offline CPUs, shrinking limits); and a schedule. During and after the run, everything that the
runtime promises is checked. A seed that fails always fails in the same way; the trace says which thread did what, and when. Lines with a
star come from the program itself.

Examples:
  nearq sim soak
  nearq sim soak --seeds 100000 --from 5000
  nearq sim soak --seed 4711 --trace | less

Exit status: 0; 1 if a seed failed; 2 for invalid input.";

/// The options of `nearq sim soak`.
#[derive(Args, Debug)]
pub(crate) struct Soak {
    /// Run only this seed
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,

    /// Describe the seed's program, and show what happened
    #[arg(long, requires = "seed")]
    trace: bool,

    /// How many seeds to run, 1 or more
    #[arg(long, value_name = "N", value_parser = some, allow_negative_numbers = true, default_value_t = 2000)]
    seeds: u64,

    /// The first seed
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true, default_value_t = 0)]
    from: u64,
}

impl Soak {
    /// Runs the command.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match self.seed {
            Some(seed) => self.run_one(seed),
            None => self.run_many(),
        }
    }

    fn run_one(&self, seed: u64) -> Result<(), Failure> {
        let verdict = run_seed(seed, &SeedOptions { trace: self.trace, ..SeedOptions::default() });
        if self.trace {
            let mut text = format!("{}\n", verdict.plan);
            for line in &verdict.trace {
                text.push_str(line);
                text.push('\n');
            }
            print(&text)?;
        }
        print(&format!("{verdict}\n"))?;
        if verdict.passed() { Ok(()) } else { Err(Failure::run(format!("seed {seed} fails"))) }
    }

    fn run_many(&self) -> Result<(), Failure> {
        if self.from.checked_add(self.seeds).is_none() {
            return Err(Failure::input(format!(
                "--from {} and --seeds {}: the last seed would be above {}",
                self.from,
                self.seeds,
                u64::MAX
            )));
        }
        let options =
            ManyOptions { seeds: self.seeds, from: self.from, until_failure: false, variant: None };
        let summary = run_many(&options, &Progress::stderr());
        for verdict in &summary.failures {
            print(&format!("{verdict}\n  to reproduce: {}\n", replay(verdict)))?;
        }
        print(&format!("{summary}\n"))?;
        match summary.failures.first() {
            None => Ok(()),
            Some(first) => Err(Failure::run(format!(
                "a promise was not kept; to reproduce: {}",
                replay(first)
            ))),
        }
    }
}

/// The command that shows how a seed fails.
fn replay(verdict: &Verdict) -> String {
    format!("nearq sim soak --seed {} --trace", verdict.seed())
}

/// A seed.
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number, 0 to {}", u64::MAX))
}

/// How many seeds.
fn some(text: &str) -> Result<u64, String> {
    let seeds = text.parse().ok().filter(|seeds| *seeds > 0);
    seeds.ok_or_else(|| "give a whole number, 1 or more".into())
}
