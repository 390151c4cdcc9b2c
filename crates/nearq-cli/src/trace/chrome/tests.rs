//! Checks the file against the rules of the Trace Event Format, for ordinary traces and for those with lost events.

use super::check::checked;
use super::*;
use nearq_control::protocol::TracedQueue;
use serde_json::json;

/// The whole file of these batches.
fn file(batches: &[TraceBatch]) -> String {
    let mut text = BEGINNING.to_owned();
    let mut names = Names::in_folder("/proc/none".into());
    let mut chrome = Chrome::new(42, "a program", &mut text);
    for batch in batches {
        names.learn(batch);
        chrome.batch(batch, &names, &mut text);
        // A file that ends here is complete too.
        checked(&format!("{text}{}", ending(&BTreeMap::new())));
    }
    chrome.finish(&names, &mut text);
    text + &ending(&BTreeMap::from([("dropped", json!(0))]))
}

fn event(kind: TraceKind, at_ns: u64, item: u64, thread: u64, took_ns: u64) -> TraceEvent {
    TraceEvent {
        at_ns,
        kind,
        queue: 1 + item % 3,
        item,
        function: format!("work::number_{}", item % 5),
        cpu: thread % 8,
        thread,
        pool: thread % 4,
        took_ns,
    }
}

fn batch(events: Vec<TraceEvent>) -> TraceBatch {
    let queue = |id: u64, name: &str| TracedQueue { id, name: name.into() };
    let queues = vec![queue(1, "plain"), queue(2, "with, comma"), queue(3, "\"quoted\" \\ \u{7}")];
    TraceBatch { queues, events, dropped: 0, every: 1 }
}

fn of_phase<'e>(events: &'e [Value], phase: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["ph"] == phase).collect()
}

#[test]
fn an_item_becomes_a_slice_and_a_wait() {
    let events = checked(&file(&[batch(vec![
        TraceEvent { cpu: 6, ..event(TraceKind::Queue, 10_000_000, 3, 0, 0) },
        event(TraceKind::Start, 10_012_345, 3, 9, 12_345),
        event(TraceKind::End, 10_112_345, 3, 9, 100_000),
    ])]));
    let slice = of_phase(&events, "X")[0];
    assert_eq!(
        (&slice["name"], &slice["cat"], &slice["tid"]),
        (&json!("work::number_3"), &json!("plain"), &json!(9))
    );
    assert_eq!((&slice["ts"], &slice["dur"]), (&json!(10012.345), &json!(100.0)));
    assert_eq!(
        (&slice["args"]["wait_ns"], &slice["args"]["wait"]),
        (&json!(12345), &json!("12.35 us"))
    );
    let (begin, end) = (of_phase(&events, "b")[0], of_phase(&events, "e")[0]);
    assert_eq!((&begin["ts"], &end["ts"]), (&json!(10000.0), &json!(10012.345)));
    assert_eq!(begin["name"], "waiting on plain");
    assert_eq!(
        (&begin["args"]["queued on CPU"], &begin["args"]["started on CPU"]),
        (&json!(6), &json!(1))
    );
    assert_eq!(events.len(), 1 + 2 + 2 + 1 + 2, "only names and two counters besides");
}

#[test]
fn unfinished_items_are_written_at_the_end() {
    let events = checked(&file(&[batch(vec![
        event(TraceKind::Start, 5_000, 3, 9, 1_000),
        event(TraceKind::Queue, 6_000, 6, 0, 0),
        event(TraceKind::End, 8_000, 12, 7, 2_000),
    ])]));
    let unfinished: Vec<&Value> =
        events.iter().filter(|event| event["args"]["unfinished"] == true).collect();
    assert_eq!(unfinished.len(), 2);
    assert_eq!(
        (&unfinished[0]["ph"], &unfinished[0]["ts"], &unfinished[0]["dur"]),
        (&json!("X"), &json!(5.0), &json!(3.0))
    );
    assert_eq!((&unfinished[1]["ph"], &unfinished[1]["ts"]), (&json!("b"), &json!(6.0)));
    let before = of_phase(&events, "X")[0];
    assert_eq!(
        (&before["ts"], before["args"].get("wait_ns")),
        (&json!(6.0), None),
        "began before the trace"
    );
}

#[test]
fn lost_events_leave_no_slice_open() {
    let first = batch(vec![
        event(TraceKind::Queue, 1_000, 3, 0, 0),
        event(TraceKind::Start, 2_000, 6, 9, 500),
    ]);
    let second =
        TraceBatch { dropped: 7, every: 4, ..batch(vec![event(TraceKind::End, 9_000, 9, 9, 100)]) };
    let events = checked(&file(&[first, second]));
    assert!(events.iter().all(|event| event["args"].get("unfinished").is_none()));
    let counts: Vec<(&str, u64)> = of_phase(&events, "C")
        .into_iter()
        .map(|event| (event["name"].as_str().unwrap(), event["args"]["count"].as_u64().unwrap()))
        .collect();
    let (lost, sampled) = ("events lost", "one item traced of");
    assert_eq!(counts, [(lost, 0), (sampled, 1), (lost, 7), (sampled, 4)]);
}

#[test]
fn an_empty_trace_is_a_valid_file() {
    assert_eq!(checked(&file(&[])).len(), 1);
    checked(&file(&[TraceBatch::default()]));
}

/// What a process would report about `items` items that four threads run in turn.
fn whole(random: &mut fastrand::Rng, items: u64) -> Vec<TraceEvent> {
    let mut free = [1_000_000_u64; 4];
    let mut events = Vec::new();
    for number in 0..items {
        // The same item always has the same thread, so it does not run twice at once.
        let (item, thread) = (number % 40, 100 + number % 4);
        let start = free[(number % 4) as usize] + random.u64(0..5_000);
        let (wait, run) = (random.u64(0..900), random.u64(0..80_000));
        free[(number % 4) as usize] = start + run;
        events.push(event(TraceKind::Queue, start - wait, item, 0, 0));
        events.push(event(TraceKind::Start, start, item, thread, wait));
        events.push(event(TraceKind::End, start + run, item, thread, run));
    }
    events.sort_by_key(|event| event.at_ns);
    events
}

#[test]
fn any_part_of_a_trace_is_a_valid_file() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut events = whole(&mut random, 120);
        let losing = random.f64() * 0.7;
        events.retain(|_| random.f64() >= losing);
        let mut lost = 0;
        let batches: Vec<TraceBatch> = events
            .chunks(37)
            .map(|events| {
                lost += random.u64(0..3);
                TraceBatch { dropped: lost, every: 1 << random.u32(0..3), ..batch(events.to_vec()) }
            })
            .collect();
        let ends = events.iter().filter(|event| event.kind == TraceKind::End).count();
        let written = checked(&file(&batches));
        let over = of_phase(&written, "X");
        let over = over.iter().filter(|event| event["args"].get("unfinished").is_none());
        assert_eq!(over.count(), ends, "seed {seed}: a slice an end");
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let mut text = String::new();
    let names = Names::in_folder("/proc/none".into());
    let mut chrome = Chrome::new(1, "", &mut text);
    for item in 0..3 * MOST_WAITING as u64 {
        let kinds = [
            event(TraceKind::Queue, item, item, 0, 0),
            event(TraceKind::Start, item, item + (1 << 40), 5, 0),
        ];
        chrome.batch(&batch(kinds.to_vec()), &names, &mut text);
        text.clear();
    }
    assert_eq!((chrome.waiting.len(), chrome.running.len()), (MOST_WAITING, 1));
}

#[test]
fn long_names_keep_their_beginning() {
    let kept = |function: &str| {
        let event = TraceEvent { function: function.into(), ..event(TraceKind::Queue, 0, 1, 0, 0) };
        remembered(&event).function
    };
    assert_eq!(kept("pipeline::encrypt"), "pipeline::encrypt");
    assert_eq!(kept(&"é".repeat(2000)), "é".repeat(128) + "…");
}
