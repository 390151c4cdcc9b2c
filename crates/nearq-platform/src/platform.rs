//! The trait [`Platform`]: all that a machine can do for the runtime.

use crate::Placement;

/// All that a machine can do for the runtime: what a [lock](crate::LockPlatform) needs, what [threads](crate::Threads) need beyond it,
/// and [placement](Placement). Each of the three is based on the one before, and says what callers rely on.
///
/// The trait has no items of its own. To call a function of a platform by its name, such as `Linux::spawn`, import the trait that declares
/// it.
pub trait Platform: Placement {}

impl<P: Placement> Platform for P {}
