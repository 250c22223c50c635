//! Which cards there are, and whether one works.

use infeed::device::{check, cuda};
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

/// Checks and measures a device for about so long; what was found, as JSON.
#[pyfunction]
pub(crate) fn device_selftest(py: Python<'_>, device: &str, seconds: f64) -> PyResult<String> {
    let report = raise(py, py.detach(|| check::run(device, seconds)))?;
    Ok(json!(report).to_string())
}
