//! Tests the settings and their texts; the visible state is tested in `nearq-lock` and, over a socket, in `nearq-preload`.

use nearq_lock::{Mode, Mutex};

use super::*;

/// The settings belong to the process, and all tests are threads of it.
static ALONE: Mutex<()> = Mutex::new(());

fn set(changes: &[(&str, &str)]) -> Result<Vec<(String, String)>, Refusal> {
    let changes = changes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    let now =
        LocksOnly::new().set(None, &changes)?.process.expect("settings of the process").settings;
    assert_eq!(now, settings());
    assert!(now.iter().all(|setting| setting.writable && setting.configured == setting.effective));
    Ok(now.into_iter().map(|setting| (setting.key, setting.effective)).collect())
}

fn why(changes: &[(&str, &str)]) -> String {
    set(changes).expect_err("it cannot be").to_string()
}

#[test]
fn the_table_states_the_bounds_of_the_lock() {
    for (desc, key) in LOCKS {
        match key {
            Key::Mode => assert!(Mode::ALL.iter().all(|mode| desc.values.contains(mode.name()))),
            Key::Threshold(threshold) => {
                let (least, most) = threshold.bounds().into_inner();
                let values = format!("{least} to {most} {}", threshold.unit());
                assert_eq!(desc.values, values.trim_end());
                assert!(desc.api.ends_with(&format!("::{}", threshold.name())));
            }
            Key::Count => assert_eq!(desc.values, "0 or 1"),
        }
        assert!(desc.writable);
    }
}

#[test]
fn the_documentation_has_every_key_with_bounds_and_default() {
    let document = include_str!("../../../../docs/locks.md");
    let usual = nearq_lock::Settings::default();
    for (SettingDesc { key, values, .. }, what) in LOCKS {
        let first = match what {
            Key::Mode => format!("`{}`, or `NEARQ_LOCK`", usual.mode),
            Key::Threshold(threshold) => threshold.get(&usual).to_string(),
            Key::Count => u8::from(usual.count).to_string(),
        };
        let row = format!("\n| `{key}` | {values} | {first} | ");
        assert!(document.contains(&row), "docs/locks.md has another row than {row}");
    }
}

#[test]
fn only_changed_settings_take_effect() {
    let _alone = ALONE.lock();
    let before = set(&[]).unwrap();
    let changes = [
        ("lock_mode", "numa"),
        ("lock_hand_overs", "16"),
        ("lock_remote_percent", "100"),
        ("lock_depth", "32"),
        ("lock_batch", " 2048 "),
        ("lock_patience_us", "1000000"),
        ("lock_quiet", "127"),
        ("lock_yields", "0"),
        ("lock_count", "on"),
    ];
    for (key, value) in changes {
        let after = set(&[(key, value)]).unwrap();
        for ((key_after, now), (_, then)) in after.iter().zip(&before) {
            let expected = match (key_after == key, value) {
                (false, _) => then,
                (true, "on") => "1",
                (true, value) => value.trim(),
            };
            assert_eq!(now, expected, "{key_after} after {key}={value}");
        }
        let now = nearq_lock::Settings::of_process();
        match key {
            "lock_mode" => assert_eq!((now.mode, dump().mode.as_str()), (Mode::Numa, "numa")),
            "lock_patience_us" => assert_eq!(now.patience.as_secs(), 1),
            "lock_count" => assert!(now.count && dump().counting),
            _ => {}
        }
        let back: Vec<_> = before.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(set(&back).unwrap(), before);
    }
}

#[test]
fn changes_are_atomic_and_refusals_state_what_is_allowed() {
    let _alone = ALONE.lock();
    let before = settings();
    for (bad, allowed) in [
        (("lock_mode", "fast"), "off, auto, plain and numa"),
        (("lock_hand_overs", "15"), "16 to 2048"),
        (("lock_remote_percent", "0"), "1 to 100"),
        (("lock_depth", "33"), "0 to 32"),
        (("lock_batch", "-5"), "5 to 2048"),
        (("lock_patience_us", "1ms"), "microseconds from 10 to 1000000"),
        (("lock_quiet", "128"), "1 to 127"),
        (("lock_yields", "8"), "0 to 7"),
        (("lock_count", "maybe"), "0, off, no or false, or 1"),
    ] {
        let refused = why(&[("lock_batch", "77"), ("lock_yields", "3"), bad]);
        assert!(refused.contains(allowed), "{refused}");
        assert!(refused.starts_with(&format!("{} cannot be `{}`", bad.0, bad.1)), "{refused}");
        assert_eq!(settings(), before);
    }
    let refused = why(&[("lock_batch", "77"), ("watchdog_thresh", "30")]);
    assert!(
        refused.contains("`watchdog_thresh`") && refused.contains("lock_mode, lock_hand_overs")
    );
    assert_eq!(settings(), before);
}

#[test]
fn calls_about_queues_are_refused_without_a_runtime() {
    let mut locks = LocksOnly::new();
    let nothing = GetDump { items: true, locks: false };
    let trace = locks.trace(&Trace { queue: None, every: None }).err();
    let refusals = [
        locks.time_items(true).err(),
        locks.statistics().err(),
        locks.dump(&nothing).err(),
        locks.settings(Some("crypt")).err(),
        locks.set(Some("crypt"), &BTreeMap::new()).err(),
        trace,
    ];
    assert_eq!(refusals, core::array::from_fn(|_| Some(no_runtime())));
    let seen = locks.dump(&GetDump { locks: true, ..nothing }).unwrap();
    assert!(seen.locks.is_some() && seen.queues.is_empty() && seen.at_ns > 0);
    let process = locks.process();
    assert!(!process.runtime && process.pid == std::process::id());
}
