//! Numbers in few characters: rates, percentages, counts.

/// A rate per second, in at most five characters: `0`, `0.3`, `12`, `9999`, `12.3k`, `1.23M`.
pub(super) fn rate(value: f64) -> String {
    if value < 0.05 {
        return if value > 0.0 { "0.0" } else { "0" }.into();
    }
    match value {
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 9999.5 => format!("{value:.0}"),
        value => with_letter(value),
    }
}

fn with_letter(value: f64) -> String {
    let mut value = value;
    let mut letter = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        letter = next;
    }
    match value {
        value if value < 9.995 => format!("{value:.2}{letter}"),
        value if value < 99.95 => format!("{value:.1}{letter}"),
        value => format!("{value:.0}{letter}"),
    }
}

/// A count: all its digits if they are at most eight.
pub(super) fn count(value: u64) -> String {
    if value < 100_000_000 { value.to_string() } else { with_letter(value as f64) }
}

/// A share of one CPU in percent, in at most five characters.
pub(super) fn percent(part: f64) -> String {
    match part * 100.0 {
        percent if percent < 99.95 => format!("{percent:.1}"),
        percent if percent < 99_999.5 => format!("{percent:.0}"),
        percent => with_letter(percent),
    }
}

/// Seconds of CPU time, in the format of wq_monitor.
pub(super) fn seconds(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    if seconds < 99_999.5 { format!("{seconds:.1}") } else { with_letter(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_at_most_five_characters() {
        let texts = [0.0, 0.01, 0.3, 9.94, 9.96, 12.4, 9999.0, 9999.9, 99_960.0, 999_600.0, 1.2e9];
        let texts = texts.map(rate);
        assert_eq!(
            texts,
            ["0", "0.0", "0.3", "9.9", "10", "12", "9999", "10.0k", "100k", "1.00M", "1.20G"]
        );
        for power in 0..60 {
            let text = rate(1.9995_f64.powi(power));
            assert!(text.len() <= 5, "{text}");
        }
    }

    #[test]
    fn percentages_counts_and_seconds_are_short() {
        assert_eq!([0.0, 0.123, 0.9999, 31.4].map(percent), ["0.0", "12.3", "100", "3140"]);
        assert_eq!([0, 99_999_999, 123_456_789].map(count), ["0", "99999999", "123M"]);
        assert_eq!([0, 6_149_000_000].map(seconds), ["0.0", "6.1"]);
    }
}
