//! Prints the SHA-256 of each file below a folder, in the order of their paths: `cargo run -p nearq-examples --bin hash_files [FOLDER]`.
//!
//! At most 64 closures wait or run at any time: `spawn` waits for a place. A worker that waits for a disk is replaced meanwhile.

use nearq_examples::{Tree, hash};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tree = Tree::from_arguments()?;
    let queue = nearq::system::unbound().bounded(64);
    let lines: Vec<_> = tree.files()?.into_iter().map(|file| queue.spawn(|| hash(file))).collect();
    for line in lines {
        println!("{}", line.join()??);
    }
    Ok(())
}
