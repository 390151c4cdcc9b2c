//! Tests of `privilege`: how much time the host took from one CPU.

use super::*;

const TEXT: &str = "cpu  1 2 3 4 5 6 7 80 9 0\n\
                    cpu1 1 2 3 4 5 6 7 30 9 0\n\
                    cpu10 1 2 3 4 5 6 7 50 9 0\nintr 1";

#[test]
fn a_cpu_is_found_by_its_whole_number() {
    assert_eq!(steal_of(TEXT, "cpu1 ", false), Some(30));
    assert_eq!(steal_of(TEXT, "cpu10 ", false), Some(50));
    assert_eq!(steal_of(TEXT, "cpu2 ", true), None);
}

#[test]
fn a_truncated_line_is_ignored() {
    let cut = &TEXT[..=TEXT.find("50").unwrap()];
    assert_eq!(steal_of(cut, "cpu10 ", false), None, "5 is not the number");
    assert_eq!(steal_of("cpu1 1 2 3", "cpu1 ", true), None);
}

#[test]
fn the_count_of_this_machine_never_falls() {
    let mut clock = StealClock::of(0);
    let before = clock.read();
    assert!(clock.read() >= before);
    assert_eq!(StealClock::of(99_999).read(), 0);
}
