//! What holds for each program that is drawn.

use super::*;

#[test]
fn a_seed_means_one_program() {
    assert_eq!(draw(7).to_string(), draw(7).to_string());
    assert_ne!(draw(7).to_string(), draw(8).to_string());
}

/// What a body waits for is on a higher queue than the body: otherwise two of them could wait for each other.
#[test]
fn nothing_waits_for_a_queue_that_may_wait_for_it() {
    fn check_future(plan: &FuturePlan, queue: usize) {
        for (_, pause) in &plan.pauses {
            if let Pause::Closure { queue: target } = pause {
                assert!(*target >= queue, "{plan}");
            }
        }
    }
    fn check(body: &Body, queue: usize) {
        for step in &body.steps {
            match step {
                Step::Spawn { queue: target, body, .. } => {
                    assert!(*target > queue, "{step}");
                    check(body, *target);
                }
                Step::Scope { queue: target, bodies } => {
                    assert!(*target > queue, "{step}");
                    for body in bodies {
                        check(body, *target);
                    }
                }
                Step::Future { queue: target, plan, .. } => {
                    assert!(*target > queue, "{step}");
                    check_future(plan, *target);
                }
                Step::Set { queue: target, members, .. } => {
                    assert!(*target > queue, "{step}");
                    for member in members {
                        match member {
                            Member::Closure(body) => check(body, *target),
                            Member::Future(plan) => check_future(plan, *target),
                        }
                    }
                }
                Step::Fork { queue: target, tree, .. } => {
                    // A fork on the body's own queue is a part of the item that runs.
                    assert!(*target >= queue, "{step}");
                    tree.leaves().into_iter().for_each(|leaf| check(leaf, *target));
                }
                Step::FlushItem { .. } => panic!("only issuers wait for items: {step}"),
                Step::Flush { queue: target, .. } | Step::Drain { queue: target, .. } => {
                    assert!(*target > queue, "{step}");
                }
                _ => {}
            }
        }
    }
    for seed in 0..500 {
        let plan = draw(seed);
        for item in &plan.items {
            let highest = *item.queues.last().unwrap();
            check(&item.body, highest);
            let on_own =
                |step: &Step| matches!(step, Step::Fork { queue, .. } if *queue == highest);
            assert!(item.queues.len() == 1 || !item.body.steps.iter().any(on_own));
            assert!(
                item.queues.len() == 1
                    || item.queues.iter().all(|queue| !plan.queues[*queue].dropped_early)
            );
        }
    }
}
