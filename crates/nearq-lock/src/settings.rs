//! How the mutexes of a process behave: the mode and the thresholds, and their names in the kernel lock that was published in 2024.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use nearq_platform::{AtomicInt, Linux, LockPlatform, Ordering, parse_switch, read_setting};

use crate::process_state::ProcessState;
use crate::threshold::{OutOfBounds, Threshold};

/// How mutexes treat the threads that have to wait ([`Settings::mode`]).
///
/// ```
/// use nearq_lock::Mode;
///
/// assert_eq!("numa".parse(), Ok(Mode::Numa));
/// assert_eq!(Mode::ALL.len(), 4);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// No queue: waiters sleep on the mutex itself, and wake in any order, as with `std::sync::Mutex`.
    Off,
    /// One queue, and a queue for each last-level cache while hand-overs often cross caches. The default.
    ///
    /// On a machine with one last-level cache, this is the same as `Plain`.
    #[default]
    Auto,
    /// One queue, on any machine: as the kernel lock that was published in 2024, with `dynamic_enable` 0.
    Plain,
    /// A queue for each last-level cache from the moment that two threads wait, for as long as the mutex exists. If more than a thousand
    /// mutexes have such queues at once, a mutex has them only while a thread waits.
    Numa,
}

impl Mode {
    /// All modes.
    pub const ALL: &'static [Mode] = &[Mode::Off, Mode::Auto, Mode::Plain, Mode::Numa];

    fn from_bits(bits: u64) -> Self {
        Self::ALL[bits as usize & 3]
    }

    /// Its name, as [`FromStr`] takes it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Auto => "auto",
            Mode::Plain => "plain",
            Mode::Numa => "numa",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A mode by its name, in capital or small letters. `1`, `on`, `yes` and `true` are [`Auto`](Mode::Auto), `no` and `false` are
/// [`Off`](Mode::Off). `0` is [`Plain`](Mode::Plain), as in the document's `dynamic_enable`.
///
/// ```
/// use nearq_lock::Mode;
///
/// assert_eq!("numa".parse(), Ok(Mode::Numa));
/// assert_eq!(Mode::Numa.to_string(), "numa");
/// let refused = "fast".parse::<Mode>().unwrap_err();
/// assert_eq!(refused.to_string(), "allowed are off, auto, plain and numa");
/// ```
impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        let name = name.trim();
        if name == "0" {
            return Ok(Mode::Plain);
        }
        match parse_switch(name) {
            Some(true) => Ok(Mode::Auto),
            Some(false) => Ok(Mode::Off),
            None => {
                let mut modes = Self::ALL.iter().copied();
                modes.find(|mode| mode.name().eq_ignore_ascii_case(name)).ok_or(UnknownMode)
            }
        }
    }
}

/// The least number of [`Settings::hand_overs`].
pub(crate) const LEAST_HAND_OVERS: u32 = 16;

/// The modes' names.
const MODES: &str = "off, auto, plain and numa";

/// No [`Mode`] has that name. The text says what is allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownMode;

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allowed are {MODES}")
    }
}

nearq_platform::debug_as_display!(UnknownMode);

impl core::error::Error for UnknownMode {}

/// The settings of all mutexes of a process. A value out of bounds is clamped when it is set, with one warning in a process for each of the
/// settings.
///
/// The kernel lock that was published in 2024 has a file in `/proc/zx_numa_lock` for some of them; the name of the file is in brackets.
///
/// ```
/// use std::time::Duration;
///
/// use nearq_lock::Settings;
///
/// let mut settings = Settings::of_process();
/// settings.patience = Duration::from_micros(500);
/// settings.batch = 64;
/// settings.set_for_process();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How waiters are treated (`dynamic_enable`). The initial value is that of the environment variable `NEARQ_LOCK`: `off`, `auto`,
    /// `plain` or `numa`; `auto` if it is not set.
    pub mode: Mode,
    /// After this many hand-overs in a row, the mutex decides whether to change to a queue for each cache: 16 to 2048, default 100
    /// (`osq_keep_times`, where the default is 32).
    pub hand_overs: u32,
    /// It changes if at least this many percent of those hand-overs went to another cache: 1 to 100, default 25.
    pub remote_percent: u32,
    /// If this is not 0, the rule of the published lock decides in place of the percentage: the mutex changes if more than this many threads
    /// wait then, wherever they are: 0 to 32, default 0 (`osq_lock_depth`, 5 to 32, where the default is 8).
    pub depth: u32,
    /// After it was taken this many times in a row within a cache, another cache has the turn, if threads wait there: 5 to 2048, default 24
    /// (`osq_node_max`, where it is 256). In a cache where fewer than five threads wait, a fifth of that for each of them.
    pub batch: u32,
    /// The longest time for which hand-overs stay within a cache while other caches wait, and how long the thread that has the turn
    /// tolerates being overtaken: 10 µs to 1 s, default 1 ms.
    pub patience: Duration,
    /// How many times the last waiter must have left, without a wait in another cache, before the mutex returns to one queue: 1 to 127,
    /// default 8 (the kernel lock checks every 60 s whether all is idle).
    pub quiet: u32,
    /// How many times a thread yields its CPU before it queues up, unless threads already wait while CPUs are left: 0 to 7, default 7. If
    /// the holder was preempted, that gives the CPU back to it. With an `RwLock`: before it sleeps.
    pub yields: u32,
    /// Whether events are counted ([`Statistics`](crate::Statistics)); default false.
    pub count: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            mode: Mode::Auto,
            hand_overs: 100,
            remote_percent: 25,
            depth: 0,
            batch: 24,
            patience: Duration::from_millis(1),
            quiet: 8,
            yields: 7,
            count: false,
        }
    }
}

impl Settings {
    /// The settings of the mutexes in this process.
    pub fn of_process() -> Self {
        Self::of_process_in::<Linux>()
    }

    /// The settings of the mutexes in the caller's process, on any platform.
    #[doc(hidden)]
    pub fn of_process_in<P: LockPlatform>() -> Self {
        ProcessState::<P>::get().settings()
    }

    /// Makes these the settings of all mutexes in this process. A mutex that threads wait for follows as soon as the queues that it has are
    /// empty.
    ///
    /// A value that is out of bounds is clamped, with a warning on standard error: once in a process for each of the settings.
    ///
    /// ```
    /// use nearq_lock::{Mode, Settings};
    ///
    /// let mut settings = Settings::of_process();
    /// settings.mode = Mode::Plain;
    /// settings.set_for_process();
    /// assert_eq!(Settings::of_process().mode, Mode::Plain);
    /// ```
    pub fn set_for_process(self) {
        self.set_for_process_in::<Linux>();
    }

    /// As [`set_for_process`](Self::set_for_process), on any platform.
    #[doc(hidden)]
    pub fn set_for_process_in<P: LockPlatform>(self) {
        let settings = self.within_bounds::<P>();
        ProcessState::<P>::get().set(settings);
    }

    /// Clamped, with a warning about each value that was out of bounds, unless there was one already.
    pub(crate) fn within_bounds<P: LockPlatform>(self) -> Self {
        let clamped = self.clamped();
        let out = self.differing(&clamped);
        if out != 0 {
            // Relaxed: the thread that sets a bit prints the warning.
            let said = ProcessState::<P>::get().complained.fetch_or(out, Ordering::Relaxed);
            if out & !said != 0 {
                P::warn(&self.complaint(&clamped, out & !said));
            }
        }
        clamped
    }

    /// The settings that are in effect at the start.
    pub(crate) fn at_start<P: LockPlatform>() -> Self {
        let mut settings = Settings::default();
        let parse = |text: &str| text.parse().map_err(|_: UnknownMode| MODES.to_owned());
        if let Ok(Some(mode)) = read_setting::<P, _>("NEARQ_LOCK", "Using auto", parse) {
            settings.mode = mode;
        }
        settings
    }

    /// Settings for models: a mutex changes back as soon as it can, and threads queue up at once.
    #[cfg(all(test, not(any(miri, tsan))))]
    pub(crate) fn eager(self) -> Self {
        Settings { quiet: 1, yields: 0, ..self }
    }

    /// With each threshold clamped to its bounds.
    fn clamped(self) -> Self {
        let mut clamped = self;
        for &threshold in Threshold::ALL {
            threshold.clamp(&mut clamped);
        }
        clamped
    }

    /// Which thresholds differ between the two: a bit for each.
    fn differing(&self, clamped: &Self) -> u32 {
        Threshold::ALL.iter().rev().fold(0, |bits, threshold| {
            bits << 1 | u32::from(threshold.get(self) != threshold.get(clamped))
        })
    }

    /// What is wrong with the thresholds that `which` names.
    fn complaint(&self, clamped: &Self, which: u32) -> String {
        let wrong: Vec<String> = (Threshold::ALL.iter().copied().enumerate())
            .filter(|(bit, _)| which >> bit & 1 == 1)
            .map(|(_, threshold)| {
                let (name, bounds) = (threshold.name(), OutOfBounds::of(threshold));
                let (wanted, taken) = (threshold.get(self), threshold.get(clamped));
                format!("{name} {wanted} ({bounds}; using {taken})")
            })
            .collect();
        format!(
            "settings of the mutex out of bounds: {}. This is reported once for each setting",
            wrong.join(", ")
        )
    }

    /// As one number, so that one load reads them; but for the depth, of which it says only whether there is one. The settings are within
    /// their bounds.
    pub(crate) fn pack(self) -> u64 {
        self.mode as u64
            | u64::from(self.hand_overs - LEAST_HAND_OVERS) << 2
            | u64::from(self.depth != 0) << 13
            | u64::from(self.remote_percent) << 14
            | u64::from(self.batch) << 21
            | u64::from(self.quiet) << 33
            | u64::from(self.count) << 43
            | u64::from(self.yields) << 40
            | (self.patience.as_micros() as u64) << 44
    }

    /// The settings of that number; `depth` is asked for the depth if there is one.
    pub(crate) fn unpack(packed: u64, depth: impl FnOnce() -> u32) -> Self {
        Settings {
            mode: Mode::from_bits(packed),
            hand_overs: ((packed >> 2) as u32 & 0x7ff) + LEAST_HAND_OVERS,
            depth: if packed >> 13 & 1 == 1 { depth() } else { 0 },
            remote_percent: (packed >> 14) as u32 & 0x7f,
            batch: (packed >> 21) as u32 & 0xfff,
            quiet: (packed >> 33) as u32 & 0x7f,
            yields: (packed >> 40) as u32 & 7,
            count: packed >> 43 & 1 == 1,
            patience: Duration::from_micros(packed >> 44),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_fit_into_a_word_and_stay_within_their_bounds() {
        let all = |value, percent, long| Settings {
            mode: Mode::Numa,
            hand_overs: value,
            remote_percent: percent,
            depth: value,
            batch: value,
            patience: long,
            quiet: value,
            yields: value,
            count: value > 9,
        };
        let too_much = all(u32::MAX, u32::MAX, Duration::MAX);
        let most = too_much.clamped();
        assert_eq!((most.hand_overs, most.batch, most.quiet), (2048, 2048, 127));
        assert_eq!((too_much.differing(&most), most.differing(&most)), (0b111_1111, 0));
        assert_eq!(Settings::unpack(most.pack(), || 32), most);
        let least = all(0, 0, Duration::ZERO).clamped();
        assert_eq!(
            (least.hand_overs, least.batch, least.quiet, least.remote_percent),
            (16, 5, 1, 1)
        );
        assert_eq!(Settings::unpack(least.pack(), || unreachable!()), least);
        let usual = Settings::default();
        assert_eq!(
            (Settings::unpack(usual.pack(), || unreachable!()), usual.clamped()),
            (usual, usual)
        );
    }

    #[test]
    fn out_of_bounds_settings_are_reported_with_their_bounds() {
        let wanted = Settings { batch: 1, quiet: 200, ..Settings::default() };
        let clamped = wanted.clamped();
        assert_eq!(wanted.differing(&clamped), 0b010_1000);
        let both = wanted.complaint(&clamped, 0b010_1000);
        assert!(both.contains("batch 1 (allowed are 5 to 2048; using 5), quiet 200 ("), "{both}");
        assert!(!wanted.complaint(&clamped, 0b000_1000).contains("quiet"));
    }

    #[test]
    fn modes_have_names() {
        for &mode in Mode::ALL {
            assert_eq!(format!(" {mode} ").parse(), Ok(mode));
            assert_eq!(Mode::from_bits(mode as u64), mode);
            assert!(UnknownMode.to_string().contains(mode.name()));
        }
        let others = ["on", "1", "TRUE", "no", "0", "Numa"].map(str::parse);
        let modes = [Mode::Auto, Mode::Auto, Mode::Auto, Mode::Off, Mode::Plain, Mode::Numa];
        assert_eq!(others, modes.map(Ok));
        assert_eq!("always".parse::<Mode>(), Err(UnknownMode));
    }
}
