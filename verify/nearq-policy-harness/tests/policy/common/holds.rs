//! What must hold of the policy's state and of what CPUs take, whatever happens to tasks.

use nearq_policy_harness::{Policy, Take};
use nearq_scx_policy::layout::EVENTS;

use super::{Model, State, Thread};

/// How many tasks of a queue are checked for one to take.
pub(super) const CHECKED: usize = 32;

impl Model {
    /// The policy's counts match the model.
    pub(crate) fn check(&self) {
        let state = self.policy.state();
        let count = |holds: &dyn Fn(&Thread) -> bool| {
            self.threads.iter().filter(|thread| holds(thread)).count() as u32
        };
        let waits = |thread: &Thread, llc: usize| matches!(thread.state, State::Waits { llc: at, .. } if at == llc);
        for llc in 0..state.llcs as usize {
            let on = &state.on_llc[llc];
            assert_eq!(on.waiting, count(&|thread| waits(thread, llc)), "waiting under {llc}");
            for home in 0..state.nodes as usize {
                let of = |thread: &Thread| waits(thread, llc) && thread.task.home as usize == home;
                assert_eq!(on.waiting_of[home], count(&of), "of {home}, waiting under {llc}");
            }
            let runs = |thread: &Thread| matches!(thread.state, State::Runs(cpu) if self.policy.llc_of(cpu) == llc);
            assert_eq!(on.running, count(&runs), "running under {llc}");
        }
        for node in 0..state.nodes as usize {
            let on = &state.on_node[node];
            let node_of = |llc: usize| state.llc[llc].node as usize;
            let home = |thread: &Thread| thread.task.home as usize == node;
            let lives = |thread: &Thread| thread.state != State::Ended;
            let waits_on = |thread: &Thread| match thread.state {
                State::Waits { llc, .. } => Some(node_of(llc)),
                _ => None,
            };
            let runs_on = |thread: &Thread| match thread.state {
                State::Runs(cpu) => Some(self.policy.node_of(cpu)),
                _ => None,
            };
            assert_eq!(on.homes, count(&|t| lives(t) && home(t)), "homes on {node}");
            let wanting = |t: &Thread| home(t) && (waits_on(t).is_some() || runs_on(t).is_some());
            assert_eq!(on.wanting, count(&wanting), "wanting, of node {node}");
            assert_eq!(on.waiting, count(&|t| waits_on(t) == Some(node)), "waiting on {node}");
            assert_eq!(on.running, count(&|t| runs_on(t) == Some(node)), "running on {node}");
            let stray = |t: &Thread| !home(t) && runs_on(t) == Some(node);
            assert_eq!(on.strays, count(&stray), "strays on {node}");
        }
        for (cpu, at) in self.cpus.iter().enumerate() {
            let idle = state.idle[cpu / 64] & 1 << (cpu % 64) != 0;
            assert_eq!(idle, at.online && at.current.is_none(), "CPU {cpu} idle");
        }
    }

    /// How long the oldest pair of an idle CPU and a waiting task that may run there has existed, less the time that the CPU must
    /// wait before it takes tasks of that node.
    pub(crate) fn wasted(&self) -> u64 {
        let state = self.policy.state();
        let mut most = 0;
        for (cpu, at) in self.cpus.iter().enumerate().filter(|(_, at)| at.online) {
            if at.current.is_some() {
                continue;
            }
            for thread in &self.threads {
                let State::Waits { llc, .. } = thread.state else { continue };
                if !Policy::may_run(&thread.task, cpu) {
                    continue;
                }
                let (from, to) = (state.llc[llc].node as usize, self.policy.node_of(cpu));
                let steps = state.node[from].distance[to].saturating_sub(10).div_ceil(10);
                let delay = u64::from(steps) * state.weights.steal_delay;
                let both = self.now - at.idle_since.max(thread.since);
                most = most.max(both.saturating_sub(delay));
            }
        }
        most
    }

    /// In which turn a CPU of another node takes a task from a queue: 0 for its own tasks, 1 for strays, 2 for natives.
    fn turn(&self, number: usize, llc: usize, cpu: usize) -> usize {
        let home = self.threads[number].task.home as usize;
        if home == self.policy.node_of(cpu) {
            return 0;
        }
        if home == self.policy.state().llc[llc].node as usize { 2 } else { 1 }
    }

    /// A task that a CPU takes from another node's queue is not native if a stray waits there, and its own if one waits there. Busy CPUs
    /// heed homes if own tasks count more. A queue that starves is served in its order.
    pub(super) fn check_order(&self, take: Take, cpu: usize, number: usize) {
        let state = self.policy.state();
        let elsewhere = state.llc[take.llc].node != state.cpu[cpu].node;
        let heeds = match EVENTS[take.event].0 {
            "took_own" | "took_idle" => true,
            "took_relief" => state.weights.own_bonus != 0,
            _ => false,
        };
        if !elsewhere || !heeds {
            return;
        }
        let turn = self.turn(number, take.llc, cpu);
        assert_eq!(turn == 0, EVENTS[take.event].0 == "took_own", "{take:?}");
        for other in self.queues[take.llc].values().take(CHECKED) {
            let may_run = Policy::may_run(&self.threads[*other].task, cpu);
            assert!(
                !may_run || self.turn(*other, take.llc, cpu) >= turn,
                "{take:?}: {other} before {number}"
            );
        }
    }
}
