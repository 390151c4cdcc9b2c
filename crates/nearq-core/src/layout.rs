//! Which pools a queue has: from what is set of it, and from the machine. Imports `base`.
//!
//! | file | what it holds |
//! |---|---|
//! | `attributes` | what can be set of a queue, and the pods that follow from it |
//! | `domain` | the domains in which a queue's items are counted |
//! | `priority` | nice values and slices; words that say which of several is the most favoured |
//!
//! Its own: the words that say which priority is the most favoured, and which was reached.

pub(crate) mod attributes;
pub(crate) mod domain;
pub(crate) mod priority;
