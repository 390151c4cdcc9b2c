//! Each program does what its first lines say, run as a user runs it, and so does the same program on another library.

mod common;
mod deliver;
mod hash_files;
mod lengths;
mod service;
mod tokio_per_pod;
