//! NumPy archives (`.npz`): each holds some records of every array, such as one batch.
//!
//! If all members are uncompressed and local, the archives are mapped and records are slices of the
//! maps. Otherwise the requested arrays of an archive are read whole, and the archive is a group of
//! the shuffle.

#[cfg(test)]
mod tests;
mod zip;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use infeed_raw::map::FileMap;

use super::format::FileFormat;
use crate::columns::open::each;
use crate::columns::{ColumnRequest, array_field, integer, widen};
use crate::field_spec::column_requests;
use crate::left_out::LeftOut;
use crate::npy;
use crate::resident_reads::{hand_over, resident_reads};
use crate::resident_rows::{copy_stored, copy_wide};
use crate::shards::index::invalid;
use crate::store::{self, Blob, find_in, unreadable};
use crate::{
    Admission, Read, ReadError, ResidentRows, Sink, Source, admit_read, files_fingerprint,
    group_reads, handle_bytes,
};
use infeed_core::error::{Cause, Error};
use infeed_core::order::window::Groups;
use infeed_core::sample::{DType, Field, Record, RecordId};
use zip::ZipMember;

/// NumPy archives in the table of formats.
pub static FORMAT: FileFormat = FileFormat::table("npz", ".npz", &[".npz"], |files, fields| {
    let blobs = find_in(files)?;
    Ok(Arc::new(Npz::open(blobs, &column_requests(fields)?)?))
});

/// Records in NumPy archives.
#[derive(Debug)]
pub struct Npz {
    fields: Vec<Field>,
    /// Original type of integers that are widened to int64.
    wide: Vec<Option<DType>>,
    files: Vec<NpzFile>,
    groups: Arc<Groups>,
    /// Whether records are slices of maps.
    mapped: bool,
    left_out: Vec<LeftOut>,
}

#[derive(Debug)]
struct NpzFile {
    blob: Arc<dyn Blob>,
    /// One array per field.
    arrays: Vec<ArrayMember>,
    map: Option<Bytes>,
}

/// An array of an archive. Type and shape of a record are the same in every archive.
#[derive(Clone, Debug)]
struct ArrayMember {
    name: String,
    member: ZipMember,
    dtype: DType,
    records: u64,
    shape: Vec<usize>,
    /// Bytes before the elements, and bytes of each record.
    begin: usize,
    record_bytes: usize,
}

/// Reads the headers of the requested arrays of an archive, or of all if none are requested. Counts
/// the members that are no arrays in `left_out`.
fn arrays(
    blob: &dyn Blob,
    wanted: &[ColumnRequest],
    left_out: &mut Vec<LeftOut>,
) -> io::Result<Vec<ArrayMember>> {
    let members = zip::members(blob)?;
    let named = members.into_iter().filter_map(|member| {
        let Some(name) = member.name.strip_suffix(".npy").map(str::to_owned) else {
            if wanted.is_empty() {
                let other = LeftOut::new(blob.name(), "member without the extension .npy");
                other.with(&member.name).append_to(left_out);
            }
            return None;
        };
        let all = wanted.is_empty() || wanted.iter().any(|wanted| wanted.column == name);
        all.then_some((name, member))
    });
    let array = |(name, member): (String, ZipMember)| {
        let wrong = |problem: &str| invalid(format!("array `{name}`: {problem}"));
        let head = member.head(blob, npy::HEADER_BYTES)?;
        let header = npy::header(&head).map_err(|problem| wrong(&problem))?;
        let (&records, shape) = header
            .shape
            .split_first()
            .ok_or_else(|| wrong("it is a single value; name the other arrays in fields="))?;
        let record = shape
            .iter()
            .try_fold(header.dtype.bytes(), |n, &axis| n.checked_mul(axis));
        let fits = header.file_bytes().map(|bytes| bytes as u64) == Some(member.length);
        let Some(record) = record.filter(|_| fits) else {
            return Err(wrong(
                "its header does not fit its length: it may be truncated",
            ));
        };
        Ok(ArrayMember {
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
    /// Indexes all archives.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the first file that cannot be read or is invalid; [`Error::Config`] for
    /// arrays that do not exist, have unequal lengths, or cannot be converted as requested.
    pub fn open(blobs: Vec<Arc<dyn Blob>>, wanted: &[ColumnRequest]) -> Result<Npz, Error> {
        let opened = each(&blobs, |blob| {
            let mut left_out = Vec::new();
            let arrays = arrays(&**blob, wanted, &mut left_out);
            let arrays = arrays.map_err(|error| unreadable(&**blob, error))?;
            Ok((arrays, left_out))
        })?;
        let (opened, left_out): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let mut left_out = left_out.concat();
        let Some(first) = opened.first() else {
            return Err(Error::config("source", "no files are named"));
        };
        if wanted.is_empty() {
            left_out.extend(extra_arrays(&blobs, &opened));
        }
        let requests: Vec<ColumnRequest> = match wanted.is_empty() {
            true => first.iter().map(|array| plain(&array.name)).collect(),
            false => wanted.to_vec(),
        };
        let (mut fields, mut wide) = (Vec::new(), Vec::new());
        for wanted in &requests {
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
            let arrays = arrange(found, &requests, first);
            let arrays = arrays.map_err(|problem| Error::open(blob.name(), invalid(problem)))?;
            files.push(NpzFile {
                blob: Arc::clone(blob),
                arrays,
                map: None,
            });
        }
        Ok(Npz {
            left_out,
            ..Npz::over(fields, wide, files)?
        })
    }

    fn over(
        fields: Vec<Field>,
        wide: Vec<Option<DType>>,
        files: Vec<NpzFile>,
    ) -> Result<Npz, Error> {
        let mut files = files;
        let in_place = |file: &NpzFile| {
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
            bytes: files.iter().map(NpzFile::array_bytes).collect(),
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
            left_out: Vec::new(),
        })
    }

    /// Returns the file of a record, and its number in the file.
    fn locate(&self, record: u64) -> (usize, usize) {
        let file = self.groups.of(record);
        (file, (record - self.groups.first(file)) as usize)
    }

    /// Slices a record from the whole arrays of its file.
    fn record(&self, file: &NpzFile, arrays: &[Bytes], number: usize) -> Result<Vec<Bytes>, Cause> {
        let parts = file.arrays.iter().zip(arrays).zip(&self.wide);
        let fields = parts.map(|((array, bytes), wide)| {
            let begin = array.begin + number * array.record_bytes;
            let end = begin + array.record_bytes;
            if end > bytes.len() {
                let name = file.blob.name();
                let error = invalid(format!("{name} was truncated since it was opened"));
                return Err(Arc::new(error) as Cause);
            }
            let own = bytes.slice(begin..end);
            Ok(match wide {
                Some(from) => widen(*from, &own).unwrap_or(own),
                None => own,
            })
        });
        fields.collect()
    }
}

/// Counts the arrays that the first archive does not have, each in the first archive that has it.
fn extra_arrays(blobs: &[Arc<dyn Blob>], opened: &[Vec<ArrayMember>]) -> Vec<LeftOut> {
    let mut known: HashSet<&str> = HashSet::new();
    let mut left_out = Vec::new();
    for (at, (blob, arrays)) in blobs.iter().zip(opened).enumerate() {
        for array in arrays {
            if known.insert(&array.name) && at > 0 {
                let extra = LeftOut::new(blob.name(), "array that the first archive does not have");
                extra.with(&array.name).append_to(&mut left_out);
            }
        }
    }
    left_out
}

/// Request for an array without any options.
fn plain(name: &str) -> ColumnRequest {
    ColumnRequest {
        name: name.to_owned(),
        column: name.to_owned(),
        kind: None,
        dtype: None,
        shape: Vec::new(),
    }
}

/// Arrays of a file in the order of the fields, compared with those of the first file.
fn arrange(
    found: &[ArrayMember],
    requests: &[ColumnRequest],
    first: &[ArrayMember],
) -> Result<Vec<ArrayMember>, String> {
    let mut arrays: Vec<ArrayMember> = Vec::with_capacity(requests.len());
    for wanted in requests {
        let named = |array: &&ArrayMember| array.name == wanted.column;
        let array = found.iter().find(named);
        let array = array.ok_or_else(|| format!("it has no array `{}`", wanted.column))?;
        let model = first.iter().find(named).unwrap_or(array);
        if (array.dtype, &array.shape) != (model.dtype, &model.shape) {
            return Err(format!(
                "array `{}` has records of {} {:?}, but the first file has {} {:?}",
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
                "array `{}` has {} records and `{}` has {}; name arrays of one length in fields=",
                other.name, other.records, array.name, array.records
            ));
        }
        arrays.push(array.clone());
    }
    Ok(arrays)
}

impl NpzFile {
    /// Bytes of its arrays, stored and inflated, and of its records' handles. The windows of the
    /// shuffle depend on this number, so it must not depend on the location of the file.
    fn array_bytes(&self) -> u64 {
        self.bytes(|stored| stored)
    }

    /// Bytes of memory that reading its arrays holds at its location.
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
        let array = |array: &ArrayMember| {
            let stored = self.blob.read(array.member.span.clone())?;
            array.member.unpack(stored)
        };
        self.arrays.iter().map(array).collect()
    }

    /// Slices of the arrays in the map.
    fn slices(&self) -> Vec<Bytes> {
        let map = self.map.clone().unwrap_or_default();
        let array = |array: &ArrayMember| {
            let span = &array.member.span;
            let end = (span.end as usize).min(map.len());
            map.slice((span.start as usize).min(end)..end)
        };
        self.arrays.iter().map(array).collect()
    }
}

impl ResidentRows for Npz {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let (at, number) = self.locate(record);
        let file = self.files.get(at)?;
        let (map, array) = (file.map.as_ref()?, file.arrays.get(field)?);
        let span = &array.member.span;
        let bytes = map.get(span.start as usize..(span.end as usize).min(map.len()))?;
        let begin = array.begin + number * array.record_bytes;
        bytes.get(begin..begin + array.record_bytes)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let stored = self.stored_bytes(record, field);
        match self.wide.get(field) {
            Some(Some(from)) => copy_wide(stored.and_then(|own| integer(*from, own)), to),
            _ => copy_stored(stored, to),
        }
    }

    fn is_mapped(&self) -> bool {
        self.mapped
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
        let (at, number) = self.locate(record);
        let file = &self.files[at];
        let array = field.and_then(|field| file.arrays.get(field));
        let array = array.map_or(String::new(), |array| format!("array `{}` of ", array.name));
        RecordId {
            index: record,
            name: format!("row {number} of {array}{}", file.blob.name()),
        }
    }

    fn shard(&self, record: u64) -> Option<&str> {
        Some(self.files[self.locate(record).0].blob.name())
    }

    fn left_out(&self) -> Vec<LeftOut> {
        LeftOut::over_files(self.left_out.iter().cloned())
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        let (at, _) = self.locate(record);
        let path = self.files[at].blob.path();
        path.map(Path::to_owned).into_iter().collect()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        (!self.mapped).then(|| Arc::clone(&self.groups))
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        self.mapped.then_some(self)
    }

    fn parallel_reads(&self) -> Option<usize> {
        store::parallel_reads(self.files.iter().map(|file| &*file.blob))
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
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        if self.mapped {
            hand_over(read, true, sink, |record| {
                let (at, number) = self.locate(record);
                let file = &self.files[at];
                self.record(file, &file.slices(), number)
            });
            return Ok(());
        }
        let file = &self.files[read.key as usize];
        let bytes = file.held_bytes();
        admit_read(admit, record, bytes)?;
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
        for &(position, record) in &read.records {
            let (_, number) = self.locate(record);
            let fields = match &arrays {
                Ok(arrays) => self.record(file, arrays, number),
                Err(cause) => Err(Arc::clone(cause)),
            };
            let found = fields.map(|fields| Record {
                index: record,
                fields,
            });
            sink(position, found);
        }
        Ok(())
    }
}
