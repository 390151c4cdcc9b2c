//! Checks a file against the rules of the Trace Event Format and one more rule of Perfetto: slices of a track must nest. Used by unit tests
//! and by tests of the built command.

use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Panics if the file breaks a rule; otherwise returns its events.
pub(crate) fn checked(text: &str) -> Vec<Value> {
    let file: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let file = file.as_object().expect("the form with an object");
    let known = ["traceEvents", "displayTimeUnit", "otherData"];
    assert!(file.keys().all(|key| known.contains(&key.as_str())), "{:?}", file.keys());
    assert!(["ms", "ns"].contains(&file["displayTimeUnit"].as_str().unwrap()));
    assert!(file["otherData"].is_object());
    let events = file["traceEvents"].as_array().expect("an array of events");
    let mut named = HashSet::new();
    let mut slices: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    let mut open: HashMap<(String, String, String), f64> = HashMap::new();
    for event in events {
        let text = |key: &str| event[key].as_str().unwrap_or_else(|| panic!("{key} in {event}"));
        let number = |key: &str| {
            let number = event[key].as_f64().unwrap_or_else(|| panic!("{key} in {event}"));
            assert!(number.is_finite() && number >= 0.0, "{key} in {event}");
            number
        };
        assert!(!text("name").is_empty(), "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        assert!(event["args"].is_object(), "{event}");
        let tid = event["tid"].as_u64().unwrap();
        let allowed: &[&str] = match text("ph") {
            "M" => {
                match text("name") {
                    "process_name" => assert!(event["args"]["name"].is_string()),
                    "thread_name" => {
                        assert!(event["args"]["name"].is_string());
                        assert!(named.insert(tid), "{tid} has two names");
                    }
                    "thread_sort_index" => assert!(event["args"]["sort_index"].is_i64()),
                    other => panic!("the format has no metadata {other}"),
                }
                &[]
            }
            "X" => {
                assert!(named.contains(&tid), "a slice on a track without a name: {event}");
                let (from, took) = (number("ts"), number("dur"));
                slices.entry(tid).or_default().push((from, from + took));
                assert!(!text("cat").contains(','));
                &["ts", "dur", "cat"]
            }
            "b" => {
                let key = (text("cat").to_owned(), text("name").to_owned(), text("id").to_owned());
                assert!(open.insert(key, number("ts")).is_none(), "begun twice: {event}");
                &["ts", "cat", "id"]
            }
            "e" => {
                let key = (text("cat").to_owned(), text("name").to_owned(), text("id").to_owned());
                let begun = open.remove(&key).unwrap_or_else(|| panic!("not begun: {event}"));
                assert!(begun <= number("ts"), "{event}");
                &["ts", "cat", "id"]
            }
            "C" => {
                number("ts");
                assert!(event["args"].as_object().unwrap().values().all(Value::is_number));
                &["ts"]
            }
            other => panic!("unexpected phase {other}"),
        };
        for key in event.as_object().unwrap().keys().map(String::as_str) {
            assert!(
                ["ph", "name", "pid", "tid", "args"].contains(&key) || allowed.contains(&key),
                "{key} in {event}"
            );
        }
    }
    assert!(open.is_empty(), "never ended: {open:?}");
    for (tid, mut slices) in slices {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        for pair in slices.windows(2) {
            assert!(pair[1].0 >= pair[0].1 - 0.0005, "slices of {tid} overlap: {pair:?}");
        }
    }
    events.clone()
}
