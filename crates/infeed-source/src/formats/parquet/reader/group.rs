//! Selects the column chunks of one row group and decodes them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ::parquet::arrow::ProjectionMask;

use ::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowGroups};
use ::parquet::arrow::{FieldLevels, parquet_to_arrow_field_levels};
use ::parquet::basic::{Compression, Encoding, PageType, Type};
use ::parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result as ParquetResult};
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use ::parquet::file::reader::{ChunkReader, Length, SerializedPageReader};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::Fields;
use bytes::{Buf, Bytes};

use super::pages::{self, ChunkTotals, decoding};

/// Assumed growth of prefix-encoded values (`DELTA_BYTE_ARRAY`) where the file does not state their
/// size.
const DELTA_GROWTH: u64 = 8;

/// Bytes that one step of decoding such values may use beyond the admitted ones.
const STEP_BYTES: u64 = 4 << 20;

/// Range of a chunk in the file.
///
/// # Errors
///
/// Offsets or sizes that are outside a file of `length` bytes.
pub(super) fn chunk_range(chunk: &ColumnChunkMetaData, length: u64) -> Result<Range<u64>, String> {
    let wrong = || "the footer places a column chunk outside the file".to_owned();
    let first = chunk
        .dictionary_page_offset()
        .unwrap_or(chunk.data_page_offset());
    let begin = u64::try_from(first).map_err(|_| wrong())?;
    let size = u64::try_from(chunk.compressed_size()).map_err(|_| wrong())?;
    let end = begin.checked_add(size).filter(|&end| end <= length);
    Ok(begin..end.ok_or_else(wrong)?)
}

/// Totals of a chunk according to the footer, and the bytes of memory that reading and decoding it
/// needs.
///
/// # Errors
///
/// Impossible counts, or an encrypted column.
pub(super) fn chunk_totals(
    chunk: &ColumnChunkMetaData,
    rows: u64,
) -> Result<(ChunkTotals, u64), String> {
    let size = |n: i64| u64::try_from(n).map_err(|_| "the footer has a negative size".to_owned());
    let (stored, decoded) = (
        size(chunk.compressed_size())?,
        size(chunk.uncompressed_size())?,
    );
    let values = size(chunk.num_values())?;
    let flat = chunk.column_descr().max_rep_level() == 0;
    if values < rows || (flat && values != rows) {
        return Err(format!(
            "the footer gives column {} {values} values for {rows} rows",
            chunk.column_path()
        ));
    }
    let width = match chunk.column_type() {
        Type::BOOLEAN => 1,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::BYTE_ARRAY => 16,
        Type::FIXED_LEN_BYTE_ARRAY => {
            u64::try_from(chunk.column_descr().type_length()).unwrap_or(0)
        }
    };
    // Levels, which the decoder keeps next to the values.
    let level_bytes = values.saturating_mul(width + 8);
    let delta_bytes = chunk
        .encodings()
        .any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY);
    let grown = match chunk.unencoded_byte_array_data_bytes() {
        _ if !delta_bytes => 0,
        Some(bytes) => size(bytes)?,
        None => decoded.saturating_mul(DELTA_GROWTH),
    };
    // Uncompressed pages are used in place.
    let pages = match chunk.compression() {
        Compression::UNCOMPRESSED => stored.max(decoded),
        _ => stored.saturating_add(decoded),
    };
    let totals = ChunkTotals {
        decoded,
        values,
        delta_bytes,
    };
    let bytes = [level_bytes, grown, pages];
    let bytes = bytes.into_iter().fold(0, u64::saturating_add);
    Ok((totals, bytes))
}

/// Columns to decode from every row group of a file.
#[derive(Debug)]
pub(super) struct Projection {
    /// Leaves of the schema.
    pub(super) leaves: Vec<usize>,
    levels: FieldLevels,
}

impl Projection {
    /// Selects leaves of a file, and the types that they become.
    ///
    /// # Errors
    ///
    /// The decoder's error about the schema.
    pub(super) fn new(
        metadata: &ParquetMetaData,
        leaves: Vec<usize>,
        types: &Fields,
    ) -> Result<Projection, String> {
        let schema = metadata.file_metadata().schema_descr();
        let mask = ProjectionMask::leaves(schema, leaves.iter().copied());
        let levels = decoding(|| parquet_to_arrow_field_levels(schema, mask, Some(types)))?;
        Ok(Projection { leaves, levels })
    }
}

/// Bytes of a row group's chunks, by leaf.
pub(super) struct GroupChunks<'a> {
    pub(super) metadata: &'a ParquetMetaData,
    pub(super) group: usize,
    /// First byte in the file, and the bytes.
    pub(super) bytes: HashMap<usize, (u64, Bytes)>,
}

impl GroupChunks<'_> {
    /// Decodes the group, after comparing its pages with the footer.
    ///
    /// # Errors
    ///
    /// The inconsistency, with the column. `most_bytes` is the number of admitted bytes.
    pub(super) fn decode(
        &self,
        wanted: &Projection,
        most_bytes: u64,
    ) -> Result<Vec<RecordBatch>, String> {
        let group = self.metadata.row_group(self.group);
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        let (mut largest, mut grows) = (1, false);
        for &leaf in &wanted.leaves {
            let chunk = group.column(leaf);
            let (_, bytes) = self.bytes.get(&leaf).ok_or("a column chunk is missing")?;
            let (totals, _) = chunk_totals(chunk, rows)?;
            let page = pages::verify(bytes, totals);
            let page = page.map_err(|problem| {
                let column = chunk.column_path();
                format!("column {column}: {problem}")
            })?;
            if totals.delta_bytes {
                (grows, largest) = (true, page.max(largest));
            }
        }
        let step = match grows {
            true => (STEP_BYTES / largest).clamp(1, 4096).min(rows),
            false => rows,
        };
        self.batches(wanted, step as usize, usize::MAX, most_bytes)
    }

    /// Decodes the first `most` batches of `rows` rows.
    pub(super) fn batches(
        &self,
        wanted: &Projection,
        rows: usize,
        most: usize,
        most_bytes: u64,
    ) -> Result<Vec<RecordBatch>, String> {
        decoding(|| {
            let levels = &wanted.levels;
            let reader =
                ParquetRecordBatchReader::try_new_with_row_groups(levels, self, rows, None)?;
            let mut batches = Vec::new();
            let (mut held, mut known) = (0_u64, HashSet::new());
            for batch in reader.take(most) {
                let batch = batch?;
                for column in batch.columns() {
                    held = held.saturating_add(own_bytes(column, &mut known));
                }
                if held > most_bytes {
                    let problem =
                        format!("it decodes to more than the {most_bytes} bytes of its footer");
                    return Err(ParquetError::General(problem));
                }
                batches.push(batch);
            }
            Ok(batches)
        })
    }
}

/// Bytes of a column that no earlier batch holds: several batches share pages.
fn own_bytes(column: &dyn Array, known: &mut HashSet<*const u8>) -> u64 {
    let mut fresh = |views: usize, buffers: &[Buffer]| {
        let buffers = buffers
            .iter()
            .filter(|buffer| known.insert(buffer.as_ptr()));
        let bytes: usize = buffers.map(|buffer| buffer.len()).sum();
        (views * 16 + bytes) as u64
    };
    if let Some(column) = column.as_binary_view_opt() {
        return fresh(column.len(), column.data_buffers());
    }
    if let Some(column) = column.as_string_view_opt() {
        return fresh(column.len(), column.data_buffers());
    }
    if let Some(column) = column.as_struct_opt() {
        let children = column.columns().iter();
        return children.map(|child| own_bytes(child, known)).sum();
    }
    column.to_data().get_slice_memory_size().unwrap_or(0) as u64
}

impl RowGroups for GroupChunks<'_> {
    fn num_rows(&self) -> usize {
        self.metadata.row_group(self.group).num_rows() as usize
    }

    fn column_chunks(&self, leaf: usize) -> ParquetResult<Box<dyn PageIterator>> {
        let missing = || ParquetError::General("a column chunk is missing".to_owned());
        let (start, bytes) = self.bytes.get(&leaf).ok_or_else(missing)?;
        let chunk = self.metadata.row_group(self.group).column(leaf);
        let file = Arc::new(ChunkBytes {
            start: *start,
            bytes: bytes.clone(),
        });
        let inner = SerializedPageReader::new(file, chunk, self.num_rows(), None)?;
        let descr = chunk.column_descr();
        let pages = CheckedPages {
            inner,
            levels: [descr.max_rep_level() > 0, descr.max_def_level() > 0],
            bytes: chunk.column_type() == Type::BYTE_ARRAY,
        };
        Ok(Box::new(SingleChunk(Some(Box::new(pages)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

/// The bytes of one column chunk.
#[derive(Debug)]
struct ChunkBytes {
    start: u64,
    bytes: Bytes,
}

impl ChunkBytes {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let at = start
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|&at| at <= self.bytes.len());
        let outside = || ParquetError::EOF("outside the column chunk".to_owned());
        Ok(self.bytes.slice(at.ok_or_else(outside)?..))
    }
}

impl Length for ChunkBytes {
    fn len(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

impl ChunkReader for ChunkBytes {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.from(start)?;
        if length > bytes.len() {
            return Err(ParquetError::EOF("outside the column chunk".to_owned()));
        }
        Ok(bytes.slice(..length))
    }
}

/// Iterator over the single chunk of a column in a row group.
struct SingleChunk(Option<Box<dyn PageReader>>);

impl Iterator for SingleChunk {
    type Item = ParquetResult<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for SingleChunk {}

/// Pages whose delta-encoded lengths are counted before the decoder allocates memory for them.
struct CheckedPages {
    inner: SerializedPageReader<ChunkBytes>,
    /// Whether pages have repetition and definition levels.
    levels: [bool; 2],
    bytes: bool,
}

impl CheckedPages {
    fn check(&self, page: &Page) -> Option<()> {
        let (values, count, encoding) = match page {
            Page::DataPage {
                buf,
                num_values,
                encoding,
                ..
            } => {
                let mut rest: &[u8] = buf;
                if self.delta(*encoding) {
                    for _ in self.levels.iter().filter(|&&has| has) {
                        let (length, behind) = rest.split_first_chunk::<4>()?;
                        rest = behind.get(u32::from_le_bytes(*length) as usize..)?;
                    }
                }
                (rest, *num_values, *encoding)
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => {
                let levels = def_levels_byte_len.checked_add(*rep_levels_byte_len)?;
                (buf.get(levels as usize..)?, *num_values, *encoding)
            }
            Page::DictionaryPage { .. } => return Some(()),
        };
        if !self.delta(encoding) || values.is_empty() {
            return Some(());
        }
        let says = pages::delta_count(values)?;
        (says <= u64::from(count)).then_some(())
    }

    fn delta(&self, encoding: Encoding) -> bool {
        self.bytes
            && [pages::DELTA_LENGTH, pages::DELTA_BYTES].contains(&i64::from(encoding as i32))
    }
}

impl Iterator for CheckedPages {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.inner.get_next_page()?;
        match &page {
            Some(page) if self.check(page).is_none() => {
                debug_assert_ne!(page.page_type(), PageType::DICTIONARY_PAGE);
                let problem = "a page has different numbers of lengths and values".to_owned();
                Err(ParquetError::General(problem))
            }
            _ => Ok(page),
        }
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.inner.skip_next_page()
    }
}
