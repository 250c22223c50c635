//! A function that runs in this process, under the interpreter lock.

use std::time::{Duration, Instant};

use infeed::function::{CallCost, DrawKey, FunctionFailure, RunningFunction, ValueSink, ValueSpec};
use infeed_core::batch::Column;
use infeed_raw::python::BufferView;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::array::object_from;
use crate::items::values::dtype_of;
use crate::raised_exception::RaisedException;

/// A function and the object that calls it.
#[derive(Debug)]
pub(super) struct InProcess {
    adapter: Py<PyAny>,
}

/// Failure of a call.
enum CallError {
    Raised(PyErr),
    InvalidReturn(String),
}

impl From<PyErr> for CallError {
    fn from(error: PyErr) -> CallError {
        CallError::Raised(error)
    }
}

impl InProcess {
    pub(super) fn new(adapter: Py<PyAny>) -> InProcess {
        InProcess { adapter }
    }

    fn call_attached(
        &self,
        py: Python<'_>,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<(), CallError> {
        let named = PyDict::new(py);
        for column in inputs {
            named.set_item(&column.name, object_from(py, &column.values)?)?;
        }
        let key = (draw.0[0], draw.0[1]);
        let returned = self.adapter.bind(py).call1((named, key))?;
        for value in returned.cast::<PyList>().map_err(PyErr::from)?.iter() {
            let name: String = value.get_item(0)?.extract()?;
            let kind: String = value.get_item(1)?.extract()?;
            let value = value.get_item(2)?;
            let room = match kind.as_str() {
                "same" => {
                    let input = value.extract()?;
                    sink.same(&name, input).map_err(CallError::InvalidReturn)?;
                    continue;
                }
                "array" => {
                    let (dtype, shape, flat): (String, Vec<usize>, Bound<'_, PyAny>) =
                        value.extract()?;
                    let dtype = dtype_of(&dtype).ok_or_else(|| {
                        CallError::InvalidReturn(format!("`{name}` is of {dtype}"))
                    })?;
                    let view = BufferView::new(&flat)?;
                    let spec = ValueSpec::Array {
                        dtype,
                        shape: &shape,
                    };
                    let room = sink.room(&name, spec);
                    copy(&name, view.as_ref(), room)
                }
                kind => {
                    let bytes = value.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
                    let spec = match kind {
                        "text" => ValueSpec::Text(bytes.len()),
                        _ => ValueSpec::Bytes(bytes.len()),
                    };
                    let room = sink.room(&name, spec);
                    copy(&name, bytes, room)
                }
            };
            room.map_err(CallError::InvalidReturn)?;
        }
        Ok(())
    }
}

/// Copies a value into its output buffer.
fn copy(name: &str, from: &[u8], room: Result<&mut [u8], String>) -> Result<(), String> {
    let room = room?;
    if room.len() != from.len() {
        return Err(format!(
            "`{name}` has {} bytes, and its output buffer {}",
            from.len(),
            room.len()
        ));
    }
    room.copy_from_slice(from);
    Ok(())
}

impl RunningFunction for InProcess {
    fn call(
        &self,
        inputs: &[Column],
        draw: DrawKey,
        sink: &mut dyn ValueSink,
    ) -> Result<CallCost, FunctionFailure> {
        let requested_at = Instant::now();
        let called = Python::try_attach(|py| {
            let waited = requested_at.elapsed();
            match self.call_attached(py, inputs, draw, sink) {
                Ok(()) => Ok(CallCost {
                    waited,
                    elsewhere: Duration::ZERO,
                }),
                Err(CallError::Raised(error)) => {
                    Err(FunctionFailure::Raised(RaisedException::cause(py, &error)))
                }
                Err(CallError::InvalidReturn(problem)) => Err(FunctionFailure::wrong(problem)),
            }
        });
        // None while the interpreter shuts down. The loader is closed by then.
        called.unwrap_or(Err(FunctionFailure::Closed))
    }
}
