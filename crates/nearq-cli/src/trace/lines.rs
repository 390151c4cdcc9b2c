//! Events as lines for a terminal: at most 100 columns wide during the first day of a trace, however long the names are.

use nearq_command::screen::{Side, pad, plain, tail};
use nearq_control::protocol::{TraceEvent, TraceKind};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use super::names::Names;

/// Width of a queue's name.
const QUEUE: usize = 16;
/// Width of a thread's name: the system's names have up to 15 bytes.
const THREAD: usize = 15;
/// Width of a function's name.
const FUNCTION: usize = 28;

/// The line above the columns.
pub(super) fn heading() -> String {
    format!(
        "{:>12} {:>4} {:THREAD$} {:QUEUE$} {:5} {:>14} function\n",
        "time", "CPU", "thread", "queue", "event", "took"
    )
}

/// One event. Times are seconds since `begin`.
pub(super) fn line(event: &TraceEvent, begin: u64, names: &Names) -> String {
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
    format!(
        "{:>12} {:>4} {} {} {kind:5} {took:>14} {}\n",
        seconds(event.at_ns, begin),
        event.cpu,
        head(names.thread(event.thread), THREAD),
        head(&names.queue(event.queue), QUEUE),
        tail(&plain(&event.function), FUNCTION, '…'),
    )
}

/// A line that says which share of the items is reported.
pub(super) fn share(dropped: u64, every: u64) -> String {
    let sampling = if every <= 1 {
        "every item is reported".into()
    } else {
        format!("one item of {every} is reported")
    };
    format!("-- {dropped} events lost so far; {sampling} now\n")
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
            heading(),
            line(&event(TraceKind::Queue, 5_000_000_000, 0), 5_000_000_000, &names),
            line(&event(TraceKind::Start, 5_000_012_345, 12_345), 5_000_000_000, &names),
            line(&event(TraceKind::End, 6_500_000_999, 1_499_988_654), 5_000_000_000, &names),
            line(&event(TraceKind::End, 4_999_998_000, 7), 5_000_000_000, &names),
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
        let line = line(&event, 0, &names);
        assert!(line.trim_end().chars().count() <= 100, "{line}");
        assert!(line.contains("queue\u{fffd}[31mqueue…") && !line.contains('\u{1b}'), "{line}");
        assert!(line.trim_end().ends_with("::encrypt::{{closure}}"), "{line}");
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
            assert!(line(&event, 0, &names).trim_end().width() <= 100);
        }
        // If the time grew with the square of the length, this would take minutes.
        assert!(begin.elapsed() < std::time::Duration::from_secs(30), "{:?}", begin.elapsed());
    }
}
