//! Image files with boxes that were read when the source was opened: COCO, YOLO, Pascal VOC and
//! LabelMe.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use super::annotations::{AnnotationRoom, reserve};
use super::folder::read_files;
use super::left_out::LeftOut;
use super::paths::Paths;
use super::{Admission, Read, ReadError, RecordResult, Sink, Source, admit_read, fingerprint};
use infeed_codec::decode::{ColorMode, DecodeError, Decoder, Limits, Request};
use infeed_codec::instances::{self, CocoMaskError};
use infeed_codec::transform::MAX_PIXELS;
use infeed_core::error::{Cause, Error};
use infeed_core::random::{hash, hash_bytes};
use infeed_core::sample::{DType, Field, FieldKind, Image, Pixels, Record, RecordId, Size};

/// Field of the boxes.
pub const BOXES: &str = "boxes";

/// Field of the class of each box.
pub const LABELS: &str = "labels";

/// Image that the coordinates of annotations refer to, if the EXIF orientation of a file turns it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnnotatedImage {
    /// Unknown: the stored pixels or the image as viewers show it.
    #[default]
    Any,
    /// The stored pixels.
    Stored,
    /// The image as viewers show it.
    Displayed,
}

/// Image files, each with its boxes.
#[derive(Debug)]
pub struct BoxedImages {
    fields: Vec<Field>,
    paths: Paths,
    /// Size of each image that its annotations state, 0x0 if unknown. Empty if none states a size.
    sizes: Vec<Size>,
    /// Image to which these sizes must refer.
    annotated: AnnotatedImage,
    /// End of each record's boxes in the lists below.
    ends: Vec<usize>,
    /// Boxes that were added.
    boxes: usize,
    /// Bytes of the values of all boxes, and their limit.
    value_bytes: u64,
    room: AnnotationRoom,
    /// Records without boxes because their annotations cannot be used, with the reason.
    bad: HashMap<u64, Cause>,
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
    fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.box_bytes = bytes.len();
        reserve(&mut self.bytes, bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
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
    numbers: Vec<u32>,
}

/// A size in annotations that contradicts the image.
#[derive(Debug, thiserror::Error)]
enum SizeError {
    #[error(
        "its annotations are for an image of {stated} px, but the file has {stored} px, so its boxes \
         belong to another version of the image; use the annotated file, or correct the size in \
         the annotations if the boxes fit"
    )]
    Other { stated: Size, stored: Size },
    #[error(
        "its annotations are for {stated} px, the image as viewers show it, but the file has \
         {stored} px and an EXIF orientation that turns it; use .decode(orient=True), without \
         oriented=False"
    )]
    Turned { stated: Size, stored: Size },
    #[error(
        "its annotations are for the {stated} px that the file stores, but its boxes are declared \
         for the image as viewers show it, which has {displayed} px; declare them with \
         .boxes(\"{BOXES}\", oriented=False, ...)"
    )]
    NotTurned { stated: Size, displayed: Size },
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
    /// Returns the JSON list of the masks of a record, whose image has this size, from the bytes of
    /// its file.
    fn text(
        &self,
        record: usize,
        expected: Size,
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
        let found = header.size;
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
    fn push(&mut self, json: &str) -> Result<(), String> {
        reserve(&mut self.text, json.len() + 1)?;
        reserve(&mut self.ends, 1)?;
        self.text.extend_from_slice(json.as_bytes());
        self.text.push(b',');
        self.ends.push(self.text.len());
        Ok(())
    }

    /// Returns the values of some boxes, each with a comma.
    fn bytes(&self, boxes: Range<usize>) -> &[u8] {
        let begin = |at: usize| at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin(boxes.start)..begin(boxes.end)]
    }

    fn range(&self, boxes: Range<usize>) -> Bytes {
        let values = self.bytes(boxes).strip_suffix(b",").unwrap_or_default();
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
        room: AnnotationRoom,
    ) -> BoxedImages {
        let is_list = |field: &&Field| matches!(field.kind, FieldKind::Ragged { .. });
        let lists = fields.iter().filter(is_list).map(|_| BoxList::default());
        let has_texts = fields.iter().any(|field| field.kind == FieldKind::Text);
        BoxedImages {
            lists: lists.collect(),
            masks: has_texts.then(|| BoxMasks::Texts(BoxTexts::default())),
            fields,
            boxes: 0,
            value_bytes: 0,
            room,
            bad: HashMap::new(),
            ends: Vec::with_capacity(paths.len()),
            paths,
            sizes: Vec::new(),
            annotated: AnnotatedImage::Any,
            ids,
            classes,
        }
    }

    /// Sets the names of the classes.
    pub(super) fn with_classes(mut self, classes: Vec<String>) -> BoxedImages {
        self.classes = Some(classes);
        self
    }

    /// Sets the size of each image that its annotations state, 0x0 if unknown.
    pub(super) fn with_sizes(mut self, sizes: Vec<Size>) -> BoxedImages {
        if sizes.iter().any(|size| size.pixels() > 0) {
            self.sizes = sizes;
        }
        self
    }

    /// Sets the image to which the coordinates of annotations refer. A record whose annotations
    /// state the size of another image is then bad.
    #[must_use]
    pub fn with_annotated_image(mut self, image: AnnotatedImage) -> BoxedImages {
        self.annotated = image;
        self
    }

    /// Takes the masks from an image file for each record, which has the size of its image and whose
    /// pixels are the numbers of segments.
    pub(super) fn with_segments(mut self, paths: Paths) -> BoxedImages {
        let segments = BoxSegments {
            paths,
            numbers: Vec::new(),
        };
        self.masks = Some(BoxMasks::Segments(Box::new(segments)));
        self
    }

    /// Adds a box to the next record. `values` are those of the fields after the boxes, in
    /// little-endian order; each field has the same number of bytes for every box.
    ///
    /// # Errors
    ///
    /// The problem without its subject, if all annotations need too much memory.
    pub(super) fn push(&mut self, corners: [f64; 4], values: &[&[u8]]) -> Result<(), String> {
        let corners = corners.map(|x| (x as f32).to_le_bytes());
        let values = std::iter::once(corners.as_flattened()).chain(values.iter().copied());
        for (list, value) in self.lists.iter_mut().zip(values) {
            list.push(value)?;
            self.value_bytes += value.len() as u64;
        }
        self.boxes += 1;
        self.room.check(self.value_bytes)
    }

    /// Adds the JSON value of the box that was added last.
    ///
    /// # Errors
    ///
    /// As [`BoxedImages::push`].
    pub(super) fn push_text(&mut self, json: &str) -> Result<(), String> {
        let Some(BoxMasks::Texts(texts)) = &mut self.masks else {
            return Ok(());
        };
        self.value_bytes += (json.len() + size_of::<usize>()) as u64;
        texts.push(json)?;
        self.room.check(self.value_bytes)
    }

    /// Adds the number of the segment of the box that was added last.
    ///
    /// # Errors
    ///
    /// As [`BoxedImages::push`].
    pub(super) fn push_segment(&mut self, number: u32) -> Result<(), String> {
        let Some(BoxMasks::Segments(segments)) = &mut self.masks else {
            return Ok(());
        };
        self.value_bytes += size_of_val(&number) as u64;
        reserve(&mut segments.numbers, 1)?;
        segments.numbers.push(number);
        self.room.check(self.value_bytes)
    }

    /// Replaces the label of each box.
    pub(super) fn relabel(&mut self, label: impl Fn(i64) -> i64) {
        let (labels, _) = self.lists[1].bytes.as_chunks_mut::<8>();
        for bytes in labels {
            *bytes = label(i64::from_le_bytes(*bytes)).to_le_bytes();
        }
    }

    /// Ends the next record, which has no boxes because its annotations cannot be used.
    pub(super) fn end_bad_record(
        &mut self,
        reason: impl std::error::Error + Send + Sync + 'static,
    ) {
        self.bad.insert(self.ends.len() as u64, Arc::new(reason));
        self.end_record();
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
    pub(super) fn finish(mut self) -> Result<BoxedImages, Error> {
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
        self.sizes.shrink_to_fit();
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

impl BoxedImages {
    /// Returns the size of the image that its annotations state, if they do.
    fn stated_size(&self, record: usize) -> Option<Size> {
        let size = self.sizes.get(record).copied();
        size.filter(|size| size.pixels() > 0)
    }

    /// Compares the size in annotations with the image in the bytes of a file. Accepts damaged files,
    /// which only decoding reports.
    fn check_size(&self, stated: Size, file: &[u8]) -> Result<(), SizeError> {
        let limits = Limits {
            max_pixels: u64::MAX,
        };
        let Ok(header) = Decoder::new().header(file, true, &limits) else {
            return Ok(());
        };
        let (displayed, stored) = (header.size, header.frame().stored_size());
        let (is_stored, is_displayed) = (stated == stored, stated == displayed);
        match self.annotated {
            _ if !is_stored && !is_displayed => Err(SizeError::Other { stated, stored }),
            AnnotatedImage::Stored if !is_stored => Err(SizeError::Turned { stated, stored }),
            AnnotatedImage::Displayed if !is_displayed => {
                Err(SizeError::NotTurned { stated, displayed })
            }
            _ => Ok(()),
        }
    }

    /// Returns the numbers of the boxes of a record.
    fn boxes_of(&self, at: usize) -> Range<usize> {
        at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at]
    }

    /// Bytes of the values of some boxes in their record.
    fn value_bytes(&self, boxes: Range<usize>) -> u64 {
        let lists = self.lists.iter().map(|list| list.box_bytes * boxes.len());
        let texts = match &self.masks {
            Some(BoxMasks::Texts(texts)) => texts.bytes(boxes.clone()).len(),
            _ => 0,
        };
        (lists.sum::<usize>() + texts) as u64
    }

    /// Reads a record.
    fn record(&self, record: u64, admit: &mut Admission<'_>) -> Result<RecordResult, ReadError> {
        if let Some(reason) = self.bad.get(&record) {
            return Ok(Err(Arc::clone(reason)));
        }
        let at = record as usize;
        let own = self.boxes_of(at);
        let stated = self.stated_size(at);
        let value_bytes = self.value_bytes(own.clone());
        let (scratch, segments) = match &self.masks {
            Some(BoxMasks::Segments(segments)) => {
                // Pixels and masks of the record.
                let scratch = stated.map_or(0, |size| {
                    size.pixels() * 3 + instances::segments_bytes(size)
                });
                (scratch, Some(&segments.paths))
            }
            _ => (0, None),
        };
        let more = value_bytes.saturating_add(scratch);
        let lists: Vec<&Paths> = std::iter::once(&self.paths).chain(segments).collect();
        let files = read_files(record, &lists, more, admit)?;
        let mut fields = match files {
            Ok(fields) => fields,
            Err(cause) => return Ok(Err(cause)),
        };
        if let Some(stated) = stated
            && let Err(error) = self.check_size(stated, &fields[0])
        {
            return Ok(Err(Arc::new(error)));
        }
        let masks = match &self.masks {
            None => None,
            Some(BoxMasks::Texts(texts)) => Some(texts.range(own.clone())),
            Some(BoxMasks::Segments(segments)) => {
                let file = fields.pop().unwrap_or_default();
                let expected = self.sizes[at];
                let text = segments.text(at, expected, &file, own.clone());
                drop(file);
                match text {
                    Ok(text) => {
                        let held = fields.iter().map(Bytes::len).sum::<usize>() + text.len();
                        admit_read(admit, record, (held as u64).saturating_add(value_bytes))?;
                        Some(text)
                    }
                    Err(error) => return Ok(Err(Arc::new(error))),
                }
            }
        };
        fields.extend(self.lists.iter().map(|list| list.range(own.clone())));
        fields.extend(masks);
        if let Some(ids) = &self.ids {
            fields.push(Bytes::copy_from_slice(&ids[at].to_le_bytes()));
        }
        Ok(Ok(Record {
            index: record,
            fields,
        }))
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

    fn field_in_memory(&self, record: u64, field: usize) -> Option<Bytes> {
        // The image is the first field.
        let list = self.lists.get(field.checked_sub(1)?)?;
        Some(list.range(self.boxes_of(record as usize)))
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
            sink(position, self.record(record, admit)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_one;
    use infeed_core::exec::budget::BudgetError;
    use std::fs;
    use std::path::Path;

    const SIZE: Size = Size {
        height: 4,
        width: 6,
    };
    const TURNED: Size = Size {
        height: 6,
        width: 4,
    };

    /// The segments before the pixels of a JPEG of 6 x 4 pixels with an EXIF orientation.
    fn jpeg(orientation: u8) -> Vec<u8> {
        let mut file = b"\xFF\xD8\xFF\xE1\x00\x22Exif\0\0".to_vec();
        file.extend(b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0");
        file.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(b"\xFF\xC0\x00\x0B\x08\x00\x04\x00\x06\x01\x01\x11\x00");
        file.extend(b"\xFF\xDA\x00\x08\x01\x01\x00\x00\x3F\x00\0\0\xFF\xD9");
        file
    }

    /// Reads a record of a file, or of none, whose annotations state this size.
    fn read(file: Option<&[u8]>, stated: Size, image: AnnotatedImage) -> Result<(), String> {
        let root = tempfile::tempdir().expect("a folder");
        if let Some(file) = file {
            fs::write(root.path().join("a"), file).expect("writes");
        }
        let paths = Paths::of_names(root.path(), &["a".to_owned()], true).expect("a list");
        let source = BoxedImages::new(paths, fields(&[]), None, None, AnnotationRoom::of(1 << 20));
        let mut source = source.with_sizes(vec![stated]).with_annotated_image(image);
        source.end_record();
        let source = source.finish().expect("a record");
        let record = read_one(&source, 0).map_err(|error| {
            assert!(error.is_bad_record(), "{error}");
            error.chain()
        })?;
        assert_eq!(&record.fields[0][..], file.unwrap_or_default());
        Ok(())
    }

    #[test]
    fn a_size_in_annotations_that_no_image_has_is_a_bad_record() {
        let other = Size {
            height: 40,
            width: 60,
        };
        for orientation in [1, 3, 6] {
            for image in [
                AnnotatedImage::Any,
                AnnotatedImage::Stored,
                AnnotatedImage::Displayed,
            ] {
                let error = read(Some(&jpeg(orientation)), other, image).expect_err("another");
                assert!(
                    error.contains("60x40 px") && error.contains("6x4 px"),
                    "{error}"
                );
            }
        }
        // Sides are not exchanged without an orientation that says so.
        assert!(read(Some(&jpeg(1)), TURNED, AnnotatedImage::Any).is_err());
    }

    #[test]
    fn sides_exchanged_by_exif_are_compared_with_the_declared_image() {
        let file = jpeg(6);
        for (stated, image, fix) in [
            (SIZE, AnnotatedImage::Any, None),
            (TURNED, AnnotatedImage::Any, None),
            (SIZE, AnnotatedImage::Stored, None),
            (
                TURNED,
                AnnotatedImage::Stored,
                Some("use .decode(orient=True)"),
            ),
            (
                SIZE,
                AnnotatedImage::Displayed,
                Some(".boxes(\"boxes\", oriented=False, ...)"),
            ),
            (TURNED, AnnotatedImage::Displayed, None),
        ] {
            let found = read(Some(&file), stated, image);
            match fix {
                None => assert_eq!(found, Ok(())),
                Some(fix) => {
                    let error = found.expect_err(fix);
                    let parts = ["6x4 px", "4x6 px", fix];
                    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_stated_size_of_0_is_unknown_and_a_damaged_file_is_left_to_the_decoder() {
        let unknown = Size {
            height: 0,
            width: 6,
        };
        assert_eq!(
            read(Some(&jpeg(1)), unknown, AnnotatedImage::Stored),
            Ok(())
        );
        assert_eq!(read(Some(b"damaged"), SIZE, AnnotatedImage::Stored), Ok(()));
    }

    #[test]
    fn a_missing_file_of_a_list_is_a_bad_record() {
        let error = read(None, SIZE, AnnotatedImage::Any).expect_err("no file");

        assert!(
            error.contains("there is no file") && error.contains("correct its name"),
            "{error}"
        );
    }

    #[test]
    fn files_of_a_list_whose_folder_is_gone_are_an_error_of_the_storage() {
        let root = tempfile::tempdir().expect("a folder");
        let paths = Paths::of_names(root.path(), &["a".to_owned()], true).expect("a list");
        let mut source =
            BoxedImages::new(paths, fields(&[]), None, None, AnnotationRoom::of(1 << 20));
        source.end_record();
        let source = source.finish().expect("a record");
        drop(root);

        let error = read_one(&source, 0).expect_err("no folder");

        assert!(!error.is_bad_record(), "{error}");
    }

    /// Opens a list of one image file with `count` boxes.
    fn open_boxes(root: &Path, count: usize, room: u64) -> Result<BoxedImages, String> {
        fs::write(root.join("a"), b"pixels").expect("writes");
        let paths = Paths::of_names(root, &["a".to_owned()], true).expect("a list");
        let room = AnnotationRoom::of(room);
        let mut source = BoxedImages::new(paths, fields(&[]), None, None, room);
        for _ in 0..count {
            source.push([0.0; 4], &[&0_i64.to_le_bytes()])?;
        }
        source.end_record();
        source.finish().map_err(|error| error.to_string())
    }

    #[test]
    fn boxes_are_part_of_the_bytes_of_their_record() {
        let root = tempfile::tempdir().expect("a folder");
        let source = open_boxes(root.path(), 1000, 1 << 20).expect("fits");
        let read = source.plan(&[0], u64::MAX).remove(0);
        let mut admitted = 0;
        let mut admit = |bytes: u64| {
            admitted = bytes;
            Ok(())
        };

        let done = source.read(&read, &mut admit, &mut |_, found| {
            assert_eq!(found.expect("a record").bytes(), 6 + 24_000);
        });

        done.expect("reads");
        assert_eq!(admitted, 6 + 24_000);
        let refused = source.read(&read, &mut |_| Err(BudgetError::Closed), &mut |_, _| {});
        assert!(
            matches!(refused, Err(ReadError::Refused { bytes, .. }) if bytes == 6 + 24_000),
            "{refused:?}"
        );
    }

    #[test]
    fn boxes_beyond_the_room_of_annotations_are_an_error() {
        let root = tempfile::tempdir().expect("a folder");

        let error = open_boxes(root.path(), 1000, 23_999).expect_err("too many");

        assert!(error.contains("more than 23999 bytes"), "{error}");
    }

    #[test]
    fn numbers_of_segments_count_in_the_room_of_annotations() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("a"), b"pixels").expect("writes");
        let paths = || Paths::of_names(root.path(), &["a".to_owned()], true).expect("a list");
        let room = AnnotationRoom::of(27);
        let source = BoxedImages::new(paths(), fields(&[]), None, None, room);
        let mut source = source.with_segments(paths());
        let value = 0_i64.to_le_bytes();
        source.push([0.0; 4], &[&value]).expect("24 bytes fit");

        let error = source.push_segment(1).expect_err("28 bytes do not fit");

        assert!(error.contains("more than 27 bytes"), "{error}");
    }
}
