//! The five sections of the kernel's `wq_dump`: one function each, from the process's answer to text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use nearq_command::screen::{Side, or_dash, pad, plain, time, wrapped};
use nearq_control::protocol::{Dump, NodeLimit, PoolDump, QueueDump, ScopeDump};
use nearq_control::values::{parse_cpus, show_mask};

use super::runs::{between, follows, runs};
use super::{FOR_EACH_MASK, MOST_OF_MASKS, View};

/// The least width of a queue's name, as in the kernel's tool.
pub(super) const NAME: usize = 32;
/// The greatest width that is kept for it.
const LONG_NAME: usize = 48;
/// A scope whose pods take at most this many lines is shown even if another scope has the same pods.
const LONG: usize = 6;
/// The width of a queue's kind.
const KIND: usize = 10;

/// A title, underlined.
pub(super) fn title(text: &str) -> String {
    format!("{text}\n{}\n", "=".repeat(text.len()))
}

/// `[          workqueue           \`: the heading of the first column.
pub(super) fn head(name: usize) -> String {
    format!("[{:^1$}\\", "workqueue", name - 2)
}

impl View {
    /// The width of names: less on a narrow terminal.
    pub(super) fn name_columns<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> usize {
        let longest = names.into_iter().map(|name| name.chars().count()).max();
        let (least, most) = match self.width {
            80.. => (NAME, LONG_NAME),
            width => (width / 3, width / 2),
        };
        longest.unwrap_or(0).clamp(least, most)
    }
}

/// The names of queues; queues that share a name also have their number.
pub(super) fn names(dump: &Dump) -> BTreeMap<u64, String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for queue in &dump.queues {
        *counts.entry(&queue.name).or_default() += 1;
    }
    let called = |queue: &QueueDump| {
        let name = plain(&queue.name);
        if counts[queue.name.as_str()] > 1 { format!("{name} #{}", queue.id) } else { name }
    };
    dump.queues.iter().map(|queue| (queue.id, called(queue))).collect()
}

impl View {
    /// CPUs as a list, or as the kernel's mask.
    pub(super) fn cpus(&self, list: &str) -> String {
        if list.is_empty() {
            return "-".to_owned();
        }
        // Parsing a list takes longer than printing it.
        let as_mask = self.masks && self.mask_bytes.get() < MOST_OF_MASKS;
        match as_mask.then(|| parse_cpus(list)) {
            Some(Ok(Some(cpus))) => {
                let mask = show_mask(&cpus);
                self.mask_bytes.set(self.mask_bytes.get() + mask.len() + FOR_EACH_MASK);
                mask
            }
            _ => plain(list),
        }
    }
}

/// "Affinity Scopes".
pub(super) fn scopes(dump: &Dump, view: &View) -> String {
    let mut text = title("Affinity Scopes");
    let allowed = view.cpus(&dump.allowed);
    let _ = writeln!(text, "allowed_cpus={allowed} possible_cpus={}", view.cpus(&dump.possible));
    for (index, scope) in dump.scopes.iter().enumerate() {
        let default = if scope.default { " (default)" } else { "" };
        let _ = writeln!(text, "\n{}{default}", plain(&scope.name).to_uppercase());
        let pods = pods(scope, view);
        // On large machines several scopes have the same pods, and many of them.
        let same = dump.scopes[..index].iter().find(|other| other.pods == scope.pods);
        match same.filter(|_| pods.lines().count() > LONG) {
            Some(other) => {
                let _ = writeln!(text, "  as {}", plain(&other.name).to_uppercase());
            }
            None => text += &pods,
        }
    }
    text
}

fn pods(scope: &ScopeDump, view: &View) -> String {
    let mut text = format!("  nr_pods  {}\n", scope.pods.len());
    let cpus: Vec<String> = scope.pods.iter().map(|pod| view.cpus(&pod.cpus)).collect();
    let nodes: Vec<String> = scope.pods.iter().map(|pod| pod.node.to_string()).collect();
    let pods: Vec<String> = scope.cpu_pod.iter().map(ToString::to_string).collect();
    for (head, values) in [("  pod_cpus ", cpus), ("  pod_node ", nodes), ("  cpu_pod  ", pods)] {
        text += &wrapped(head, runs(numbered(&values)), view.width);
    }
    text
}

fn numbered(values: &[String]) -> impl Iterator<Item = (usize, &str)> {
    values.iter().map(String::as_str).enumerate()
}

/// "Worker Pools". Consecutive pools of single CPUs that are otherwise equal share a line.
pub(super) fn pools(dump: &Dump, view: &View) -> String {
    let mut text = title("Worker Pools");
    let widest = |of: fn(&PoolDump) -> u64, least: usize| {
        let digits = dump.pools.iter().map(|pool| of(pool).to_string().len()).max();
        digits.unwrap_or(0).max(least)
    };
    let id_digits = widest(|pool| pool.id, 2);
    let (reference, worker) = (widest(|pool| pool.references, 2), widest(|pool| pool.workers, 3));
    let line = |id: &str, pool: &PoolDump, last: Option<&PoolDump>| {
        let mut line = format!(
            "pool[{id}] ref={:>reference$} nice={:>3} idle/workers={:>worker$}/{:>worker$}",
            pool.references, pool.nice, pool.idle, pool.workers
        );
        let pod = match last {
            Some(last) => between(&pool.pod_cpus, &last.pod_cpus),
            None if pool.per_cpu => plain(&pool.pod_cpus),
            None => view.cpus(&pool.pod_cpus),
        };
        if pool.per_cpu {
            let _ = write!(line, " cpu={pod:>3}");
        } else {
            let strict = if pool.strict { " strict" } else { "" };
            let _ = write!(line, " cpus={} pod_cpus={pod}{strict}", view.cpus(&pool.cpus));
        }
        line + &more_of(pool)
    };
    let mut rest = &dump.pools[..];
    while let [first, ..] = rest {
        let may_join = first.per_cpu || !view.masks;
        let pairs = rest.windows(2).take_while(|pair| may_join && is_next_of(&pair[0], &pair[1]));
        let similar = pairs.count() + 1;
        let id = |pool: &PoolDump| format!("{:0id_digits$}", pool.id);
        if similar > 2 {
            let last = &rest[similar - 1];
            let _ = writeln!(
                text,
                "{}",
                line(&format!("{}-{}", id(first), id(last)), first, Some(last))
            );
            rest = &rest[similar..];
        } else {
            let _ = writeln!(text, "{}", line(&id(first), first, None));
            rest = &rest[1..];
        }
    }
    text
}

/// The fields of a pool that the kernel's pools do not have.
fn more_of(pool: &PoolDump) -> String {
    let mut text = String::new();
    if pool.idle_class {
        text += " sched_idle";
    }
    if pool.slice_ns != 0 {
        let _ = write!(text, " slice={}", time(pool.slice_ns));
    }
    if pool.no_helping {
        text += " no_helping";
    }
    if pool.ready != 0 {
        let _ = write!(text, " ready={}", pool.ready);
    }
    text
}

/// Whether a pool equals the one before it except for its number and its CPU, each of which is the next.
fn is_next_of(before: &PoolDump, pool: &PoolDump) -> bool {
    let next =
        before.id.checked_add(1) == Some(pool.id) && follows(&before.pod_cpus, &pool.pod_cpus);
    // A pool that never leaves its CPU has only that CPU.
    let cpus = if pool.cpus == pool.pod_cpus { &before.pod_cpus } else { &pool.cpus };
    let same = PoolDump {
        id: before.id,
        pod_cpus: before.pod_cpus.clone(),
        cpus: cpus.clone(),
        ..pool.clone()
    };
    next && same == *before
}

/// "Workqueue CPU -> pool": a column for each CPU, or runs of CPUs if there are too many.
pub(super) fn queues(dump: &Dump, view: &View) -> String {
    let names = names(dump);
    let columns = view.name_columns(names.values().map(String::as_str));
    let pools = || dump.queues.iter().flat_map(|queue| &queue.cpu_pool);
    let digits = pools().map(|pool| pool.to_string().len()).max().unwrap_or(0);
    let cpus = dump.queues.iter().map(|queue| queue.cpu_pool.len()).max().unwrap_or(0);
    let digits = digits.max(cpus.saturating_sub(1).to_string().len()).max(2);
    let start = |queue: &QueueDump| {
        let name = pad(&names[&queue.id], columns, Side::Left);
        format!("{name} {}", pad(&plain(&queue.kind), KIND, Side::Left))
    };
    let mut text = title("Workqueue CPU -> pool");
    if columns + 1 + KIND + cpus * (digits + 1) <= view.width {
        let _ = write!(text, "{} type   CPU", head(columns));
        (0..cpus).for_each(|cpu| {
            let _ = write!(text, " {cpu:>digits$}");
        });
        text += "]\n";
        for queue in &dump.queues {
            text += &start(queue);
            for pool in &queue.cpu_pool {
                let _ = write!(text, " {pool:>digits$}");
            }
            text.push('\n');
        }
        return text;
    }
    let _ = writeln!(text, "{} type       [CPU]=pool ]", head(columns));
    let mut seen: BTreeMap<&[i64], &str> = BTreeMap::new();
    for queue in &dump.queues {
        let words = match seen.get(&queue.cpu_pool[..]) {
            Some(other) => vec![format!("as {other}")],
            None => {
                seen.insert(&queue.cpu_pool, &names[&queue.id]);
                let pools: Vec<String> = queue.cpu_pool.iter().map(ToString::to_string).collect();
                runs(numbered(&pools))
            }
        };
        text += &wrapped(&format!("{} ", start(queue)), &words, view.width);
    }
    text
}

/// "Workqueue -> rescuer".
pub(super) fn rescuers(dump: &Dump, view: &View) -> String {
    let names = names(dump);
    let with: Vec<_> =
        dump.queues.iter().filter_map(|queue| Some((queue, queue.rescuer.as_ref()?))).collect();
    let columns = view.name_columns(with.iter().map(|(queue, _)| names[&queue.id].as_str()));
    let cpus = |queue: &QueueDump| view.cpus(&queue.cpus);
    let wide =
        with.iter().map(|(queue, _)| cpus(queue).len()).max().unwrap_or(0).clamp(12, LONG_NAME);
    let mut text = title("Workqueue -> rescuer");
    let _ =
        writeln!(text, "{} {:<wide$} {:>7} rescuer_cpus ]", head(columns), "unbound_cpus", "pid");
    for (queue, rescuer) in with {
        let name = pad(&names[&queue.id], columns, Side::Left);
        let thread = or_dash((rescuer.thread != 0).then_some(rescuer.thread));
        let _ = writeln!(
            text,
            "{name} {:<wide$} {thread:>7} {}",
            cpus(queue),
            view.cpus(&rescuer.cpus)
        );
    }
    text
}

/// "Unbound workqueue -> node_nr/max_active".
pub(super) fn limits(dump: &Dump, view: &View) -> String {
    let mut text = title("Unbound workqueue -> node_nr/max_active");
    let _ = writeln!(text, "online_cpus={}", view.cpus(&dump.online));
    for node in &dump.nodes {
        let _ = writeln!(text, "NODE[{:02}]={}", node.id, view.cpus(&node.cpus));
    }
    let names = names(dump);
    let unbound: Vec<&QueueDump> =
        dump.queues.iter().filter(|queue| queue.kind != "percpu").collect();
    let columns = view.name_columns(unbound.iter().map(|queue| names[&queue.id].as_str()));
    let by_column = columns + 10 + 10 * (dump.nodes.len() + 1) <= view.width;
    text += &format!("\n[{:^1$}  {2:>4} {3:>4}", "workqueue", columns - 2, "min", "max");
    if by_column {
        for node in &dump.nodes {
            let _ = write!(text, "{:>10}", format!("NODE {}", node.id));
        }
        let _ = writeln!(text, "{:>10} ]\n", "dfl");
    } else {
        text += " [NODE]=active/limit ]\n\n";
    }
    for queue in unbound {
        let name = pad(&names[&queue.id], columns, Side::Left);
        let start = format!("{name} {:>4} {:>4}", queue.min_active, queue.max_active);
        text += &limits_of(queue, dump, &start, by_column, view.width);
    }
    text
}

fn limits_of(queue: &QueueDump, dump: &Dump, start: &str, by_column: bool, width: usize) -> String {
    let shown = |limit: &NodeLimit| format!("{}/{}", limit.active, limit.limit);
    let of_nodes = queue.limits.iter().rev().filter(|limit| limit.domain == "node");
    let by_node: BTreeMap<i64, &NodeLimit> = of_nodes.map(|limit| (limit.number, limit)).collect();
    let on = |node: u64| {
        let here = i64::try_from(node).ok().and_then(|node| by_node.get(&node).copied());
        or_dash(here.map(shown))
    };
    let elsewhere = queue.limits.iter().find(|limit| limit.domain != "node");
    let elsewhere = or_dash(elsewhere.map(shown));
    let inactive =
        queue.limits.iter().fold(0, |sum: u64, limit| sum.saturating_add(limit.inactive));
    let inactive = if inactive == 0 { String::new() } else { format!("inactive={inactive}") };
    if by_column {
        let nodes = dump.nodes.iter().map(|node| on(node.id));
        let cells: Vec<String> =
            nodes.chain([elsewhere]).map(|cell| format!("{cell:>10}")).collect();
        return format!("{start}{} {inactive}", cells.concat()).trim_end().to_owned() + "\n";
    }
    let values: Vec<String> = dump.nodes.iter().map(|node| on(node.id)).collect();
    let numbers = dump.nodes.iter().map(|node| node.id as usize);
    let mut words = runs(numbers.zip(values.iter().map(String::as_str)));
    words.push(format!("dfl={elsewhere}"));
    words.extend(Some(inactive).filter(|inactive| !inactive.is_empty()));
    wrapped(&format!("{start} "), &words, width)
}
