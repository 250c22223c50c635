//! The Python binding of infeed: convert, detach, call, convert.
//!
//! Users see only `python/infeed`. `_core.pyi` documents the names of this module.

mod array;
mod batch;
mod codecs;
mod description;
mod device;
mod error;
mod explain;
#[cfg(feature = "feed")]
mod feed;
mod files;
mod fill;
mod function;
mod gpu;
mod items;
mod loader;
mod log;
#[cfg(not(feature = "feed"))]
mod no_feed;
mod order;
mod pack;
mod python_source;
mod raised_exception;
mod record;
mod remote;
mod run_record;
mod stats;
mod waiting;

#[cfg(not(feature = "feed"))]
use no_feed as feed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Runs the `infeed` command and returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<String>) -> u8 {
    py.detach(|| infeed_cli::run(argv))
}

/// Parses a size in bytes, such as "2GiB". Raises ValueError for other text.
#[pyfunction]
fn parse_bytes(text: &str) -> PyResult<u64> {
    infeed_core::units::parse_bytes(text).map_err(PyValueError::new_err)
}

/// The engine, compiled.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::PyArray;
    #[pymodule_export]
    use super::batch::PyBatch;
    #[pymodule_export]
    use super::codecs::{decode_image, encode_lossless, image_size, restore_lossless};
    #[pymodule_export]
    use super::description::{
        check, check_transform, describe, folder_files, load, plan, preview, save,
    };
    #[pymodule_export]
    use super::device::PyDeviceArray;
    #[pymodule_export]
    use super::explain::{PyExplanation, PyVerdict, watch_verdict};
    #[pymodule_export]
    use super::feed::{PyFeeder, PyHosts};
    #[pymodule_export]
    use super::files::read_file;
    #[pymodule_export]
    use super::function::PyFunction;
    #[pymodule_export]
    use super::gpu::{cuda_ordinal, device_selftest, gpus};
    #[pymodule_export]
    use super::loader::PyLoader;
    #[pymodule_export]
    use super::order::order;
    #[pymodule_export]
    use super::pack::{PackParts, pack};
    #[pymodule_export]
    use super::python_source::{PythonSource, items, table};
    #[pymodule_export]
    use super::record::PyWatchRecorder;
    #[pymodule_export]
    use super::remote::set_cache;
    #[pymodule_export]
    use super::run_record::{PyRowKeys, PyRunRecord, PyRunWriter};
    #[pymodule_export]
    use super::{main, parse_bytes};

    /// Connects the engine to this interpreter: imports of functions that a description names, and
    /// the folders of NVIDIA's libraries.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        infeed::function::set_importer(super::function::import);
        super::gpu::find_libraries(module.py())
    }

    /// Version of the order function.
    #[pymodule_export]
    const ORDER: &str = infeed_core::order::ORDER;
    /// Default number of batch slots on a device.
    #[pymodule_export]
    const SLOTS: usize = infeed_device::SLOTS;
    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
