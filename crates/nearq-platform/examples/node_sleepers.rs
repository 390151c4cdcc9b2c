//! What it takes two threads to wake each other in turn, with sleepers kept anywhere and with sleepers kept on their node, and what a
//! wake-up takes that finds nobody.
//!
//! Both kinds take turns in one run, so that other programs disturb both alike. An argument says how many other threads sleep meanwhile,
//! half of them by each kind.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program of Linux, which measures it"
)]

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use nearq_platform::{Linux, NodeWord, Platform};

/// Batches of each kind, and how often both threads wake each other in one.
const BATCHES: usize = 200;
const ROUNDS: u32 = 1000;

/// The names of the two kinds.
const KINDS: [&str; 2] = ["anywhere", "on their node"];

fn word(kind: usize) -> NodeWord<Linux> {
    let word = NodeWord::new(0);
    if kind == 1 {
        Linux::keep_sleepers_here(&word);
    }
    word
}

fn send(word: &NodeWord<Linux>, value: u32) {
    word.store(value, Release);
    Linux::wake_at_node(word, 1);
}

fn wait_for(word: &NodeWord<Linux>, value: u32) {
    loop {
        match word.load(Acquire) {
            found if found == value => return,
            found => Linux::wait_at_node(word, found, None),
        };
    }
}

/// Nanoseconds for each of `rounds`.
fn time(rounds: u32, mut round: impl FnMut(u32)) -> f64 {
    let began = Instant::now();
    (1..=rounds).for_each(&mut round);
    began.elapsed().as_nanos() as f64 / f64::from(rounds)
}

fn print(what: &str, mut times: [Vec<f64>; 2]) {
    let mut ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(a, b)| b / a).collect();
    let quartile = |sorted: &[f64], quarters: usize| sorted[(sorted.len() - 1) * quarters / 4];
    for (kind, times) in KINDS.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{what}, {kind}: least {:.0} ns, median {:.0} ns", times[0], quartile(times, 2));
    }
    ratios.sort_by(f64::total_cmp);
    let [low, middle, high] = [1, 2, 3].map(|quarters| quartile(&ratios, quarters));
    println!("{what}, the second to the first: {middle:.3} ({low:.3} to {high:.3})");
}

fn main() {
    if let Err(refused) = Linux::knows_node_sleepers() {
        println!("{refused}");
        return;
    }
    let others = std::env::args().nth(1).map_or(0, |count| count.parse().expect("how many sleep"));
    for other in 0..others {
        let sleep = move || wait_for(&word(other % 2), 1);
        std::thread::Builder::new().stack_size(1 << 16).spawn(sleep).expect("a thread");
    }

    let pairs: Arc<[[NodeWord<Linux>; 2]; 2]> =
        Arc::new([0, 1].map(|kind| [word(kind), word(kind)]));
    let theirs = Arc::clone(&pairs);
    let partner = std::thread::spawn(move || {
        for batch in 0..BATCHES as u32 {
            for [there, back] in theirs.iter() {
                for round in 1..=ROUNDS {
                    wait_for(there, batch * ROUNDS + round);
                    send(back, batch * ROUNDS + round);
                }
            }
        }
    });
    let mut times = [Vec::new(), Vec::new()];
    for batch in 0..BATCHES as u32 {
        for ([there, back], times) in pairs.iter().zip(&mut times) {
            times.push(time(ROUNDS, |round| {
                send(there, batch * ROUNDS + round);
                wait_for(back, batch * ROUNDS + round);
            }));
        }
    }
    partner.join().expect("the partner");
    print("there and back", times);

    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..BATCHES {
        for (kind, times) in times.iter_mut().enumerate() {
            let word = word(kind);
            times.push(time(ROUNDS, |_| {
                Linux::wake_at_node(&word, 1);
            }));
        }
    }
    print("a wake-up of nobody", times);
}
