//! Which cards there are, and whether one works.

use std::path::PathBuf;

use infeed::device::{DecoderSettings, check, cuda};
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

/// Checks and measures a device for about so long; what was found, as JSON. Libraries of NVIDIA's
/// are looked for in the folders, too.
#[pyfunction]
#[pyo3(signature = (device, seconds, libraries = Vec::new()))]
pub(crate) fn device_selftest(
    py: Python<'_>,
    device: &str,
    seconds: f64,
    libraries: Vec<PathBuf>,
) -> PyResult<String> {
    let mut decoders = DecoderSettings::default();
    decoders.search.folders = libraries;
    let report = raise(
        py,
        py.detach(|| check::run_with(device, seconds, &decoders)),
    )?;
    Ok(json!(report).to_string())
}
