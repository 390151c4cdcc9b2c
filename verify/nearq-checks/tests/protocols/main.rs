//! The protocols of the runtime, checked state by state.

mod mutex;
mod mutex_mutants;
mod properties;
mod rwlock;
