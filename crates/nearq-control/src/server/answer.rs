//! Turns a call into its answer.
//!
//! [`Host`] is what all connections share: the target, and how many connections have items timed and traced. [`Session`] is what one
//! connection has requested with lasting effect. Nothing here depends on sockets.
//!
//! A target that panics fails the call, not the thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use serde::Serialize;

use super::budget::own_cpu_time;
use super::call::{Call, Error, SERVICE, reply};
use super::interface;
use super::limits::{MOST_EVENTS, MOST_HOLDING, MOST_TRACES};
use super::undo::{Holder, Note, Undo};
use crate::control_target::{ControlTarget, Tracing};
use crate::protocol::{
    Access, DumpReply, GetDump, GetProcess, GetSettings, GetStatistics, INTERFACE, Keep, KeepReply,
    ProcessReply, Refusal, Request, Set, SettingsReply, StatisticsReply, Trace,
};

/// The target, and what is switched on because a session needs it.
pub(super) struct Host {
    target: Box<dyn ControlTarget>,
    access: Access,
    since: Instant,
    /// Sessions that have items timed.
    timing: usize,
    /// Sessions that have a trace.
    tracing: usize,
    /// The number of sessions whose end undoes something.
    holding: usize,
    undo: Undo,
}

/// What one connection may do, and what it has requested that ends with it.
pub(super) struct Session {
    allowed: Access,
    timing: bool,
    /// Identifies the session as a holder of values, once it has changed some.
    holder: Option<Holder>,
    trace: Option<Box<dyn Tracing>>,
    /// Whether the session is counted in `holding`: its end undoes something, or was going to. It stays counted until it ends.
    holds: bool,
}

/// The result of a call.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The bytes to send; empty for a call that wants no answer.
    pub(super) bytes: Vec<u8>,
    /// Whether this was the last answer.
    pub(super) close: bool,
}

impl Session {
    pub(super) fn new(allowed: Access) -> Self {
        Session { allowed, timing: false, holder: None, trace: None, holds: false }
    }

    pub(super) fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// Whether the end of the session undoes something.
    pub(super) fn holds_something(&self) -> bool {
        self.holds
    }

    /// The events of the session's trace since the last call, and whether there are more; `None` if there are none, and an error if the
    /// trace cannot continue.
    pub(super) fn batch(&mut self) -> Result<Option<(Vec<u8>, bool)>, ()> {
        let Some(trace) = &mut self.trace else { return Ok(None) };
        let batch =
            catch_unwind(AssertUnwindSafe(|| trace.take(MOST_EVENTS))).map_err(|_panic| ())?;
        if batch.events.is_empty() && batch.queues.is_empty() {
            return Ok(None);
        }
        Ok(Some((reply(&batch, true), batch.events.len() >= MOST_EVENTS)))
    }
}

impl Host {
    pub(super) fn new(target: Box<dyn ControlTarget>, access: Access) -> Self {
        let (since, undo) = (Instant::now(), Undo::default());
        Host { target, access, since, timing: 0, tracing: 0, holding: 0, undo }
    }

    /// What a user may do; `None` if the user may not even ask.
    pub(super) fn allowed(&self, user: u32) -> Option<Access> {
        match user {
            0 => Some(Access::Full),
            user if user == rustix::process::geteuid().as_raw() => Some(self.access),
            _ => None,
        }
    }

    pub(super) fn tracing(&self) -> usize {
        self.tracing
    }

    /// Answers a call, which comes without its zero byte.
    pub(super) fn answer(&mut self, session: &mut Session, bytes: &[u8]) -> Outcome {
        let call = match Call::parse(bytes) {
            Ok(call) => call,
            Err(error) => return Outcome { bytes: error.message(), close: true },
        };
        let answer = catch_unwind(AssertUnwindSafe(|| self.dispatch(session, &call)));
        let bytes = match answer {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => error.message(),
            Err(panic) => {
                let why = format!("{} panicked: {}", call.method(), panic_text(&*panic));
                Error::Refused(Refusal::Failed { why }).message()
            }
        };
        Outcome { bytes: if call.oneway() { Vec::new() } else { bytes }, close: false }
    }

    fn dispatch(&mut self, session: &mut Session, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        if call.upgrade() {
            return Err(Error::InvalidParameter { parameter: "upgrade".to_owned() });
        }
        match call.name() {
            (SERVICE, method) => interface::answer(method, call),
            (INTERFACE, GetProcess::METHOD) => {
                let GetProcess {} = call.parameters()?;
                Ok(last(&self.process(session)))
            }
            (INTERFACE, GetStatistics::METHOD) => {
                let statistics = self.statistics(session, &call.parameters()?)?;
                Ok(last(&statistics))
            }
            (INTERFACE, GetDump::METHOD) => {
                let dump = self.target.dump(&call.parameters()?)?;
                Ok(last(&DumpReply { dump }))
            }
            (INTERFACE, GetSettings::METHOD) => {
                let wanted: GetSettings = call.parameters()?;
                let settings = self.target.settings(wanted.queue.as_deref())?;
                Ok(last(&SettingsReply { settings }))
            }
            (INTERFACE, Set::METHOD) => Ok(last(&self.set(session, &call.parameters()?)?)),
            (INTERFACE, Keep::METHOD) => {
                let Keep {} = call.parameters()?;
                if let Some(holder) = session.holder.take() {
                    self.undo.keep(holder);
                }
                Ok(last(&KeepReply {}))
            }
            (INTERFACE, Trace::METHOD) => self.trace(session, call),
            (INTERFACE | "", _) => Err(Error::MethodNotFound { method: call.method().to_owned() }),
            (interface, _) => Err(Error::InterfaceNotFound { interface: interface.to_owned() }),
        }
    }

    fn process(&self, session: &Session) -> ProcessReply {
        let mut process = self.target.process();
        process.control = self.access;
        process.allowed = session.allowed;
        process.since_ns = self.since.elapsed().as_nanos() as u64;
        ProcessReply { process }
    }

    fn statistics(
        &mut self,
        session: &mut Session,
        wanted: &GetStatistics,
    ) -> Result<StatisticsReply, Refusal> {
        if wanted.timing && !session.timing {
            self.hold(session)?;
            if self.timing == 0 {
                self.target.time_items(true)?;
            }
            self.timing += 1;
            session.timing = true;
        }
        let mut statistics = self.target.statistics()?;
        statistics.control_cpu_ns = own_cpu_time().as_nanos() as u64;
        Ok(StatisticsReply { statistics })
    }

    fn set(&mut self, session: &mut Session, wanted: &Set) -> Result<SettingsReply, Refusal> {
        if session.allowed < Access::Full {
            let why = "this process allows inspection, but no changes: start it with NEARQ_CONTROL=full, or run this command as root";
            return Err(Refusal::NotPermitted { why: why.to_owned() });
        }
        let note = Note::of(&*self.target, wanted)?;
        let holder = session.holder.unwrap_or_else(|| self.undo.connection());
        if wanted.until_closed {
            self.undo.may_hold(holder, &note)?;
            self.hold(session)?;
        }
        let settings = self.target.set(wanted.queue.as_deref(), &wanted.changes)?;
        if wanted.until_closed {
            self.undo.add(holder, note);
            session.holder = Some(holder);
        } else {
            self.undo.stays(&note);
        }
        Ok(SettingsReply { settings })
    }

    fn trace(&mut self, session: &mut Session, call: &Call<'_>) -> Result<Vec<u8>, Error> {
        let wanted: Trace = call.parameters()?;
        if !call.more() || call.oneway() {
            return Err(Error::ExpectedMore);
        }
        if wanted.every.is_some_and(|every| !every.is_power_of_two()) {
            return Err(Error::InvalidParameter { parameter: "every".to_owned() });
        }
        if self.tracing >= MOST_TRACES {
            let why = format!(
                "this process already has {MOST_TRACES} traces, which is the limit; try again when one has ended"
            );
            return Err(Refusal::Busy { why }.into());
        }
        self.hold(session)?;
        let mut trace = self.target.trace(&wanted)?;
        // Answer at once, so that the caller knows that the trace has begun.
        let first = trace.take(MOST_EVENTS);
        session.trace = Some(trace);
        self.tracing += 1;
        Ok(reply(&first, true))
    }

    /// Counts the session among those whose end undoes something, if one more is allowed.
    fn hold(&mut self, session: &mut Session) -> Result<(), Refusal> {
        if !session.holds && self.holding >= MOST_HOLDING {
            let why = format!(
                "{MOST_HOLDING} other connections already time items, trace, or have set something temporarily, which is the limit; \
             try again when one has closed"
            );
            return Err(Refusal::Busy { why });
        }
        self.holding += usize::from(!std::mem::replace(&mut session.holds, true));
        Ok(())
    }

    /// The connection is closed: undoes what was requested until then.
    pub(super) fn end(&mut self, session: &mut Session) {
        let guarded = |step: &mut dyn FnMut()| {
            // A step that panics does not prevent the other steps.
            let _ = catch_unwind(AssertUnwindSafe(step));
        };
        if std::mem::take(&mut session.holds) {
            self.holding -= 1;
        }
        if let Some(trace) = session.trace.take() {
            self.tracing -= 1;
            let mut trace = Some(trace);
            guarded(&mut || drop(trace.take()));
        }
        if let Some(holder) = session.holder.take() {
            guarded(&mut || self.undo.restore(holder, &mut *self.target));
        }
        if std::mem::take(&mut session.timing) {
            self.timing -= 1;
            if self.timing == 0 {
                guarded(&mut || drop(self.target.time_items(false)));
            }
        }
    }
}

fn last(parameters: &impl Serialize) -> Vec<u8> {
    reply(parameters, false)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a reason")
}
