//! Tests of `ways`: a thread that does something for other threads after a while.

use super::*;

#[test]
fn actions_come_in_order_never_early_and_all_before_the_end() {
    let delay = Duration::from_millis(5);
    let alarm = Alarm::start(delay).unwrap();
    let (sender, receiver) = mpsc::channel();
    let asked = Instant::now();
    for number in 0..3 {
        let sender = sender.clone();
        alarm.ask(move || sender.send((number, asked.elapsed())).unwrap());
    }
    drop((alarm, sender));
    let came: Vec<_> = receiver.into_iter().collect();
    assert_eq!(came.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(came.iter().all(|(_, after)| *after >= delay), "{came:?}");
}
