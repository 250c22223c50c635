//! Sources that Python objects make, which a description refers to by number.

use std::sync::Arc;

use infeed::pipeline::FieldSpec;
use infeed::source::Source;
use infeed::source::batches::Batches;
use infeed::source::columns::Wanted;
use infeed_raw::arrow::record_batches;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{raise, refused_by};
use crate::items::Items;

/// A source.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct Given {
    pub(crate) source: Arc<dyn Source>,
}

#[pymethods]
impl Given {
    #[getter]
    fn records(&self) -> u64 {
        self.source.len()
    }

    #[getter]
    fn fields(&self) -> Vec<String> {
        let fields = self.source.fields().iter();
        fields.map(|field| field.name.clone()).collect()
    }
}

/// What is wanted, from the JSON form of fields.
fn wanted(py: Python<'_>, fields: &str) -> PyResult<Vec<Wanted>> {
    let specs: Vec<FieldSpec> =
        serde_json::from_str(fields).map_err(|error| PyValueError::new_err(error.to_string()))?;
    raise(py, specs.iter().map(FieldSpec::wanted).collect())
}

/// The rows of an object with `__arrow_c_stream__`.
#[pyfunction]
pub(crate) fn table(object: &Bound<'_, PyAny>, name: &str, fields: &str) -> PyResult<Given> {
    let py = object.py();
    let wanted = wanted(py, fields)?;
    let read = record_batches(object);
    let told = |raised| refused_by(py, &format!("{name} gives no table"), raised);
    let (schema, batches) = read.map_err(told)?;
    let source = py.detach(|| Batches::new(name, &schema, &batches, &wanted));
    let source = Arc::new(raise(py, source)?);
    Ok(Given { source })
}

/// The items of an object with `__len__` and `__getitem__`.
#[pyfunction]
pub(crate) fn items(object: &Bound<'_, PyAny>, name: &str, fields: &str) -> PyResult<Given> {
    let wanted = wanted(object.py(), fields)?;
    let source = Arc::new(Items::new(object, name, &wanted)?);
    Ok(Given { source })
}
