//! Stalls on Linux: in which kernel functions threads sleep, to whom a stall is reported, and that it may end the process.

use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nearq_core::{
    Runtime,
    inspect::{Activity, Stall},
};

use crate::common::{self, PATIENCE, alone, command, output_text, part, watch};

const PERIOD: Duration = Duration::from_millis(100);

/// Two workers asleep in a channel, and an item behind them, until `seen` says that it is enough.
fn stall(runtime: &Runtime, seen: impl FnOnce()) {
    let queue = runtime.workqueue_builder("stalled").build().unwrap();
    let (gates, handles): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sender, receiver) = mpsc::channel::<()>();
            let handle = queue.spawn(move || {
                nearq_core::set_description("for a waiter");
                let _ = receiver.recv();
            });
            (sender, handle)
        })
        .unzip();
    seen();
    drop(gates);
    for handle in handles {
        handle.join().unwrap();
    }
}

#[test]
fn a_stall_names_each_thread_its_item_and_where_it_sleeps() {
    let _alone = alone();
    let (sender, receiver) = mpsc::channel::<Stall>();
    let sender = Mutex::new(sender);
    let builder = Runtime::builder().thread_limit(2).stall_after(PERIOD).on_stall(move |stall| {
        let _ = sender.lock().unwrap().send(stall.clone());
    });
    let runtime = builder.build().unwrap();
    let _watchdog = watch(Some(&runtime));
    stall(&runtime, || {
        let stall = receiver.recv_timeout(PATIENCE).unwrap();
        println!("{stall}");
        assert!(stall.lasts >= PERIOD && stall.refused && stall.waiting == 1, "{stall:?}");
        let threads = common::threads();
        assert_eq!(stall.busy.len(), 2);
        for worker in &stall.busy {
            assert_eq!(threads.get(&worker.thread_id.unwrap()), Some(&worker.thread));
            assert_eq!((worker.activity, &*worker.description), (Activity::Sleeps, "for a waiter"));
            assert!(worker.function.contains("stalls::stall"), "{}", worker.function);
            assert!(worker.runs.is_some());
            if let Some(place) = &worker.place {
                assert!(place.contains("futex") || place.starts_with("system call"), "{place}");
            } else {
                println!("this system does not report where threads sleep");
            }
        }
        let again = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(again.lasts >= 2 * PERIOD, "{again:?}");
    });
}

/// Collects what is reported through `tracing`.
struct Collector(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Collector {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "nearq"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// What a process that stalls without a callback prints on standard error, with or without a subscriber of `tracing`.
fn stderr_of_child(part: &str) -> String {
    let output = command(a_stall_is_reported_to_tracing_or_standard_error, part).output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_stall_is_reported_to_tracing_or_standard_error() {
    let Some(part) = part() else {
        let alone = stderr_of_child("alone");
        assert!(alone.contains("nearq: pool 0 (CPUs"), "{alone}");
        assert!(alone.contains("has started nothing for"), "{alone}");
        if cfg!(feature = "tracing") {
            let reports = stderr_of_child("traced");
            assert!(!reports.contains("has started nothing"), "{reports}");
        }
        return;
    };
    let reports = Arc::new(Mutex::new(Vec::new()));
    if part == "traced" {
        tracing::subscriber::set_global_default(Collector(Arc::clone(&reports))).unwrap();
    }
    let runtime = Runtime::builder().thread_limit(2).stall_after(PERIOD).build().unwrap();
    stall(&runtime, || std::thread::sleep(PERIOD * 5 / 2));
    drop(runtime);
    let reports = reports.lock().unwrap();
    if part == "traced" {
        assert!(!reports.is_empty());
        let wanted = ["WARN ", "pool=0 ", "waiting=1 ", "has started nothing for", "for a waiter"];
        for line in &*reports {
            assert!(wanted.iter().all(|part| line.contains(part)), "{line}");
        }
    } else {
        assert!(reports.is_empty());
    }
}

/// The number of SIGABRT.
const ABORTED: i32 = 6;

#[test]
fn the_process_is_aborted_at_the_stall_that_the_program_or_the_variable_names() {
    let test = the_process_is_aborted_at_the_stall_that_the_program_or_the_variable_names;
    if let Some(part) = part() {
        let (reported, reports) = mpsc::channel();
        let reported = Mutex::new(reported);
        let builder = Runtime::builder().thread_limit(2).stall_after(PERIOD);
        let calls = move |_: &Stall| {
            eprintln!("callback");
            let _ = reported.lock().unwrap().send(());
        };
        let builder = match part.as_str() {
            "call" => builder.abort_on_stall(2).on_stall(calls),
            // The program's own number counts, not the variable's.
            "never" => builder.abort_on_stall(0).on_stall(calls),
            "set" => builder.on_stall(calls),
            _ => builder,
        };
        let runtime = builder.build().unwrap();
        stall(&runtime, || match part.as_str() {
            "never" => (0..2).for_each(|_| reports.recv_timeout(PATIENCE).unwrap()),
            "set" => {
                reports.recv_timeout(PATIENCE).unwrap();
                runtime.set_abort_on_stall(1);
                std::thread::sleep(PATIENCE);
            }
            _ => std::thread::sleep(PATIENCE),
        });
        return;
    }
    let run = |part: &str, variable: &str| {
        let output = command(test, part).env("NEARQ_ABORT_ON_STALL", variable).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let count = |what: &str| stderr.lines().filter(|line| line.contains(what)).count();
        let counts =
            (count("has started nothing for"), count("callback"), count("the process is aborted"));
        (output.status.signal(), counts, output_text(&output))
    };
    let (signal, counts, text) = run("call", "");
    assert_eq!((signal, counts), (Some(ABORTED), (2, 2, 1)), "{text}");
    let last = text.lines().rfind(|line| line.starts_with("nearq: ")).unwrap_or_default();
    assert!(last.starts_with("nearq: 2 stalls, "), "the reports come first: {text}");
    let (signal, counts, text) = run("variable", "1");
    assert_eq!((signal, counts), (Some(ABORTED), (1, 0, 1)), "{text}");
    // Before it is set, only the callback has the report. It may be set between the callback and the abort of the same stall.
    let (signal, (reports, callbacks, aborts), text) = run("set", "0");
    assert_eq!((signal, aborts), (Some(ABORTED), 1), "set while it runs: {text}");
    assert!(callbacks >= 1 && reports < callbacks, "{text}");
    let (signal, (reports, callbacks, aborts), text) = run("never", "1");
    assert_eq!((signal, reports, aborts), (None, 0, 0), "{text}");
    assert!(callbacks >= 2, "{text}");
}
