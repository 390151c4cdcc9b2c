//! Events as lines for a terminal: at most 100 columns wide during the first day of a trace, however long the names are, and at most as wide
//! as the terminal.

use nearq_command::screen::{Side, counted, pad, plain, tail};
use nearq_control::protocol::{TraceEvent, TraceKind};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::names::Names;

/// Width of a queue's name.
const QUEUE: usize = 16;
/// Its width on a narrow terminal.
const SHORT_QUEUE: usize = 8;
/// Width of a thread's name: the system's names have up to 15 bytes.
const THREAD: usize = 15;
/// Width of a function's name.
const FUNCTION: usize = 28;
/// The least width of a function's name; for more, other columns are left out.
const SHORT_FUNCTION: usize = 12;
/// Widths of the other columns.
const TIME: usize = 12;
const CPU: usize = 4;
const EVENT: usize = 5;
const TOOK: usize = 14;

/// Which columns there are, and how wide those are that differ. Of a narrow terminal, the thread, the CPU and the time that something took are
/// left out, in this order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Columns {
    thread: bool,
    cpu: bool,
    took: bool,
    queue: usize,
    function: usize,
}

impl Columns {
    /// All columns.
    const ALL: Self =
        Self { thread: true, cpu: true, took: true, queue: QUEUE, function: FUNCTION };

    /// For a terminal of `width` columns, or for a file.
    pub(super) fn within(width: Option<usize>) -> Self {
        let Some(width) = width else { return Self::ALL };
        let mut columns = Self::ALL;
        for narrower in [
            |_: &mut Self| {},
            |columns| columns.thread = false,
            |columns| columns.cpu = false,
            |columns| columns.queue = SHORT_QUEUE,
            |columns| columns.took = false,
        ] as [fn(&mut Self); 5]
        {
            narrower(&mut columns);
            if columns.before_function() + SHORT_FUNCTION <= width {
                break;
            }
        }
        let rest = width.saturating_sub(columns.before_function());
        columns.function = rest.clamp(1, FUNCTION);
        columns
    }

    /// The width of all columns but the last, with the blanks between them.
    fn before_function(self) -> usize {
        let optional = [(self.thread, THREAD), (self.cpu, CPU), (self.took, TOOK)];
        let optional = optional.iter().filter(|(is_there, _)| *is_there);
        TIME + 1 + self.queue + 1 + EVENT + 1 + optional.map(|(_, width)| width + 1).sum::<usize>()
    }

    fn line(self, [time, cpu, thread, queue, event, took, function]: [&str; 7]) -> String {
        let mut line = format!("{time:>TIME$} ");
        if self.cpu {
            line += &format!("{cpu:>CPU$} ");
        }
        if self.thread {
            line += &(head(thread, THREAD) + " ");
        }
        line += &format!("{} {event:EVENT$} ", head(queue, self.queue));
        if self.took {
            line += &format!("{took:>TOOK$} ");
        }
        line + &tail(&plain(function), self.function, '…') + "\n"
    }
}

/// The line above the columns.
pub(super) fn heading(columns: Columns) -> String {
    columns.line(["time", "CPU", "thread", "queue", "event", "took", "function"])
}

/// One event. Times are seconds since `begin`.
pub(super) fn line(event: &TraceEvent, begin: u64, names: &Names, columns: Columns) -> String {
    let kind = match event.kind {
        TraceKind::Queue => "queue",
        TraceKind::Start => "start",
        TraceKind::End => "end",
    };
    let took = match event.kind {
        TraceKind::Queue => String::new(),
        TraceKind::Start => format!("wait {:>9}", duration(event.took_ns)),
        TraceKind::End => format!("run  {:>9}", duration(event.took_ns)),
    };
    columns.line([
        &seconds(event.at_ns, begin),
        &event.cpu.to_string(),
        names.thread(event.thread),
        &names.queue(event.queue),
        kind,
        &took,
        &event.function,
    ])
}

/// A line that says which share of the items is reported.
pub(super) fn share(dropped: u64, every: u64) -> String {
    let sampling = if every <= 1 {
        "every item is reported".into()
    } else {
        format!("one item of {every} is reported")
    };
    format!("-- {} lost so far; {sampling} now\n", counted(dropped, "event"))
}

/// A point in time as seconds since another one, which may be later: threads record an event some time after they read the clock.
fn seconds(at: u64, begin: u64) -> String {
    let sign = if at < begin { "-" } else { "" };
    let microseconds = at.abs_diff(begin) / 1000;
    format!("{sign}{}.{:06}", microseconds / 1_000_000, microseconds % 1_000_000)
}

/// A duration in at most nine columns, with at least three digits.
pub(super) fn duration(ns: u64) -> String {
    let number = ns as f64;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..100_000 => format!("{:.2} us", number / 1e3),
        100_000..1_000_000 => format!("{:.1} us", number / 1e3),
        1_000_000..100_000_000 => format!("{:.2} ms", number / 1e6),
        100_000_000..1_000_000_000 => format!("{:.1} ms", number / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.2} s", number / 1e9),
        _ => format!("{:.0} s", number / 1e9),
    }
}

/// The beginning of a text, in exactly `width` columns.
fn head(text: &str, columns: usize) -> String {
    let text = plain(text);
    let cut = text.width() > columns;
    let mut shown = String::new();
    let mut width = 0;
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if cut && width >= columns {
            shown.push('…');
            break;
        }
        shown.push(c);
    }
    pad(&shown, columns, Side::Left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::{TraceBatch, TracedQueue};

    fn names(queue: &str) -> Names {
        let mut names = Names::in_folder("/proc/none".into());
        names.learn(&TraceBatch {
            queues: vec![TracedQueue { id: 1, name: queue.into() }],
            events: vec![TraceEvent { thread: 4_194_304, ..TraceEvent::default() }],
            ..TraceBatch::default()
        });
        names
    }

    fn event(kind: TraceKind, at_ns: u64, took_ns: u64) -> TraceEvent {
        let thread = if kind == TraceKind::Queue { 0 } else { 4_194_304 };
        let function = "pipeline::encrypt".into();
        TraceEvent {
            at_ns,
            kind,
            queue: 1,
            function,
            cpu: 3,
            thread,
            took_ns,
            ..TraceEvent::default()
        }
    }

    #[test]
    fn columns_line_up() {
        let names = names("crypt");
        let lines = [
            heading(Columns::ALL),
            line(&event(TraceKind::Queue, 5_000_000_000, 0), 5_000_000_000, &names, Columns::ALL),
            line(
                &event(TraceKind::Start, 5_000_012_345, 12_345),
                5_000_000_000,
                &names,
                Columns::ALL,
            ),
            line(
                &event(TraceKind::End, 6_500_000_999, 1_499_988_654),
                5_000_000_000,
                &names,
                Columns::ALL,
            ),
            line(&event(TraceKind::End, 4_999_998_000, 7), 5_000_000_000, &names, Columns::ALL),
        ];
        let expected =
            "        time  CPU thread          queue            event           took function
    0.000000    3                 crypt            queue                pipeline::encrypt
    0.000012    3 thread 4194304  crypt            start wait  12.35 us pipeline::encrypt
    1.500000    3 thread 4194304  crypt            end   run     1.50 s pipeline::encrypt
   -0.000002    3 thread 4194304  crypt            end   run       7 ns pipeline::encrypt
";
        assert_eq!(lines.concat(), expected);
    }

    #[test]
    fn no_line_is_wider_than_100_columns() {
        let names = names(&"queue\u{1b}[31m".repeat(9));
        let mut event = event(TraceKind::End, 99_999 * 1_000_000_000, 999_994_999_999);
        event.cpu = 8191;
        event.function = format!("{}::encrypt::{{{{closure}}}}", "module".repeat(20));
        let line = line(&event, 0, &names, Columns::ALL);
        assert!(line.trim_end().chars().count() <= 100, "{line}");
        assert!(line.contains("queue\u{fffd}[31mqueue…") && !line.contains('\u{1b}'), "{line}");
        assert!(line.trim_end().ends_with("::encrypt::{{closure}}"), "{line}");
    }

    #[test]
    fn a_narrow_terminal_gets_fewer_columns() {
        let event = event(TraceKind::Start, 5_000_012_345, 12_345);
        let at = |width| line(&event, 5_000_000_000, &names("crypt"), Columns::within(Some(width)));
        assert_eq!(Columns::within(None), Columns::ALL);
        assert_eq!(Columns::within(Some(200)), Columns::ALL);
        assert_eq!(
            at(80),
            "    0.000012    3 crypt            start wait  12.35 us pipeline::encrypt\n"
        );
        assert_eq!(at(60), "    0.000012 crypt    start wait  12.35 us pipeline::encrypt\n");
        assert_eq!(at(40), "    0.000012 crypt    start …ne::encrypt\n");
        for width in 40..110 {
            let columns = Columns::within(Some(width));
            for text in [heading(columns), at(width)] {
                assert!(text.trim_end().width() <= width, "{width}: {text}");
            }
        }
    }

    #[test]
    fn wide_characters_are_cut_by_display_width() {
        assert_eq!(head("列列列列", 6), "列列… ");
        assert_eq!(tail("列列列列", 6, '…'), "…列列");
        assert_eq!((head("abc", 4), tail("abc", 3, '…')), ("abc ".into(), "abc".into()));
    }

    #[test]
    fn durations_fit_their_column() {
        for power in 0..=15 {
            for ns in [10_u64.pow(power) - 1, 10_u64.pow(power)] {
                assert!(duration(ns).len() <= 9, "{ns}: {}", duration(ns));
            }
        }
        assert_eq!(duration(999_999), "1000.0 us");
        assert_eq!(duration(12_345_678), "12.35 ms");
    }

    #[test]
    fn very_long_names_are_cut_quickly() {
        let (names, begin) = (names("q"), std::time::Instant::now());
        for function in ["f".repeat(1 << 18), "\u{301}".repeat(1 << 17), "語".repeat(1 << 16)] {
            let event = TraceEvent { function, ..event(TraceKind::End, 0, 1) };
            assert!(line(&event, 0, &names, Columns::ALL).trim_end().width() <= 100);
        }
        // If the time grew with the square of the length, this would take minutes.
        assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
    }
}
