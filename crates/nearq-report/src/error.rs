//! The ways in which an experiment can fail, and the exit status with which the command then ends.

use std::fmt;

/// Why an experiment gave no result. The text is one clear line.
#[derive(Clone, PartialEq, Eq)]
pub enum Error {
    /// The request cannot be carried out: the line names the value and what is allowed.
    Input(String),
    /// The run started and failed, for example because a block did not verify.
    Run(String),
}

impl Error {
    /// The request cannot be carried out.
    pub fn input(message: impl Into<String>) -> Self {
        Self::Input(message.into())
    }

    /// The run started and failed.
    pub fn run(message: impl Into<String>) -> Self {
        Self::Run(message.into())
    }

    /// The command's exit status: 2 for bad input, 1 for a failed run.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Input(_) => 2,
            Self::Run(_) => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Input(message) | Self::Run(message)) = self;
        f.write_str(message)
    }
}

nearq_topology::debug_as_display!(Error);

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_input_and_failed_runs_have_different_statuses() {
        assert_eq!(Error::input("0 issuers").exit_status(), 2);
        assert_eq!(Error::run("block 7 did not verify").exit_status(), 1);
        assert_eq!(Error::run("block 7 did not verify").to_string(), "block 7 did not verify");
    }
}
