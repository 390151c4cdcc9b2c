//! Values by number, with neighbours combined: `[0-3]=7` if they are equal, `[0-3]=7..10` if each is one more than the last, and
//! `[0-7..24-31]=4..7` if that holds for groups of eight.

/// The separator between the first and the last value of a counting run.
const TO: &str = "..";
/// Shorter counting runs are not combined.
const FEW: usize = 3;

/// Neighbours with the same value.
struct Run<'a> {
    first: usize,
    count: usize,
    value: &'a str,
}

impl Run<'_> {
    /// The number after the last one.
    fn end(&self) -> usize {
        self.first + self.count
    }

    /// `4`, or `4-7`.
    fn range(&self) -> String {
        if self.count == 1 {
            self.first.to_string()
        } else {
            format!("{}-{}", self.first, self.end() - 1)
        }
    }

    /// Whether this run directly follows the run `before`, is as long, and has the next value.
    fn follows(&self, before: &Run<'_>) -> bool {
        before.end() == self.first
            && before.count == self.count
            && follows(before.value, self.value)
    }
}

/// Prints numbers and their values as words.
pub(super) fn runs<'a>(values: impl IntoIterator<Item = (usize, &'a str)>) -> Vec<String> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (number, value) in values {
        match runs.last_mut() {
            Some(run) if run.end() == number && run.value == value => run.count += 1,
            _ => runs.push(Run { first: number, count: 1, value }),
        }
    }
    let mut words = Vec::new();
    let mut rest = &runs[..];
    while let [first, ..] = rest {
        let count = 1 + rest.windows(2).take_while(|pair| pair[1].follows(&pair[0])).count();
        if count < FEW {
            words.push(format!("[{}]={}", first.range(), first.value));
            rest = &rest[1..];
            continue;
        }
        let last = &rest[count - 1];
        let range = match first.count {
            1 => format!("{}-{}", first.first, last.first),
            _ => format!("{}{TO}{}", first.range(), last.range()),
        };
        words.push(format!("[{range}]={}", between(first.value, last.value)));
        rest = &rest[count..];
    }
    words
}

/// From one value to another.
pub(super) fn between(first: &str, last: &str) -> String {
    format!("{first}{TO}{last}")
}

/// Whether a text is the number after another, or a list of such numbers.
pub(super) fn follows(before: &str, text: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let next = |(before, text): (&str, &str)| {
        let next = number(before).and_then(|before| before.checked_add(1));
        next.is_some() && next == number(text)
    };
    before.split(',').count() == text.split(',').count()
        && before.split(',').zip(text.split(',')).all(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<T: AsRef<str>>(values: &[T]) -> String {
        runs(values.iter().map(AsRef::as_ref).enumerate()).join(" ")
    }

    #[test]
    fn equal_neighbours_are_merged() {
        assert_eq!(of(&["7"; 4]), "[0-3]=7");
        assert_eq!(of(&["0", "0", "1", "1", "0"]), "[0-1]=0 [2-3]=1 [4]=0");
        assert_eq!(of(&["4", "5", "6", "7", "7"]), "[0-2]=4..6 [3-4]=7");
        assert_eq!(of(&["0", "1"]), "[0]=0 [1]=1");
        assert_eq!(of(&["0-3", "4-7", "8-11"]), "[0]=0-3 [1]=4-7 [2]=8-11");
        assert_eq!(of(&["0,4", "1,5", "2,6", "3,7"]), "[0-3]=0,4..3,7");
        assert_eq!(of(&["-1", "0", "1"]), "[0]=-1 [1]=0 [2]=1");
        assert_eq!(of::<&str>(&[]), "");
        assert_eq!(runs([(3, "1"), (5, "1"), (6, "1")]), ["[3]=1", "[5-6]=1"]);
    }

    #[test]
    fn groups_with_consecutive_values_are_merged() {
        let groups: Vec<String> = (0..512).map(|n| (n % 256 / 8 + 100).to_string()).collect();
        assert_eq!(of(&groups), "[0-7..248-255]=100..131 [256-263..504-511]=100..131");
        assert_eq!(of(&["0", "0", "1", "1", "2", "2", "3"]), "[0-1..4-5]=0..2 [6]=3");
        let each: Vec<String> = (0..512).map(|n| (n + 100).to_string()).collect();
        assert_eq!(of(&each), "[0-511]=100..611");
    }
}
