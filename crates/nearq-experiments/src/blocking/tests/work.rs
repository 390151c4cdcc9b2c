//! Tests of `work`: the computing of an item.

use super::*;

#[test]
fn calibrated_work_takes_the_requested_time_in_any_number_of_pieces() {
    let each = nanoseconds_per_round(&CpuSet::single(0)).unwrap();
    let rounds = rounds_for(Duration::from_millis(5), each.median);
    let best = |times: u64| {
        let run = || (0..times).map(|_| cpu_time_of(rounds / times).unwrap()).sum::<Duration>();
        // The least of several measurements: other programs on the machine make them longer, never shorter.
        (0..10).map(|_| run()).min().unwrap().as_secs_f64()
    };
    for times in [1, 10] {
        let taken = best(times);
        assert!((0.0025..0.01).contains(&taken), "{times} times: {taken} s, {each:?}");
    }
}

#[test]
fn an_item_is_at_least_two_rounds() {
    assert_eq!(rounds_for(Duration::ZERO, 1.0), 2);
    assert_eq!(rounds_for(Duration::from_micros(50), 0.5), 100_000);
}
