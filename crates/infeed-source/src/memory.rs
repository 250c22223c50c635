//! Records in memory or in mapped files: arrays, lists of bytes, and lists of image files.

use std::path::PathBuf;

use bytes::Bytes;

use super::file_list::FileList;
use super::folder::read_files;
use super::label::{label_field, label_value};
use super::paths::Paths;
use super::reads::single_reads;
use super::resident_reads::{hand_over, resident_reads, touch};
use super::resident_rows::ResidentRows;
use super::{Admission, Read, ReadError, RecordResult, Sink, Source, fingerprint};
use infeed_core::error::Error;
use infeed_core::random::hash;
use infeed_core::sample::{Field, FieldKind, Record, RecordId};

/// The bytes of one field of every record.
#[derive(Clone, Debug)]
pub enum FieldData {
    /// One array: record `i` is bytes `i * n .. (i + 1) * n`, where `n` follows from the field.
    Array(Bytes),
    /// Bytes of any length, by record.
    List(Vec<Bytes>),
    /// Numbers of any length: record `i` is elements `offsets[i] .. offsets[i + 1]`.
    Ragged {
        /// The elements, little-endian.
        values: Bytes,
        /// Ascending; one entry more than there are records.
        offsets: Vec<u64>,
    },
    /// A file for each record, which is read with the record.
    Files(FileList),
}

/// Arrays and lists by field name, each with one entry per record.
#[derive(Debug)]
pub struct Memory {
    fields: Vec<Field>,
    data: Vec<FieldData>,
    len: u64,
    mapped: bool,
}

impl Memory {
    /// Creates a source over `data`, all of equal length.
    ///
    /// `mapped` means that pages may have to come from storage. I/O threads then touch each page of
    /// a record before handing it on, so that no worker waits for a page fault.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if there are no fields, if lengths differ, or if bytes are not a multiple
    /// of the record size.
    pub fn new(fields: Vec<(Field, FieldData)>, mapped: bool) -> Result<Memory, Error> {
        let mut len: Option<(u64, String)> = None;
        for (field, data) in &fields {
            let records = count(field, data)?;
            match &len {
                None => len = Some((records, field.name.clone())),
                Some((known, _)) if *known == records => {}
                Some((known, name)) => {
                    let problem = format!(
                        "`{name}` has {known} records and `{}` has {records}; all fields need the \
                         same number",
                        field.name
                    );
                    return Err(Error::config("source", problem));
                }
            }
        }
        let Some((len, _)) = len else {
            return Err(Error::config(
                "source",
                "Memory needs at least one field; pass one, such as image=array",
            ));
        };
        if len == 0 {
            return Err(Error::config(
                "source",
                "the arrays are empty; pass at least one record",
            ));
        }
        let (fields, data) = fields.into_iter().unzip();
        Ok(Memory {
            fields,
            data,
            len,
            mapped,
        })
    }

    /// Returns the bytes of a field that is in memory; none of a field in files.
    fn field(&self, field: usize, record: usize) -> Bytes {
        match &self.data[field] {
            FieldData::Files(_) => Bytes::new(),
            FieldData::Array(bytes) => {
                let size = bytes.len() / self.len as usize;
                bytes.slice(record * size..(record + 1) * size)
            }
            FieldData::List(list) => list[record].clone(),
            FieldData::Ragged { values, offsets } => {
                let size = element_bytes(&self.fields[field].kind);
                let range = offsets[record] as usize * size..offsets[record + 1] as usize * size;
                values.slice(range)
            }
        }
    }

    /// Returns the fields in files, with their numbers.
    fn file_fields(&self) -> impl Iterator<Item = (usize, &Paths)> {
        self.data
            .iter()
            .enumerate()
            .filter_map(|(field, data)| match data {
                FieldData::Files(files) => Some((field, files.paths())),
                _ => None,
            })
    }

    fn has_files(&self) -> bool {
        self.file_fields().next().is_some()
    }

    /// Returns the files of a field; without a field, those of the first one that has files.
    fn paths_of(&self, field: Option<usize>) -> Option<&Paths> {
        let mut found = self.file_fields();
        let fits = |at: usize| field.is_none_or(|field| field == at);
        found.find(|&(at, _)| fits(at)).map(|(_, paths)| paths)
    }

    /// Reads a record with fields in files.
    fn record(&self, record: u64, admit: &mut Admission<'_>) -> Result<RecordResult, ReadError> {
        let (numbers, lists): (Vec<usize>, Vec<&Paths>) = self.file_fields().unzip();
        // Fields in memory are resident.
        let files = read_files(record, &lists, 0, admit).map_err(|error| match error {
            ReadError::Io {
                record,
                field,
                error,
            } => ReadError::Io {
                record,
                field: field.map(|at| numbers[at]),
                error,
            },
            refused @ ReadError::Refused { .. } => refused,
        })?;
        let files = match files {
            Ok(files) => files,
            Err(cause) => return Ok(Err(cause)),
        };
        let fields = 0..self.fields.len();
        let mut fields: Vec<Bytes> = fields
            .map(|field| self.field(field, record as usize))
            .collect();
        if self.mapped {
            touch(&fields);
        }
        for (at, file) in numbers.into_iter().zip(files) {
            fields[at] = file;
        }
        Ok(Ok(Record {
            index: record,
            fields,
        }))
    }
}

fn element_bytes(kind: &FieldKind) -> usize {
    match kind {
        FieldKind::Ragged { dtype } => dtype.bytes(),
        _ => 1,
    }
}

/// Number of records of a field.
fn count(field: &Field, data: &FieldData) -> Result<u64, Error> {
    let wrong = |problem: String| {
        Err(Error::config(
            "source",
            format!("field `{}`: {problem}", field.name),
        ))
    };
    match data {
        FieldData::List(list) => Ok(list.len() as u64),
        FieldData::Files(files) => Ok(files.paths().len() as u64),
        FieldData::Array(bytes) => match field.kind.record_bytes() {
            Some(size) if size > 0 && bytes.len().is_multiple_of(size) => {
                Ok((bytes.len() / size) as u64)
            }
            Some(size) => wrong(format!(
                "{} bytes are not a multiple of the record size {size}",
                bytes.len()
            )),
            None => wrong("an array needs a kind of fixed size".to_owned()),
        },
        FieldData::Ragged { values, offsets } => {
            let elements = (values.len() / element_bytes(&field.kind)) as u64;
            let ascending = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
            let fits = offsets.last().is_some_and(|&last| last <= elements);
            if !ascending || !fits {
                return wrong(format!(
                    "offsets must ascend and end at most at {elements}, the number of values"
                ));
            }
            Ok(offsets.len() as u64 - 1)
        }
    }
}

impl ResidentRows for Memory {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let record = record as usize;
        match self.data.get(field)? {
            FieldData::Array(bytes) => {
                let size = bytes.len() / self.len as usize;
                bytes.get(record * size..(record + 1) * size)
            }
            FieldData::List(list) => list.get(record).map(|bytes| &bytes[..]),
            FieldData::Ragged { .. } | FieldData::Files(_) => None,
        }
    }

    fn is_mapped(&self) -> bool {
        self.mapped
    }
}

impl Source for Memory {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn fingerprint(&self) -> u64 {
        let whole = fingerprint(self.len, &self.fields);
        let files: Vec<u64> = self
            .file_fields()
            .map(|(_, paths)| paths.fingerprint())
            .collect();
        match files.is_empty() {
            true => whole,
            false => hash(&[&[whole], files.as_slice()].concat()),
        }
    }

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        let paths = self.paths_of(field).or_else(|| self.paths_of(None));
        RecordId {
            index: record,
            name: match paths {
                Some(paths) => paths.path(record as usize).display().to_string(),
                None => format!("element {record} in memory"),
            },
        }
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths_of(None)?.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        let lists = self.file_fields();
        lists
            .map(|(_, paths)| paths.path(record as usize))
            .collect()
    }

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        let is_file = matches!(self.data.get(field)?, FieldData::Files(_));
        (!is_file && self.has_files()).then(|| self.field(field, record as usize))
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.paths_of(None)?.parallel_reads()
    }

    fn label(&self, record: u64) -> Option<i64> {
        let (at, dtype) = label_field(&self.fields)?;
        label_value(dtype, &self.field(at, record as usize))
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        (!self.has_files()).then_some(self)
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        if self.has_files() {
            return single_reads(run);
        }
        let record: usize = (0..self.fields.len())
            .map(|field| {
                run.first()
                    .map_or(0, |&r| self.field(field, r as usize).len())
            })
            .sum();
        resident_reads(run, record)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        if self.has_files() {
            for &(position, record) in &read.records {
                sink(position, self.record(record, admit)?);
            }
            return Ok(());
        }
        hand_over(read, self.mapped, sink, |record| {
            let fields = 0..self.fields.len();
            Ok(fields
                .map(|field| self.field(field, record as usize))
                .collect())
        });
        Ok(())
    }
}
