//! What happened, in order: a hash of all events, and lines for people if requested.

/// How much a run records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TraceLevel {
    /// The hash alone.
    #[default]
    Hash,
    /// A line for each scheduling event as well.
    Events,
    /// A line for each access to an atomic as well.
    Accesses,
}

/// What a line of the trace says. The text names its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Spawn,
    Ready,
    Run,
    Preempted,
    Wait,
    Sleep,
    Join,
    TimedOut,
    Idle,
    End,
    Exec,
    Panic,
    Affinity,
    Limits,
    Warn,
    Read,
    Write,
    ReadBytes,
    WriteBytes,
    Throttled,
    Online,
    Offline,
    SpawnRefused,
    SpuriousWake,
    LateTimer,
    StandsStill,
}

impl Kind {
    /// The verb, and what the number after it is.
    fn text(self) -> &'static str {
        match self {
            Kind::Spawn => "spawns thread",
            Kind::Ready => "makes ready thread",
            Kind::Run => "runs after thread",
            Kind::Preempted => "is preempted on cpu",
            Kind::Wait => "waits on line",
            Kind::Sleep => "sleeps until",
            Kind::Join => "joins thread",
            Kind::TimedOut => "reaches its deadline; cpu",
            Kind::Idle => "leaves the CPU idle",
            Kind::End => "ends after ns",
            Kind::Exec => "has a new program; process",
            Kind::Panic => "panics; panics so far:",
            Kind::Affinity => "may run on CPUs, in number",
            Kind::Limits => "changes the limits; CPUs",
            Kind::Warn => "warns; bytes",
            Kind::Read => "reads line",
            Kind::Write => "writes line",
            Kind::ReadBytes => "reads bytes",
            Kind::WriteBytes => "writes bytes",
            Kind::Throttled => "is stopped: no quota left",
            Kind::Online => "brings online cpu",
            Kind::Offline => "takes offline cpu",
            Kind::SpawnRefused => "is refused a thread by a fault; so far:",
            Kind::SpuriousWake => "is woken for no reason by a fault; cpu",
            Kind::LateTimer => "has a late timer by a fault; by ns",
            Kind::StandsStill => "is preempted by a fault for ns",
        }
    }

    fn level(self) -> TraceLevel {
        match self {
            Kind::Read | Kind::Write | Kind::ReadBytes | Kind::WriteBytes => TraceLevel::Accesses,
            _ => TraceLevel::Events,
        }
    }
}

/// The record of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    level: TraceLevel,
    hash: u64,
    lines: Vec<String>,
}

impl Trace {
    pub(crate) fn new(level: TraceLevel) -> Self {
        // The offset basis of FNV-1a.
        Trace { level, hash: 0xCBF2_9CE4_8422_2325, lines: Vec::new() }
    }

    /// Notes that `thread` on `cpu` did something at `time`.
    pub(crate) fn record(&mut self, time: u64, cpu: usize, thread: u64, kind: Kind, number: u64) {
        for word in [time, (cpu as u64) << 32 | kind as u64, thread, number] {
            // FNV-1a over words instead of bytes; the rotation brings the high bits down.
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        }
        if self.level >= kind.level() {
            self.lines.push(format!(
                "{time:>12} cpu {cpu:<3} thread {thread:<4} {} {number}",
                kind.text()
            ));
        }
    }

    /// Adds a text to what was noted last.
    pub(crate) fn text(&mut self, text: &str) {
        for byte in text.bytes() {
            self.hash =
                (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        }
        if let Some(last) = self.lines.last_mut() {
            last.push_str(": ");
            last.push_str(text);
        }
    }

    pub(crate) fn finish(self) -> (u64, Vec<String>) {
        (self.hash, self.lines)
    }
}
