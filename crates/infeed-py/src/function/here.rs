//! A function called in this process, under the interpreter's lock.

use std::time::{Duration, Instant};

use infeed::batch::Column;
use infeed::function::{Draw, Failed, Form, Running, Sink, Spent};
use infeed_raw::python::BufferView;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::array::object_from;
use crate::items::values::dtype_of;
use crate::raised::Raised;

/// A function and the object that calls it.
#[derive(Debug)]
pub(super) struct Here {
    adapter: Py<PyAny>,
}

/// Why a call came to nothing.
enum Trouble {
    Raised(PyErr),
    Wrong(String),
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Trouble {
        Trouble::Raised(error)
    }
}

impl Here {
    pub(super) fn new(adapter: Py<PyAny>) -> Here {
        Here { adapter }
    }

    fn attached(
        &self,
        py: Python<'_>,
        inputs: &[Column],
        draw: Draw,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
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
                    sink.same(&name, input).map_err(Trouble::Wrong)?;
                    continue;
                }
                "array" => {
                    let (dtype, shape, flat): (String, Vec<usize>, Bound<'_, PyAny>) =
                        value.extract()?;
                    let dtype = dtype_of(&dtype)
                        .ok_or_else(|| Trouble::Wrong(format!("`{name}` is of {dtype}")))?;
                    let view = BufferView::new(&flat)?;
                    let form = Form::Array {
                        dtype,
                        shape: &shape,
                    };
                    let room = sink.room(&name, form);
                    copy(&name, view.as_ref(), room)
                }
                kind => {
                    let bytes = value.cast::<PyBytes>().map_err(PyErr::from)?.as_bytes();
                    let form = match kind {
                        "text" => Form::Text(bytes.len()),
                        _ => Form::Bytes(bytes.len()),
                    };
                    let room = sink.room(&name, form);
                    copy(&name, bytes, room)
                }
            };
            room.map_err(Trouble::Wrong)?;
        }
        Ok(())
    }
}

/// Copies a value into its room.
fn copy(name: &str, from: &[u8], room: Result<&mut [u8], String>) -> Result<(), String> {
    let room = room?;
    if room.len() != from.len() {
        return Err(format!(
            "`{name}` has {} bytes for room of {}",
            from.len(),
            room.len()
        ));
    }
    room.copy_from_slice(from);
    Ok(())
}

impl Running for Here {
    fn call(&self, inputs: &[Column], draw: Draw, sink: &mut dyn Sink) -> Result<Spent, Failed> {
        let asked = Instant::now();
        let called = Python::try_attach(|py| {
            let waited = asked.elapsed();
            match self.attached(py, inputs, draw, sink) {
                Ok(()) => Ok(Spent {
                    waited,
                    elsewhere: Duration::ZERO,
                }),
                Err(Trouble::Raised(error)) => Err(Failed::Raised(Raised::cause(py, &error))),
                Err(Trouble::Wrong(problem)) => Err(Failed::wrong(problem)),
            }
        });
        // None while the interpreter shuts down: nobody waits for the sample then.
        called.unwrap_or(Err(Failed::Closed))
    }
}
