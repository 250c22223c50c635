//! `infeed::Error` as Python exceptions: the class is the variant's, the text the whole chain.

use infeed::Error;
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::raised::{Raised, line};

/// The exception for an error. Nothing else in this crate makes one for the engine's errors.
pub(crate) fn exception_from(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::Read { .. } => "ReadError",
        Error::Damaged { .. } => "DamagedError",
        Error::Decode { .. } => "DecodeError",
        Error::Transform { .. } => "TransformError",
        Error::Shape { .. } => "ShapeError",
        Error::Function { .. } | Error::BatchFunction { .. } => "FunctionError",
        Error::Process { .. } => "ProcessError",
        Error::RecordTooLarge { .. } => "RecordTooLargeError",
        Error::TooManyBad { .. } => "TooManyBadError",
        Error::Open { .. } => "OpenError",
        Error::Write { .. } => "WriteError",
        Error::Interrupted { .. } => "InterruptedPackError",
        Error::Config { .. } => "ConfigError",
        Error::Budget { .. } => "BudgetError",
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
    // The module is the package's own; without it, the text still reaches the user.
    let class = class().unwrap_or_else(|_| PyRuntimeError::type_object(py));
    let exception = PyErr::from_type(class, error.chain());
    if let Error::Function { source, .. } | Error::BatchFunction { source, .. } = error
        && let Some(raised) = source.downcast_ref::<Raised>()
    {
        // Python shows notes below the message; without them it still says what was raised.
        let note = format!("In the function:\n{}", raised.traceback.trim_end());
        let _ = exception.value(py).call_method1("add_note", (note,));
    }
    exception
}

/// What an object of the user's raised while its source was made: an error of the description that
/// says of `what`, with the exception as its cause.
pub(crate) fn refused_by(py: Python<'_>, what: &str, raised: PyErr) -> PyErr {
    // Ctrl-C and the end of the interpreter are not about the object.
    if !raised.is_instance_of::<PyException>(py) {
        return raised;
    }
    let problem = format!("{what}: {}", line(py, &raised));
    let error = exception_from(py, &Error::config("source", problem));
    error.set_cause(py, Some(raised));
    error
}

/// `result` with its error as an exception.
pub(crate) fn raise<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception_from(py, &error))
}
