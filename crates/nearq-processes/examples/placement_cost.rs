//! Measures what it costs to place a process when it starts: `placement_cost [PROCESSES [ROUNDS]]` starts `true` that often, alternately
//! with and without CPUs and a memory policy. It prints the time of each until the program has been executed and until it has ended, and
//! the CPU time of parent and child together, which does not depend on the load of the CPUs.
//!
//! The CPUs are two halves of those that may be used, with the memory of the first node for both, so that the calls are also made on a
//! machine with one node. On such a machine the result does not show the cost of starting a process on a node other than the node of its
//! parent.

#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::time::{Duration, Instant};

use nearq_home::{Load, Nodes, pick};
use nearq_platform::{Linux, MemoryPolicy, Placement as _, ProcessSpec, Spawner};
use nearq_topology::CpuSet;

fn main() {
    let number = |place: usize, usual: usize| {
        std::env::args().nth(place).and_then(|text| text.parse().ok()).unwrap_or(usual)
    };
    let (processes, rounds) = (number(1, 500), number(2, 21));
    let machine = Linux::machine().expect("this machine can be read");
    let cpus: Vec<usize> = machine.limits.effective().iter().collect();
    let (low, high) = cpus.split_at(cpus.len() / 2);
    let half =
        |cpus: &[usize]| (machine.topology.nodes()[0].id, cpus.iter().copied().collect::<CpuSet>());
    if low.is_empty() {
        println!("skipped: one CPU has no halves");
        return;
    }
    let nodes = Nodes::pretended(&[half(low), half(high)], &[vec![10, 20], vec![20, 10]]);
    let mut spawner = Spawner::new();
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        for (kind, times) in times.iter_mut().enumerate() {
            times.push(round(&mut spawner, &nodes, kind, processes));
        }
    }
    println!(
        "microseconds a process; median (first quartile to third) of {rounds} rounds of {processes}"
    );
    println!(
        "{:24}{:>26}{:>26}{:>26}",
        "", "until it is executed", "until it has ended", "CPU time"
    );
    for (kind, times) in ["as it comes", "same CPUs, same memory", "placed"].iter().zip(&mut times)
    {
        let columns = [0, 1, 2].map(|column| {
            let mut sorted: Vec<f64> = times
                .iter()
                .map(|pair| pair[column].as_secs_f64() * 1e6 / processes as f64)
                .collect();
            sorted.sort_by(f64::total_cmp);
            let at = |part: usize| sorted[(sorted.len() - 1) * part / 4];
            format!("{:.1} ({:.1} to {:.1})", at(2), at(1), at(3))
        });
        println!("{kind:24}{:>26}{:>26}{:>26}", columns[0], columns[1], columns[2]);
    }
}

/// Starts and waits for that many, one after the other. Returns the time of the starts, and of everything.
fn round(spawner: &mut Spawner, nodes: &Nodes, kind: usize, processes: usize) -> [Duration; 3] {
    let all = nodes.cpus();
    let mut loads = [Load::default(); 2];
    let mut started = Duration::ZERO;
    let (begin, used) = (Instant::now(), cpu_time());
    for _ in 0..processes {
        let home = pick(nodes, &loads, None);
        loads[home].homes += 1000;
        let memory = MemoryPolicy::Preferred(nodes.get(home).memory);
        let cpus = match kind {
            0 => None,
            1 => Some(&all),
            _ => Some(&nodes.get(home).cpus),
        };
        let before = Instant::now();
        let spawned = spawner.spawn(&ProcessSpec {
            program: c"/bin/true",
            arguments: &[c"true".to_owned()],
            environment: &[],
            files: [None; 3],
            own_group: true,
            parent_death_signal: Some(libc::SIGKILL),
            affinity: cpus,
            memory: (kind > 0).then_some(&memory),
        });
        started += before.elapsed();
        let pid = spawned.expect("/bin/true can be started").pid;
        // SAFETY: no status is asked for; the child is this program's, and no other thread waits.
        unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0) };
    }
    [started, begin.elapsed(), cpu_time().saturating_sub(used)]
}

/// The CPU time of this process and of all processes that it has waited for.
fn cpu_time() -> Duration {
    let of = |who| {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: validity: the place is a whole structure. Aliasing: the only reference is the one passed. Thread: any.
        unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
        // SAFETY: numbers, for which zeros are a value.
        let usage = unsafe { usage.assume_init() };
        let time = |time: libc::timeval| {
            Duration::from_micros(time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64)
        };
        time(usage.ru_utime) + time(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}
