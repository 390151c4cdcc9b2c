//! The kernel's workqueues with an issuer on each CPU, on simulated machines: the load with which figures were published.

use super::contestant::{Contestant, Load, Plan};
use super::distinct_scopes;
use super::gauge::Gauge;
use super::load::{Sample, in_turn, issuers};
use crate::harness::Census;
use crate::kernel_queue::{Counting, KernelItem, KernelQueue, Placement};
use crate::{Error, Machine};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use std::array;
use std::rc::Rc;
use std::sync::Arc;

/// `max_active` of a queue that asks for none (`WQ_DFL_ACTIVE`).
const MOST_ACTIVE: usize = 1024;

/// A queue of the kernel with a scope, not strict, as test_workqueue makes it.
#[derive(Debug)]
pub(super) struct KernelIssuers {
    pub(super) scope: AffinityScope,
    pub(super) counting: Counting,
}

/// One for each scope that differs from others.
pub(super) fn contestants(machine: &Machine) -> Vec<Rc<dyn Contestant<Sim>>> {
    let of = |scope| {
        Rc::new(KernelIssuers { scope, counting: Counting::CompareExchange })
            as Rc<dyn Contestant<Sim>>
    };
    distinct_scopes(machine).into_iter().map(of).collect()
}

/// The machine as code of the kernel finds it: what is a system call for a program is a call for the kernel.
pub(super) fn within(machine: &Machine) -> Machine {
    let inside = machine.model().map(|model| {
        let mut costs = *model.costs();
        costs.system_call = 0;
        Machine::simulated(model.clone().with_costs(costs))
    });
    inside.unwrap_or_else(|| machine.clone())
}

impl Contestant<Sim> for KernelIssuers {
    fn row(&self, load: Load) -> Option<&'static str> {
        (load == Load::Kernel).then(|| self.scope.name())
    }

    fn ours(&self) -> bool {
        false
    }

    fn measure(&self, _: Load, plan: &Plan, gauge: &'static Gauge<Sim>) -> Result<Sample, Error> {
        let placement = Placement { scope: self.scope, strict: false, localize: false };
        let queue = KernelQueue::new(placement, (MOST_ACTIVE, self.counting), &Census::default())?;
        issuers(plan, gauge, |done| {
            let item = |_| {
                let done = Arc::clone(&done);
                queue.item(Box::new(move || {
                    gauge.done();
                    done.unpark();
                }))
            };
            in_turn::<Sim, _>(array::from_fn(item), KernelItem::queue)
        })
    }
}
