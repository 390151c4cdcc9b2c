//! Machines as text and as pictures.

#[allow(dead_code, reason = "what else holds for a machine is another test's")]
#[path = "../../../nearq-topology/tests/topology/checked.rs"]
mod checked;
#[path = "../../../nearq-topology/tests/topology/descriptions.rs"]
mod descriptions;
#[path = "../../../../fuzz/corpus.rs"]
mod files;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod machines;
mod shown;
mod untrusted;
