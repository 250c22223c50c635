//! Exceptions that user code raised, as text for the engine's errors.

use std::sync::Arc;

use infeed_core::error::Cause;
use pyo3::prelude::*;

/// An exception of a user's function: the last line of the traceback, and the whole traceback.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub(crate) struct RaisedException {
    pub(crate) line: String,
    pub(crate) traceback: String,
}

impl RaisedException {
    /// Converts an exception to the cause of an engine error.
    pub(crate) fn cause(py: Python<'_>, error: &PyErr) -> Cause {
        let whole = || -> PyResult<String> {
            let lines = py.import("traceback")?.call_method1(
                "format_exception",
                (error.get_type(py), error.value(py), error.traceback(py)),
            )?;
            let lines: Vec<String> = lines.extract()?;
            Ok(lines.concat())
        };
        Arc::new(RaisedException {
            line: line(py, error),
            traceback: whole().unwrap_or_default(),
        })
    }
}

/// Returns the last line of a traceback, with the file and line that raised the exception.
pub(crate) fn line(py: Python<'_>, error: &PyErr) -> String {
    let located = || -> PyResult<String> {
        let lines = py
            .import("traceback")?
            .call_method1("format_exception_only", (error.value(py),))?;
        let line: String = lines.get_item(-1)?.extract()?;
        let line = line.trim_end().to_owned();
        let Some(mut traceback) = error.traceback(py).map(Bound::into_any) else {
            return Ok(line);
        };
        loop {
            let next = traceback.getattr("tb_next")?;
            if next.is_none() {
                break;
            }
            traceback = next;
        }
        let code = traceback.getattr("tb_frame")?.getattr("f_code")?;
        let file: String = code.getattr("co_filename")?.extract()?;
        let number: u32 = traceback.getattr("tb_lineno")?.extract()?;
        Ok(format!("{line} ({file}, line {number})"))
    };
    located().unwrap_or_else(|_| error.to_string())
}
