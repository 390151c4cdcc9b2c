//! What the kernel's `wq_dump` does not show: what runs, what waits, and the mutexes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nearq_command::screen::{Side, or_dash, pad, plain, time};
use nearq_control::protocol::{Dump, Locks};

use super::View;
use super::text::{head, names, title};

/// The name of a queue in this dump. A queue that has ended meanwhile has the name that the item reports.
fn called<'a>(names: &'a BTreeMap<u64, String>, id: u64, name: &'a str) -> &'a str {
    names.get(&id).map_or(name, String::as_str)
}

/// "Running".
pub(super) fn running(dump: &Dump, view: &View) -> String {
    let names = names(dump);
    let mut text = title("Running");
    if dump.running.is_empty() {
        return text + "nothing\n";
    }
    let columns = view.name_columns(names.values().map(String::as_str));
    let wide =
        dump.running.iter().map(|item| item.worker.chars().count()).max().unwrap_or(0).max(6);
    let _ = writeln!(
        text,
        "{} {:>5} {:>7} {:<wide$} {:>7} function ]",
        head(columns),
        "pool",
        "thread",
        "worker",
        "at most"
    );
    for item in &dump.running {
        let name = plain(called(&names, item.queue_id, &item.queue));
        let mut line = format!(
            "{} {:>5} {:>7} {:<wide$} {:>7} {}",
            pad(&name, columns, Side::Left),
            item.pool,
            item.thread,
            plain(&item.worker),
            time(item.at_most_ns),
            plain(&item.function)
        );
        if !item.description.is_empty() {
            let _ = write!(line, " ({})", plain(&item.description));
        }
        if item.rescuer {
            line += " rescuer";
        }
        text += &line;
        text.push('\n');
    }
    text
}

/// "Waiting".
pub(super) fn waiting(dump: &Dump, view: &View) -> String {
    let names = names(dump);
    let mut text = title("Waiting");
    if dump.waiting.is_empty() {
        return text + "nothing\n";
    }
    let columns = view.name_columns(names.values().map(String::as_str));
    let _ =
        writeln!(text, "{} {:>5} {:>9} {:>7} function ]", head(columns), "pool", "items", "oldest");
    for items in &dump.waiting {
        let name = plain(called(&names, items.queue_id, &items.queue));
        let oldest = or_dash((items.oldest_ns != 0).then(|| time(items.oldest_ns)));
        let _ = writeln!(
            text,
            "{} {:>5} {:>9} {oldest:>7} {}{}",
            pad(&name, columns, Side::Left),
            items.pool,
            items.count,
            plain(&items.function),
            if items.inactive { " (inactive)" } else { "" }
        );
    }
    if dump.more_waiting {
        text += "and more, which the process does not list\n";
    }
    text
}

/// "Mutexes".
pub(super) fn mutexes(locks: &Locks) -> String {
    let mut text = title("Mutexes");
    let _ = writeln!(
        text,
        "mode={} slots_used/slots={}/{}",
        plain(&locks.mode),
        locks.slots_used,
        locks.slots
    );
    if locks.counting {
        let _ = writeln!(
            text,
            "contended={} in_turn={} gave_up={}\nwithin={} across={} switched={} switched_back={}\n\
             slept_in_turn={} slept_in_queue={}",
            locks.contended,
            locks.in_turn,
            locks.gave_up,
            locks.within,
            locks.across,
            locks.switched,
            locks.switched_back,
            locks.slept_in_turn,
            locks.slept_in_queue
        );
    } else {
        text += "not counted: lock_count is 0\n";
    }
    for lock in &locks.adaptive {
        let held = if lock.held { "held" } else { "free" };
        let _ = writeln!(text, "slot[{:02}] {held} caches={}", lock.slot, lock.caches);
    }
    for lock in &locks.rwlocks {
        let _ = writeln!(text, "row[{:02}] readers={}", lock.row, lock.readers);
    }
    text
}
