//! What code of the user's raised, as the text that errors hold of it.

use std::sync::Arc;

use infeed::error::Cause;
use pyo3::prelude::*;

/// What a function raised: the last line of the traceback, and all of it.
#[derive(Debug, thiserror::Error)]
#[error("{line}")]
pub(crate) struct Raised {
    pub(crate) line: String,
    pub(crate) traceback: String,
}

impl Raised {
    /// As a cause of an error of the engine's.
    pub(crate) fn cause(py: Python<'_>, error: &PyErr) -> Cause {
        let whole = || -> PyResult<String> {
            let lines = py.import("traceback")?.call_method1(
                "format_exception",
                (error.get_type(py), error.value(py), error.traceback(py)),
            )?;
            let lines: Vec<String> = lines.extract()?;
            Ok(lines.concat())
        };
        Arc::new(Raised {
            line: line(py, error),
            traceback: whole().unwrap_or_default(),
        })
    }
}

/// The last line of a traceback, and where it was raised.
pub(crate) fn line(py: Python<'_>, error: &PyErr) -> String {
    let told = || -> PyResult<String> {
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
    told().unwrap_or_else(|_| error.to_string())
}
