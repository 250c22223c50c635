//! Which cards there are, and whether one works.

use std::path::PathBuf;

use infeed::device::check::{self, Finding, Plan};
use infeed::device::cuda;
use pyo3::prelude::*;
use serde_json::json;

use crate::error::raise;

/// The cards that this process may use, or why there are none, as JSON.
#[pyfunction]
pub(crate) fn cards(py: Python<'_>) -> String {
    let found = match py.detach(cuda::probe) {
        Err(reason) => json!({ "cards": [], "reason": reason.to_string() }),
        Ok(cards) => {
            let card = |card: &cuda::Card| {
                json!({
                    "device": format!("cuda:{}", card.ordinal),
                    "name": card.name,
                    "memory_bytes": card.memory_bytes,
                    "capability": [card.capability.0, card.capability.1],
                    "multiprocessors": card.multiprocessors,
                    "bus": card.bus,
                    "driver_cuda": [card.driver.0, card.driver.1],
                })
            };
            json!({ "cards": cards.iter().map(card).collect::<Vec<_>>(), "reason": null })
        }
    };
    found.to_string()
}

/// Has decoders look for NVIDIA's libraries where pip installs them for the running Python.
pub(crate) fn find_libraries(py: Python<'_>) -> PyResult<()> {
    let path: Vec<Bound<'_, PyAny>> = py.import("sys")?.getattr("path")?.extract()?;
    let folders = path
        .iter()
        .filter_map(|entry| entry.extract::<PathBuf>().ok());
    // The empty entry is the current folder.
    let folders = folders.filter(|folder| folder.is_absolute());
    cuda::set_library_folders(cuda::library_folders(folders));
    Ok(())
}

/// Checks and measures a device; returns the findings as JSON.
///
/// `found` is called with each finding as JSON as soon as it is known. Exceptions that it raises end
/// the call once the checks are done.
#[pyfunction]
#[pyo3(signature = (device, seconds, libraries = Vec::new(), groups = None, found = None))]
pub(crate) fn device_selftest(
    py: Python<'_>,
    device: &str,
    seconds: f64,
    libraries: Vec<PathBuf>,
    groups: Option<Vec<String>>,
    found: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut plan = Plan::new(seconds);
    plan.decoders.search.folders = libraries;
    if let Some(groups) = groups {
        let groups = groups.iter().map(|name| name.parse()).collect();
        plan.groups = raise(py, groups)?;
    }
    let mut failed = None;
    let mut pass_on = |finding: &Finding| {
        let (Some(found), None) = (&found, &failed) else {
            return;
        };
        let text = json!(finding).to_string();
        failed = Python::attach(|py| found.call1(py, (text,)).err());
    };
    let report = raise(py, py.detach(|| check::run(device, &plan, &mut pass_on)))?;
    match failed {
        None => Ok(json!(report).to_string()),
        Some(error) => Err(error),
    }
}
