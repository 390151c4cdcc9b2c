//! Borrowed data: `cargo run --release --example borrow`.
//!
//! `Workqueue::scope` waits for everything that was spawned in it, so closures may use what the caller owns, and may
//! change parts of it that do not overlap. Here rows of a picture are computed in place.

use nearq::{AffinityScope, Workqueue};
use std::time::Duration;

const WIDTH: usize = 100;
const HEIGHT: usize = 36;
/// Rows per closure: large enough to be worth queueing, small enough that all workers have something to do.
const ROWS: usize = 3;

/// How many steps it takes until the point escapes, at most 255.
fn steps(x: usize, y: usize) -> u8 {
    let (a, b) = (x as f64 / WIDTH as f64 * 3.2 - 2.3, y as f64 / HEIGHT as f64 * 2.4 - 1.2);
    let (mut u, mut v, mut steps) = (0.0, 0.0, 0);
    while u * u + v * v < 4.0 && steps < 255 {
        (u, v) = (u * u - v * v + a, 2.0 * u * v + b);
        steps += 1;
    }
    steps
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Workqueue::builder("picture").affinity_scope(AffinityScope::Cache).build()?;
    let mut picture = vec![0_u8; WIDTH * HEIGHT];

    // Each closure has its own rows; the borrow checker sees that no two share one.
    let bands = picture.chunks_mut(WIDTH * ROWS);
    queue.scope(|scope| {
        for (band, rows) in bands.enumerate() {
            scope.spawn(move || {
                for (index, point) in rows.iter_mut().enumerate() {
                    *point = steps(index % WIDTH, band * ROWS + index / WIDTH);
                }
            });
        }
    });

    // Nothing was moved or copied: the picture is ours again.
    for row in picture.chunks(WIDTH) {
        let shade = |steps: &u8| char::from(b" .:-=+*#%@"[usize::from(*steps) * 9 / 255]);
        println!("{}", row.iter().map(shade).collect::<String>().trim_end());
    }
    let pools = queue.statistics();
    let items: u64 = pools.iter().map(|pool| pool.completed).sum();
    let time: Duration = pools.iter().map(|pool| pool.cpu_time).sum();
    println!("{items} items, {time:.1?} of the workers' CPU time");
    Ok(())
}
