//! NumPy archives (`.npz`): each holds some records of every array, such as one batch.
//!
//! Where all members are stored and on this machine, they are mapped and records are slices of the
//! map. Else an archive is read whole, only the arrays that are wanted, and is a group of the
//! shuffle.

#[cfg(test)]
mod tests;
mod zip;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use infeed_raw::map::FileMap;

use super::columns::open::each;
use super::columns::{Wanted, array_field, widened};
use super::memory::{resident_reads, touch};
use super::npy;
use super::{Admit, Read, ReadError, Sink, Source, files_fingerprint, group_reads, handle_bytes};
use crate::error::{Cause, Error};
use crate::order::window::Groups;
use crate::sample::{DType, Field, Record, RecordId};
use crate::store::Blob;
use zip::Member;

/// Records in NumPy archives.
#[derive(Debug)]
pub struct Npz {
    fields: Vec<Field>,
    /// Where integers are widened to int64: what from.
    wide: Vec<Option<DType>>,
    files: Vec<File>,
    groups: Arc<Groups>,
    /// Whether records are slices of maps.
    mapped: bool,
}

#[derive(Debug)]
struct File {
    blob: Arc<dyn Blob>,
    /// One a field.
    arrays: Vec<Array>,
    map: Option<Bytes>,
}

/// An array of a file: in each, the same type and shape of a record.
#[derive(Clone, Debug)]
struct Array {
    name: String,
    member: Member,
    dtype: DType,
    records: u64,
    shape: Vec<usize>,
    /// Bytes before its elements, and of each record.
    begin: usize,
    record_bytes: usize,
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

/// The arrays of an archive that are wanted, all if none are named.
fn arrays(blob: &dyn Blob, wanted: &[Wanted]) -> io::Result<Vec<Array>> {
    let members = zip::members(blob)?;
    let named = members.into_iter().filter_map(|member| {
        let name = member.name.strip_suffix(".npy")?.to_owned();
        let all = wanted.is_empty() || wanted.iter().any(|wanted| wanted.column == name);
        all.then_some((name, member))
    });
    let array = |(name, member): (String, Member)| {
        let wrong = |problem: &str| invalid(format!("array `{name}`: {problem}"));
        let head = member.head(blob, npy::HEADER_BYTES)?;
        let header = npy::header(&head).map_err(|problem| wrong(&problem))?;
        let (&records, shape) = header
            .shape
            .split_first()
            .ok_or_else(|| wrong("it has no axis; give it one entry a record"))?;
        let record = shape
            .iter()
            .try_fold(header.dtype.bytes(), |n, &axis| n.checked_mul(axis));
        let fits = header.file_bytes().map(|bytes| bytes as u64) == Some(member.length);
        let Some(record) = record.filter(|_| fits) else {
            return Err(wrong("its header does not fit its length; was it cut?"));
        };
        Ok(Array {
            dtype: header.dtype,
            records: records as u64,
            shape: shape.to_vec(),
            begin: header.length,
            record_bytes: record,
            name,
            member,
        })
    };
    named.map(array).collect()
}

impl Npz {
    /// Looks all archives through.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] naming the first file that cannot be read or is none; [`Error::Config`] for
    /// arrays that are not there, of unequal length, or cannot be what is wanted.
    pub fn open(blobs: Vec<Arc<dyn Blob>>, wanted: &[Wanted]) -> Result<Npz, Error> {
        let opened = each(&blobs, |blob| {
            arrays(&**blob, wanted).map_err(|error| Error::open(blob.name(), error))
        })?;
        let Some(first) = opened.first() else {
            return Err(Error::config("source", "no files are named"));
        };
        let asked: Vec<Wanted> = match wanted.is_empty() {
            true => first.iter().map(|array| plain(&array.name)).collect(),
            false => wanted.to_vec(),
        };
        let (mut fields, mut wide) = (Vec::new(), Vec::new());
        for wanted in &asked {
            let part = format!("source field `{}`", wanted.name);
            let array = first.iter().find(|array| array.name == wanted.column);
            let Some(array) = array else {
                let names: Vec<&str> = first.iter().map(|array| array.name.as_str()).collect();
                let problem = format!("no array `{}`; there are {names:?}", wanted.column);
                return Err(Error::config(part, problem));
            };
            let field = array_field(array.dtype, array.shape.clone(), wanted);
            let (kind, from) = field.map_err(|problem| Error::config(part, problem))?;
            fields.push(Field {
                name: wanted.name.clone(),
                kind,
            });
            wide.push(from);
        }
        if fields.is_empty() {
            return Err(Error::config("source", "the archives hold no arrays"));
        }
        let mut files = Vec::with_capacity(blobs.len());
        for (blob, found) in blobs.iter().zip(&opened) {
            let arrays = arranged(found, &asked, first);
            let arrays = arrays.map_err(|problem| Error::open(blob.name(), invalid(problem)))?;
            files.push(File {
                blob: Arc::clone(blob),
                arrays,
                map: None,
            });
        }
        Npz::over(fields, wide, files)
    }

    fn over(fields: Vec<Field>, wide: Vec<Option<DType>>, files: Vec<File>) -> Result<Npz, Error> {
        let mut files = files;
        let in_place = |file: &File| {
            file.blob.path().is_some() && file.arrays.iter().all(|array| !array.member.deflated)
        };
        let mapped = files.iter().all(in_place);
        if mapped {
            for file in &mut files {
                let map = file.blob.path().map(FileMap::open).transpose();
                let map = map.map_err(|error| Error::open(file.blob.name(), error))?;
                file.map = map.map(Bytes::from_owner);
            }
        }
        let ends = files.iter().scan(0_u64, |end, file| {
            *end = end.saturating_add(file.arrays.first().map_or(0, |array| array.records));
            Some(*end)
        });
        let groups = Groups {
            ends: ends.collect(),
            bytes: files.iter().map(File::array_bytes).collect(),
            whole: true,
        };
        if groups.records() == 0 {
            return Err(Error::config("source", "the archives hold no records"));
        }
        Ok(Npz {
            fields,
            wide,
            files,
            groups: Arc::new(groups),
            mapped,
        })
    }

    /// The file of a record, and its number there.
    fn place(&self, record: u64) -> (usize, usize) {
        let file = self.groups.of(record);
        (file, (record - self.groups.first(file)) as usize)
    }

    /// A record from the whole arrays of its file.
    fn record(&self, file: &File, arrays: &[Bytes], number: usize) -> Result<Vec<Bytes>, Cause> {
        let parts = file.arrays.iter().zip(arrays).zip(&self.wide);
        let fields = parts.map(|((array, bytes), wide)| {
            let begin = array.begin + number * array.record_bytes;
            let end = begin + array.record_bytes;
            if end > bytes.len() {
                let name = file.blob.name();
                let error = invalid(format!("{name} was cut since it was opened"));
                return Err(Arc::new(error) as Cause);
            }
            let own = bytes.slice(begin..end);
            Ok(match wide {
                Some(from) => widened(*from, &own).unwrap_or(own),
                None => own,
            })
        });
        fields.collect()
    }
}

/// What is wanted of an array of which nothing was said.
fn plain(name: &str) -> Wanted {
    Wanted {
        name: name.to_owned(),
        column: name.to_owned(),
        kind: None,
        dtype: None,
        shape: Vec::new(),
    }
}

/// The arrays of a file in the order of the fields, held against those of the first file.
fn arranged(found: &[Array], asked: &[Wanted], first: &[Array]) -> Result<Vec<Array>, String> {
    let mut arrays: Vec<Array> = Vec::with_capacity(asked.len());
    for wanted in asked {
        let named = |array: &&Array| array.name == wanted.column;
        let array = found.iter().find(named);
        let array = array.ok_or_else(|| format!("it has no array `{}`", wanted.column))?;
        let model = first.iter().find(named).unwrap_or(array);
        if (array.dtype, &array.shape) != (model.dtype, &model.shape) {
            return Err(format!(
                "array `{}` has records of {} {:?} where the first file has {} {:?}",
                array.name,
                array.dtype.name(),
                array.shape,
                model.dtype.name(),
                model.shape
            ));
        }
        if let Some(other) = arrays
            .first()
            .filter(|other| other.records != array.records)
        {
            return Err(format!(
                "array `{}` has {} records and `{}` has {}; give all the same",
                other.name, other.records, array.name, array.records
            ));
        }
        arrays.push(array.clone());
    }
    Ok(arrays)
}

impl File {
    /// Bytes of its arrays, as stored and inflated, and of its records' handles: what the shuffle's windows go by, so it must not
    /// depend on where they lie.
    fn array_bytes(&self) -> u64 {
        self.bytes(|stored| stored)
    }

    /// Bytes of memory that reading its arrays takes, where they lie.
    fn held_bytes(&self) -> u64 {
        self.bytes(|stored| self.blob.held_bytes(stored))
    }

    fn bytes(&self, held: impl Fn(u64) -> u64) -> u64 {
        let arrays = self.arrays.iter().map(|array| {
            let stored = held(array.member.span.end - array.member.span.start);
            match array.member.deflated {
                true => stored.saturating_add(array.member.length),
                false => stored,
            }
        });
        let records = self.arrays.first().map_or(0, |array| array.records);
        let handles = handle_bytes(records, self.arrays.len());
        arrays.fold(handles, u64::saturating_add)
    }

    fn arrays(&self) -> io::Result<Vec<Bytes>> {
        let array = |array: &Array| {
            let stored = self.blob.read(array.member.span.clone())?;
            array.member.unpack(stored)
        };
        self.arrays.iter().map(array).collect()
    }

    /// The arrays where they lie in the map.
    fn mapped(&self) -> Vec<Bytes> {
        let map = self.map.clone().unwrap_or_default();
        let array = |array: &Array| {
            let span = &array.member.span;
            let end = (span.end as usize).min(map.len());
            map.slice((span.start as usize).min(end)..end)
        };
        self.arrays.iter().map(array).collect()
    }
}

impl Source for Npz {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.groups.records()
    }

    fn fingerprint(&self) -> u64 {
        let blobs = self.files.iter().map(|file| &*file.blob);
        files_fingerprint(self.fields(), blobs, &self.groups)
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        let (at, number) = self.place(record);
        let file = &self.files[at];
        let array = field.and_then(|field| file.arrays.get(field));
        let array = array.map_or(String::new(), |array| format!("array `{}` of ", array.name));
        RecordId {
            index: record,
            name: format!("row {number} of {array}{}", file.blob.name()),
        }
    }

    fn shard(&self, record: u64) -> Option<&str> {
        Some(self.files[self.place(record).0].blob.name())
    }

    fn places(&self, record: u64) -> Vec<PathBuf> {
        let (at, _) = self.place(record);
        let path = self.files[at].blob.path();
        path.map(Path::to_owned).into_iter().collect()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        (!self.mapped).then(|| Arc::clone(&self.groups))
    }

    fn parallel_reads(&self) -> Option<usize> {
        let reads = self.files.iter().map(|file| file.blob.parallel_reads());
        reads.max().flatten()
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        if self.mapped {
            let bytes = self.files.first().map_or(0, |file| {
                file.arrays.iter().map(|array| array.record_bytes).sum()
            });
            return resident_reads(run, bytes);
        }
        let mut reads = group_reads(run, &self.groups);
        for read in &mut reads {
            read.bytes = Some(self.files[read.key as usize].held_bytes());
        }
        reads
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admit<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        if self.mapped {
            for &(place, record) in &read.records {
                let (at, number) = self.place(record);
                let file = &self.files[at];
                let fields = self.record(file, &file.mapped(), number);
                if let Ok(fields) = &fields {
                    fields.iter().for_each(|bytes| touch(bytes));
                }
                let found = fields.map(|fields| Record {
                    index: record,
                    fields,
                });
                sink(place, found);
            }
            return Ok(());
        }
        let file = &self.files[read.key as usize];
        let bytes = file.held_bytes();
        admit(bytes).map_err(|refused| ReadError::Refused {
            record,
            bytes,
            refused,
        })?;
        let arrays = match file.arrays() {
            Ok(arrays) => Ok(arrays),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Arc::new(error) as Cause)
            }
            Err(error) => {
                let field = None;
                return Err(ReadError::Io {
                    record,
                    field,
                    error,
                });
            }
        };
        for &(place, record) in &read.records {
            let (_, number) = self.place(record);
            let fields = match &arrays {
                Ok(arrays) => self.record(file, arrays, number),
                Err(cause) => Err(Arc::clone(cause)),
            };
            let found = fields.map(|fields| Record {
                index: record,
                fields,
            });
            sink(place, found);
        }
        Ok(())
    }
}
