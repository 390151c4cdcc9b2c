//! A tokio runtime for each pod: `cargo run -p nearq-examples --bin tokio_per_pod [SCOPE]`. The pods are caches, or what SCOPE says.
//!
//! Each runtime has its threads on the CPUs of its pod, and what its tasks spawn on the queue runs there as well.

use std::error::Error;
use std::{io, thread};

use nearq::topology::Pod;
use nearq::{AffinityScope, CpuSet, Runtime, Workqueue};
use rustix::thread::{sched_getcpu, sched_setaffinity};

/// Lets the calling thread run on these CPUs only.
fn pin(cpus: &CpuSet) -> io::Result<()> {
    let mut mask = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| mask.set(cpu));
    Ok(sched_setaffinity(None, &mask)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let scope = std::env::args().nth(1).map_or(Ok(AffinityScope::Cache), |name| name.parse())?;
    let machine = Runtime::global();
    let (allowed, shard_size) = (machine.allowed_cpus(), machine.cache_shard_size());
    let pods = machine.topology().pods_within(scope, shard_size, &allowed).pods;
    // Strict, so that no pod helps another one. In a service they should.
    let queue = Workqueue::builder("work").affinity_scope(scope).affinity_strict(true).build()?;
    let threads = pods.into_iter().map(|pod| {
        let queue = queue.clone();
        thread::spawn(move || run(pod, &queue))
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("it does not panic")?;
    }
    Ok(())
}

fn run(pod: Pod, queue: &Workqueue) -> io::Result<()> {
    // The threads of the runtime inherit it.
    pin(&pod.cpus)?;
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(pod.cpus.len())
        .enable_all()
        .build()?;
    tokio.block_on(async {
        // A service listens here, and each connection is a task like this one.
        let queue = queue.clone();
        let task = tokio::spawn(async move {
            let work = queue.spawn(sched_getcpu).await;
            work.map(|work| format!("a task on CPU {}, its work on CPU {work}", sched_getcpu()))
        });
        println!("CPUs {}: {}", pod.cpus, task.await?.map_err(io::Error::other)?);
        Ok(())
    })
}
