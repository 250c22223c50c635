//! Replaying a pipeline.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use infeed::loader::State;
use infeed::loader::verify::{Against, Verify};
use infeed::sample::RecordId;
use pyo3::prelude::*;

use crate::description::{Handles, parse};
use crate::error::raise;
use crate::loader::{digested, policy};
use crate::log;

/// Epoch and step, first and last position, whether records differ, expected and found digest, the
/// whole in words, position, field and records of the first row that differs.
type Different = (
    u64,
    u64,
    (u64, u64),
    bool,
    String,
    String,
    String,
    Option<(Option<u64>, Option<String>, Vec<Option<(u64, String)>>)>,
);

/// First epoch and step, steps that were the same, steps wanted, their digest, the difference.
type Found = (u64, u64, u64, u64, String, Option<Different>);

/// Replays, calling back a few times a second.
#[pyfunction]
#[pyo3(signature = (
    description, handles, state, against, steps, write, *, twice, digest, on_error, workers,
    progress
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn verify(
    py: Python<'_>,
    description: &str,
    handles: Handles,
    state: Option<&str>,
    against: Vec<PathBuf>,
    steps: Option<u64>,
    write: Option<PathBuf>,
    twice: bool,
    digest: &str,
    on_error: &str,
    workers: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Found> {
    log::collect();
    let pipeline = parse(py, description)?;
    let mut verify = Verify::default();
    verify.state = match state {
        Some(text) => Some(raise(py, State::from_json(text))?),
        None => None,
    };
    verify.against = match (against.is_empty(), twice) {
        (false, _) => Against::Recorded(against),
        (true, true) => Against::Itself,
        (true, false) => Against::Nothing,
    };
    verify.steps = steps;
    verify.options.digest = digested(digest)?;
    verify.options.on_error = policy(on_error)?;
    verify.options.workers = workers;
    verify.options.digest_file = write;
    let raised: Mutex<Option<PyErr>> = Mutex::default();
    let mut go_on = |done: u64, wanted: u64| {
        Python::attach(|py| {
            py.check_signals()?;
            let Some(progress) = &progress else {
                return Ok(true);
            };
            let answer = progress.bind(py).call1((done, wanted))?;
            // Only False says stop: most callbacks return nothing.
            Ok(answer.extract::<bool>().unwrap_or(true))
        })
        .unwrap_or_else(|error: PyErr| {
            let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
            raised.get_or_insert(error);
            false
        })
    };
    let found = py.detach(|| pipeline.verify(&handles.0, &verify, &mut go_on));
    log::hand_over(py)?;
    if let Some(error) = raised.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let found = raise(py, found)?;
    let difference = found.difference.map(|different| {
        let text = different.to_string();
        let named = |record: RecordId| (record.index, record.name);
        let row = different.row.map(|row| {
            let records = row.records.map(|record| record.map(named));
            (row.position, row.field, records.to_vec())
        });
        (
            different.epoch,
            different.step,
            (different.positions.start, different.positions.end),
            different.other_records,
            different.expected.to_string(),
            different.found.to_string(),
            text,
            row,
        )
    });
    let (epoch, step) = found.from;
    Ok((
        epoch,
        step,
        found.steps,
        found.wanted,
        found.digest.to_string(),
        difference,
    ))
}
