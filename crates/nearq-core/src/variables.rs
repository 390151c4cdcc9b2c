//! What environment variables say of a runtime that is being built.
//!
//! A program that builds a runtime is told of a value that is not known. The process-wide runtime has nobody to tell, and a program must not
//! end because of a letter in its environment: there such a variable is warned of and counts as not set.

use core::marker::PhantomData;
use core::time::Duration;

use nearq_home::Weights;
use nearq_platform::Platform;
use nearq_topology::Scope;

use crate::error::Error;
use crate::home::HomeChoice;

/// The variables, read one after the other.
pub(crate) struct Variables<P: Platform> {
    /// Whether a value that is not known is warned of, and no error.
    lenient: bool,
    platform: PhantomData<P>,
}

impl<P: Platform> Variables<P> {
    pub(crate) fn new(lenient: bool) -> Self {
        Variables { lenient, platform: PhantomData }
    }

    /// What a variable says, if it is set; `parse` says what the value may be where it is not that.
    fn read<T>(
        &self,
        variable: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = P::setting(variable) else { return Ok(None) };
        match parse(&value) {
            Ok(parsed) => Ok(Some(parsed)),
            Err(expected) => {
                let error = Error::Environment { variable, value, expected };
                if !self.lenient {
                    return Err(error);
                }
                P::warn(&format!("{error}; it counts as not set"));
                Ok(None)
            }
        }
    }

    fn switch(&self, variable: &'static str) -> Result<Option<bool>, Error> {
        self.read(variable, |text| match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err("`on` or `off`".into()),
        })
    }

    pub(crate) fn default_scope(&self) -> Result<Option<Scope>, Error> {
        let expected = "cpu, smt, cache, cache_shard, numa or system";
        self.read("NEARQ_DEFAULT_SCOPE", |text| text.parse().map_err(|_| expected.into()))
    }

    pub(crate) fn affinity(&self) -> Result<Option<bool>, Error> {
        self.switch("NEARQ_AFFINITY")
    }

    pub(crate) fn inherits_homes(&self) -> Result<Option<bool>, Error> {
        self.switch("NEARQ_HOME_INHERIT")
    }

    pub(crate) fn home_choice(&self) -> Result<Option<HomeChoice>, Error> {
        self.read("NEARQ_HOME_CHOICE", |text| {
            HomeChoice::by_name(text).ok_or_else(|| "`now` or `first-run`".into())
        })
    }

    /// A time in seconds.
    pub(crate) fn stall_after(&self) -> Result<Option<Duration>, Error> {
        self.read("NEARQ_STALL_AFTER", |text| {
            let seconds: Option<f64> = text.trim().parse().ok();
            seconds
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or_else(|| "a number of seconds, or 0 for never".into())
        })
    }

    /// Weights as in `imbalance=2000,imbalance_step=0`, where those that are not named stay as they are.
    pub(crate) fn home_weights(&self, weights: &Weights) -> Result<Option<Weights>, Error> {
        self.read("NEARQ_HOME_WEIGHTS", |text| {
            let mut weights = weights.clone();
            for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let known = part
                    .split_once('=')
                    .and_then(|(name, value)| Some((name.trim(), value.trim().parse().ok()?)));
                let (name, value) = known.ok_or("NAME=NUMBER, several with commas between them")?;
                weights.set(name, value).map_err(|wrong| {
                    format!("NAME=NUMBER, several with commas between them: {wrong}")
                })?;
            }
            Ok(weights)
        })
    }
}
