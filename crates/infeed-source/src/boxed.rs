//! Image files with boxes that were read when the source was opened: COCO, YOLO and Pascal VOC.

use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use super::folder::read_files;
use super::listing::Paths;
use super::{Admission, Read, ReadError, Sink, Source, fingerprint};
use infeed_core::error::Error;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record, RecordId};

/// Field of the boxes.
pub const BOXES: &str = "boxes";

/// Field of the class of each box.
pub const LABELS: &str = "labels";

/// Image files, each with its boxes.
#[derive(Debug)]
pub struct BoxedImages {
    fields: Vec<Field>,
    paths: Paths,
    /// End of each record's boxes in the lists below.
    ends: Vec<usize>,
    /// Boxes that were added.
    boxes: usize,
    /// Boxes, then the fields with values for each box.
    lists: Vec<BoxList>,
    /// The field after these, if it is a text: a JSON list with a value for each box.
    texts: Option<BoxTexts>,
    /// The last field, with one number per record.
    ids: Option<Vec<i64>>,
    classes: Option<Vec<String>>,
}

/// Values of a field for the boxes of all records, in little-endian order.
#[derive(Debug, Default)]
struct BoxList {
    /// Bytes of each box.
    box_bytes: usize,
    bytes: Vec<u8>,
}

impl BoxList {
    fn push(&mut self, bytes: &[u8]) {
        self.box_bytes = bytes.len();
        self.bytes.extend_from_slice(bytes);
    }

    fn range(&self, boxes: Range<usize>) -> Bytes {
        let bytes = boxes.start * self.box_bytes..boxes.end * self.box_bytes;
        Bytes::copy_from_slice(&self.bytes[bytes])
    }
}

/// JSON values for the boxes of all records.
#[derive(Debug, Default)]
struct BoxTexts {
    /// End of each box's value.
    ends: Vec<usize>,
    /// The values, each with a comma.
    text: Vec<u8>,
}

impl BoxTexts {
    fn push(&mut self, json: &str) {
        self.text.extend_from_slice(json.as_bytes());
        self.text.push(b',');
        self.ends.push(self.text.len());
    }

    fn range(&self, boxes: Range<usize>) -> Bytes {
        let begin = |at: usize| at.checked_sub(1).map_or(0, |before| self.ends[before]);
        let values = &self.text[begin(boxes.start)..begin(boxes.end)];
        let values = values.strip_suffix(b",").unwrap_or_default();
        Bytes::from([b"[", values, b"]"].concat())
    }
}

/// Returns the fields of every record: image, boxes, labels, and `more` fields with values for each
/// box.
pub fn fields(more: &[(&str, DType)]) -> Vec<Field> {
    let field = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
    };
    let lists = [(BOXES, DType::Float32), (LABELS, DType::Int64)];
    let lists = lists.iter().chain(more);
    let lists = lists.map(|&(name, dtype)| field(name, FieldKind::Ragged { dtype }));
    std::iter::once(field("image", FieldKind::Image(Pixels::Encoded)))
        .chain(lists)
        .collect()
}

impl BoxedImages {
    /// Starts with files that have no boxes yet. `fields` are those of [`fields`]; with `ids`, one
    /// more field follows, with a number for each record.
    pub(super) fn new(
        paths: Paths,
        fields: Vec<Field>,
        ids: Option<Vec<i64>>,
        classes: Option<Vec<String>>,
    ) -> BoxedImages {
        let is_list = |field: &&Field| matches!(field.kind, FieldKind::Ragged { .. });
        let lists = fields.iter().filter(is_list).map(|_| BoxList::default());
        let has_texts = fields.iter().any(|field| field.kind == FieldKind::Text);
        BoxedImages {
            lists: lists.collect(),
            texts: has_texts.then(BoxTexts::default),
            fields,
            boxes: 0,
            ends: Vec::with_capacity(paths.len()),
            paths,
            ids,
            classes,
        }
    }

    /// Adds a box to the next record. `values` are those of the fields after the boxes, in
    /// little-endian order; each field has the same number of bytes for every box.
    pub(super) fn push(&mut self, corners: [f64; 4], values: &[&[u8]]) {
        let corners = corners.map(|x| (x as f32).to_le_bytes());
        let values = std::iter::once(corners.as_flattened()).chain(values.iter().copied());
        for (list, value) in self.lists.iter_mut().zip(values) {
            list.push(value);
        }
        self.boxes += 1;
    }

    /// Adds the JSON value of the box that was added last.
    pub(super) fn push_text(&mut self, json: &str) {
        if let Some(texts) = &mut self.texts {
            texts.push(json);
        }
    }

    /// Ends the boxes of the next record.
    pub(super) fn end_record(&mut self) {
        self.ends.push(self.boxes);
    }

    /// Releases unused memory, after the last record.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if a record was not ended, which is a mistake of the caller.
    pub(super) fn finished(mut self) -> Result<BoxedImages, Error> {
        let has_all = self
            .texts
            .as_ref()
            .is_none_or(|texts| texts.ends.len() == self.boxes);
        if self.ends.len() != self.paths.len() || !has_all {
            let problem = "the number of records changed while they were read; open it again";
            return Err(Error::config("source", problem));
        }
        self.paths.shrink();
        for list in &mut self.lists {
            list.bytes.shrink_to_fit();
        }
        if let Some(texts) = &mut self.texts {
            texts.text.shrink_to_fit();
        }
        Ok(self)
    }
}

impl Source for BoxedImages {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> u64 {
        self.paths.len() as u64
    }

    fn id(&self, record: u64, _field: Option<usize>) -> RecordId {
        RecordId {
            index: record,
            name: self.paths.path(record as usize).display().to_string(),
        }
    }

    fn fingerprint(&self) -> u64 {
        let lists = self.lists.iter().map(|list| hash_bytes(&list.bytes));
        let numbers = |all: &[i64]| hash(&all.iter().map(|&n| n as u64).collect::<Vec<u64>>());
        let ends: Vec<u64> = self.ends.iter().map(|&end| end as u64).collect();
        let mut parts = vec![
            fingerprint(self.len(), &self.fields),
            self.paths.fingerprint(),
            hash(&lists.collect::<Vec<u64>>()),
            numbers(self.ids.as_deref().unwrap_or_default()),
            hash(&ends),
        ];
        parts.extend(self.texts.as_ref().map(|texts| hash_bytes(&texts.text)));
        hash(&parts)
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        vec![self.paths.path(record as usize)]
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn parallel_reads(&self) -> Option<usize> {
        self.paths.parallel_reads()
    }

    fn read(
        &self,
        read: &Read,
        admit: &mut Admission<'_>,
        sink: &mut Sink<'_>,
    ) -> Result<(), ReadError> {
        for &(position, record) in &read.records {
            let mut fields = read_files(record, &[&self.paths], admit)?;
            let at = record as usize;
            let own = at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at];
            fields.extend(self.lists.iter().map(|list| list.range(own.clone())));
            fields.extend(self.texts.as_ref().map(|texts| texts.range(own)));
            if let Some(ids) = &self.ids {
                fields.push(Bytes::copy_from_slice(&ids[at].to_le_bytes()));
            }
            let found = Record {
                index: record,
                fields,
            };
            sink(position, Ok(found));
        }
        Ok(())
    }
}
