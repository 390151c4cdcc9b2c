//! Speaking to a process: connecting to it, and what its refusals are for the command.

use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::Refusal;

use crate::output::Failure;

/// Connects to the process with that number.
pub(crate) fn connect(pid: u32) -> Result<Client, Failure> {
    Client::connect(pid).map_err(Failure::input)
}

/// What is wrong where the process does not do what it was asked for.
pub(crate) fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(Refusal::NotPermitted { .. }) => Failure::run(error),
        ClientError::Refused(_) => Failure::input(error),
        ClientError::Io(error) => Failure::run(format!("the process does not answer: {error}")),
        error => Failure::run(error),
    }
}

/// A process's number, as an argument.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid != 0);
    pid.ok_or_else(|| "give the number of a process; `nearq ps` lists them".to_owned())
}
