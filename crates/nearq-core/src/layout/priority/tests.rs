//! What priorities mean, how several are combined, and what is remembered of them.

use core::time::Duration;

use nearq_platform::{Linux, SchedPolicy};

use super::{Favoured, Priorities, Priority, SHORT_SLICE};
use crate::base::error::Error;
use crate::layout::attributes::Attributes;

fn nice(nice: i32) -> Priority {
    Priority { nice, idle: false, slice: None }
}

#[test]
fn in_the_idle_class_other_attributes_have_no_effect() {
    let attributes = Attributes {
        nice: -5,
        sched_idle: true,
        time_slice: Some(SHORT_SLICE),
        ..Attributes::default()
    };
    let idle = Priority::of(&attributes);
    assert_eq!(idle, Priority { nice: 19, idle: true, slice: None });
    let other = Attributes { nice: 7, sched_idle: true, ..Attributes::default() };
    assert_eq!(idle, Priority::of(&other), "all of them share pools");
    let attributes = Attributes { sched_idle: false, ..attributes };
    assert_eq!(Priority::of(&attributes), Priority { slice: Some(SHORT_SLICE), ..nice(-5) });
}

#[test]
fn out_of_range_values_are_refused_even_without_effect() {
    let with = |nice, slice| Attributes {
        nice,
        time_slice: slice,
        sched_idle: true,
        ..Attributes::default()
    };
    for nice in [-20, 0, 19] {
        assert_eq!(Priority::check(&with(nice, None)), Ok(()));
    }
    for nice in [-21, 20, i32::MIN, i32::MAX] {
        assert_eq!(Priority::check(&with(nice, None)), Err(Error::NiceOutOfRange(nice)));
    }
    for micros in [100, 2_800, 100_000] {
        let slice = Some(Duration::from_micros(micros));
        assert_eq!(Priority::check(&with(0, slice)), Ok(()));
    }
    let just_beyond = [Duration::from_nanos(99_999), Duration::from_nanos(100_000_001)];
    for slice in just_beyond.into_iter().chain([Duration::ZERO, Duration::MAX]) {
        assert_eq!(Priority::check(&with(0, Some(slice))), Err(Error::TimeSliceOutOfRange(slice)));
    }
}

#[test]
fn the_highest_priority_has_the_lowest_nice_value_and_the_shortest_slice() {
    let all = Favoured::<Linux>::new();
    let (first, second) = (Some(Duration::from_millis(2)), Some(Duration::from_millis(1)));
    assert_eq!(all.beyond(0), None);
    assert!(all.add(&nice(5)));
    assert_eq!(all.beyond(0), None, "nice 5 is not above nice 0");
    assert_eq!(all.beyond(10), Some(nice(5)));
    assert!(all.add(&Priority { slice: first, ..nice(3) }));
    assert_eq!(all.beyond(0), Some(Priority { slice: first, ..nice(0) }));
    assert!(all.add(&nice(-7)));
    assert_eq!(all.beyond(0), Some(Priority { slice: first, ..nice(-7) }));
    let word = all.word();
    assert!(!all.add(&nice(-7)) && !all.add(&nice(19)) && all.word() == word);
    assert!(all.add(&Priority { slice: second, ..nice(0) }));
    assert_eq!(all.beyond(0), Some(Priority { slice: second, ..nice(-7) }));
}

#[test]
fn each_nice_value_is_remembered_separately() {
    let priorities = Priorities::<Linux>::new();
    for value in -20..20 {
        assert_eq!(priorities.reached(value), None);
        priorities.note_reached(value, 19);
        priorities.note_reached(value, -value - 1);
    }
    for value in -20..20 {
        assert_eq!(priorities.reached(value), Some(-value - 1));
    }
}

#[test]
fn nice_0_is_the_nice_value_of_the_thread_that_built_the_runtime() {
    let mut priorities = Priorities::<Linux>::new();
    priorities.ordinary.nice = 10;
    let asked = |value| priorities.scheduling(&nice(value)).nice;
    assert_eq!([asked(0), asked(5), asked(-5), asked(19)], [10, 5, -5, 19]);
    let idle = Priority { nice: 19, idle: true, slice: None };
    assert_eq!(priorities.scheduling(&idle).policy, SchedPolicy::Idle);
    assert_eq!(priorities.scheduling(&nice(0)).policy, SchedPolicy::Normal);
}
