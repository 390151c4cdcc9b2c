//! The runtime as its timer and its homes call it.

use nearq_platform::{Platform, ThreadSpec};

use super::{Core, KnownQueue};
use crate::{homes, timer};

impl<P: Platform, Q: KnownQueue> timer::Host<P> for Core<P, Q> {
    fn number(&self) -> u64 {
        self.number
    }

    fn thread_spec(&self) -> ThreadSpec {
        ThreadSpec {
            affinity: Some(self.resting_mask()),
            scheduling: Some(self.priorities.ordinary()),
            signals: Some(self.config.signals),
            ..ThreadSpec::default()
        }
    }

    fn retry_later(&self) {
        Self::retry_later(self);
    }
}

impl<P: Platform, Q: KnownQueue> homes::Host for Core<P, Q> {
    fn mark_pwqs(&self) {
        self.live_queues().iter().for_each(|queue| queue.mark_pwqs());
    }

    fn strangers(&self, nodes: usize) -> Vec<u32> {
        let mut counts = vec![0; nodes];
        for worker in self.services.workers.iter().filter(|worker| worker.is_placed()) {
            let Some(node) = worker.pool().node else { continue };
            if worker.function().is_some() && worker.home() != Some(node) {
                counts[node as usize] += 1000;
            }
        }
        counts
    }
}
