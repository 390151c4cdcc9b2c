//! CPUs that come and go, and limits that change while the program runs.

use nearq_topology::Limits;

use crate::trace::Kind;
use crate::world::World;

impl World {
    /// The program sets how much of the machine the process may use.
    pub(crate) fn set_limits(&mut self, limits: Limits, now: u64) {
        self.forget_shrunk_limits();
        self.apply_limits(limits, now);
    }

    /// From now on, these limits say what the process may use of the machine.
    pub(crate) fn apply_limits(&mut self, limits: Limits, now: u64) {
        self.trace.record(now, self.cpu, 0, Kind::Limits, limits.effective().len() as u64);
        if limits.quota != self.limits.quota {
            self.set_quota(&limits, now);
        }
        self.limits = limits;
        self.restrict_all(now);
    }

    /// A CPU comes online or goes offline. It must be a CPU of the machine, and not the last one that is online.
    pub(crate) fn set_online(&mut self, cpu: usize, online: bool, now: u64) {
        if self.online.contains(cpu) == online {
            return;
        }
        let kind = if online { Kind::Online } else { Kind::Offline };
        self.trace.record(now, self.cpu, 0, kind, cpu as u64);
        if online {
            self.online.insert(cpu);
            let at = &mut self.cpus[cpu];
            at.clock = at.clock.max(now);
            // A CPU that went offline a moment ago may still be busy with its last thread.
            let busy = at.busy;
            if !busy {
                self.idle.insert(cpu);
            }
            self.ask(now, |scheduler, kernel| {
                scheduler.cpu_online(kernel, cpu);
                if !busy {
                    scheduler.update_idle(kernel, cpu, true);
                }
            });
        } else {
            assert!(self.online.len() > 1, "the last CPU cannot go offline");
            self.online.remove(cpu);
            self.cpus[cpu].throttled = false;
            if self.idle.remove(cpu) {
                self.ask(now, |scheduler, kernel| scheduler.update_idle(kernel, cpu, false));
            }
            self.ask(now, |scheduler, kernel| scheduler.cpu_offline(kernel, cpu));
        }
        self.restrict_all(now);
    }

    /// Recomputes which CPUs may be used, and moves all threads there.
    fn restrict_all(&mut self, now: u64) {
        let allowed = self.limits.effective().intersection(&self.online);
        // As in the kernel, a cpuset whose CPUs are all gone uses its parent's CPUs.
        self.usable = if allowed.is_empty() { self.online.clone() } else { allowed };
        for slot in self.threads.slots() {
            self.restrict(slot, now);
        }
        self.carry_out_orders(now);
    }

    /// The limits as the program sees them: with the CPUs that are online.
    pub(crate) fn visible_limits(&self) -> Limits {
        let mut limits = self.limits.clone();
        limits.online = if limits.online.is_empty() {
            self.online.clone()
        } else {
            limits.online.intersection(&self.online)
        };
        limits
    }
}
