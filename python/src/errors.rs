//! nearq's errors as Python's exceptions: `ValueError` for an argument, `OSError` for what the system refuses, `RuntimeError` for the rest.

use nearq::{Error, OsError};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};

/// The exception for an error of the library.
pub(crate) fn of(error: &Error) -> PyErr {
    match error {
        Error::NoHome(_)
        | Error::NoDevice(_)
        | Error::NoSuchNode { .. }
        | Error::NoSuchCpu { .. }
        | Error::UnknownName { .. }
        | Error::MaskNotAllowed { .. }
        | Error::EmptyMask
        | Error::NiceOutOfRange(_)
        | Error::MinActive { .. }
        | Error::Unsupported { .. } => PyValueError::new_err(error.to_string()),
        Error::Refused(refused) => of_system(refused),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// The exception for what the system has refused.
pub(crate) fn of_system(refused: &OsError) -> PyErr {
    PyOSError::new_err((refused.errno(), refused.to_string()))
}
