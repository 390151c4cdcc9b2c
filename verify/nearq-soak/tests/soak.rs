//! The fault soak of the runtime: random programs on simulated machines on which things go wrong. A seed that fails here fails
//! in the same way each time it is run; the message says how to inspect it.

use nearq_report::Progress;
use nearq_soak::{ManyOptions, QUICK_SEEDS, SeedOptions, Summary, run_many, run_seed};

/// As in the command: it makes a simulated run repeatable.
#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;

/// A seed fails: what to run, and what was wrong.
fn say(summary: &Summary) -> String {
    let failures = summary.failures.iter().map(|verdict| {
        format!("{verdict}\nto see how: nearq sim soak --seed {} --trace\n", verdict.seed())
    });
    format!("{}{summary}", failures.collect::<String>())
}

/// `NEARQ_SOAK_SEEDS` and `NEARQ_SOAK_FROM` choose seeds other than the first [`QUICK_SEEDS`]. `.ci/long` runs 20,000.
#[test]
fn every_promise_is_kept_whatever_goes_wrong() {
    let seeds = std::env::var("NEARQ_SOAK_SEEDS").ok().and_then(|text| text.parse().ok());
    let from = std::env::var("NEARQ_SOAK_FROM").ok().and_then(|text| text.parse().ok());
    let options = ManyOptions {
        seeds: seeds.unwrap_or(QUICK_SEEDS),
        from: from.unwrap_or(0),
        until_failure: false,
        variant: None,
    };
    let summary = run_many(&options, &Progress::hidden());
    println!("{summary}");
    assert!(summary.failures.is_empty(), "{}", say(&summary));
    assert!(summary.executions > summary.seeds * 20, "the programs do too little: {summary}");
}

/// What is replayed with its trace is the run that failed without.
#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [1, 20, 300] {
        let silent = run_seed(seed, &SeedOptions::default());
        let loud = run_seed(seed, &SeedOptions { trace: true, ..SeedOptions::default() });
        assert_eq!(silent.trace_hash, loud.trace_hash, "seed {seed}");
        assert_eq!((silent.executions, silent.time), (loud.executions, loud.time));
        assert!(silent.trace.is_empty() && loud.trace.len() > 100);
        assert!(loud.trace.iter().any(|line| line.contains("issuer-0") && line.contains("starts")
            || line.contains("item 0 queued")));
    }
}
