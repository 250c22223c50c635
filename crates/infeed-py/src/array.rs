//! Columns in host memory, shared with Python without a copy.

use std::sync::Arc;

use infeed::Values;
use infeed_core::sample::DType;
use infeed_raw::dlpack::{DataType, Tensor};
use infeed_raw::python::dlpack_capsule;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

/// DLPack's device type and device number of the CPU.
pub(crate) const CPU: (i32, i32) = (1, 0);

/// One column, sharing the engine's memory.
#[pyclass(frozen, name = "Array", module = "infeed._core")]
pub(crate) struct PyArray {
    inner: infeed::Array,
}

#[pymethods]
impl PyArray {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape())
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.dtype().name()
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr(self.inner.dtype()))?;
        // The pointer stays valid: NumPy keeps this object, which keeps the memory. Writing
        // through it is safe: the engine never reads a batch that it has delivered.
        interface.set_item("data", (self.inner.bytes().as_ptr() as usize, false))?;
        Ok(interface)
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() {
            return Err(PyBufferError::new_err(
                "an array on the CPU has no stream; leave out `stream`",
            ));
        }
        if dl_device.is_some_and(|device| device != CPU) {
            return Err(PyBufferError::new_err(
                "the array is on the CPU; copy it from there to the other device",
            ));
        }
        refuse_copy(copy)?;
        let (shape, dtype) = (self.inner.shape(), data_type(self.inner.dtype()));
        let tensor = Tensor::new(Arc::new(self.inner.clone()), 0, shape, dtype)
            .map_err(|error| PyBufferError::new_err(error.to_string()))?;
        dlpack_capsule(py, tensor, max_version)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        CPU
    }
}

/// Returns an error if the consumer asks for a copy.
pub(crate) fn refuse_copy(copy: Option<bool>) -> PyResult<()> {
    if copy == Some(true) {
        let text = "copy=True is not supported; copy the array that you receive";
        return Err(PyBufferError::new_err(text));
    }
    Ok(())
}

/// Converts a column to its Python object: an `Array`, a pair of them, or a list.
pub(crate) fn object_from<'py>(py: Python<'py>, values: &Values) -> PyResult<Bound<'py, PyAny>> {
    let array = |inner: &infeed::Array| {
        Bound::new(
            py,
            PyArray {
                inner: inner.clone(),
            },
        )
    };
    Ok(match values {
        Values::Array(inner) => array(inner)?.into_any(),
        Values::Ragged { values, offsets } => (array(values)?, array(offsets)?)
            .into_pyobject(py)?
            .into_any(),
        Values::Bytes(rows) => {
            PyList::new(py, rows.iter().map(|row| PyBytes::new(py, row)))?.into_any()
        }
        Values::Text(rows) => PyList::new(py, rows)?.into_any(),
    })
}

/// Returns DLPack's type.
pub(crate) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::BOOL,
        DType::UInt8 => DataType::U8,
        DType::UInt16 => DataType::U16,
        DType::UInt32 => DataType::U32,
        DType::UInt64 => DataType::U64,
        DType::Int8 => DataType::I8,
        DType::Int16 => DataType::I16,
        DType::Int32 => DataType::I32,
        DType::Int64 => DataType::I64,
        DType::Float16 => DataType::F16,
        DType::BFloat16 => DataType::BF16,
        DType::Float32 => DataType::F32,
        DType::Float64 => DataType::F64,
    }
}

/// Returns the type string of NumPy's array interface. NumPy lacks bfloat16, which becomes two raw
/// bytes.
fn typestr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::UInt8 => "|u1",
        DType::Int8 => "|i1",
        DType::UInt16 => "<u2",
        DType::UInt32 => "<u4",
        DType::UInt64 => "<u8",
        DType::Int16 => "<i2",
        DType::Int32 => "<i4",
        DType::Int64 => "<i8",
        DType::Float16 => "<f2",
        DType::BFloat16 => "|V2",
        DType::Float32 => "<f4",
        DType::Float64 => "<f8",
    }
}
