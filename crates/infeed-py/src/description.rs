//! Descriptions, which cross the border as JSON, and the buffers and sources they refer to.

use std::sync::Arc;

use bytes::Bytes;
use infeed::Pipeline;
use infeed::batch::ColumnKind;
use infeed::pipeline::Handle;
use infeed_raw::python::BufferView;
use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::array::object_from;
use crate::device::{decode_by, placement};
use crate::error::raise;
use crate::function::Function;
use crate::given::Given;
use crate::log;

/// Buffers of Python objects, viewed without a copy, sources that were made of them, and functions.
pub(crate) struct Handles(pub(crate) Vec<Handle>);

impl<'py> FromPyObject<'_, 'py> for Handles {
    type Error = PyErr;

    fn extract(handles: Borrowed<'_, 'py, PyAny>) -> PyResult<Handles> {
        let view = |handle: PyResult<Bound<'py, PyAny>>| {
            let handle = handle?;
            if let Ok(given) = handle.cast::<Given>() {
                return Ok(Handle::Source(Arc::clone(&given.get().source)));
            }
            if let Ok(function) = handle.cast::<Function>() {
                return Ok(Handle::Function(function.get().shared()));
            }
            let bytes = Bytes::from_owner(BufferView::new(&handle)?);
            Ok(Handle::Bytes(bytes))
        };
        Ok(Handles(
            handles.try_iter()?.map(view).collect::<PyResult<_>>()?,
        ))
    }
}

/// The pipeline that a description means.
pub(crate) fn parse(py: Python<'_>, description: &str) -> PyResult<Pipeline> {
    raise(py, Pipeline::from_json(description))
}

/// Refuses a description that cannot work, without touching its data.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, description: &str) -> PyResult<()> {
    let pipeline = parse(py, description)?;
    raise(py, py.detach(|| pipeline.check()))
}

/// The plan, as text, for batches on the host, or on a device to which so much is left; lists the source
/// and runs nothing.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    description: &str,
    handles: Handles,
    on_device: Option<(&str, &str)>,
) -> PyResult<String> {
    let pipeline = parse(py, description)?;
    let Some((place, decode)) = on_device else {
        return raise(py, py.detach(|| pipeline.explain(&handles.0)));
    };
    let (place, decode) = (placement(place)?, decode_by(decode)?);
    let told = py.detach(|| pipeline.explain_on(&handles.0, place, decode));
    raise(py, told)
}

/// Name, kind, element type and shape of one row of each column.
type Described = (
    String,
    &'static str,
    Option<&'static str>,
    Option<Vec<Option<usize>>>,
);

/// What a batch holds.
#[pyfunction]
pub(crate) fn describe(
    py: Python<'_>,
    description: &str,
    handles: Handles,
) -> PyResult<Vec<Described>> {
    let pipeline = parse(py, description)?;
    let columns = py.detach(|| pipeline.describe(&handles.0));
    let describe = |column: infeed::batch::ColumnSpec| match column.kind {
        ColumnKind::Fixed { dtype, shape } => {
            let shape = shape.into_iter().map(Some).collect();
            (column.name, "array", Some(dtype.name()), Some(shape))
        }
        ColumnKind::Padded { dtype, rank } => (
            column.name,
            "array",
            Some(dtype.name()),
            Some(vec![None; rank]),
        ),
        ColumnKind::Ragged { dtype } => (column.name, "ragged", Some(dtype.name()), None),
        ColumnKind::Bytes => (column.name, "bytes", None, None),
        ColumnKind::Text => (column.name, "text", None, None),
    };
    Ok(raise(py, columns)?.into_iter().map(describe).collect())
}

type Fields<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// A record, and name, draws and fields of each stage.
type Shown<'py> = ((u64, String), Vec<(&'static str, String, Fields<'py>)>);

/// One sample after each stage, made on the calling thread.
#[pyfunction]
pub(crate) fn preview<'py>(
    py: Python<'py>,
    description: &str,
    handles: Handles,
    position: u64,
    epoch: u64,
) -> PyResult<Shown<'py>> {
    let pipeline = parse(py, description)?;
    let shown = py.detach(|| pipeline.preview(&handles.0, position, epoch));
    log::hand_over(py)?;
    let (record, stages) = raise(py, shown)?;
    let mut converted = Vec::with_capacity(stages.len());
    for stage in stages {
        let field = |(name, values)| Ok((name, object_from(py, &values)?));
        let fields = stage
            .fields
            .into_iter()
            .map(field)
            .collect::<PyResult<_>>()?;
        converted.push((stage.name, stage.draws, fields));
    }
    Ok(((record.index, record.name), converted))
}

/// A description as TOML.
#[pyfunction]
pub(crate) fn toml_from_json(py: Python<'_>, description: &str) -> PyResult<String> {
    let pipeline = parse(py, description)?;
    raise(py, pipeline.to_toml())
}

/// A description from TOML.
#[pyfunction]
pub(crate) fn json_from_toml(py: Python<'_>, text: &str) -> PyResult<String> {
    Ok(raise(py, Pipeline::from_toml(text))?.to_json())
}

/// A description from a file, or from the folder of a packed dataset.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, path: std::path::PathBuf) -> PyResult<String> {
    Ok(raise(py, py.detach(|| Pipeline::load(path)))?.to_json())
}
