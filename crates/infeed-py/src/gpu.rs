//! List of the GPUs, and the self-test of a device.

use std::path::PathBuf;

use infeed_device::check::{self, CheckPlan, Finding};
use infeed_device::{any, cuda};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::raise;

/// Returns the GPUs that this process may use, or the reason why there are none, as JSON.
#[pyfunction]
pub(crate) fn gpus(py: Python<'_>) -> String {
    let found = match py.detach(cuda::probe) {
        Err(reason) => json!({ "gpus": [], "reason": reason.to_string() }),
        Ok(found) => {
            let gpu = |gpu: &cuda::Gpu| {
                json!({
                    "device": format!("cuda:{}", gpu.ordinal),
                    "name": gpu.name,
                    "memory_bytes": gpu.memory_bytes,
                    "capability": [gpu.capability.0, gpu.capability.1],
                    "multiprocessors": gpu.multiprocessors,
                    "bus": gpu.bus,
                    "driver_cuda": [gpu.driver.0, gpu.driver.1],
                })
            };
            json!({ "gpus": found.iter().map(gpu).collect::<Vec<_>>(), "reason": null })
        }
    };
    found.to_string()
}

/// Returns the ordinal of the GPU that a device name means. None for a simulated device.
#[pyfunction]
pub(crate) fn cuda_ordinal(py: Python<'_>, name: &str) -> PyResult<Option<usize>> {
    raise(py, any::cuda_ordinal(name))
}

/// Adds the folders in which pip installs NVIDIA's libraries for the running Python to the search
/// path of the decoders.
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

/// Checks and measures a device. Returns the findings as JSON.
///
/// Calls `found` with each finding as JSON as soon as the check that made it ends. If `found`
/// raises an exception, the function raises it again after the last check.
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
    let mut plan = CheckPlan::new(seconds);
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
