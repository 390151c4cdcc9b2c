//! `nearq jobs`: the table of a stream's jobs.

use std::io;
use std::time::Duration;

use nearq_command::screen::{Side, counted, fitted, or_dash, plain, width_of};
use nearq_fleet::{Status, Worker};

use super::BoardOptions;
use crate::output::{self, Failure};

/// The pause between two repetitions with --watch.
const PAUSE: Duration = Duration::from_secs(2);

/// Shows the table.
pub(super) fn run(options: &BoardOptions) -> Result<(), Failure> {
    let server = options.connection.server(&options.of);
    let dead = options.dead.clone().unwrap_or_else(|| format!("{}.dead", options.stream));
    let shown = nearq_fleet::status(&server, &options.stream, &dead, |status| {
        let is_read = match (status, options.json, options.watch) {
            (Ok(status), true, false) => output::json(status).map(|()| true),
            (Ok(status), true, true) => output::try_print(&(output::json_line(status) + "\n")),
            (Ok(status), false, true) => output::redraw(&text(status, width_of(&io::stdout()))),
            (Ok(status), false, false) => {
                output::print_text(&text(status, width_of(&io::stdout()))).map(|()| true)
            }
            (Err(why), false, _) => {
                output::redraw(&format!("{why}; asked again until it answers\n"))
            }
            // A line of standard output is an object.
            (Err(why), true, _) => {
                output::print_aside(&format!("nearq jobs: {why}; asked again until it answers\n"));
                Ok(true)
            }
        }?;
        Ok::<_, Failure>((options.watch && is_read).then_some(PAUSE))
    });
    shown.map_err(Failure::run)?
}

fn text(status: &Status, width: Option<usize>) -> String {
    let out: u64 = status.queues.iter().map(|queue| queue.out).sum();
    let waiting: u64 = status.queues.iter().map(|queue| queue.waiting).sum();
    let mut text = format!(
        "stream {}: {} left, {waiting} waiting, {out} out; {} ended, {} dead\n\n",
        plain(&status.stream),
        counted(status.jobs, "job"),
        status.ended,
        or_dash(status.dead),
    );
    if status.queues.is_empty() {
        text += "there is no consumer yet: no worker has asked for jobs\n\n";
    } else {
        let head = ["CONSUMER", "WAITING", "OUT", "AGAIN"].map(String::from);
        let mut rows = vec![head.to_vec()];
        rows.extend(status.queues.iter().map(|queue| {
            let counts = [queue.waiting, queue.out, queue.again].map(|count| count.to_string());
            [vec![plain(&queue.consumer)], counts.to_vec()].concat()
        }));
        text += &fitted(&[Side::Left, Side::Right, Side::Right, Side::Right], &rows, &[], width);
        text += "\n";
    }
    if status.workers.is_empty() {
        return text + "no worker answers\n";
    }
    let head = ["HOST", "PID", "CONSUMER", "SLOTS", "JOBS", "OLDEST", "STATE"].map(String::from);
    let mut rows = vec![head.to_vec()];
    rows.extend(status.workers.iter().map(row));
    let mut sides = [Side::Right; 7];
    (sides[0], sides[2], sides[6]) = (Side::Left, Side::Left, Side::Left);
    text + &fitted(&sides, &rows, &[2, 3], width)
}

fn row(worker: &Worker) -> Vec<String> {
    let oldest = worker.running.values().map(|job| job.seconds).reduce(f64::max);
    vec![
        plain(&worker.host),
        worker.pid.to_string(),
        plain(&worker.consumer),
        worker.slots.to_string(),
        worker.running.len().to_string(),
        or_dash(oldest.map(|seconds| format!("{seconds:.1}"))),
        if worker.drains { "drains" } else { "takes" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_fleet::{Queue, RunningJob};

    #[test]
    fn the_table_has_a_row_for_each_consumer_and_each_worker() {
        let job = |seconds| RunningJob { tries: 1, seconds };
        let worker = Worker {
            host: "a\x1b[31m".into(),
            pid: 17,
            consumer: "encode".into(),
            slots: 4,
            drains: true,
            running: [(5, job(1.5)), (9, job(60.0))].into(),
        };
        let queue = Queue { consumer: "encode".into(), waiting: 7, out: 2, again: 1 };
        let mut status = Status {
            stream: "JOBS".into(),
            jobs: 9,
            ended: 3,
            dead: None,
            queues: vec![queue],
            workers: vec![worker],
        };
        let shown = text(&status, None);
        assert!(shown.starts_with("stream JOBS: 9 jobs left, 7 waiting, 2 out; 3 ended, - dead"));
        assert!(shown.contains("encode          7    2      1"), "{shown}");
        assert!(shown.contains("60.0  drains") && !shown.contains('\x1b'), "{shown}");
        (status.queues, status.workers) = (Vec::new(), Vec::new());
        let shown = text(&status, None);
        assert!(shown.contains("no consumer yet") && shown.contains("no worker answers"));
    }
}
