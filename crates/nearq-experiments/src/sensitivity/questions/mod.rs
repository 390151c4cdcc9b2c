//! The experiments that come to conclusions, a file for each.

pub(super) mod dispatch;
pub(super) mod highpri;
pub(super) mod home;
pub(super) mod join;
pub(super) mod lock;
pub(super) mod numa;
pub(super) mod scopes;

use super::question::Question;

/// All of them, in the order of the tables.
pub(super) static ALL: [&Question; 7] = [
    &scopes::SCOPES,
    &dispatch::DISPATCH,
    &join::JOIN,
    &lock::LOCK,
    &home::HOME,
    &highpri::HIGHPRI,
    &numa::NUMA,
];
