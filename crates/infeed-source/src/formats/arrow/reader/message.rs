//! Locates the messages of an Arrow IPC file or stream, and checks their claims.
//!
//! Source: the Arrow columnar format, "Serialization and Interprocess Communication". The library
//! that decodes batches trusts some lengths and offsets, so this module compares all of them with
//! the bytes of the file first.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{Block, Message, MessageHeader, MetadataVersion, RecordBatch, root_as_footer};
use arrow_schema::{DataType, Schema, SchemaRef, UnionMode};
use bytes::Bytes;

use crate::columns::table::contain_panic;
use crate::shards::index::invalid;
use crate::store::Blob;

/// Maximum bytes of the metadata of a message or footer.
const METADATA_BYTES: u64 = 64 << 20;

/// Maximum bytes of the dictionaries of a file, which stay in memory.
const DICTIONARY_BYTES: u64 = 256 << 20;

/// Bytes read together with the head of a message, for the rest of the message.
const AHEAD: u64 = 16 << 10;

const CONTINUATION: [u8; 4] = [0xFF; 4];

/// First and last bytes of a file.
const MAGIC: &[u8] = b"ARROW1";

/// Dictionaries that a batch may refer to.
pub(super) type Dictionaries = Arc<HashMap<i64, ArrayRef>>;

/// A record batch in a file.
#[derive(Clone, Debug)]
pub(super) struct BatchLocation {
    pub(super) message: Range<u64>,
    pub(super) body: Range<u64>,
    pub(super) rows: u64,
    /// Bytes of memory that reading the batch holds: as stored, and decoded where that differs.
    pub(super) bytes: u64,
    /// Whether the buffers can be used in place in a map of the file.
    pub(super) in_place: bool,
    pub(super) dictionaries: Dictionaries,
}

/// Schema and batches of a file.
#[derive(Debug)]
pub(super) struct FileIndex {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<BatchLocation>,
}

/// Reads a file in pieces, with some bytes of read-ahead.
struct MessageReader<'a> {
    blob: &'a dyn Blob,
    kept: (u64, Bytes),
}

impl MessageReader<'_> {
    fn get(&mut self, range: Range<u64>) -> io::Result<Bytes> {
        let length = self.blob.len();
        if range.start > range.end || range.end > length {
            let problem = format!(
                "it ends at byte {length}, before {}: it may be truncated",
                range.end
            );
            return Err(invalid(problem));
        }
        let (start, bytes) = &self.kept;
        if range.start < *start || range.end > start + bytes.len() as u64 {
            let end = range.end.max(range.start.saturating_add(AHEAD)).min(length);
            self.kept = (range.start, self.blob.read(range.start..end)?);
        }
        let (start, bytes) = &self.kept;
        Ok(bytes.slice((range.start - start) as usize..(range.end - start) as usize))
    }

    /// Range of the metadata of the message at `at`; None at the end of a stream.
    fn message(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        let length = self.blob.len();
        if at == length {
            // A stream may end without an end mark.
            return Ok(None);
        }
        let word = |bytes: Bytes| <[u8; 4]>::try_from(&bytes[..]).unwrap_or_default();
        let mut begin = at + 4;
        let mut size = word(self.get(at..begin)?);
        if size == CONTINUATION {
            size = word(self.get(begin..begin + 4)?);
            begin += 4;
        }
        let size = u64::from(u32::from_le_bytes(size));
        if size == 0 {
            return Ok(None);
        }
        if size > METADATA_BYTES {
            let problem = format!("the message at byte {at} has {size} bytes of metadata");
            return Err(invalid(problem));
        }
        Ok(Some(begin..begin + size))
    }
}

/// Parses the metadata of a message.
pub(super) fn parse(bytes: &[u8]) -> Result<Message<'_>, String> {
    arrow_ipc::root_as_message(bytes).map_err(|error| format!("a message is invalid: {error}"))
}

/// Indexes a file; `columns` are those that will be read.
///
/// # Errors
///
/// The storage's error, or [`io::ErrorKind::InvalidData`] with offset and reason.
pub(super) fn index(blob: &dyn Blob, columns: Option<&[String]>) -> io::Result<FileIndex> {
    let kept = (0, Bytes::new());
    let mut pieces = MessageReader { blob, kept };
    let magic = MAGIC.len() as u64;
    match blob.len() > magic && pieces.get(0..magic)? == MAGIC {
        true => file(&mut pieces, columns),
        false => stream(&mut pieces, columns),
    }
}

fn stream(pieces: &mut MessageReader<'_>, columns: Option<&[String]>) -> io::Result<FileIndex> {
    let mut scan: Option<FileScan> = None;
    let mut at = 0;
    while let Some(metadata) = pieces.message(at)? {
        let bytes = pieces.get(metadata.clone())?;
        let here = |problem: String| invalid(format!("the message at byte {at}: {problem}"));
        let message = parse(&bytes).map_err(here)?;
        let length = u64::try_from(message.bodyLength());
        let length = length.map_err(|_| here("its body has a negative length".to_owned()))?;
        let end = metadata.end.checked_add(length);
        let end = end.filter(|&end| end <= pieces.blob.len()).ok_or_else(|| {
            here(format!(
                "its body of {length} bytes exceeds the file: it may be truncated"
            ))
        })?;
        let body = metadata.end..end;
        match (message.header_type(), &mut scan) {
            (MessageHeader::Schema, None) => {
                let schema = message.header_as_schema();
                let schema = schema.ok_or_else(|| here("it has no schema".to_owned()))?;
                scan = Some(FileScan::new(schema, columns).map_err(here)?);
            }
            (MessageHeader::DictionaryBatch, Some(scan)) => {
                scan.dictionary(pieces, &message, body)?;
            }
            (MessageHeader::RecordBatch, Some(scan)) => {
                scan.batch(pieces, &message, metadata, body)?;
            }
            (kind, _) => return Err(here(format!("{kind:?} is not expected here"))),
        }
        at = end;
    }
    let scan = scan.ok_or_else(|| invalid("it is neither an Arrow file nor a stream"))?;
    Ok(scan.index)
}

fn file(pieces: &mut MessageReader<'_>, columns: Option<&[String]>) -> io::Result<FileIndex> {
    let length = pieces.blob.len();
    let cut = || invalid("it does not end like an Arrow file: it may be truncated");
    let tail = length.checked_sub(10).ok_or_else(cut)?;
    let end = pieces.get(tail..length)?;
    if &end[4..] != MAGIC {
        return Err(cut());
    }
    let size = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    let begin = tail.checked_sub(size).filter(|_| size <= METADATA_BYTES);
    let begin = begin.ok_or_else(|| invalid("its footer is larger than the file"))?;
    let footer = pieces.get(begin..tail)?;
    let footer = root_as_footer(&footer)
        .map_err(|error| invalid(format!("its footer cannot be read: {error}")))?;
    let schema = footer
        .schema()
        .ok_or_else(|| invalid("its footer has no schema"))?;
    let mut scan = FileScan::new(schema, columns).map_err(invalid)?;
    for block in footer.dictionaries().into_iter().flatten() {
        let (metadata, body) = block_ranges(pieces, block)?;
        let bytes = pieces.get(metadata)?;
        scan.dictionary(pieces, &parse(&bytes).map_err(invalid)?, body)?;
    }
    for block in footer.recordBatches().into_iter().flatten() {
        let (metadata, body) = block_ranges(pieces, block)?;
        let bytes = pieces.get(metadata.clone())?;
        scan.batch(pieces, &parse(&bytes).map_err(invalid)?, metadata, body)?;
    }
    Ok(scan.index)
}

/// Ranges of metadata and body of the message that a footer names.
fn block_ranges(
    pieces: &mut MessageReader<'_>,
    block: &Block,
) -> io::Result<(Range<u64>, Range<u64>)> {
    let wrong = || {
        invalid(format!(
            "its footer points to byte {}, which is not a message",
            block.offset()
        ))
    };
    let number = |number: i64| u64::try_from(number).map_err(|_| wrong());
    let begin = number(block.offset())?;
    let metadata = pieces.message(begin)?.ok_or_else(wrong)?;
    let middle = begin.checked_add(number(block.metaDataLength().into())?);
    let middle = middle
        .filter(|&middle| middle >= metadata.end)
        .ok_or_else(wrong)?;
    let end = middle.checked_add(number(block.bodyLength())?);
    let end = end
        .filter(|&end| end <= pieces.blob.len())
        .ok_or_else(wrong)?;
    Ok((metadata, middle..end))
}

/// State of indexing a file.
struct FileScan {
    index: FileIndex,
    /// Columns of the schema that will be read.
    wanted: Vec<bool>,
    /// Whether buffers hold 16-byte views.
    views: bool,
    dictionaries: Dictionaries,
    dictionary_bytes: u64,
}

impl FileScan {
    fn new(schema: arrow_ipc::Schema<'_>, columns: Option<&[String]>) -> Result<FileScan, String> {
        if !schema.endianness().equals_to_target_endianness() {
            return Err("its numbers are big-endian".to_owned());
        }
        let schema = contain_panic(|| try_fb_to_schema(schema).map_err(|error| error.to_string()))?;
        let wanted = |name: &String| columns.is_none_or(|columns| columns.contains(name));
        let wanted = schema.fields().iter().map(|field| wanted(field.name()));
        let wanted: Vec<bool> = wanted.collect();
        let mut fields = schema.fields().iter().zip(&wanted);
        Ok(FileScan {
            views: fields.any(|(field, &wanted)| wanted && has_views(field.data_type())),
            wanted,
            dictionaries: Arc::default(),
            dictionary_bytes: 0,
            index: FileIndex {
                schema: Arc::new(schema),
                batches: Vec::new(),
            },
        })
    }

    fn dictionary(
        &mut self,
        pieces: &mut MessageReader<'_>,
        message: &Message<'_>,
        body: Range<u64>,
    ) -> io::Result<()> {
        let at = body.start;
        let here = |problem: String| invalid(format!("the dictionary at byte {at}: {problem}"));
        let dictionary = message.header_as_dictionary_batch();
        let dictionary = dictionary.ok_or_else(|| here("it has no header".to_owned()))?;
        let data = dictionary
            .data()
            .ok_or_else(|| here("it is empty".to_owned()))?;
        let length = body.end - body.start;
        check(&data, length).map_err(here)?;
        // Delta dictionaries are copied into new ones, so the old ones count too.
        let limit = || {
            here(format!(
                "the dictionaries take over {DICTIONARY_BYTES} bytes"
            ))
        };
        self.dictionary_bytes = self.dictionary_bytes.saturating_add(length);
        if self.dictionary_bytes > DICTIONARY_BYTES {
            return Err(limit());
        }
        let bytes = pieces.get(body)?;
        let decoded = decoded_bytes(&data, &mut |range| Ok(bytes.slice(as_usize(range))))?;
        self.dictionary_bytes = self.dictionary_bytes.saturating_add(decoded.iter().sum());
        if self.dictionary_bytes > DICTIONARY_BYTES {
            return Err(limit());
        }
        let mut all = HashMap::clone(&self.dictionaries);
        let (schema, version) = (&self.index.schema, message.version());
        contain_panic(|| {
            let bytes = Buffer::from(bytes);
            read_dictionary(&bytes, dictionary, schema, &mut all, &version)
                .map_err(|error| error.to_string())
        })
        .map_err(here)?;
        self.dictionaries = Arc::new(all);
        Ok(())
    }

    fn batch(
        &mut self,
        pieces: &mut MessageReader<'_>,
        message: &Message<'_>,
        metadata: Range<u64>,
        body: Range<u64>,
    ) -> io::Result<()> {
        let at = body.start;
        let here = |problem: String| invalid(format!("the batch at byte {at}: {problem}"));
        let batch = message.header_as_record_batch();
        let batch = batch.ok_or_else(|| here("it has no header".to_owned()))?;
        let length = body.end - body.start;
        check(&batch, length).map_err(here)?;
        self.check_rows(&batch).map_err(here)?;
        let wanted = self
            .wanted_buffers(&batch, message.version())
            .map_err(here)?;
        let buffers = batch.buffers().into_iter().flatten().zip(&wanted);
        let need = if self.views { 16 } else { 8 };
        let aligned = |offset: i64| (at + offset as u64).is_multiple_of(need);
        let mut used = buffers.filter(|(buffer, wanted)| **wanted && buffer.length() > 0);
        let aligned = used.all(|(buffer, _)| aligned(buffer.offset()));
        let compressed = batch.compression().is_some();
        let decoded = decoded_bytes(&batch, &mut |range| {
            pieces.get(at + range.start..at + range.end)
        })?;
        let decoded = decoded.iter().zip(&wanted).filter(|(_, wanted)| **wanted);
        let decoded = decoded.fold(0_u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let rows = batch.length() as u64;
        if rows > decoded.saturating_mul(8) {
            return Err(here(format!("{rows} rows do not fit in {decoded} bytes")));
        }
        let copied = if compressed || !aligned || self.views {
            decoded
        } else {
            0
        };
        self.index.batches.push(BatchLocation {
            bytes: (body.end - metadata.start).saturating_add(copied),
            message: metadata,
            body,
            rows,
            in_place: aligned && !compressed,
            dictionaries: Arc::clone(&self.dictionaries),
        });
        Ok(())
    }

    /// Compares the number of rows of a batch with the length of each of its columns. A batch with
    /// a damaged number of rows would otherwise lose rows without an error.
    fn check_rows(&self, batch: &RecordBatch<'_>) -> Result<(), String> {
        let mut nodes = batch.nodes().into_iter().flatten();
        for field in self.index.schema.fields() {
            let Some(node) = nodes.next() else {
                return Err("it has fewer columns than its schema".to_owned());
            };
            if node.length() != batch.length() {
                return Err(format!(
                    "it has {} rows, but its column `{}` has {}",
                    batch.length(),
                    field.name(),
                    node.length()
                ));
            }
            // The nodes of nested types follow, each type before its children.
            for _ in 1..nodes_of(field.data_type()) {
                nodes.next();
            }
        }
        Ok(())
    }

    /// Marks the buffers of a batch that belong to columns that will be read.
    fn wanted_buffers(
        &self,
        batch: &RecordBatch<'_>,
        version: MetadataVersion,
    ) -> Result<Vec<bool>, String> {
        let total = batch.buffers().map_or(0, |buffers| buffers.len());
        let mut variadic = batch.variadicBufferCounts().into_iter().flatten();
        let mut all = Vec::with_capacity(total);
        for (field, &wanted) in self.index.schema.fields().iter().zip(&self.wanted) {
            let count = buffers_of(field.data_type(), version, &mut variadic)
                .filter(|count| all.len() + count <= total)
                .ok_or("it has fewer buffers than its schema")?;
            all.resize(all.len() + count, wanted);
        }
        Ok(all)
    }
}

fn as_usize(range: Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Checks that the lengths and buffers of a batch are within a body of `length` bytes.
pub(super) fn check(batch: &RecordBatch<'_>, length: u64) -> Result<(), String> {
    // Rejects row counts that overflow as a number of bits before they are used.
    let rows = |n: i64| u64::try_from(n).is_ok_and(|n| n <= u64::from(u32::MAX) << 8);
    if !rows(batch.length()) {
        return Err(format!("it cannot have {} rows", batch.length()));
    }
    for node in batch.nodes().into_iter().flatten() {
        if !rows(node.length()) || node.null_count() < 0 || node.null_count() > node.length() {
            return Err("a column has an impossible length".to_owned());
        }
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let range = u64::try_from(buffer.offset())
            .ok()
            .zip(u64::try_from(buffer.length()).ok());
        let end = range.and_then(|(offset, bytes)| offset.checked_add(bytes));
        if end.is_none_or(|end| end > length) {
            return Err("a buffer is outside its body".to_owned());
        }
    }
    Ok(())
}

/// Bytes of each buffer of a checked batch once it is decompressed, according to the first bytes of
/// the buffer, which `get` reads.
fn decoded_bytes(
    batch: &RecordBatch<'_>,
    get: &mut dyn FnMut(Range<u64>) -> io::Result<Bytes>,
) -> io::Result<Vec<u64>> {
    let compressed = batch.compression().is_some();
    let buffers = batch.buffers().into_iter().flatten();
    let decoded = buffers.map(|buffer| {
        let (offset, length) = (buffer.offset() as u64, buffer.length() as u64);
        if !compressed || length == 0 {
            return Ok(length);
        }
        if length < 8 {
            return Err(invalid("a compressed buffer lacks its length"));
        }
        let bytes = get(offset..offset + 8)?;
        match i64::from_le_bytes(bytes[..].try_into().unwrap_or_default()) {
            -1 => Ok(length - 8),
            decoded => u64::try_from(decoded)
                .map_err(|_| invalid("a compressed buffer has a negative length")),
        }
    });
    decoded.collect()
}

/// Number of field nodes of a column in a batch's metadata: one for the column and one for each
/// nested column (Arrow columnar format, "RecordBatch message").
fn nodes_of(data_type: &DataType) -> usize {
    1 + match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => nodes_of(item.data_type()),
        DataType::Struct(fields) => fields.iter().map(|f| nodes_of(f.data_type())).sum(),
        DataType::Union(fields, _) => fields.iter().map(|(_, f)| nodes_of(f.data_type())).sum(),
        DataType::RunEndEncoded(ends, values) => {
            nodes_of(ends.data_type()) + nodes_of(values.data_type())
        }
        _ => 0,
    }
}

fn has_views(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_views(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_views(field.data_type())),
        _ => false,
    }
}

/// Number of buffers of a column of a type in a batch.
fn buffers_of(
    data_type: &DataType,
    version: MetadataVersion,
    variadic: &mut dyn Iterator<Item = i64>,
) -> Option<usize> {
    let mut children = |fields: &mut dyn Iterator<Item = &DataType>, own: usize| {
        let mut sum = own;
        for field in fields {
            sum = sum.checked_add(buffers_of(field, version, variadic)?)?;
        }
        Some(sum)
    };
    match data_type {
        DataType::Null => Some(0),
        DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => Some(3),
        DataType::Utf8View | DataType::BinaryView => {
            usize::try_from(variadic.next()?).ok()?.checked_add(2)
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            children(&mut [item.data_type()].into_iter(), 2)
        }
        DataType::ListView(item) | DataType::LargeListView(item) => {
            children(&mut [item.data_type()].into_iter(), 3)
        }
        DataType::FixedSizeList(item, _) => children(&mut [item.data_type()].into_iter(), 1),
        DataType::Struct(fields) => children(&mut fields.iter().map(|field| field.data_type()), 1),
        DataType::RunEndEncoded(ends, values) => {
            children(&mut [ends.data_type(), values.data_type()].into_iter(), 0)
        }
        DataType::Union(fields, mode) => {
            let own = 1 + usize::from(version < MetadataVersion::V5);
            let own = own + usize::from(*mode == UnionMode::Dense);
            children(&mut fields.iter().map(|(_, field)| field.data_type()), own)
        }
        _ => Some(2),
    }
}

/// Decodes the columns of a projection of a batch from the message's metadata and body.
///
/// # Errors
///
/// The inconsistency. `most_bytes` limits the bytes of decompressed buffers.
pub(super) fn decode(
    metadata: &[u8],
    body: Bytes,
    schema: &SchemaRef,
    projection: &[usize],
    dictionaries: &Dictionaries,
    most_bytes: u64,
) -> Result<arrow_array::RecordBatch, String> {
    let message = parse(metadata)?;
    let batch = message
        .header_as_record_batch()
        .ok_or("it is not a batch")?;
    check(&batch, body.len() as u64)?;
    if batch.compression().is_some() {
        let decoded = decoded_bytes(&batch, &mut |range| Ok(body.slice(as_usize(range))));
        let decoded = decoded.map_err(|error| error.to_string())?;
        let named = wanted_names(schema, projection);
        let scan = FileScan {
            wanted: named,
            views: false,
            dictionaries: Arc::default(),
            dictionary_bytes: 0,
            index: FileIndex {
                schema: Arc::clone(schema),
                batches: Vec::new(),
            },
        };
        let wanted = scan.wanted_buffers(&batch, message.version())?;
        let decoded = decoded.iter().zip(&wanted).filter(|(_, wanted)| **wanted);
        let decoded = decoded.fold(0_u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        if decoded > most_bytes {
            return Err("its buffers grew since the file was opened".to_owned());
        }
    }
    contain_panic(|| {
        let body = Buffer::from(body);
        let version = message.version();
        RecordBatchDecoder::try_new(&body, batch, Arc::clone(schema), dictionaries, &version)
            .and_then(|decoder| {
                decoder
                    .with_projection(Some(projection))
                    .read_record_batch()
            })
            .map_err(|error| error.to_string())
    })
}

fn wanted_names(schema: &Schema, projection: &[usize]) -> Vec<bool> {
    let count = schema.fields().len();
    (0..count).map(|at| projection.contains(&at)).collect()
}
