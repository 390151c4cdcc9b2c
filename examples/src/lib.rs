//! What each program and its counterpart share: what they work on, not how they run it.

mod files;

pub use files::{Tree, hash};
