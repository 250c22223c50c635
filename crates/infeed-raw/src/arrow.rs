//! Tables of other libraries, by the Arrow C stream interface and its Python capsules.
//!
//! Source: the Arrow PyCapsule interface, `__arrow_c_stream__`; the C stream and C data interfaces.
//! Another library of this process makes the structures in a capsule. infeed trusts that library to
//! follow the interface, since pointers cannot be checked before they are followed. The contents
//! are then validated in full (offsets within their buffers, text that is UTF-8), so that an
//! invalid table is an error and never a read outside of its buffers.

use std::ffi::CStr;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;

const STREAM: &CStr = c"arrow_array_stream";

/// Reads the batches of an object that has `__arrow_c_stream__`, sharing the memory of its library.
///
/// Reads the stream to its end, without holding the interpreter: a query or reader that computes
/// batches on demand does all of its work here.
///
/// # Errors
///
/// The object's exception; `ValueError` for a stream of something other than tables, or with
/// invalid content.
pub fn record_batches(object: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let py = object.py();
    // SAFETY: attached, as `py` shows. `PyCapsule_GetPointer` compares the name; for any other
    // object it returns null and sets an exception.
    let stream = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), STREAM.as_ptr()) };
    if stream.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a capsule with this name holds a valid `ArrowArrayStream`, aligned and initialised,
    // as the PyCapsule interface requires; the layout is that of the C stream interface. The stream
    // is moved out and an empty one stays in its place, so the capsule's destructor releases
    // nothing. No other thread can use the stream, because the capsule was made for this call.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.cast()) };
    drop(capsule);
    let read = py.detach(move || -> Result<_, ArrowError> {
        let reader = RecordBatchStreamReader::try_new(stream)?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        let mut batches = Vec::new();
        for batch in reader {
            let batch = batch?;
            for column in batch.columns() {
                column.to_data().validate_full()?;
            }
            batches.push(batch);
        }
        Ok((schema, batches))
    });
    read.map_err(|error| PyValueError::new_err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Int64Array, RecordBatchIterator};
    use pyo3::types::PyDict;
    use std::sync::Arc;

    /// A Python object whose `__arrow_c_stream__` returns a capsule, once.
    fn table<'py>(py: Python<'py>, name: &'static CStr) -> Bound<'py, PyAny> {
        let numbers: Arc<dyn Array> = Arc::new(Int64Array::from(vec![3, 4, 5]));
        let batch = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
        let schema = batch.schema();
        let reader = RecordBatchIterator::new(vec![Ok(batch.clone()), Ok(batch)], schema);
        let stream = Box::new(FFI_ArrowArrayStream::new(Box::new(reader)));
        // SAFETY: attached; the pointer is not null and the name is static. There is no destructor:
        // the test leaks the box.
        let capsule = unsafe {
            let capsule = ffi::PyCapsule_New(Box::into_raw(stream).cast(), name.as_ptr(), None);
            Bound::from_owned_ptr(py, capsule)
        };
        let locals = PyDict::new(py);
        locals.set_item("capsule", capsule).unwrap();
        let code = c"type('T', (), {'__arrow_c_stream__': lambda self, c=capsule: c})()";
        py.eval(code, None, Some(&locals)).unwrap()
    }

    #[test]
    fn batches_of_a_stream_keep_their_order() {
        Python::initialize();
        Python::attach(|py| {
            let (schema, batches) = record_batches(&table(py, STREAM)).unwrap();

            assert_eq!(schema.field(0).name(), "number");
            assert_eq!(batches.len(), 2);
            assert_eq!(batches[1].num_rows(), 3);
        });
    }

    #[test]
    fn an_object_without_a_stream_is_rejected() {
        Python::initialize();
        Python::attach(|py| {
            assert!(record_batches(&table(py, c"arrow_schema")).is_err());
            assert!(record_batches(py.None().bind(py)).is_err());
        });
    }

    #[test]
    fn a_stream_can_be_read_only_once() {
        Python::initialize();
        Python::attach(|py| {
            let table = table(py, STREAM);
            assert!(record_batches(&table).is_ok());
            assert!(record_batches(&table).is_err());
        });
    }
}
