//! Packing a dataset.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use infeed::pack::{PackOptions, Progress};
use pyo3::prelude::*;

use crate::description::{Handles, parse};
use crate::error::raise;
use crate::log;

/// Packs, calling back a few times a second; gives what was written as JSON.
#[pyfunction]
pub(crate) fn pack(
    py: Python<'_>,
    description: &str,
    handles: Handles,
    out: PathBuf,
    options: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let pipeline = parse(py, description)?;
    let options = raise(py, PackOptions::from_json(options))?;
    let raised: Mutex<Option<PyErr>> = Mutex::default();
    let call = |at: &Progress| {
        Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = &progress else {
                return Ok(true);
            };
            let numbers = (
                at.done,
                at.total,
                at.reused,
                at.bad,
                at.bytes_in,
                at.bytes_out,
            );
            let answer = progress.bind(py).call1(numbers)?;
            // Only False says stop: most callbacks return nothing.
            Ok(answer.extract::<bool>().unwrap_or(true))
        })
        .unwrap_or_else(|error: PyErr| {
            let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.get_or_insert(error);
            false
        })
    };
    let packed =
        py.detach(|| infeed::pack::pack(&pipeline, &handles.0, None, &out, &options, &call));
    log::hand_over(py)?;
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(raise(py, packed)?.to_json())
}
