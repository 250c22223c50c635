//! Where records lie, as described: one variant a kind of source.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use infeed_raw::map::FileMap;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::Error;
use crate::function::Function;
use crate::sample::{DType, Field, FieldKind, Pixels};
use crate::source::Source;
use crate::source::arrow::Arrow;
use crate::source::columns::{self, Kind};
use crate::source::folder::{Folder, Labels};
use crate::source::memory::{Data, Memory};
use crate::source::mix::Mix;
use crate::source::npz::Npz;
use crate::source::pairs::Pairs;
use crate::source::parquet::Parquet;
use crate::source::shards::{self, Told, Wanted};
use crate::store::find;

/// Where records lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum SourceSpec {
    /// Image files below a folder.
    Folder {
        /// The folder.
        path: PathBuf,
        /// `auto` (by class folder where there are any), `none`, or a CSV with the columns
        /// `path` and `label`.
        #[serde(default = "auto")]
        labels: String,
        /// Whether symbolic links that lead outside `path` are followed.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        follow_links: bool,
    },
    /// Images and masks of equal stem in two folders.
    Pairs {
        /// Folder of the images.
        image: PathBuf,
        /// Folder of the masks.
        mask: PathBuf,
        /// Whether symbolic links that lead outside the two folders are followed.
        #[serde(default = "yes", skip_serializing_if = "is_yes")]
        follow_links: bool,
    },
    /// Several sources with the same fields.
    Mix {
        /// The sources.
        parts: Vec<MixPart>,
        /// Records of an epoch, where parts have weights; absent: as many as there are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch: Option<u64>,
    },
    /// Arrays and lists in memory, or arrays in mapped files.
    Memory {
        /// The fields, in order.
        fields: Vec<MemoryField>,
    },
    /// Tar shards as the `webdataset` package writes them.
    WebDataset {
        /// Paths or patterns such as `train-{0000..0146}.tar`.
        #[serde(deserialize_with = "one_or_more")]
        shards: Vec<String>,
        /// Each from files of an extension (`from`, alternatives by `;`). Empty: what the first
        /// record holds.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// TFRecord shards of `tf.train.Example`, plain or compressed.
    TfRecord {
        /// Paths or patterns such as `train-{00000..01023}-of-01024`.
        #[serde(deserialize_with = "one_or_more")]
        shards: Vec<String>,
        /// Each from a feature (`from`, alternatives by `;`). Empty: what the first records hold.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// A folder of MDS shards, as MosaicML Streaming writes them.
    Mds {
        /// The folder or URL that holds `index.json`.
        path: String,
        /// Each from a column (`from`). Empty: all columns.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// Parquet files: a row group is read whole.
    Parquet {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// The columns that are read; none: all that can be a field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// Arrow IPC files and streams.
    Arrow {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// The columns that are read; none: all that can be a field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// NumPy archives, each with some records of every array.
    Npz {
        /// Paths, patterns and URLs.
        #[serde(deserialize_with = "one_or_more")]
        files: Vec<String>,
        /// The arrays that are read; none: all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        fields: Vec<FieldSpec>,
    },
    /// A source that was made elsewhere, such as the items of a Python object.
    Given {
        /// Its number among what the description refers to.
        handle: usize,
        /// What it is called.
        name: String,
    },
}

/// What a description refers to by its number: it is in memory, and no file holds it.
#[derive(Clone, Debug)]
pub enum Handle {
    /// A buffer.
    Bytes(Bytes),
    /// A source.
    Source(Arc<dyn Source>),
    /// A function of the user's.
    Function(Arc<dyn Function>),
}

impl From<Bytes> for Handle {
    fn from(bytes: Bytes) -> Handle {
        Handle::Bytes(bytes)
    }
}

/// One source among several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPart {
    /// Its share of every epoch in relation to the others. Absent, and then in all parts: every
    /// record comes once an epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The source.
    pub source: SourceSpec,
}

/// One field of a source whose records hold several: what it is taken from and what it becomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldSpec {
    /// Name of the field.
    pub name: String,
    /// What it is called in the source: an extension, a feature, a column. Absent: its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `image`, `mask`, `tensor`, `bytes`, `text` or `ragged`; absent where the source tells.
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
    /// Index of the buffer with the array, or with all bytes or values behind each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<usize>,
    /// Index of the buffer with the offsets (uint64, one more than records), for what has no
    /// fixed size: in bytes, or for `ragged` in values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offsets: Option<usize>,
    /// Instead of a buffer: a file that holds the array, to be mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// First byte of the array in the file.
    #[serde(default)]
    pub offset: u64,
    /// Records of the array in the file.
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

/// A list, or one thing that would be in it.
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
    /// Image files below a folder, labelled by class folder where there are any.
    pub fn folder(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Folder {
            path: path.into(),
            labels: auto(),
            follow_links: true,
        }
    }

    /// Images and masks of equal stem in two folders.
    pub fn pairs(image: impl Into<PathBuf>, mask: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec::Pairs {
            image: image.into(),
            mask: mask.into(),
            follow_links: true,
        }
    }

    /// Tar shards with the fields that their first record holds.
    pub fn webdataset(shards: impl Into<String>) -> SourceSpec {
        SourceSpec::WebDataset {
            shards: vec![shards.into()],
            fields: Vec::new(),
        }
    }

    /// TFRecord shards with the fields that their first records hold.
    pub fn tfrecord(shards: impl Into<String>) -> SourceSpec {
        SourceSpec::TfRecord {
            shards: vec![shards.into()],
            fields: Vec::new(),
        }
    }

    /// MDS shards with all their columns.
    pub fn mds(path: impl Into<String>) -> SourceSpec {
        SourceSpec::Mds {
            path: path.into(),
            fields: Vec::new(),
        }
    }

    /// The fields that transforms may work on, and the others as far as they are known before
    /// anything is listed or read; None where records have to tell.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a field that is not what its kind says.
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
                Ok(shards::told_fields(&wanted(fields)?))
            }
            SourceSpec::Parquet { fields, .. }
            | SourceSpec::Arrow { fields, .. }
            | SourceSpec::Npz { fields, .. } => wanted_columns(fields).map(|_| None),
            SourceSpec::Given { .. } => Ok(None),
            SourceSpec::Mix { parts, .. } => match parts.first() {
                Some(part) => part.source.known_fields(),
                None => Err(Error::config("source", "a mix needs at least one source")),
            },
        }
    }

    /// Names of what lies in memory of this process: fields, or a whole source.
    pub(super) fn held(&self) -> Vec<&str> {
        match self {
            SourceSpec::Memory { fields } => {
                let held = fields.iter().filter(|field| field.handle.is_some());
                held.map(|field| field.name.as_str()).collect()
            }
            SourceSpec::Mix { parts, .. } => {
                parts.iter().flat_map(|part| part.source.held()).collect()
            }
            SourceSpec::Given { name, .. } => vec![name],
            _ => Vec::new(),
        }
    }

    /// Opens the source; `handles` are what [`SourceSpec::Memory`] and [`SourceSpec::Given`] refer
    /// to.
    ///
    /// # Errors
    ///
    /// As the source's own `open`.
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
            SourceSpec::Given { handle, name } => match handles.get(*handle) {
                Some(Handle::Source(source)) => Arc::clone(source),
                _ => {
                    let problem =
                        format!("{name} is not here; open the pipeline where it was made");
                    return Err(Error::config("source", problem));
                }
            },
        })
    }
}

impl MemoryField {
    /// An array in a buffer, records of one shape behind each other.
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

    pub(super) fn open(&self, handles: &[Handle]) -> Result<(Field, Data), Error> {
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
            None => Data::Array(values),
            Some(handle) => {
                let offsets: Vec<u64> = buffer(handle)?
                    .chunks_exact(8)
                    .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("chunks of 8")))
                    .collect();
                match kind {
                    FieldKind::Ragged { .. } => Data::Ragged { values, offsets },
                    _ => {
                        let fits = offsets.windows(2).all(|pair| pair[0] <= pair[1])
                            && offsets
                                .last()
                                .is_some_and(|&end| end <= values.len() as u64);
                        if !fits {
                            return Err(wrong("offsets must ascend within the bytes".to_owned()));
                        }
                        let slice = |pair: &[u64]| values.slice(pair[0] as usize..pair[1] as usize);
                        Data::List(offsets.windows(2).map(slice).collect())
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

    /// The bytes of an array in a file.
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
                "{} has {} bytes, too few for {records} records from byte {}; was it cut?",
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
    /// The field, where its kind is told; encoded pixels where no element type is.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a kind, element type or shape that cannot be.
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

    /// What it asks of a column, which may tell the rest.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a kind that is none.
    pub fn wanted(&self) -> Result<columns::Wanted, Error> {
        let kind = match self.kind.as_deref() {
            None => None,
            Some("image") => Some(Kind::Image),
            Some("mask") => Some(Kind::Mask),
            Some("tensor") => Some(Kind::Tensor),
            Some("bytes") => Some(Kind::Bytes),
            Some("text") => Some(Kind::Text),
            Some("ragged") => Some(Kind::Ragged),
            Some(other) => {
                let part = format!("source field `{}`", self.name);
                return Err(Error::config(part, unknown_kind(other)));
            }
        };
        Ok(columns::Wanted {
            name: self.name.clone(),
            column: self.source_name().to_owned(),
            kind,
            dtype: self.dtype,
            shape: self.shape.clone(),
        })
    }

    /// What it is called in the source.
    pub fn source_name(&self) -> &str {
        self.from.as_deref().unwrap_or(&self.name)
    }
}

/// What fields ask of columns.
fn wanted_columns(fields: &[FieldSpec]) -> Result<Vec<columns::Wanted>, Error> {
    fields.iter().map(FieldSpec::wanted).collect()
}

/// Fields as the formats take them: a tensor without element type is whatever records hold.
fn wanted(fields: &[FieldSpec]) -> Result<Vec<Wanted>, Error> {
    let one = |spec: &FieldSpec| {
        let told = match (spec.kind.as_deref(), spec.dtype) {
            (Some("tensor"), None) => Told::Tensor,
            (Some("ragged"), None) => Told::Ragged,
            _ => spec
                .field()?
                .map_or(Told::Nothing, |field| Told::Kind(field.kind)),
        };
        Ok(Wanted {
            name: spec.name.clone(),
            from: spec.from.clone(),
            told,
        })
    };
    fields.iter().map(one).collect()
}

/// What a kind's name means. `encoded` says that pixels may be those of an image file.
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
