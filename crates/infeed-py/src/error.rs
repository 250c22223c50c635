//! Conversion of `infeed::Error` to Python exceptions: one class for each variant, the error chain
//! as text.

use infeed::Error;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::raised_exception::{RaisedException, line};

/// Fix for a bad record that stopped a run.
const SUBSTITUTE: &str = "; set on_error=\"substitute\" to replace bad records";

/// Returns the exception for an error. Nothing else in this crate converts the engine's errors.
pub(crate) fn exception_from(py: Python<'_>, error: &Error) -> PyErr {
    exception_with_fix(py, error, "")
}

fn exception_with_fix(py: Python<'_>, error: &Error, fix: &str) -> PyErr {
    let name = match error {
        Error::Read { .. } => "ReadError",
        Error::Damaged { .. } => "DamagedError",
        Error::Decode { .. } => "DecodeError",
        Error::Transform { .. } => "TransformError",
        Error::Shape { .. } => "ShapeError",
        Error::Function { .. } | Error::BatchFunction { .. } => "FunctionError",
        Error::Process { .. } => "ProcessError",
        Error::RecordTooLarge { .. } => "RecordTooLargeError",
        Error::TooManyBad { .. } => "TooManyBadRecordsError",
        Error::Open { .. } => "OpenError",
        Error::Write { .. } => "WriteError",
        Error::Interrupted { .. } => "InterruptedPackError",
        Error::Config { .. } => "ConfigError",
        Error::Budget { .. } | Error::Reserved { .. } => "BudgetError",
        Error::OutOfMemory { .. } => "OutOfMemoryError",
        Error::Thread { .. } => "ThreadError",
        Error::Device { .. } => "DeviceError",
        Error::Forked => "ForkedError",
        Error::Closed => "ClosedError",
        Error::Panicked { .. } => "PanickedError",
        _ => "InfeedError",
    };
    let class = || -> PyResult<Bound<'_, PyType>> {
        Ok(py
            .import("infeed.errors")?
            .getattr(name)?
            .cast_into::<PyType>()?)
    };
    // If the package cannot be imported, the user still sees the text.
    let class = class().unwrap_or_else(|_| PyRuntimeError::type_object(py));
    let exception = PyErr::from_type(class, error.chain() + fix);
    if let Error::Function { source, .. } | Error::BatchFunction { source, .. } = error
        && let Some(raised) = source.downcast_ref::<RaisedException>()
    {
        // Python shows notes below the message. The message is complete without the note.
        let note = format!("In the function:\n{}", raised.traceback.trim_end());
        let _ = exception.value(py).call_method1("add_note", (note,));
    }
    exception
}

/// Returns the configuration error for an exception that a user's object raised while `part` of a
/// source was made. The exception is its cause.
pub(crate) fn source_error(py: Python<'_>, part: &str, raised: PyErr) -> PyErr {
    // Ctrl-C and SystemExit are not errors of the object.
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let problem = format!("{part}: {}", line(py, &raised));
    let error = exception_from(py, &Error::config("source", problem));
    error.set_cause(py, Some(raised));
    error
}

/// Converts the error of a result to an exception.
pub(crate) fn raise<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception_from(py, &error))
}

/// As [`raise`], for the batches of a loop that stops at bad records. The message of such a record
/// ends with the option that replaces bad records, unless it has a better fix.
pub(crate) fn raise_at_bad_record<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| {
        let fix = if error.is_bad_record() && !error.has_fix() {
            SUBSTITUTE
        } else {
            ""
        };
        exception_with_fix(py, &error, fix)
    })
}
