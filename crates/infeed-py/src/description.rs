//! Pipeline descriptions, which Python passes as JSON, and the buffers and sources that they refer
//! to.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use infeed::Pipeline;
use infeed::pipeline::Handle;
use infeed_codec::transform::Transform;
use infeed_core::batch::ColumnKind;
use infeed_core::parse_problem::in_words;
use infeed_raw::python::BufferView;
use infeed_source::Source as _;
use infeed_source::folder::{Folder, FolderOptions, Labels};
use pyo3::Borrowed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::object_from;
use crate::device::{decode_by, placement};
use crate::error::raise;
use crate::function::PyFunction;
use crate::log;
use crate::python_source::PythonSource;
use crate::waiting::{detach, wait_for};

/// Buffers of Python objects (viewed without a copy), sources made from Python objects, and
/// functions.
pub(crate) struct PyHandles(pub(crate) Vec<Handle>);

impl<'py> FromPyObject<'_, 'py> for PyHandles {
    type Error = PyErr;

    fn extract(handles: Borrowed<'_, 'py, PyAny>) -> PyResult<PyHandles> {
        let view = |handle: PyResult<Bound<'py, PyAny>>| {
            let handle = handle?;
            if let Ok(source) = handle.cast::<PythonSource>() {
                return Ok(Handle::Source(Arc::clone(&source.get().source)));
            }
            if let Ok(function) = handle.cast::<PyFunction>() {
                return Ok(Handle::Function(function.get().function()));
            }
            let bytes = Bytes::from_owner(BufferView::new(&handle)?);
            Ok(Handle::Bytes(bytes))
        };
        Ok(PyHandles(
            handles.try_iter()?.map(view).collect::<PyResult<_>>()?,
        ))
    }
}

/// Parses a description.
pub(crate) fn parse(py: Python<'_>, description: &str) -> PyResult<Pipeline> {
    raise(py, Pipeline::from_json(description))
}

/// Returns the image files below a folder, in the order of the records of a folder source.
#[pyfunction]
pub(crate) fn folder_files(py: Python<'_>, root: PathBuf) -> PyResult<Vec<String>> {
    let list = move || {
        let source = Folder::open(&root, &FolderOptions::new(Labels::None))?;
        let files = (0..source.len()).flat_map(|record| source.files(record));
        Ok(files.map(|file| file.display().to_string()).collect())
    };
    raise(py, wait_for(py, list)?)
}

/// Checks a description without reading its data.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, description: &str) -> PyResult<()> {
    let pipeline = parse(py, description)?;
    raise(py, py.detach(|| pipeline.check()))
}

/// Checks the parameters of a transform, given as JSON. Raises ValueError for a wrong one.
#[pyfunction]
pub(crate) fn check_transform(transform: &str) -> PyResult<()> {
    let transform: Transform = serde_json::from_str(transform)
        .map_err(|error| PyValueError::new_err(in_words(&error.to_string())))?;
    let checked = transform.validate();
    checked.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns the plan as text. `on_device` has the placement and the decoder for batches on a device.
/// None plans batches on the host. Lists the source and runs no stage.
#[pyfunction]
pub(crate) fn plan(
    py: Python<'_>,
    description: &str,
    handles: PyHandles,
    on_device: Option<(&str, &str)>,
) -> PyResult<String> {
    let pipeline = parse(py, description)?;
    let Some((place, decode)) = on_device else {
        return raise(py, wait_for(py, move || pipeline.explain(&handles.0))?);
    };
    let (place, decode) = (placement(place)?, decode_by(decode)?);
    let plan = move || pipeline.explain_on(&handles.0, place, decode);
    raise(py, wait_for(py, plan)?)
}

/// Name, kind, element type and shape of one row of each column.
type ColumnDescription = (
    String,
    &'static str,
    Option<&'static str>,
    Option<Vec<Option<usize>>>,
);

/// Returns the columns of a batch.
#[pyfunction]
pub(crate) fn describe(
    py: Python<'_>,
    description: &str,
    handles: PyHandles,
) -> PyResult<Vec<ColumnDescription>> {
    let pipeline = parse(py, description)?;
    let columns = wait_for(py, move || pipeline.describe(&handles.0))?;
    let describe = |column: infeed_core::batch::ColumnSpec| match column.kind {
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
        ColumnKind::Ragged { dtype, item } => {
            let shape = (!item.is_empty()).then(|| item.into_iter().map(Some).collect());
            (column.name, "ragged", Some(dtype.name()), shape)
        }
        ColumnKind::Bytes => (column.name, "bytes", None, None),
        ColumnKind::Text => (column.name, "text", None, None),
    };
    Ok(raise(py, columns)?.into_iter().map(describe).collect())
}

type Fields<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// Boxes, points and objects of a stage.
type Shapes<'py> = (Vec<[f64; 4]>, Vec<[f64; 2]>, Option<Bound<'py, PyAny>>);

/// Number and name of the record; name, draws, fields and shapes of each stage.
type PreviewStages<'py> = (
    (u64, String),
    Vec<(&'static str, String, Fields<'py>, Shapes<'py>)>,
);

/// Runs one sample through all stages on the calling thread.
#[pyfunction]
pub(crate) fn preview<'py>(
    py: Python<'py>,
    description: &str,
    handles: PyHandles,
    position: u64,
    epoch: u64,
) -> PyResult<PreviewStages<'py>> {
    let pipeline = parse(py, description)?;
    let shown = detach(py, || pipeline.preview(&handles.0, position, epoch))?;
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
        let shapes = stage.shapes;
        let objects = shapes.objects.map(infeed::Values::Array);
        let objects = objects.map(|values| object_from(py, &values)).transpose()?;
        let shapes = (shapes.boxes, shapes.points, objects);
        converted.push((stage.name, stage.draws, fields, shapes));
    }
    Ok(((record.index, record.name), converted))
}

/// Writes a description to a file.
#[pyfunction]
pub(crate) fn save(py: Python<'_>, description: &str, path: PathBuf) -> PyResult<()> {
    let pipeline = parse(py, description)?;
    raise(py, py.detach(|| pipeline.save(path)))
}

/// Reads a description from a file, or from the folder of a packed dataset.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    Ok(raise(py, detach(py, || Pipeline::load(path))?)?.to_json())
}
