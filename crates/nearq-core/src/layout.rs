//! Which pools a queue has, as determined by its settings and the machine. Imports `base` and `homes`.
//!
//! | file | what it holds |
//! |---|---|
//! | `attributes` | the settings of a queue, and the pods that follow from them |
//! | `kind` | which attributes each kind of queue can have |
//! | `domain` | the domains in which a queue's items are counted |
//! | `priority` | nice values and slices; words that store which of several is the most favoured |
//!
//! It contains two protocols: the words that store which priority is the most favoured, and which was reached.

pub(crate) mod attributes;
pub(crate) mod domain;
pub(crate) mod kind;
pub(crate) mod priority;
