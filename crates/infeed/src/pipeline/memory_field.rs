//! Data in memory that a description refers to, and arrays that it reads from files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use infeed_raw::map::FileMap;
use serde::{Deserialize, Serialize};

use crate::function::Function;
use infeed_core::error::Error;
use infeed_core::sample::{DType, Field, FieldKind};
use infeed_source::Source;
use infeed_source::field_spec::field_kind;
use infeed_source::file_list::FileList;
use infeed_source::memory::FieldData;

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
    /// Whether the bytes of each record are the path or URL of its image file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
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

impl MemoryField {
    /// Returns the name of the array, if it exists only in this process's memory.
    pub(super) fn in_memory_name(&self) -> Option<&str> {
        self.handle.map(|_| self.name.as_str())
    }

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
            files: false,
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
            _ => Err(wrong(format!(
                "the data is in the memory of another process (buffer {handle} is missing here); \
                 open the pipeline there"
            ))),
        };
        let kind = self.field_kind().map_err(wrong)?;
        let values = match (&self.path, self.handle) {
            (None, Some(handle)) => buffer(handle)?,
            (Some(path), None) => self.map(path, &kind)?,
            _ => return Err(wrong("set either a handle or a path".to_owned())),
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
                        let list = offsets.windows(2).map(slice);
                        match self.files {
                            false => FieldData::List(list.collect()),
                            true => {
                                let name = |bytes: Bytes| {
                                    String::from_utf8(bytes.into()).map_err(|_| {
                                        wrong("the name of a file is not UTF-8; rename it".into())
                                    })
                                };
                                let names = list.map(name).collect::<Result<Vec<_>, _>>()?;
                                FieldData::Files(FileList::new(&names)?)
                            }
                        }
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

    pub(super) fn field(&self) -> Result<Field, Error> {
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
            .ok_or_else(|| Error::config(&part, "set `records`, the number of records in path"))?;
        let end = kind.record_bytes().and_then(|bytes| {
            self.offset
                .checked_add(records.checked_mul(bytes as u64)?)
                .filter(|&n| n <= whole.len() as u64)
        });
        let Some(end) = end else {
            let problem = format!(
                "{} has {} bytes, too few for {records} records from byte {}; correct records, or \
                 write the truncated file again",
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
