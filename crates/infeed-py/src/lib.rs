//! The Python binding of infeed: convert, detach, call, convert.
//!
//! Everything a user sees is in `python/infeed`; what is here is documented in `_core.pyi`.

mod array;
mod batch;
mod card;
mod description;
mod device;
mod error;
mod explain;
mod feed;
mod function;
mod given;
mod into;
mod items;
mod loader;
mod log;
mod order;
mod pack;
mod raised;
mod remote;
mod stats;
mod verify;

use pyo3::prelude::*;

/// Runs the `infeed` command and returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, argv: Vec<String>) -> u8 {
    py.detach(|| infeed_cli::run(argv))
}

/// The engine, compiled.
#[pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::array::Array;
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::card::{cards, device_selftest};
    #[pymodule_export]
    use super::description::{
        check, describe, json_from_toml, load, plan, preview, toml_from_json,
    };
    #[pymodule_export]
    use super::device::DeviceArray;
    #[pymodule_export]
    use super::explain::Explanation;
    #[pymodule_export]
    use super::feed::{Feeder, Hosts};
    #[pymodule_export]
    use super::function::Function;
    #[pymodule_export]
    use super::given::{Given, items, table};
    #[pymodule_export]
    use super::loader::{Loader, add_digests};
    #[pymodule_export]
    use super::main;
    #[pymodule_export]
    use super::order::order;
    #[pymodule_export]
    use super::pack::{PackParts, pack};
    #[pymodule_export]
    use super::remote::set_cache;
    #[pymodule_export]
    use super::verify::verify;

    /// Connects the engine to this Python: functions that a description names, and NVIDIA's libraries.
    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        infeed::function::set_importer(super::function::import);
        super::card::find_libraries(module.py())
    }

    /// Version of the order function.
    #[pymodule_export]
    const ORDER: &str = infeed::order::ORDER;
    /// Slots on a device where nobody says how many.
    #[pymodule_export]
    const SLOTS: usize = infeed::device::SLOTS;
    #[allow(non_upper_case_globals)]
    #[pymodule_export]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
