//! The order of records, for other loaders.

use infeed_core::order::Order;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Returns the records at positions `begin..end` of an epoch.
#[pyfunction]
#[pyo3(signature = (records, seed, epoch, begin, end))]
pub(crate) fn order(
    records: u64,
    seed: Option<u64>,
    epoch: u64,
    begin: u64,
    end: u64,
) -> PyResult<Vec<u64>> {
    if begin > end || end > records {
        return Err(PyValueError::new_err(format!(
            "positions {begin} to {end} are outside of the dataset, which has {records} records"
        )));
    }
    let permutation = Order::new(records, seed).epoch(epoch);
    Ok((begin..end)
        .map(|position| permutation.get(position))
        .collect())
}
