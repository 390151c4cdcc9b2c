//! The decisions of the node affine scheduler, and the structures of its state for user space.
//!
//! The decisions are in one C header, `policy/policy.h`, from which the BPF program of `nearq-scx` is compiled. The feature `layout` has
//! the header's structures, for programs that share them with a kernel; it takes libclang to build. Without it this crate is empty, so that
//! the workspace is built without libclang. `verify/nearq-policy-harness` compiles the header for user space, and tests it.

#![warn(missing_docs)]

#[cfg(feature = "layout")]
pub mod layout;
#[cfg(feature = "layout")]
mod machine;

#[cfg(feature = "layout")]
pub use machine::{TooLarge, describe};
