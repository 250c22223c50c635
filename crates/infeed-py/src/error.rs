//! `infeed::Error` as Python exceptions: the class is the variant's, the text the whole chain.

use infeed::Error;
use pyo3::PyTypeInfo;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The exception for an error. Nothing else in this crate makes one for the engine's errors.
pub(crate) fn exception_from(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::Read { .. } => "ReadError",
        Error::Damaged { .. } => "DamagedError",
        Error::Decode { .. } => "DecodeError",
        Error::Transform { .. } => "TransformError",
        Error::Shape { .. } => "ShapeError",
        Error::RecordTooLarge { .. } => "RecordTooLargeError",
        Error::TooManyBad { .. } => "TooManyBadError",
        Error::Open { .. } => "OpenError",
        Error::Write { .. } => "WriteError",
        Error::Interrupted { .. } => "InterruptedPackError",
        Error::Config { .. } => "ConfigError",
        Error::Budget { .. } => "BudgetError",
        Error::OutOfMemory { .. } => "OutOfMemoryError",
        Error::Thread { .. } => "ThreadError",
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
    PyErr::from_type(class, error.chain())
}

/// `result` with its error as an exception.
pub(crate) fn raise<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception_from(py, &error))
}
