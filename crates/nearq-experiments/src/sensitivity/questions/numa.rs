//! The conclusions of `numa`: a job does not take longer with a pool for each node than with one pool.

use crate::Error;
use crate::numa::{COMPARED_POOLS, one_run};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use nearq_topology::AffinityScope;

/// Files of the job, and of that of a quick run.
pub(in crate::sensitivity) const FILES: [usize; 2] = [720, 120];

/// What a job may take longer, as a share: some one deviation of a job. The experiment counts a difference only if it exceeds that, and
/// with a few seeds a gain of 1 % cannot be told from none.
const LONGER: f64 = 0.01;

/// How long a job takes.
pub(in crate::sensitivity) static NUMA: Question = Question {
    name: "numa",
    machine: "opteron-2s",
    parameters: &[],
    sizes: [
        "720 files, as in `bench numa`; a gain of 1 % shows only in the 48 seeds there, so here no loss is looked for",
        "120 files",
    ],
    least_runs: [2, 12],
    has_noise: false,
    refuses: |machine| {
        let single = machine.pods(AffinityScope::Numa).len() < 2;
        single.then(|| "it has one node; give a machine such as opteron-2s".into())
    },
    ask: |setting| answer(setting, FILES[usize::from(setting.quick)]),
};

fn answer(setting: &Setting<'_>, files: usize) -> Result<Answer, Error> {
    let (mut conclusions, mut hashes) = (Vec::new(), Vec::new());
    for (one, affine) in COMPARED_POOLS {
        let [before, after] = [one, affine].map(|row| {
            let (elapsed, hash) = one_run(setting.machine, row, files, setting.seed)?;
            hashes.push(hash);
            Ok::<_, Error>(elapsed.as_secs_f64())
        });
        conclusions.push(Conclusion {
            name: format!("{affine} takes at most {} % longer than {one}", LONGER * 100.0),
            value: after? / before?,
            bound: Bound::AtMost(1.0 + LONGER),
        });
    }
    Ok(Answer { conclusions, trace_hash: joined(hashes) })
}

#[cfg(test)]
#[path = "../tests/numa.rs"]
mod tests;
