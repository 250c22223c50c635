//! Arrow IPC files and streams, such as the caches of Hugging Face's `datasets`.
//!
//! If every file is local and not compressed, the files are mapped and records are slices of the
//! maps. Otherwise a record batch is read and decoded whole, and is a group of the shuffle.

mod message;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::{Array, RecordBatch};
use bytes::Bytes;
use infeed_raw::map::FileMap;

use crate::columns::ColumnRequest;
use crate::columns::open::each;
use crate::columns::table::rows::Rows;
use crate::columns::table::{Columns, FirstBytes, FirstValues, words};
use crate::field_spec::{FieldSpec, column_requests};
use crate::left_out::LeftOut;
use crate::resident_reads::{hand_over, resident_reads};
use crate::shards::index::invalid;
use crate::store::{self, Blob, FilePatterns, find_in, unreadable};
use crate::{
    Admission, Read, ReadError, ResidentRows, Sink, Source, admit_read, files_fingerprint,
    handle_bytes,
};
use infeed_core::error::{Cause, Error};
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, Record, RecordId};
use message::{BatchLocation, FileIndex};

/// Number of batches of mapped files whose views are kept, about a kilobyte each. Datasets with
/// more batches create the views for each read.
const KEPT: usize = 1 << 16;

/// Opens the source of a description.
pub(super) fn open(
    files: FilePatterns<'_>,
    fields: &[FieldSpec],
) -> Result<Arc<dyn Source>, Error> {
    let blobs = find_in(files)?;
    Ok(Arc::new(Arrow::open(blobs, &column_requests(fields)?)?))
}

/// Records in Arrow IPC files.
#[derive(Debug)]
pub struct Arrow {
    columns: Columns,
    files: Vec<ArrowFile>,
    /// File and batch of each group.
    batches: Vec<ArrowBatch>,
    groups: Arc<Groups>,
    /// Whether records are slices of maps.
    mapped: bool,
}

#[derive(Debug)]
struct ArrowFile {
    blob: Arc<dyn Blob>,
    index: FileIndex,
    /// Positions of the columns in its schema.
    projection: Vec<usize>,
    map: Option<Bytes>,
}

#[derive(Debug)]
struct ArrowBatch {
    file: usize,
    number: usize,
    kept: OnceLock<Result<Rows, Cause>>,
}

fn problem(text: String) -> Cause {
    Arc::new(invalid(text))
}

impl Arrow {
    /// Indexes all files.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the first file that cannot be read or is invalid; [`Error::Config`] for
    /// columns that do not exist or cannot be converted as requested.
    pub fn open(blobs: Vec<Arc<dyn Blob>>, wanted: &[ColumnRequest]) -> Result<Arrow, Error> {
        let opened = |blob: &Arc<dyn Blob>, names: Option<&[String]>| {
            message::index(&**blob, names).map_err(|error| unreadable(&**blob, error))
        };
        let mut columns = None;
        for blob in &blobs {
            let index = opened(blob, None)?;
            let mut first = FirstFileBatches { blob, index };
            // A first file without rows is as good as its schema.
            let empty = first
                .index
                .batches
                .iter()
                .all(|location| location.rows == 0);
            let schema = Arc::clone(&first.index.schema);
            columns = Some(Columns::choose(&schema, wanted, &mut first)?);
            if !empty {
                break;
            }
        }
        let mut columns = columns.ok_or_else(|| Error::config("source", "no files are named"))?;
        let columns_of = columns.columns().iter();
        let names: Vec<String> = columns_of
            .map(|column| column.path.column.clone())
            .collect();
        let mut files = each(&blobs, |blob| {
            let index = opened(blob, Some(&names))?;
            let located = columns.locate(&index.schema);
            let projection =
                located.map_err(|problem| Error::open(blob.name(), invalid(problem)))?;
            Ok(ArrowFile {
                blob: Arc::clone(blob),
                index,
                projection,
                map: None,
            })
        })?;
        for file in &files {
            columns.compare(file.blob.name(), &file.index.schema);
        }
        let mapped = files.iter().all(|file| {
            file.blob.path().is_some()
                && file.index.batches.iter().all(|location| location.in_place)
        });
        if mapped {
            for file in &mut files {
                file.map = file.blob.path().map(map).transpose()?;
            }
        }
        let mut batches = Vec::new();
        let (mut ends, mut bytes, mut end) = (Vec::new(), Vec::new(), 0_u64);
        for (at, file) in files.iter().enumerate() {
            for (number, location) in file.index.batches.iter().enumerate() {
                end = end.saturating_add(location.rows);
                ends.push(end);
                let handles = handle_bytes(location.rows, columns.fields().len());
                bytes.push(location.bytes.saturating_add(handles));
                batches.push(ArrowBatch {
                    file: at,
                    number,
                    kept: OnceLock::new(),
                });
            }
        }
        if end == 0 {
            return Err(Error::config("source", "the files hold no records"));
        }
        Ok(Arrow {
            columns,
            files,
            batches,
            groups: Arc::new(Groups {
                ends,
                bytes,
                whole: true,
            }),
            mapped,
        })
    }

    /// Returns the batch of a record, and its row in the batch.
    fn locate(&self, record: u64) -> (usize, usize) {
        let batch = self.groups.of(record);
        (batch, (record - self.groups.first(batch)) as usize)
    }

    fn parts(&self, batch: &ArrowBatch) -> (&ArrowFile, &BatchLocation) {
        let file = &self.files[batch.file];
        (file, &file.index.batches[batch.number])
    }

    /// Decodes a batch from `bytes`, which begin at offset `base` of the file.
    fn decode(&self, batch: &ArrowBatch, bytes: &Bytes, base: u64) -> Result<Rows, Cause> {
        let (file, location) = self.parts(batch);
        let part = |range: &std::ops::Range<u64>| {
            let range = (range.start - base) as usize..(range.end - base) as usize;
            let fits = range.end <= bytes.len();
            fits.then(|| bytes.slice(range)).ok_or_else(|| {
                problem(format!(
                    "{} was truncated since it was opened",
                    file.blob.name()
                ))
            })
        };
        let decoded = message::decode(
            &part(&location.message)?,
            part(&location.body)?,
            &file.index.schema,
            &file.projection,
            &location.dictionaries,
            location.bytes,
        );
        decoded
            .and_then(|batch| Rows::new(&batch, &self.columns))
            .map_err(problem)
    }

    fn read_mapped(&self, read: &Read, sink: &mut Sink<'_>) {
        hand_over(read, true, sink, |record| {
            let (at, row) = self.locate(record);
            let batch = &self.batches[at];
            match self.batches.len() <= KEPT {
                true => get(self.kept_rows(batch), row),
                false => get(&self.mapped_rows(batch), row),
            }
        });
    }

    /// Returns the view of a batch of a mapped file.
    fn mapped_rows(&self, batch: &ArrowBatch) -> Result<Rows, Cause> {
        match &self.files[batch.file].map {
            Some(map) => self.decode(batch, map, 0),
            None => Err(problem("its file is not mapped".to_owned())),
        }
    }

    /// As [`Arrow::mapped_rows`], but keeps the view.
    fn kept_rows<'a>(&self, batch: &'a ArrowBatch) -> &'a Result<Rows, Cause> {
        batch.kept.get_or_init(|| self.mapped_rows(batch))
    }
}

fn get(rows: &Result<Rows, Cause>, row: usize) -> Result<Vec<Bytes>, Cause> {
    match rows {
        Ok(rows) if row < rows.len() => rows.get(row),
        Ok(_) => Err(problem(
            "the batch has fewer rows than its metadata says".to_owned(),
        )),
        Err(cause) => Err(Arc::clone(cause)),
    }
}

fn map(path: &Path) -> Result<Bytes, Error> {
    let map = FileMap::open(path).map_err(|error| Error::open(path, error))?;
    Ok(Bytes::from_owner(map))
}

impl ResidentRows for Arrow {
    fn stored_bytes(&self, record: u64, field: usize) -> Option<&[u8]> {
        let (at, row) = self.locate(record);
        let rows = self.kept_rows(self.batches.get(at)?).as_ref().ok()?;
        rows.stored_bytes(row, field)
    }

    fn copy(&self, record: u64, field: usize, to: &mut [u8]) -> bool {
        let (at, row) = self.locate(record);
        let rows = self.batches.get(at).map(|batch| self.kept_rows(batch));
        rows.is_some_and(|rows| rows.as_ref().is_ok_and(|rows| rows.copy(row, field, to)))
    }

    fn is_mapped(&self) -> bool {
        true
    }
}

impl Source for Arrow {
    fn fields(&self) -> &[Field] {
        self.columns.fields()
    }

    fn len(&self) -> u64 {
        self.groups.records()
    }

    fn fingerprint(&self) -> u64 {
        let blobs = self.files.iter().map(|file| &*file.blob);
        files_fingerprint(self.fields(), blobs, &self.groups)
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        let (at, row) = self.locate(record);
        let batch = &self.batches[at];
        let (file, location) = self.parts(batch);
        let (file, byte) = (file.blob.name(), location.message.start);
        RecordId {
            index: record,
            name: format!(
                "row {row} of batch {} of {file} at byte {byte}",
                batch.number
            ),
        }
    }

    fn shard(&self, record: u64) -> Option<&str> {
        let (at, _) = self.locate(record);
        Some(self.parts(&self.batches[at]).0.blob.name())
    }

    fn classes(&self) -> Option<&[String]> {
        self.columns.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.columns.left_out()
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        let (at, _) = self.locate(record);
        let (file, _) = self.parts(&self.batches[at]);
        file.blob.path().map(Path::to_owned).into_iter().collect()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        (!self.mapped).then(|| Arc::clone(&self.groups))
    }

    fn resident(&self) -> Option<&dyn ResidentRows> {
        (self.mapped && self.batches.len() <= KEPT).then_some(self)
    }

    fn parallel_reads(&self) -> Option<usize> {
        store::parallel_reads(self.files.iter().map(|file| &*file.blob))
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        if self.mapped {
            let average = self.groups.bytes.iter().sum::<u64>() / self.len().max(1);
            return resident_reads(run, average as usize);
        }
        crate::group_reads(run, &self.groups)
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        if self.mapped {
            self.read_mapped(read, sink);
            return Ok(());
        }
        let Some(&(_, record)) = read.records.first() else {
            return Ok(());
        };
        let batch = &self.batches[read.key as usize];
        let (file, location) = self.parts(batch);
        let bytes = self.groups.bytes[read.key as usize];
        admit_read(admit, record, bytes)?;
        let begin = location.message.start;
        let stored = file.blob.read(begin..location.body.end);
        let stored = stored.map_err(|error| ReadError::Io {
            record,
            field: None,
            error,
        })?;
        let rows = self.decode(batch, &stored, begin);
        for &(position, record) in &read.records {
            let (_, row) = self.locate(record);
            let found = get(&rows, row).map(|fields| Record {
                index: record,
                fields,
            });
            sink(position, found);
        }
        Ok(())
    }
}

/// First batches with rows, whose values decide the kinds of columns.
struct FirstFileBatches<'a> {
    blob: &'a Arc<dyn Blob>,
    index: FileIndex,
}

/// Maximum bytes of a batch that is read to determine the kinds of columns.
const FIRST_BYTES: u64 = 1 << 30;

/// Maximum number of batches that are searched for a value that is not null.
const FIRST_BATCHES: usize = 8;

impl FirstFileBatches<'_> {
    /// Reads a column of a batch.
    fn read_column(&self, location: &BatchLocation, column: usize) -> io::Result<RecordBatch> {
        if location.bytes > FIRST_BYTES {
            return Err(invalid(format!(
                "its first batch has {} bytes, over the limit of {FIRST_BYTES}",
                location.bytes
            )));
        }
        let path = self.blob.path().filter(|_| location.in_place);
        let (base, bytes) = match path {
            Some(path) => (0, Bytes::from_owner(FileMap::open(path)?)),
            None => {
                let begin = location.message.start;
                (begin, self.blob.read(begin..location.body.end)?)
            }
        };
        let part = |range: &std::ops::Range<u64>| {
            let range = (range.start - base) as usize..(range.end - base) as usize;
            let fits = range.end <= bytes.len();
            let cut = || invalid("it was truncated while it was opened".to_owned());
            fits.then(|| bytes.slice(range)).ok_or_else(cut)
        };
        message::decode(
            &part(&location.message)?,
            part(&location.body)?,
            &self.index.schema,
            &[column],
            &location.dictionaries,
            location.bytes,
        )
        .map_err(invalid)
    }

    /// Returns the first result of `of` for a column of the first batches.
    fn find<T>(
        &self,
        column: usize,
        mut of: impl FnMut(&Arc<dyn Array>) -> Option<T>,
    ) -> io::Result<Option<T>> {
        let batches = self
            .index
            .batches
            .iter()
            .filter(|location| location.rows > 0);
        let mut wrong = None;
        for location in batches.take(FIRST_BATCHES) {
            match self.read_column(location, column) {
                Ok(batch) => {
                    if let Some(found) = batch.columns().first().and_then(&mut of) {
                        return Ok(Some(found));
                    }
                }
                // A damaged batch is reported when it is read; another one may have a value.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    wrong.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        wrong.map_or(Ok(None), Err)
    }
}

impl FirstValues for FirstFileBatches<'_> {
    fn name(&self) -> String {
        self.blob.name().to_owned()
    }

    fn scan(
        &mut self,
        column: usize,
        children: &[String],
        seen: &mut FirstBytes,
    ) -> io::Result<()> {
        let found = self.find(column, |array| {
            seen.add_values(array, children);
            seen.is_decided().then_some(())
        });
        match found {
            Err(error) if !seen.has_values() => Err(error),
            _ => Ok(()),
        }
    }

    fn words(&mut self, column: usize) -> io::Result<Option<Vec<String>>> {
        self.find(column, words)
    }
}
