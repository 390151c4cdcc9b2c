#![allow(warnings)]
use nearq_lock::{Mode, Mutex, OsqLock, Settings};
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, ThreadSpec};
use nearq_sim::{LineAligned, Machine, Sim, Simulation};
use nearq_topology::CpuSet;
use std::sync::Arc;
use std::time::Duration;
type A32 = <Sim as Platform>::AtomicU32;
#[repr(align(64))]
struct Line(A32);
struct Shared {
    lock: LineA<Mutex<(), Sim>>,
    lines: Vec<Line>,
    stop: Line,
}
#[repr(align(64))]
struct LineA<T>(T);
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machine = args.get(1).cloned().unwrap_or("epyc-7551-2s".into());
    let nlines: usize = args.get(2).map_or(2, |s| s.parse().unwrap());
    let outside: u64 = args.get(3).map_or(100, |s| s.parse().unwrap());
    let millis: u64 = args.get(4).map_or(3, |s| s.parse().unwrap());
    let spread = args.get(5).is_some_and(|s| s == "spread");
    println!(
        "{machine} lines {nlines} outside {outside} ns, {millis} ms {}",
        if spread { "spread" } else { "compact" }
    );
    for threads in [1usize, 2, 4, 8, 16, 32, 48, 64] {
        let mut row = format!("{threads:3}");
        let mut plain = 0.0;
        for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
            let name = machine.clone();
            let machine = Machine::named(&name).unwrap();
            let order: Vec<usize> = {
                let ncpu = machine.topology().possible().len();
                let v: Vec<usize> = (0..ncpu).collect();
                if spread {
                    let k = ncpu / 2;
                    (0..k).map(|i| (i * 8 + i / (k / 8)) % k).collect()
                } else {
                    v
                }
            };
            let out = Simulation::on(&machine, 1).run(move || {
                let mut s = Settings::of_process::<Sim>();
                s.mode = mode;
                s.set_for_process::<Sim>();
                let shared = Arc::new(Shared {
                    lock: LineA(Mutex::new_in(())),
                    lines: (0..nlines).map(|_| Line(A32::new(0))).collect(),
                    stop: Line(A32::new(0)),
                });
                let counts: Vec<_> =
                    (0..threads).map(|_| Arc::new(std::sync::Mutex::new((0u64, 0u64)))).collect();
                let hs: Vec<_> = (0..threads)
                    .map(|i| {
                        let shared = shared.clone();
                        let count = counts[i].clone();
                        let aff = CpuSet::single(order[i % order.len()]);
                        Sim::spawn(
                            ThreadSpec {
                                affinity: Some(CpuSet::from_range(0..0)).map(|_| {
                                    let mut c = CpuSet::new();
                                    c.insert(order[i]);
                                    c
                                }),
                                ..Default::default()
                            },
                            move || {
                                let mut n = 0;
                                let mut max = 0;
                                while shared.stop.0.load(Ordering::Relaxed) == 0 {
                                    let t = Sim::now();
                                    let g = shared.lock.0.lock();
                                    max = max.max((Sim::now() - t).as_nanos() as u64);
                                    for l in &shared.lines {
                                        let v = l.0.load(Ordering::Relaxed);
                                        l.0.store(v + 1, Ordering::Relaxed);
                                    }
                                    drop(g);
                                    n += 1;
                                    if outside > 0 {
                                        nearq_sim::compute(Duration::from_nanos(outside));
                                    }
                                }
                                *count.lock().unwrap() = (n, max);
                            },
                        )
                        .unwrap()
                    })
                    .collect();
                Sim::sleep(Duration::from_millis(millis));
                shared.stop.0.store(1, Ordering::Relaxed);
                hs.into_iter().for_each(Sim::join);
                let c: Vec<(u64, u64)> = counts.iter().map(|c| *c.lock().unwrap()).collect();
                c
            });
            let mut c = out.expect();
            let total: u64 = c.iter().map(|c| c.0).sum();
            let maxw = c.iter().map(|c| c.1).max().unwrap();
            c.sort();
            let half: u64 = c[c.len() / 2..].iter().map(|c| c.0).sum();
            let rate = total as f64 / millis as f64;
            if mode == Mode::Plain {
                plain = rate;
            }
            row += &format!(
                " | {mode:?} {rate:8.0}/ms f{:.2} max{:6}us",
                half as f64 / total as f64,
                maxw / 1000
            );
            if mode == Mode::Auto || mode == Mode::Numa {
                row += &format!(" {:+.0}%", (rate / plain - 1.0) * 100.0);
            }
        }
        println!("{row}");
    }
}
