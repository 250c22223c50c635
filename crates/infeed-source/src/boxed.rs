//! Image files with boxes that were read when the source was opened: COCO, YOLO, Pascal VOC and
//! LabelMe.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::folder::read_files;
use super::left_out::LeftOut;
use super::listing::Paths;
use super::{Admission, Read, ReadError, Sink, Source, admitted, fingerprint};
use infeed_codec::decode::{ColorMode, DecodeError, Decoder, Limits, Request};
use infeed_codec::instances::{self, CocoMaskError};
use infeed_codec::transform::MAX_PIXELS;
use infeed_core::error::Error;
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::{DType, Field, FieldKind, Image, Pixels, Record, RecordId, Size};

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
    /// The field after these, if it is a text: a JSON list with the mask of each box.
    masks: Option<BoxMasks>,
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

/// Masks of boxes.
#[derive(Debug)]
enum BoxMasks {
    Texts(BoxTexts),
    Segments(Box<BoxSegments>),
}

/// An image file for each record, whose pixels are the numbers of segments, and the number of each
/// box.
#[derive(Debug)]
struct BoxSegments {
    paths: Paths,
    /// Size of each record's image.
    sizes: Vec<Size>,
    numbers: Vec<u32>,
}

/// Reason why the segments of a record cannot be read.
#[derive(Debug, thiserror::Error)]
enum SegmentsError {
    #[error("cannot decode {path}")]
    Decode { path: String, source: DecodeError },
    #[error(
        "{path} has {found} pixels, but its annotation says {expected}; correct the file, or its annotation"
    )]
    Size {
        path: String,
        found: Size,
        expected: Size,
    },
    #[error("{path} {error}")]
    Mask { path: String, error: CocoMaskError },
    #[error("the masks of {path} are no JSON")]
    Text {
        path: String,
        source: serde_json::Error,
    },
}

impl BoxSegments {
    /// Maximum memory for the pixels and the masks of a record.
    fn scratch_bytes(&self, record: usize) -> u64 {
        self.sizes[record].pixels() * 3 + instances::segments_bytes(self.sizes[record])
    }

    /// Returns the JSON list of the masks of a record, whose file has these bytes.
    fn text(
        &self,
        record: usize,
        file: &[u8],
        boxes: Range<usize>,
    ) -> Result<Bytes, SegmentsError> {
        let path = || self.paths.path(record).display().to_string();
        let mut image = Image::default();
        let mut decoder = Decoder::new();
        let max_pixels = MAX_PIXELS;
        let decode = |source| SegmentsError::Decode {
            path: path(),
            source,
        };
        let header = decoder.header(file, false, &Limits { max_pixels });
        let header = header.map_err(decode)?;
        let (found, expected) = (header.size, self.sizes[record]);
        if found != expected {
            let path = path();
            return Err(SegmentsError::Size {
                path,
                found,
                expected,
            });
        }
        let request = Request::whole(&header, ColorMode::Rgb);
        let decoded = decoder.decode(file, &header, &request, &mut image);
        decoded.map_err(decode)?;
        let masks = instances::segments(&image, &self.numbers[boxes]);
        let masks = masks.map_err(|error| SegmentsError::Mask {
            path: path(),
            error,
        })?;
        let text = serde_json::to_vec(&masks).map_err(|source| SegmentsError::Text {
            path: path(),
            source,
        })?;
        Ok(text.into())
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
            masks: has_texts.then(|| BoxMasks::Texts(BoxTexts::default())),
            fields,
            boxes: 0,
            ends: Vec::with_capacity(paths.len()),
            paths,
            ids,
            classes,
        }
    }

    /// Takes the masks from an image file of this size for each record, whose pixels are the numbers
    /// of segments.
    pub(super) fn with_segments(mut self, paths: Paths, sizes: Vec<Size>) -> BoxedImages {
        let segments = BoxSegments {
            paths,
            sizes,
            numbers: Vec::new(),
        };
        self.masks = Some(BoxMasks::Segments(Box::new(segments)));
        self
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
        if let Some(BoxMasks::Texts(texts)) = &mut self.masks {
            texts.push(json);
        }
    }

    /// Adds the number of the segment of the box that was added last.
    pub(super) fn push_segment(&mut self, number: u32) {
        if let Some(BoxMasks::Segments(segments)) = &mut self.masks {
            segments.numbers.push(number);
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
        let has_all = match &self.masks {
            None => true,
            Some(BoxMasks::Texts(texts)) => texts.ends.len() == self.boxes,
            Some(BoxMasks::Segments(segments)) => {
                segments.numbers.len() == self.boxes && segments.paths.len() == self.paths.len()
            }
        };
        if self.ends.len() != self.paths.len() || !has_all {
            let problem = "the number of records changed while they were read; open it again";
            return Err(Error::config("source", problem));
        }
        self.paths.shrink();
        for list in &mut self.lists {
            list.bytes.shrink_to_fit();
        }
        match &mut self.masks {
            None => {}
            Some(BoxMasks::Texts(texts)) => texts.text.shrink_to_fit(),
            Some(BoxMasks::Segments(segments)) => segments.paths.shrink(),
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

    fn id(&self, record: u64, field: Option<usize>) -> RecordId {
        // Only images and segments have files.
        let paths = match (&self.masks, field) {
            (Some(BoxMasks::Segments(segments)), Some(1)) => &segments.paths,
            _ => &self.paths,
        };
        RecordId {
            index: record,
            name: paths.path(record as usize).display().to_string(),
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
        match &self.masks {
            None => {}
            Some(BoxMasks::Texts(texts)) => parts.push(hash_bytes(&texts.text)),
            Some(BoxMasks::Segments(segments)) => {
                let BoxSegments { paths, numbers, .. } = &**segments;
                let numbers: Vec<u64> = numbers.iter().map(|&number| number.into()).collect();
                parts.extend([paths.fingerprint(), hash(&numbers)]);
            }
        }
        hash(&parts)
    }

    fn name(&self, record: u64) -> Option<String> {
        Some(self.paths.name(record as usize))
    }

    fn files(&self, record: u64) -> Vec<PathBuf> {
        let segments = match &self.masks {
            Some(BoxMasks::Segments(segments)) => Some(segments.paths.path(record as usize)),
            _ => None,
        };
        let image = self.paths.path(record as usize);
        std::iter::once(image).chain(segments).collect()
    }

    fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    fn left_out(&self) -> Vec<LeftOut> {
        self.paths.left_out().to_vec()
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
            let at = record as usize;
            let own = at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at];
            let (mut fields, masks) = match &self.masks {
                None => (read_files(record, &[&self.paths], admit)?, None),
                Some(BoxMasks::Texts(texts)) => {
                    let fields = read_files(record, &[&self.paths], admit)?;
                    (fields, Some(texts.range(own.clone())))
                }
                Some(BoxMasks::Segments(segments)) => {
                    let scratch = segments.scratch_bytes(at);
                    let mut with_scratch = |bytes: u64| admit(bytes.saturating_add(scratch));
                    let lists = [&self.paths, &segments.paths];
                    let mut fields = read_files(record, &lists, &mut with_scratch)?;
                    let file = fields.pop().unwrap_or_default();
                    let text = segments.text(at, &file, own.clone());
                    drop(file);
                    match text {
                        Ok(text) => {
                            let held = fields.iter().map(Bytes::len).sum::<usize>() + text.len();
                            admitted(admit, record, held as u64)?;
                            (fields, Some(text))
                        }
                        Err(error) => {
                            sink(position, Err(Arc::new(error)));
                            continue;
                        }
                    }
                }
            };
            fields.extend(self.lists.iter().map(|list| list.range(own.clone())));
            fields.extend(masks);
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
