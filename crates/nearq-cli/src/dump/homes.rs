//! "Homes": on which node each thing is at home, and the weights that decide this.

use std::fmt::Write as _;

use nearq_command::screen::{Side, or_dash, pad, plain, wrapped};
use nearq_control::protocol::{Dump, QueueDump};

use super::View;
use super::text::{head, names, title};

/// The section.
pub(super) fn homes(dump: &Dump, view: &View) -> String {
    let mut text = title("Homes");
    for row in &dump.homes {
        let _ = writeln!(
            text,
            "NODE[{:02}]={} homes={} others={}",
            row.node,
            view.cpus(&row.cpus),
            row.homes,
            row.others
        );
    }
    if dump.homes.len() < 2 {
        // An older version of the library does not report this.
        text +=
            if dump.homes.is_empty() { "nothing\n" } else { "one node: everything is at home\n" };
        return text;
    }
    let weights: Vec<String> =
        dump.home_weights.iter().map(|(name, value)| format!("{}={value}", plain(name))).collect();
    text += &wrapped("weights ", &weights, view.width);
    let concerned = |queue: &&QueueDump| {
        queue.home.is_some()
            || queue.at_home != 0
            || queue.away != 0
            || queue.memory == "interleave"
    };
    let queues: Vec<&QueueDump> = dump.queues.iter().filter(concerned).collect();
    if queues.is_empty() {
        return text;
    }
    let names = names(dump);
    let columns = view.name_columns(queues.iter().map(|queue| names[&queue.id].as_str()));
    let _ = writeln!(text, "\n{} node    at_home       away memory ]", head(columns));
    for queue in queues {
        let name = pad(&names[&queue.id], columns, Side::Left);
        let node = or_dash(queue.home.as_ref().map(|home| match home.node {
            ..0 => "auto".to_owned(),
            node => node.to_string(),
        }));
        let _ = writeln!(
            text,
            "{name} {node:>4} {:>10} {:>10} {}",
            queue.at_home,
            queue.away,
            plain(&queue.memory)
        );
        if let Some(home) = &queue.home {
            let follows = if home.follows { "dynamic; " } else { "" };
            let why: Vec<String> =
                format!("{follows}{}", plain(&home.why)).split(' ').map(str::to_owned).collect();
            text += &wrapped("    ", &why, view.width);
        }
    }
    text
}
