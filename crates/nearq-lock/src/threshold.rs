//! The numeric settings, by name: the values that each allows, in one place.
//!
//! If a program sets them, out-of-bounds values are clamped ([`Settings`]). Code that sets one by name, at a request from outside the
//! program, can refuse a value that is out of bounds and say what is allowed.

use core::fmt;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::Settings;
use crate::settings::LEAST_HAND_OVERS;

/// One of the numeric [`Settings`], for tools that read and set them by name.
///
/// ```
/// use nearq_lock::{Settings, Threshold};
///
/// let mut settings = Settings::default();
/// let batch = Threshold::named("batch").expect("there is one of that name");
/// assert_eq!(batch.set(&mut settings, 100), Ok(()));
/// assert_eq!((settings.batch, batch.get(&settings)), (100, 100));
///
/// let refused = batch.set(&mut settings, 3).unwrap_err();
/// assert_eq!(refused.to_string(), "allowed are 5 to 2048");
/// assert_eq!(settings.batch, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Threshold {
    /// [`Settings::hand_overs`].
    HandOvers,
    /// [`Settings::remote_percent`].
    RemotePercent,
    /// [`Settings::depth`].
    Depth,
    /// [`Settings::batch`].
    Batch,
    /// [`Settings::patience`], in microseconds.
    Patience,
    /// [`Settings::quiet`].
    Quiet,
    /// [`Settings::yields`].
    Yields,
}

impl Threshold {
    /// All of them, in the order of the fields.
    pub const ALL: &'static [Threshold] = &[
        Threshold::HandOvers,
        Threshold::RemotePercent,
        Threshold::Depth,
        Threshold::Batch,
        Threshold::Patience,
        Threshold::Quiet,
        Threshold::Yields,
    ];

    /// The threshold with that [name](Self::name); `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|threshold| threshold.name() == name)
    }

    /// The name of the field of [`Settings`].
    pub fn name(self) -> &'static str {
        match self {
            Threshold::HandOvers => "hand_overs",
            Threshold::RemotePercent => "remote_percent",
            Threshold::Depth => "depth",
            Threshold::Batch => "batch",
            Threshold::Patience => "patience",
            Threshold::Quiet => "quiet",
            Threshold::Yields => "yields",
        }
    }

    /// The allowed values, in its [unit](Self::unit).
    pub fn bounds(self) -> RangeInclusive<u64> {
        match self {
            Threshold::HandOvers => LEAST_HAND_OVERS.into()..=2048,
            Threshold::RemotePercent => 1..=100,
            Threshold::Depth => 0..=32,
            Threshold::Batch => 5..=2048,
            Threshold::Patience => 10..=1_000_000,
            Threshold::Quiet => 1..=127,
            Threshold::Yields => 0..=7,
        }
    }

    /// The unit of its values: `microseconds`, or empty for a plain number.
    pub fn unit(self) -> &'static str {
        if self == Threshold::Patience { "microseconds" } else { "" }
    }

    /// Its value in `settings`, in its [unit](Self::unit).
    pub fn get(self, settings: &Settings) -> u64 {
        match self {
            Threshold::HandOvers => settings.hand_overs.into(),
            Threshold::RemotePercent => settings.remote_percent.into(),
            Threshold::Depth => settings.depth.into(),
            Threshold::Batch => settings.batch.into(),
            Threshold::Patience => u64::try_from(settings.patience.as_micros()).unwrap_or(u64::MAX),
            Threshold::Quiet => settings.quiet.into(),
            Threshold::Yields => settings.yields.into(),
        }
    }

    /// Sets its value in `settings`, in its [unit](Self::unit).
    ///
    /// # Errors
    /// If the value is out of [bounds](Self::bounds). `settings` is unchanged then.
    pub fn set(self, settings: &mut Settings, value: u64) -> Result<(), OutOfBounds> {
        if !self.bounds().contains(&value) {
            return Err(OutOfBounds::of(self));
        }
        // It fits: no bound is greater.
        let short = value as u32;
        match self {
            Threshold::HandOvers => settings.hand_overs = short,
            Threshold::RemotePercent => settings.remote_percent = short,
            Threshold::Depth => settings.depth = short,
            Threshold::Batch => settings.batch = short,
            Threshold::Patience => settings.patience = Duration::from_micros(value),
            Threshold::Quiet => settings.quiet = short,
            Threshold::Yields => settings.yields = short,
        }
        Ok(())
    }

    /// Clamps it to its bounds.
    pub(crate) fn clamp(self, settings: &mut Settings) {
        let (least, most) = self.bounds().into_inner();
        let value = self.get(settings);
        if self.set(settings, value.clamp(least, most)).is_err() {
            unreachable!("what was clamped is within bounds");
        }
    }
}

/// A value that a [`Threshold`] cannot have. The text says what is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OutOfBounds(Threshold);

impl OutOfBounds {
    pub(crate) fn of(threshold: Threshold) -> Self {
        OutOfBounds(threshold)
    }
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.0.bounds().into_inner();
        write!(f, "allowed are {}", format!("{least} to {most} {}", self.0.unit()).trim_end())
    }
}

nearq_platform::debug_as_display!(OutOfBounds);

impl core::error::Error for OutOfBounds {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_threshold_is_set_by_its_name_within_its_bounds_and_changes_no_other() {
        for &threshold in Threshold::ALL {
            assert_eq!(Threshold::named(threshold.name()), Some(threshold));
            let (least, most) = threshold.bounds().into_inner();
            for value in [least, most] {
                let mut settings = Settings::default();
                assert_eq!(threshold.set(&mut settings, value), Ok(()));
                assert_eq!(threshold.get(&settings), value);
                let usual = threshold.get(&Settings::default());
                threshold.set(&mut settings, usual).unwrap();
                assert_eq!(settings, Settings::default());
            }
            for value in [least.wrapping_sub(1), most + 1, u64::MAX] {
                let mut settings = Settings::default();
                let refused = threshold.set(&mut settings, value).unwrap_err().to_string();
                assert!(refused.contains(&format!("{least} to {most}")), "{refused}");
                assert_eq!(settings, Settings::default());
            }
        }
        assert_eq!(Threshold::named("mode"), None);
    }

    #[test]
    fn clamped_values_may_be_set() {
        for patience in [Duration::ZERO, Duration::from_nanos(10_999), Duration::MAX] {
            let mut settings = Settings { patience, batch: 0, ..Settings::default() };
            for &threshold in Threshold::ALL {
                threshold.clamp(&mut settings);
            }
            for &threshold in Threshold::ALL {
                assert!(threshold.bounds().contains(&threshold.get(&settings)), "{settings:?}");
            }
        }
    }
}
