//! Deliberately broken variants of the runtime, to prove that the tests which look for such faults find them.
//!
//! A test that never fails may be blind. So each variant leaves out one step of a protocol whose loss would be hard to see,
//! and the fault soak must fail with it. Compiled in with the feature `broken` only, and chosen by the setting `NEARQ_BROKEN`
//! when a runtime is built; without the feature every question here is a constant `false`. Not for users.

use nearq_platform::Platform;

use crate::base::error::Error;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A worker that has settled on the idle stack does not look at the inbox once more (`idle`).
    LostWakeUp,
    /// `RUNNING` is given back before the function is called, not after it (`item`).
    DoubleRun,
    /// Who holds an item back does not look at the completions once more (`admission`).
    AdmissionLeak,
    /// Workers of strict pools help other pods (`pool`).
    StrictLeak,
    /// A cancelled queueing does not give its place back (`queue`).
    CancelLeak,
    /// An item is armed for half of its delay (`queue`).
    EarlyTimer,
}

/// The variant that a runtime is; none without the feature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variant(Option<Broken>);

impl Variant {
    /// The variant that the setting names.
    pub(crate) fn chosen<P: Platform>() -> Result<Self, Error> {
        let setting = if cfg!(feature = "broken") { P::setting("NEARQ_BROKEN") } else { None };
        let Some(name) = setting else { return Ok(Variant(None)) };
        Ok(Variant(Some(match name.as_str() {
            "lost-wake-up" => Broken::LostWakeUp,
            "double-run" => Broken::DoubleRun,
            "admission-leak" => Broken::AdmissionLeak,
            "strict-leak" => Broken::StrictLeak,
            "cancel-leak" => Broken::CancelLeak,
            "early-timer" => Broken::EarlyTimer,
            _ => {
                return Err(Error::Machine(format!(
                    "NEARQ_BROKEN is `{name}`; it may be lost-wake-up, double-run, admission-leak, strict-leak, cancel-leak or early-timer"
                )));
            }
        })))
    }

    /// Whether this is broken; a constant without the feature.
    #[inline(always)]
    pub(crate) fn is(self, what: Broken) -> bool {
        cfg!(feature = "broken") && self.0 == Some(what)
    }
}
