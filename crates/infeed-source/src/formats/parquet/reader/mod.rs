//! Parquet files. A row group is read and decoded whole, but only the requested columns.
//!
//! Bytes and text are decoded as views into the pages. An encoded image is therefore never copied,
//! and a group holds the bytes in its footer, however often a value of a dictionary occurs.

mod group;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::parquet::arrow::parquet_to_arrow_schema;
use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use arrow_schema::{DataType, Field as ArrowField, FieldRef, Schema};
use bytes::Bytes;

use crate::columns::open::each;
use crate::columns::table::rows::Rows;
use crate::columns::table::{Columns, Conversion, FirstBytes, FirstValues};
use crate::field_spec::{FieldSpec, column_requests};
use crate::left_out::LeftOut;
use crate::shards::index::invalid;
use crate::store::{self, Blob, FilePatterns, find_in, unreadable};
use crate::{
    Admission, Read, ReadError, Sink, Source, admit_read, columns, files_fingerprint, group_reads,
    handle_bytes,
};
use group::{GroupChunks, Projection, chunk_range, chunk_totals};
use infeed_core::error::{Cause, Error};
use infeed_core::order::window::Groups;
use infeed_core::sample::{Field, Record, RecordId};
use pages::decoding;

/// Maximum bytes of a footer.
const FOOTER_BYTES: u64 = 128 << 20;

/// Bytes at the end of a file that are read at once: most footers are smaller.
const TAIL_BYTES: u64 = 64 << 10;

/// First and last bytes of a file.
const MAGIC: &[u8] = b"PAR1";

/// Maximum bytes of a page that is read to determine the kind of a column.
const FIRST_BYTES: u64 = 256 << 20;

/// Row groups, and rows of each, in which the first value that is not null is searched.
const FIRST_GROUPS: usize = 8;
const FIRST_ROWS: u64 = 4096;

/// Rows that are decoded at a time in that search.
const FIRST_STEP: usize = 16;

/// Opens the source of a description.
pub(super) fn open(
    files: FilePatterns<'_>,
    fields: &[FieldSpec],
) -> Result<Arc<dyn Source>, Error> {
    let blobs = find_in(files)?;
    Ok(Arc::new(Parquet::open(blobs, &column_requests(fields)?)?))
}

/// Records in Parquet files.
#[derive(Debug)]
pub struct Parquet {
    columns: Columns,
    files: Vec<ParquetFile>,
    /// File and row group of each group.
    locations: Vec<(usize, usize)>,
    groups: Arc<Groups>,
}

#[derive(Debug)]
struct ParquetFile {
    blob: Arc<dyn Blob>,
    metadata: ParquetMetaData,
    wanted: Projection,
}

/// Reads and decodes the footer of a file.
fn footer(blob: &dyn Blob) -> io::Result<ParquetMetaData> {
    let length = blob.len();
    let begin = length.saturating_sub(TAIL_BYTES);
    let tail = blob.read(begin..length)?;
    let cut = || invalid("it does not end like a Parquet file: it may be truncated");
    let (rest, end) = tail.split_last_chunk::<8>().ok_or_else(cut)?;
    if &end[4..] == b"PARE" {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is encrypted; decrypt it first",
        ));
    }
    if &end[4..] != MAGIC {
        return Err(cut());
    }
    let size = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if size > FOOTER_BYTES || size > length - 8 {
        return Err(invalid(format!(
            "its footer of {size} bytes is larger than the limit"
        )));
    }
    let bytes = match (rest.len() as u64).checked_sub(size) {
        Some(at) => tail.slice(at as usize..rest.len()),
        None => blob.read(length - 8 - size..length - 8)?,
    };
    if !pages::is_sound(&bytes) {
        return Err(invalid(
            "its footer is damaged: it lists more than its bytes can hold; copy or write the file \
             again",
        ));
    }
    decoding(|| ParquetMetaDataReader::decode_metadata(&bytes))
        .map_err(|problem| invalid(format!("its footer cannot be read: {problem}")))
}

/// Schema of a file, with bytes and text as views.
fn schema(metadata: &ParquetMetaData) -> Result<Schema, String> {
    let file = metadata.file_metadata();
    let keys = file.key_value_metadata();
    let schema = decoding(|| parquet_to_arrow_schema(file.schema_descr(), keys))?;
    let fields: Vec<FieldRef> = schema.fields().iter().map(to_view_field).collect();
    Ok(Schema::new_with_metadata(fields, schema.metadata))
}

fn to_view_field(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Dictionary(_, words) => match &**words {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8View,
            DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
            other => other.clone(),
        },
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(to_view_field).collect()),
        _ => return Arc::clone(field),
    };
    let made = ArrowField::new(field.name(), data_type, field.is_nullable());
    Arc::new(made.with_metadata(field.metadata().clone()))
}

/// Leaves of a column of the schema, or only those of a child of structs.
fn leaves(metadata: &ParquetMetaData, column: usize, children: &[String]) -> Vec<usize> {
    let schema = metadata.file_metadata().schema_descr();
    let mine = |&leaf: &usize| {
        let leaf_column = schema.column(leaf);
        let parts = leaf_column.path().parts().get(1..).unwrap_or_default();
        schema.get_column_root_idx(leaf) == column && parts.starts_with(children)
    };
    (0..schema.num_columns()).filter(mine).collect()
}

impl Parquet {
    /// Reads the footers of all files.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the first file that cannot be read or is invalid; [`Error::Config`] for
    /// columns that do not exist or cannot be converted as requested.
    pub fn open(
        blobs: Vec<Arc<dyn Blob>>,
        wanted: &[columns::ColumnRequest],
    ) -> Result<Parquet, Error> {
        let opened = each(&blobs, |blob| {
            let damaged = |error| unreadable(&**blob, error);
            let metadata = footer(&**blob).map_err(damaged)?;
            let schema = schema(&metadata).map_err(|problem| damaged(invalid(problem)))?;
            Ok((metadata, schema))
        })?;
        let rows =
            |metadata: &ParquetMetaData| metadata.row_groups().iter().any(|g| g.num_rows() > 0);
        let first = opened.iter().position(|(metadata, _)| rows(metadata));
        let first = first.ok_or_else(|| Error::config("source", "the files hold no records"))?;
        let (metadata, known) = &opened[first];
        let mut page = FirstPages {
            blob: &*blobs[first],
            metadata,
            schema: known,
        };
        let mut columns = Columns::choose(known, wanted, &mut page)?;
        let mut files = Vec::with_capacity(blobs.len());
        let (mut locations, mut ends, mut bytes, mut end) = (vec![], vec![], vec![], 0_u64);
        for (blob, (metadata, schema)) in blobs.into_iter().zip(opened) {
            let damaged = |problem| Error::open(blob.name(), invalid(problem));
            columns.locate(&schema).map_err(damaged)?;
            columns.compare(blob.name(), &schema);
            let wanted = file_projection(&metadata, &schema, &columns).map_err(damaged)?;
            for number in 0..metadata.num_row_groups() {
                let size = group_size(&metadata, number, &wanted.leaves, blob.len());
                let (rows, size) =
                    size.map_err(|problem| damaged(format!("row group {number}: {problem}")))?;
                end = end.saturating_add(rows);
                ends.push(end);
                bytes.push(size.saturating_add(handle_bytes(rows, columns.fields().len())));
                locations.push((files.len(), number));
            }
            files.push(ParquetFile {
                blob,
                metadata,
                wanted,
            });
        }
        Ok(Parquet {
            columns,
            files,
            locations,
            groups: Arc::new(Groups {
                ends,
                bytes,
                whole: true,
            }),
        })
    }

    fn locate(&self, record: u64) -> (&ParquetFile, usize, u64) {
        let at = self.groups.of(record);
        let (file, number) = self.locations[at];
        (&self.files[file], number, record - self.groups.first(at))
    }

    /// Decodes the rows of a group whose bytes are admitted. Returns batches with their first rows.
    fn decode(
        &self,
        file: &ParquetFile,
        number: usize,
        most_bytes: u64,
    ) -> io::Result<Result<Vec<(usize, Rows)>, String>> {
        let group = file.metadata.row_group(number);
        let mut ranges = Vec::with_capacity(file.wanted.leaves.len());
        for &leaf in &file.wanted.leaves {
            let range = chunk_range(group.column(leaf), file.blob.len()).map_err(invalid)?;
            ranges.push((leaf, range));
        }
        let bytes = read_ranges(&*file.blob, ranges)?;
        let chunks = GroupChunks {
            metadata: &file.metadata,
            group: number,
            bytes,
        };
        Ok(chunks.decode(&file.wanted, most_bytes).and_then(|batches| {
            let mut first = 0;
            let rows = batches.iter().map(|batch| {
                let rows = Rows::new(batch, &self.columns)?;
                first += rows.len();
                Ok((first - rows.len(), rows))
            });
            rows.collect()
        }))
    }
}

/// Builds the projection of a file.
fn file_projection(
    metadata: &ParquetMetaData,
    schema: &Schema,
    columns: &Columns,
) -> Result<Projection, String> {
    let mut all = Vec::new();
    for column in columns.columns() {
        let path = &column.path;
        let found = schema.column_with_name(&path.column);
        let (at, _) = found.ok_or_else(|| format!("it has no column `{}`", column.name))?;
        let child = match column.store {
            Conversion::Bytes { child } => child.map(str::to_owned),
            _ => None,
        };
        let children: Vec<String> = path.children.iter().cloned().chain(child).collect();
        all.extend(leaves(metadata, at, &children));
    }
    all.sort_unstable();
    all.dedup();
    Projection::new(metadata, all, schema.fields())
}

/// Rows of a group, and the bytes of memory that decoding it needs.
fn group_size(
    metadata: &ParquetMetaData,
    number: usize,
    leaves: &[usize],
    length: u64,
) -> Result<(u64, u64), String> {
    let group = metadata.row_group(number);
    let rows = u64::try_from(group.num_rows()).map_err(|_| "it has negative rows".to_owned())?;
    let mut bytes = 0_u64;
    for &leaf in leaves {
        let chunk = group.column(leaf);
        chunk_range(chunk, length)?;
        bytes = bytes.saturating_add(chunk_totals(chunk, rows)?.1);
    }
    Ok((rows, bytes))
}

/// Reads the bytes of chunks; adjacent ones together.
fn read_ranges(
    blob: &dyn Blob,
    mut ranges: Vec<(usize, Range<u64>)>,
) -> io::Result<HashMap<usize, (u64, Bytes)>> {
    ranges.sort_by_key(|(_, range)| range.start);
    let mut bytes = HashMap::new();
    let mut rest = &ranges[..];
    while let Some((_, first)) = rest.first() {
        let mut joined = first.clone();
        let near = rest.iter().take_while(|(_, range)| {
            // Without gaps: bytes between chunks would not be admitted.
            let near = range.start <= joined.end;
            if near {
                joined.end = joined.end.max(range.end);
            }
            near
        });
        let count = near.count();
        let read = blob.read(joined.clone())?;
        for (leaf, range) in &rest[..count] {
            let own = (range.start - joined.start) as usize..(range.end - joined.start) as usize;
            bytes.insert(*leaf, (range.start, read.slice(own)));
        }
        rest = &rest[count..];
    }
    Ok(bytes)
}

impl Source for Parquet {
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
        let (file, number, row) = self.locate(record);
        RecordId {
            index: record,
            name: format!("row {row} of row group {number} of {}", file.blob.name()),
        }
    }

    fn shard(&self, record: u64) -> Option<&str> {
        Some(self.locate(record).0.blob.name())
    }

    fn classes(&self) -> Option<&[String]> {
        self.columns.classes()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.columns.left_out()
    }

    fn local_files(&self, record: u64) -> Vec<PathBuf> {
        let (file, _, _) = self.locate(record);
        file.blob.path().map(Path::to_owned).into_iter().collect()
    }

    fn groups(&self) -> Option<Arc<Groups>> {
        Some(Arc::clone(&self.groups))
    }

    fn parallel_reads(&self) -> Option<usize> {
        store::parallel_reads(self.files.iter().map(|file| &*file.blob))
    }

    fn plan(&self, run: &[u64], _room_bytes: u64) -> Vec<Read> {
        group_reads(run, &self.groups)
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
        let bytes = self.groups.bytes[read.key as usize];
        admit_read(admit, record, bytes)?;
        let (file, number, _) = self.locate(record);
        let at = read.key as usize;
        let rows = self.groups.ends[at] - self.groups.first(at);
        let values = bytes - handle_bytes(rows, self.fields().len());
        let decoded = match self.decode(file, number, values) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error.to_string()),
            Err(error) => {
                let field = None;
                return Err(ReadError::Io {
                    record,
                    field,
                    error,
                });
            }
            Ok(decoded) => decoded,
        };
        let decoded = decoded.map_err(|problem| -> Cause { Arc::new(invalid(problem)) });
        for &(position, record) in &read.records {
            let (_, _, row) = self.locate(record);
            let fields = match &decoded {
                Ok(batches) => get(batches, row as usize),
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

fn get(batches: &[(usize, Rows)], row: usize) -> Result<Vec<Bytes>, Cause> {
    let at = batches.partition_point(|(first, _)| *first <= row);
    let found = at.checked_sub(1).map(|at| &batches[at]);
    match found.filter(|(first, rows)| row - first < rows.len()) {
        Some((first, rows)) => rows.get(row - first),
        None => Err(Arc::new(invalid(
            "the row group has fewer rows than its footer says",
        ))),
    }
}

/// First pages of columns, whose values decide the kinds of columns.
struct FirstPages<'a> {
    blob: &'a dyn Blob,
    metadata: &'a ParquetMetaData,
    schema: &'a Schema,
}

impl FirstPages<'_> {
    /// Looks at the values of a leaf in its first page of a row group.
    fn scan_page(
        &self,
        group: usize,
        leaf: usize,
        children: &[String],
        seen: &mut FirstBytes,
    ) -> io::Result<()> {
        let none = || invalid("its first page is invalid");
        let chunk = self.metadata.row_group(group).column(leaf);
        let range = chunk_range(chunk, self.blob.len()).map_err(invalid)?;
        let head = range.end.min(range.start + TAIL_BYTES);
        let start = self.blob.read(range.start..head)?;
        let (end, page) = match pages::first_data_page(&start) {
            Some(found) => found,
            // The page is after a large dictionary: reads once more.
            None => {
                let dictionary = pages::header(&start).ok_or_else(none)?;
                let at = dictionary.header + dictionary.stored;
                let begin = range.start + at;
                if begin >= range.end {
                    return Err(none());
                }
                let next = self.blob.read(begin..range.end.min(begin + TAIL_BYTES))?;
                let (end, page) = pages::first_data_page(&next).ok_or_else(none)?;
                (at + end, page)
            }
        };
        if end > range.end - range.start {
            return Err(none());
        }
        fits(end.max(page.decoded))?;
        let bytes = self.blob.read(range.start..range.start + end)?;
        let dictionary = pages::header(&bytes).ok_or_else(none)?;
        fits(dictionary.decoded.max(dictionary.values))?;
        let wanted = Projection::new(self.metadata, vec![leaf], self.schema.fields());
        let wanted = wanted.map_err(invalid)?;
        let chunks = GroupChunks {
            metadata: self.metadata,
            group,
            bytes: HashMap::from([(leaf, (range.start, bytes))]),
        };
        // In small steps, since prefix-encoded values may be large. Only rows within the page,
        // since the bytes after it were not read.
        let steps = (page.values.min(FIRST_ROWS) as usize / FIRST_STEP).max(1);
        let rows = FIRST_STEP.min(page.values.max(1) as usize);
        let batches = chunks.batches(&wanted, rows, steps, FIRST_BYTES);
        let batches = batches.map_err(invalid)?;
        for column in batches.iter().filter_map(|batch| batch.columns().first()) {
            seen.add_values(column, children);
        }
        Ok(())
    }
}

fn fits(bytes: u64) -> io::Result<()> {
    match bytes <= FIRST_BYTES {
        true => Ok(()),
        false => Err(invalid(format!(
            "its first page has {bytes} bytes, over the limit of {FIRST_BYTES}"
        ))),
    }
}

impl FirstValues for FirstPages<'_> {
    fn name(&self) -> String {
        self.blob.name().to_owned()
    }

    fn scan(
        &mut self,
        column: usize,
        children: &[String],
        seen: &mut FirstBytes,
    ) -> io::Result<()> {
        let Some(&leaf) = leaves(self.metadata, column, children).first() else {
            return Ok(());
        };
        let groups = self.metadata.row_groups().iter().enumerate();
        let groups = groups.filter(|(_, group)| group.num_rows() > 0);
        let mut wrong = None;
        for (group, _) in groups.take(FIRST_GROUPS) {
            match self.scan_page(group, leaf, children, seen) {
                Ok(()) if seen.is_decided() => return Ok(()),
                Ok(()) => {}
                // A damaged page is reported when its group is read; another one may have a value.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    wrong.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match wrong {
            Some(error) if !seen.has_values() => Err(error),
            _ => Ok(()),
        }
    }

    fn words(&mut self, _column: usize) -> io::Result<Option<Vec<String>>> {
        // Every row group has its own dictionary.
        Ok(None)
    }
}
