//! Uses homes on this machine, and checks whether the system does what they ask for: for a virtual machine with several nodes.
//!
//! Items run at home. Their memory is at home even if they run elsewhere. Items of an overloaded home are also run on other nodes, and come
//! back. A dynamic home follows its memory. A thread that enters a home runs there. Prints a line that begins with `ok` for each of these;
//! on a machine with one node it says so and does nothing.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nearq::{
    AffinityScope, CpuSet, Runtime, Work, Workqueue,
    home::{Home, Residency},
};
use nearq_platform::{Linux, LockPlatform, Placement, Threads};

/// A loaded host that emulates a machine is slow.
const WITHIN: Duration = Duration::from_secs(30);
/// Enough bytes to come from the system, and not from memory that was freed before.
const BLOCK: usize = 8 << 20;

type Checked = Result<(), Box<dyn Error>>;
/// The homes of the first and the last node.
type Check = fn(usize, usize) -> Checked;

fn main() -> ExitCode {
    let runtime = Runtime::global();
    let nodes: Vec<usize> = runtime.home_nodes().iter().map(|row| row.node).collect();
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else {
        return ExitCode::FAILURE;
    };
    if first == last {
        println!("one node: nothing to be seen here");
        return ExitCode::SUCCESS;
    }
    let checks: [(&str, Check); 6] = [
        ("homes are spread", spread),
        ("items run at home", at_home),
        ("memory lies at home", memory),
        ("an overloaded home lets helpers in, and strays come back", overload),
        ("a dynamic home follows its memory", dynamic),
        ("a thread that enters is there", thread),
    ];
    let mut all = ExitCode::SUCCESS;
    for (what, check) in checks {
        match check(*first, *last) {
            Ok(()) => println!("ok: {what}"),
            Err(why) => {
                println!("wrong: {what}: {why}");
                all = ExitCode::FAILURE;
            }
        }
    }
    all
}

fn node() -> Option<usize> {
    let topology = Runtime::global().topology();
    topology.node_index(Linux::current_cpu()).map(|index| topology.nodes()[index].id)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what().into()) }
}

fn spin(time: Duration) {
    let begin = Linux::cpu_time(Linux::current_thread()).unwrap_or_default();
    let used = || Linux::cpu_time(Linux::current_thread()).unwrap_or(Duration::MAX);
    while used().saturating_sub(begin) < time {
        std::hint::spin_loop();
    }
}

/// How many items with homes ran at home and elsewhere.
fn runs(queue: &Workqueue) -> (u64, u64) {
    let rows = queue.statistics();
    (rows.iter().map(|row| row.at_home).sum(), rows.iter().map(|row| row.away).sum())
}

fn share_on(residency: &Residency, node: usize) -> f64 {
    let all: usize = residency.pages.iter().sum();
    residency.pages.get(node).copied().unwrap_or(0) as f64 / all.max(1) as f64
}

fn spread(_: usize, _: usize) -> Checked {
    let rows = Runtime::global().home_nodes();
    let _homes = (0..2 * rows.len()).map(|_| Home::pick()).collect::<Result<Vec<_>, _>>()?;
    let given: Vec<u32> = Runtime::global().home_nodes().iter().map(|row| row.homes).collect();
    ensure(given.iter().all(|count| *count == 2), || {
        format!("two for each node, and they are {given:?}")
    })
}

fn at_home(first: usize, last: usize) -> Checked {
    let queue = Workqueue::builder("at_home").affinity_scope(AffinityScope::Cache).build()?;
    let home = Home::on(last)?;
    // The issuer is on another node.
    let issuer = Home::on(first)?.enter()?;
    let seen = Arc::new(Mutex::new((0_u32, 0_u32)));
    for _ in 0..300 {
        let seen = Arc::clone(&seen);
        let note = move || {
            spin(Duration::from_micros(100));
            let here = node() == Some(last);
            let mut seen = seen.lock().unwrap();
            if here { seen.0 += 1 } else { seen.1 += 1 }
        };
        queue.task().home(&home).spawn(note).join()?;
    }
    drop(issuer);
    let (there, elsewhere) = *seen.lock().unwrap();
    println!("{there} of 300 ended at home; counted {:?}", runs(&queue));
    ensure(there >= 285 && elsewhere <= 15, || format!("{elsewhere} ended elsewhere"))?;
    ensure(runs(&queue).0 >= 285, || format!("{:?}", runs(&queue)))
}

fn memory(first: usize, last: usize) -> Checked {
    let queue = Workqueue::builder("memory")
        .affinity_scope(AffinityScope::Cache)
        .affinity_strict(true)
        .build()?;
    let home = Home::on(last)?;
    let away = Runtime::global().home_nodes().into_iter().find(|row| row.node == first);
    let cpu = away.and_then(|row| row.cpus.first()).ok_or("no CPU")?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let work = Work::new(move |_: &Work| {
        let block = vec![1_u8; BLOCK];
        note.lock().unwrap().push((node(), Residency::of(&block)));
    });
    for wanted in [Some(&home), None] {
        work.set_home(wanted);
        queue.queue_on(cpu, &work)?;
        queue.flush()?;
    }
    let mut seen = seen.lock().unwrap();
    let (after, with) = (seen.pop().ok_or("it ran")?, seen.pop().ok_or("it ran")?);
    println!("on node {:?}: pages {:?}", with.0, with.1);
    println!("without a home, on node {:?}: pages {:?}", after.0, after.1);
    ensure(with.0 == Some(first) && after.0 == Some(first), || "they ran elsewhere".into())?;
    ensure(share_on(&with.1?, last) > 0.95, || "it is not at home".into())?;
    ensure(share_on(&after.1?, first) > 0.95, || "its policy stayed".into())?;
    let mut block = vec![1_u8; BLOCK];
    let other = Home::on(last)?;
    other.bind(&mut block)?;
    let residency = Residency::of(&block)?;
    println!("bound: {:?}", residency.pages);
    ensure(share_on(&residency, last) > 0.95, || "it was not moved".into())?;
    ensure(Home::near(&block)?.node() == Some(last), || "near is elsewhere".into())
}

fn overload(_: usize, last: usize) -> Checked {
    let queue = Workqueue::builder("overload").affinity_scope(AffinityScope::Cache).build()?;
    let home = Home::on(last)?;
    let away_from_home = Arc::new(Mutex::new(Vec::new()));
    let works: Vec<Work> = (0..48)
        .map(|number| {
            let away_from_home = Arc::clone(&away_from_home);
            let work = Work::new(move |_: &Work| {
                if node() != Some(last) {
                    away_from_home.lock().unwrap().push(number);
                }
                spin(Duration::from_millis(10));
            });
            work.set_home(&home);
            work
        })
        .collect();
    for work in &works {
        queue.queue(work);
    }
    queue.flush()?;
    let helped = std::mem::take(&mut *away_from_home.lock().unwrap());
    println!("{} of 48 ran away from {:?}", helped.len(), home);
    ensure(!helped.is_empty(), || "no other node helped".into())?;
    for number in &helped {
        queue.queue(&works[*number]);
        queue.flush()?;
    }
    let again = away_from_home.lock().unwrap().len();
    println!("{again} of {} did once more", helped.len());
    ensure(again * 20 <= helped.len(), || format!("{again} ran elsewhere again"))
}

fn dynamic(first: usize, last: usize) -> Checked {
    let queue = Workqueue::builder("dynamic").build()?;
    let mut block = vec![1_u8; BLOCK];
    Home::on(last)?.bind(&mut block)?;
    let home = Home::on(first)?;
    let _registered = home.register(&block);
    home.set_dynamic(true);
    let begin = Instant::now();
    while home.node() == Some(first) && begin.elapsed() < WITHIN {
        queue.task().home(&home).spawn(|| spin(Duration::from_millis(2))).join()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("after {:?}: {}", begin.elapsed(), home.explain());
    ensure(home.node() == Some(last), || "it stayed".into())?;
    ensure(begin.elapsed() >= Duration::from_secs(1), || "within its interval".into())
}

fn thread(_: usize, last: usize) -> Checked {
    let me = Linux::current_thread();
    let before = (Linux::affinity(me)?, Linux::memory_policy()?);
    let home = Home::on(last)?;
    {
        let _there = home.enter()?;
        ensure(node() == Some(last), || format!("it is on node {:?}", node()))?;
        let block = vec![1_u8; BLOCK];
        ensure(share_on(&Residency::of(&block)?, last) > 0.95, || "its memory is not".into())?;
        let cpus: CpuSet = Linux::affinity(me)?;
        println!("CPUs {cpus}");
    }
    ensure(before == (Linux::affinity(me)?, Linux::memory_policy()?), || {
        "it is not as before".into()
    })
}
