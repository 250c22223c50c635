//! Data sources in a description: one variant per kind of source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use infeed_raw::map::FileMap;
use serde::{Deserialize, Deserializer, Serialize};

use crate::function::Function;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind, Pixels};
use infeed_source::Source;
use infeed_source::arrow::Arrow;
use infeed_source::columns::{self, ColumnKind};
use infeed_source::folder::{Folder, Labels};
use infeed_source::memory::{FieldData, Memory};
use infeed_source::mix::Mix;
use infeed_source::npz::Npz;
use infeed_source::pairs::Pairs;
use infeed_source::parquet::Parquet;
use infeed_source::shards::{self, FieldRequest, KindHint};
use infeed_source::store::find;

/// Description of a data source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum SourceSpec {
    /// Image files below a folder.
    Folder {
        /// The folder.
        path: PathBuf,
        /// `auto` (the class folders, if there are any), `none`, or the path of a CSV with the
        /// columns `path` and `label`.
        #[serde(default = "auto")]
        labels: String,
        /// Whether symbolic links that lead outside `path` are followed.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        follow_links: bool,
    },
    /// Images and masks with equal file stems in two folders.
    Pairs {
        /// Folder of the images.
        image: PathBuf,
        /// Folder of the masks.
        mask: PathBuf,
        /// Whether symbolic links that lead outside the two folders are followed.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        follow_links: bool,
    },
    /// Mix of several sources with the same fields.
    Mix {
        /// The sources.
        parts: Vec<MixPart>,
        /// Records of an epoch if the parts have weights. Absent: the number of records of all
        /// parts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
    },
    /// Arrays and lists in memory, or arrays in mapped files.
    Memory {
        /// The fields, in order.
        fields: Vec<MemoryField>,
    },
    /// Tar shards in the format of the `webdataset` package.
    WebDataset {
        /// Paths or patterns such as `train-{0000..0146}.tar`.
        #[serde(deserialize_with = "one_or_more")]
        shards: Vec<String>,
        /// Fields, each from files with the extension `from` (alternatives separated by `;`).
        /// Empty: the fields of the first record.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// TFRecord shards of `tf.train.Example`, plain or compressed.
    TfRecord {
        /// Paths or patterns such as `train-{00000..01023}-of-01024`.
        #[serde(deserialize_with = "one_or_more")]
        shards: Vec<String>,
        /// Fields, each from the feature `from` (alternatives separated by `;`). Empty: the
        /// features of the first records.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// Folder of MDS shards in the format of MosaicML Streaming.
    Mds {
        /// Folder or URL that contains `index.json`.
        path: String,
        /// Fields, each from the column `from`. Empty: all columns.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// Parquet files. A row group is always read whole.
    Parquet {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// Columns to read. Empty: all columns that can be a field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// Arrow IPC files and streams.
    Arrow {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// Columns to read. Empty: all columns that can be a field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// NumPy archives. Each contains part of the records of every array.
    Npz {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// Arrays to read. Empty: all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// A source object from the caller, such as the items of a Python object.
    Object {
        /// Index into the handles of the description.
        handle: usize,
        /// Name of the source in errors.
        name: String,
    },
}

/// Object in memory that a description refers to by index. No file can contain it.
#[derive(Clone, Debug)]
pub enum Handle {
    /// A buffer.
    Bytes(Bytes),
    /// A source.
    Source(Arc<dyn Source>),
    /// A user function.
    Function(Arc<dyn Function>),
}

impl From<Bytes> for Handle {
    fn from(bytes: Bytes) -> Handle {
        Handle::Bytes(bytes)
    }
}

/// One source of a mix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPart {
    /// Relative share of an epoch. Absent, and then for all parts: every record occurs once per
    /// epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The source.
    pub source: SourceSpec,
}

/// One field of a source whose records have several fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSpec {
    /// Name of the field.
    pub name: String,
    /// Name in the source: extension, feature or column. Absent: the same as `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `image`, `mask`, `tensor`, `bytes`, `text` or `ragged`. Absent: the source decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Element type of arrays; absent for encoded images, bytes and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Shape of one record of an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<usize>,
}

/// One field of a source in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryField {
    /// Name of the field.
    pub name: String,
    /// `image`, `mask`, `tensor`, `bytes`, `text` or `ragged`.
    pub kind: String,
    /// Element type of arrays; absent for encoded images, bytes and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Shape of one record of an array.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<usize>,
    /// Index of the buffer with the array, or with the concatenated bytes or values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<usize>,
    /// Index of the buffer with the offsets (uint64, one more than records), for records without a
    /// fixed size. Offsets count bytes, for `ragged` values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<usize>,
    /// File with the array, instead of a buffer. It is memory-mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Position of the array's first byte in the file.
    #[serde(default)]
    pub offset: u64,
    /// Number of records of the array in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
}

fn auto() -> String {
    "auto".to_owned()
}

fn yes() -> bool {
    true
}

fn is_yes(follow: &bool) -> bool {
    *follow
}

/// Deserializes a list, or a single item as a list of one.
pub(super) fn one_or_more<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Given<T> {
        One(T),
        More(Vec<T>),
    }
    Ok(match Given::deserialize(from)? {
        Given::One(one) => vec![one],
        Given::More(more) => more,
    })
}

impl SourceSpec {
    /// Creates a source of image files below a folder, labelled by class folder if there are any.
    pub fn folder(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Folder {
            path: path.into(),
            labels: auto(),
            follow_links: true,
        }
    }

    /// Creates a source of images and masks with equal file stems in two folders.
    pub fn pairs(image: impl Into<PathBuf>, mask: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Pairs {
            image: image.into(),
            mask: mask.into(),
            follow_links: true,
        }
    }

    /// Creates a source of tar shards with the fields of their first record.
    pub fn webdataset(shards: impl Into<String>) -> SourceSpec {
        SourceSpec::WebDataset {
            shards: vec![shards.into()],
            fields: Vec::new(),
        }
    }

    /// Creates a source of TFRecord shards with the fields of their first records.
    pub fn tfrecord(shards: impl Into<String>) -> SourceSpec {
        SourceSpec::TfRecord {
            shards: vec![shards.into()],
            fields: Vec::new(),
        }
    }

    /// Creates a source of MDS shards with all columns.
    pub fn mds(path: impl Into<String>) -> SourceSpec {
        SourceSpec::Mds {
            path: path.into(),
            fields: Vec::new(),
        }
    }

    /// Returns the fields that are known before the source is listed or read; `None` if records
    /// have to be read. The fields that transforms can work on are always included.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a field whose type or shape does not fit its kind.
    pub fn known_fields(&self) -> Result<Option<Vec<Field>>, Error> {
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        let image = || field("image", FieldKind::Image(Pixels::Encoded));
        match self {
            SourceSpec::Folder { .. } => Ok(Some(vec![image()])),
            SourceSpec::Pairs { .. } => Ok(Some(vec![
                image(),
                field("mask", FieldKind::Mask(Pixels::Encoded)),
            ])),
            SourceSpec::Memory { fields } => {
                let fields: Result<_, _> = fields.iter().map(MemoryField::field).collect();
                fields.map(Some)
            }
            SourceSpec::WebDataset { fields, .. } => Ok(shards::tar::known(&wanted(fields)?)),
            SourceSpec::TfRecord { fields, .. } | SourceSpec::Mds { fields, .. } => {
                Ok(shards::specified_fields(&wanted(fields)?))
            }
            SourceSpec::Parquet { fields, .. }
            | SourceSpec::Arrow { fields, .. }
            | SourceSpec::Npz { fields, .. } => wanted_columns(fields).map(|_| None),
            SourceSpec::Object { .. } => Ok(None),
            SourceSpec::Mix { parts, .. } => match parts.first() {
                Some(part) => part.source.known_fields(),
                None => Err(Error::config("source", "a mix needs at least one source")),
            },
        }
    }

    /// Names of fields, or of a whole source, that exist only in this process's memory.
    pub(super) fn held(&self) -> Vec<&str> {
        match self {
            SourceSpec::Memory { fields } => {
                let held = fields.iter().filter(|field| field.handle.is_some());
                held.map(|field| field.name.as_str()).collect()
            }
            SourceSpec::Mix { parts, .. } => {
                parts.iter().flat_map(|part| part.source.held()).collect()
            }
            SourceSpec::Object { name, .. } => vec![name],
            _ => Vec::new(),
        }
    }

    /// Opens the source. [`SourceSpec::Memory`] and [`SourceSpec::Object`] refer to `handles`.
    ///
    /// # Errors
    ///
    /// The errors of the source's own `open`.
    pub fn open(&self, handles: &[Handle]) -> Result<Arc<dyn Source>, Error> {
        Ok(match self {
            SourceSpec::Folder {
                path,
                labels,
                follow_links,
            } => {
                let labels = match labels.as_str() {
                    "auto" => Labels::Auto,
                    "none" => Labels::None,
                    csv => Labels::Csv(csv.into()),
                };
                Arc::new(Folder::open(path, &labels, *follow_links)?)
            }
            SourceSpec::Pairs {
                image,
                mask,
                follow_links,
            } => Arc::new(Pairs::open(image, mask, *follow_links)?),
            SourceSpec::Mix { parts, epoch } => {
                let weighted = parts.iter().any(|part| part.weight.is_some());
                let shares: Option<Vec<f64>> = parts.iter().map(|part| part.weight).collect();
                if weighted && shares.is_none() {
                    let problem = "give every part of the mix a weight, or none";
                    return Err(Error::config("source", problem));
                }
                let sources = parts.iter().map(|part| part.source.open(handles));
                let sources = sources.collect::<Result<_, _>>()?;
                Arc::new(Mix::new(sources, shares, *epoch)?)
            }
            SourceSpec::Memory { fields } => {
                let mapped = fields.iter().any(|field| field.path.is_some());
                let fields = fields.iter().map(|field| field.open(handles));
                Arc::new(Memory::new(fields.collect::<Result<_, _>>()?, mapped)?)
            }
            SourceSpec::WebDataset { shards, fields } => {
                Arc::new(shards::tar::open(shards, &wanted(fields)?)?)
            }
            SourceSpec::TfRecord { shards, fields } => {
                Arc::new(shards::tfrecord::open(shards, &wanted(fields)?)?)
            }
            SourceSpec::Mds { path, fields } => {
                Arc::new(shards::mds::open(path, &wanted(fields)?)?)
            }
            SourceSpec::Parquet { files, fields } => {
                Arc::new(Parquet::open(find(files)?, &wanted_columns(fields)?)?)
            }
            SourceSpec::Arrow { files, fields } => {
                Arc::new(Arrow::open(find(files)?, &wanted_columns(fields)?)?)
            }
            SourceSpec::Npz { files, fields } => {
                Arc::new(Npz::open(find(files)?, &wanted_columns(fields)?)?)
            }
            SourceSpec::Object { handle, name } => match handles.get(*handle) {
                Some(Handle::Source(source)) => Arc::clone(source),
                _ => {
                    let problem = format!(
                        "{name} exists only in the process that built the pipeline; open the \
                         pipeline there"
                    );
                    return Err(Error::config("source", problem));
                }
            },
        })
    }
}

impl MemoryField {
    /// Creates a field from an array in a buffer: concatenated records of one shape.
    pub fn array(
        name: &str,
        kind: &str,
        dtype: DType,
        shape: Vec<usize>,
        handle: usize,
    ) -> MemoryField {
        MemoryField {
            name: name.to_owned(),
            kind: kind.to_owned(),
            dtype: Some(dtype),
            shape,
            handle: Some(handle),
            offsets: None,
            path: None,
            offset: 0,
            records: None,
        }
    }

    pub(super) fn open(&self, handles: &[Handle]) -> Result<(Field, FieldData), Error> {
        let wrong =
            |problem: String| Error::config(format!("source field `{}`", self.name), problem);
        let buffer = |handle: usize| match handles.get(handle) {
            Some(Handle::Bytes(bytes)) => Ok(bytes.clone()),
            _ => Err(wrong(format!("there is no buffer {handle}"))),
        };
        let kind = self.field_kind().map_err(wrong)?;
        let values = match (&self.path, self.handle) {
            (None, Some(handle)) => buffer(handle)?,
            (Some(path), None) => self.map(path, &kind)?,
            _ => return Err(wrong("it needs either a handle or a path".to_owned())),
        };
        let data = match self.offsets {
            None => FieldData::Array(values),
            Some(handle) => {
                let offsets: Vec<u64> = buffer(handle)?
                    .chunks_exact(8)
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of 8")))
                    .collect();
                match kind {
                    FieldKind::Ragged { .. } => FieldData::Ragged { values, offsets },
                    _ => {
                        let fits = offsets.windows(2).all(|pair| pair[0] <= pair[1])
                            && offsets
                                .last()
                                .is_some_and(|&end| end <= values.len() as u64);
                        if !fits {
                            return Err(wrong("offsets must ascend within the bytes".to_owned()));
                        }
                        let slice = |pair: &[u64]| values.slice(pair[0] as usize..pair[1] as usize);
                        FieldData::List(offsets.windows(2).map(slice).collect())
                    }
                }
            }
        };
        Ok((
            Field {
                name: self.name.clone(),
                kind,
            },
            data,
        ))
    }

    fn field(&self) -> Result<Field, Error> {
        let wrong =
            |problem: String| Error::config(format!("source field `{}`", self.name), problem);
        Ok(Field {
            name: self.name.clone(),
            kind: self.field_kind().map_err(wrong)?,
        })
    }

    /// Maps the bytes of the array in its file.
    fn map(&self, path: &Path, kind: &FieldKind) -> Result<Bytes, Error> {
        let part = format!("source field `{}`", self.name);
        let map = FileMap::open(path).map_err(|error| Error::open(path, error))?;
        let whole = Bytes::from_owner(map);
        let records = self
            .records
            .ok_or_else(|| Error::config(&part, "a path needs `records`"))?;
        let end = kind.record_bytes().and_then(|bytes| {
            self.offset
                .checked_add(records.checked_mul(bytes as u64)?)
                .filter(|&n| n <= whole.len() as u64)
        });
        let Some(end) = end else {
            let problem = format!(
                "{} has {} bytes, too few for {records} records from byte {}; it may be truncated",
                path.display(),
                whole.len(),
                self.offset
            );
            return Err(Error::config(part, problem));
        };
        Ok(whole.slice(self.offset as usize..end as usize))
    }

    fn field_kind(&self) -> Result<FieldKind, String> {
        field_kind(&self.kind, self.dtype, &self.shape, self.offsets.is_some())
    }
}

impl FieldSpec {
    /// Returns the field, if its kind is given. Pixels without an element type are encoded.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an unknown kind, or an element type or shape that does not fit it.
    pub fn field(&self) -> Result<Option<Field>, Error> {
        let Some(kind) = &self.kind else {
            return Ok(None);
        };
        let kind = field_kind(kind, self.dtype, &self.shape, true);
        let kind = kind
            .map_err(|problem| Error::config(format!("source field `{}`", self.name), problem))?;
        Ok(Some(Field {
            name: self.name.clone(),
            kind,
        }))
    }

    /// Returns the request for a column; the column supplies what the description leaves out.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an unknown kind.
    pub fn wanted(&self) -> Result<columns::ColumnRequest, Error> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some("image") => Some(ColumnKind::Image),
            Some("mask") => Some(ColumnKind::Mask),
            Some("tensor") => Some(ColumnKind::Tensor),
            Some("bytes") => Some(ColumnKind::Bytes),
            Some("text") => Some(ColumnKind::Text),
            Some("ragged") => Some(ColumnKind::Ragged),
            Some(other) => {
                let part = format!("source field `{}`", self.name);
                return Err(Error::config(part, unknown_kind(other)));
            }
        };
        Ok(columns::ColumnRequest {
            name: self.name.clone(),
            column: self.source_name().to_owned(),
            kind,
            dtype: self.dtype,
            shape: self.shape.clone(),
        })
    }

    /// Name of the field in the source.
    pub fn source_name(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }
}

/// Returns the column requests of all fields.
fn wanted_columns(fields: &[FieldSpec]) -> Result<Vec<columns::ColumnRequest>, Error> {
    fields.iter().map(FieldSpec::wanted).collect()
}

/// Returns the field requests of a shard format. A tensor without an element type takes the
/// records' type.
fn wanted(fields: &[FieldSpec]) -> Result<Vec<FieldRequest>, Error> {
    let one = |spec: &FieldSpec| {
        let hint = match (spec.kind.as_deref(), spec.dtype) {
            (Some("tensor"), None) => KindHint::Tensor,
            (Some("ragged"), None) => KindHint::Ragged,
            _ => spec
                .field()?
                .map_or(KindHint::Nothing, |field| KindHint::Kind(field.kind)),
        };
        Ok(FieldRequest {
            name: spec.name.clone(),
            from: spec.from.clone(),
            hint,
        })
    };
    fields.iter().map(one).collect()
}

/// Parses a kind. `encoded` allows pixels of an encoded image file.
fn field_kind(
    kind: &str,
    dtype: Option<DType>,
    shape: &[usize],
    encoded: bool,
) -> Result<FieldKind, String> {
    let known = || dtype.ok_or_else(|| "a dtype is missing".to_owned());
    let pixels = || match (dtype, encoded) {
        (None, true) => Ok(Pixels::Encoded),
        (None, false) => Err("encoded images need offsets, arrays a dtype".to_owned()),
        (Some(dtype), _) => Pixels::raw(dtype, shape),
    };
    Ok(match kind {
        "image" => FieldKind::Image(pixels()?),
        "mask" => FieldKind::Mask(pixels()?),
        "tensor" => FieldKind::Tensor {
            dtype: known()?,
            shape: shape.to_vec(),
        },
        "ragged" => FieldKind::Ragged { dtype: known()? },
        "bytes" => FieldKind::Bytes,
        "text" => FieldKind::Text,
        other => return Err(unknown_kind(other)),
    })
}

fn unknown_kind(kind: &str) -> String {
    format!("kind `{kind}` is none of image, mask, tensor, bytes, text, ragged")
}
