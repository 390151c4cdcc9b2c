//! Connects to one process, asks many processes for their identity, and turns refusals of processes into failures of the command.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use nearq_control::client::{Client, ClientError};
use nearq_control::find::{self, ConnectError, Found};
use nearq_control::protocol::{GetProcess, Process, Refusal};

use crate::output::Failure;

/// How many processes are asked at once: a stopped process does not answer, and must not delay the others.
const AT_ONCE: usize = 64;

/// Connects to the process with the number `pid`.
pub(crate) fn connect(pid: u32) -> Result<Client, Failure> {
    Client::connect(pid).map_err(|error| match error {
        ConnectError::NoDescriptors { .. } => Failure::run(error),
        error => Failure::input(error),
    })
}

/// The processes that can be inspected.
pub(crate) fn processes() -> Result<Vec<Found>, Failure> {
    find::processes().map_err(|error| {
        Failure::run(format!(
            "cannot search for processes: {error}; close files, or raise `ulimit -n`"
        ))
    })
}

/// Asks all processes in `found` for their identity, many at once. Waits at most `patience` for each process, and for none after the
/// deadline. The answers are in the order of `found`.
pub(crate) fn ask_all(
    found: &[Found],
    patience: Duration,
    deadline: Instant,
) -> Vec<Result<Process, String>> {
    let late = || {
        Err("not asked: other processes used up the time; try `nearq get` with its PID".to_owned())
    };
    let answers = Mutex::new(vec![None; found.len()]);
    let users: Vec<u32> = found.iter().map(|process| process.user).collect();
    let turns = Mutex::new(in_turn(&users).into_iter());
    let work = || {
        while let Some(index) = lock(&turns).next() {
            let until = deadline.min(Instant::now() + patience);
            if until <= Instant::now() {
                return;
            }
            let answer = ask(found[index].pid, until);
            lock(&answers)[index] = Some(answer);
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(found.len()) {
            // If no other thread can be started, this thread asks alone.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let answers = answers.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The order in which processes of these users are asked: each user's first, then each user's second, and so on, so that one user's many
/// slow processes do not delay all others.
fn in_turn(users: &[u32]) -> Vec<usize> {
    let mut of_user: BTreeMap<u32, usize> = BTreeMap::new();
    let mut order: Vec<(usize, usize)> = Vec::new();
    for (index, user) in users.iter().enumerate() {
        let before = of_user.entry(*user).or_default();
        order.push((*before, index));
        *before += 1;
    }
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

fn ask(pid: u32, until: Instant) -> Result<Process, String> {
    let left = || until.saturating_duration_since(Instant::now());
    let mut client = Client::connect_within(pid, left()).map_err(|error| error.to_string())?;
    client.set_patience(left());
    let reply = client.call(&GetProcess {}).map_err(|error| error.to_string())?;
    Ok(reply.process)
}

/// The failure for a request that the process did not carry out.
pub(crate) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(Refusal::NotPermitted { .. }) => Failure::run(error),
        ClientError::Refused(_) => Failure::input(error),
        error => Failure::run(error),
    }
}

/// Parses a process's number, as an argument.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid != 0);
    pid.ok_or_else(|| "give the number of a process (PID); `nearq ps` lists them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_asked_in_turn_by_user() {
        assert_eq!(in_turn(&[0, 0, 0, 7, 0, 7, 9]), [0, 3, 6, 1, 5, 2, 4]);
    }
}
