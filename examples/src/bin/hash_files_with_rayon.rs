//! `hash_files` on rayon. A thread of its pool that waits for a disk is not replaced.

use nearq_examples::{Tree, hash};
use rayon::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tree = Tree::from_arguments()?;
    let lines: Vec<_> = tree.files()?.into_par_iter().map(hash).collect();
    for line in lines {
        println!("{}", line?);
    }
    Ok(())
}
