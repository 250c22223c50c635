//! Sources made from Python objects. A description refers to them by number.

use std::sync::Arc;

use infeed::pipeline::FieldSpec;
use infeed_core::parse_problem::in_words;
use infeed_raw::arrow::record_batches;
use infeed_source::Source;
use infeed_source::batches::Batches;
use infeed_source::columns::ColumnRequest;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{raise, source_error};
use crate::items::Items;

/// A source made from a Python object.
#[pyclass(frozen, module = "infeed._core")]
pub(crate) struct PythonSource {
    pub(crate) source: Arc<dyn Source>,
}

#[pymethods]
impl PythonSource {
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

/// Parses the JSON form of fields.
fn column_requests(py: Python<'_>, fields: &str) -> PyResult<Vec<ColumnRequest>> {
    let specs: Vec<FieldSpec> = serde_json::from_str(fields)
        .map_err(|error| PyValueError::new_err(in_words(&error.to_string())))?;
    raise(py, specs.iter().map(FieldSpec::request).collect())
}

/// Makes a source from the rows of an object with `__arrow_c_stream__`; from the rows with the
/// numbers of another one, if given.
#[pyfunction]
#[pyo3(signature = (object, name, fields, rows = None))]
pub(crate) fn table(
    object: &Bound<'_, PyAny>,
    name: &str,
    fields: &str,
    rows: Option<&Bound<'_, PyAny>>,
) -> PyResult<PythonSource> {
    let py = object.py();
    let wanted = column_requests(py, fields)?;
    let read = record_batches(object);
    let to_error = |raised| source_error(py, &format!("{name} is not a table"), raised);
    let (schema, batches) = read.map_err(to_error)?;
    let numbers = rows.map(record_batches).transpose().map_err(to_error)?;
    let source = py.detach(|| {
        let source = Batches::new(name, &schema, &batches, &wanted)?;
        match &numbers {
            Some((_, numbers)) => source.with_rows(numbers),
            None => Ok(source),
        }
    });
    let source = Arc::new(raise(py, source)?);
    Ok(PythonSource { source })
}

/// Makes a source from the items of an object with `__len__` and `__getitem__`. `version` names its
/// class and the version of its items, if they never change. Up to `threads` threads call it at a
/// time. `draw` returns an item, given its number and the key of random draws, if items depend on
/// random draws.
#[pyfunction]
#[pyo3(signature = (object, name, fields, version = None, threads = 1, draw = None))]
pub(crate) fn items(
    object: &Bound<'_, PyAny>,
    name: &str,
    fields: &str,
    version: Option<&str>,
    threads: usize,
    draw: Option<Bound<'_, PyAny>>,
) -> PyResult<PythonSource> {
    let wanted = column_requests(object.py(), fields)?;
    let source = Arc::new(Items::new(object, name, &wanted, version, threads, draw)?);
    Ok(PythonSource { source })
}
