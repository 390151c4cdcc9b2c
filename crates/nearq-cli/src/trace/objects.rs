//! Events as JSON, one object per line, for other programs.

use nearq_control::protocol::{TraceEvent, TraceKind};
use serde::Serialize;

use super::names::Names;
use crate::output::json_line;

#[derive(Serialize)]
struct Object<'e> {
    at_ns: u64,
    event: TraceKind,
    queue: String,
    queue_id: u64,
    item: u64,
    function: &'e str,
    cpu: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_name: Option<&'e str>,
    pool: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_ns: Option<u64>,
}

/// The share that is reported, when it changes.
#[derive(Serialize)]
struct Share {
    at_ns: u64,
    event: &'static str,
    dropped: u64,
    every: u64,
}

/// One event.
pub(super) fn event(event: &TraceEvent, names: &Names) -> String {
    let thread = Some(event.thread).filter(|thread| *thread != 0);
    text(&Object {
        at_ns: event.at_ns,
        event: event.kind,
        queue: names.queue(event.queue),
        queue_id: event.queue,
        item: event.item,
        function: &event.function,
        cpu: event.cpu,
        thread,
        thread_name: thread.map(|thread| names.thread(thread)),
        pool: event.pool,
        wait_ns: (event.kind == TraceKind::Start).then_some(event.took_ns),
        run_ns: (event.kind == TraceKind::End).then_some(event.took_ns),
    })
}

/// A line with the number of events lost so far, and `every`: one item of that many is reported now.
pub(super) fn share(at_ns: u64, dropped: u64, every: u64) -> String {
    text(&Share { at_ns, event: "share", dropped, every })
}

fn text(object: &impl Serialize) -> String {
    json_line(object) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn an_object_has_the_fields_of_its_kind() {
        let names = Names::in_folder("/proc/none".into());
        let of = |kind, thread| {
            let given = TraceEvent { kind, thread, at_ns: 5, took_ns: 9, ..TraceEvent::default() };
            serde_json::from_str::<Value>(&event(&given, &names)).unwrap()
        };
        let queued = of(TraceKind::Queue, 0);
        assert_eq!((&queued["event"], &queued["queue"]), (&json!("queue"), &json!("#0")));
        assert!(queued.get("thread").is_none() && queued.get("wait_ns").is_none());
        let started = of(TraceKind::Start, 3);
        assert_eq!((&started["thread"], &started["wait_ns"]), (&json!(3), &json!(9)));
        let ended = of(TraceKind::End, 3);
        assert_eq!((ended.get("wait_ns"), &ended["run_ns"]), (None, &json!(9)));
    }
}
