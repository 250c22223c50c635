//! Packing a dataset.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use infeed_pack::{PackOptions, PackProgress, Parts};
use pyo3::prelude::*;

use crate::description::{PyHandles, parse};
use crate::error::raise;
use crate::log;
use crate::waiting::{detach, wait_for};

/// Packs a dataset and returns the result as JSON. Calls `progress` a few times per second.
#[pyfunction]
pub(crate) fn pack(
    py: Python<'_>,
    description: &str,
    handles: PyHandles,
    out: PathBuf,
    options: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let pipeline = parse(py, description)?;
    let options = raise(py, PackOptions::from_json(options))?;
    let raised: Mutex<Option<PyErr>> = Mutex::default();
    let call = |at: &PackProgress| {
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
            // Only False stops the call: most callbacks return nothing.
            Ok(answer.extract::<bool>().unwrap_or(true))
        })
        .unwrap_or_else(|error: PyErr| {
            let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.get_or_insert(error);
            false
        })
    };
    let packed = detach(py, || {
        infeed_pack::pack(&pipeline, &handles.0, None, &out, &options, &call)
    });
    log::hand_over(py)?;
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(raise(py, packed?)?.to_json())
}

/// A dataset whose shards several processes write.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct PackParts {
    inner: Parts,
}

#[pymethods]
impl PackParts {
    #[new]
    fn new(
        py: Python<'_>,
        description: &str,
        out: PathBuf,
        options: &str,
        begin: bool,
    ) -> PyResult<PackParts> {
        let pipeline = parse(py, description)?;
        let options = raise(py, PackOptions::from_json(options))?;
        let open = move || match begin {
            true => Parts::begin(&pipeline, &out, &options),
            false => Parts::join(&pipeline, &out, &options),
        };
        let inner = raise(py, wait_for(py, open)?)?;
        log::hand_over(py)?;
        Ok(PackParts { inner })
    }

    fn json(&self) -> String {
        self.inner.to_json()
    }

    fn weigh(&self, py: Python<'_>, begin: u64, end: u64) -> PyResult<Vec<Option<u64>>> {
        raise(py, py.detach(|| self.inner.weigh(begin..end)))
    }

    #[expect(clippy::needless_pass_by_value, reason = "pyo3 extracts a Vec")]
    fn ends(&self, weights: Vec<Option<u64>>) -> Vec<u64> {
        self.inner.ends(&weights)
    }

    fn shard(&self, py: Python<'_>, number: usize, begin: u64, end: u64) -> PyResult<String> {
        let part = raise(py, py.detach(|| self.inner.shard(number, begin..end)))?;
        Ok(part.to_json())
    }
}
