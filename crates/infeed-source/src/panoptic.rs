//! Images of a folder or bucket, with the panoptic segmentation of a COCO annotation file.
//!
//! Source: "Data format" of <https://cocodataset.org>, panoptic segmentation. An image has a PNG file,
//! whose pixels are numbers of segments, and `segments_info` with the category of each segment. Masks
//! are read from the PNG file when a record is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::annotations::AnnotationRoom;
use super::boxed_images::BoxedImages;
use super::coco::entries;
use super::coco::{self, CocoLabels};
use super::json;
use super::paths::Paths;
use infeed_codec::transform::MAX_PIXELS;
use infeed_core::error::Error;

/// One past the largest number of a segment: a pixel has 24 bits.
const SEGMENTS: u32 = 1 << 24;

/// The format, in messages.
const EXPECTED: &str = "a file of COCO for panoptic segmentation, with the lists images, annotations \
                        and categories";

/// Values are JSON text: see [`json`].
#[derive(Deserialize)]
struct PanopticFile<'a> {
    /// A list of [`ImageEntry`](entries::ImageEntry).
    #[serde(borrow)]
    images: Option<&'a RawValue>,
    /// A list of [`PanopticAnnotation`].
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    /// A list of [`Category`](entries::Category).
    #[serde(borrow)]
    categories: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PanopticAnnotation<'a> {
    #[serde(borrow)]
    image_id: Option<&'a RawValue>,
    #[serde(borrow)]
    file_name: Option<&'a RawValue>,
    /// A list of [`SegmentInfo`].
    #[serde(borrow)]
    segments_info: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SegmentInfo<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    category_id: Option<&'a RawValue>,
    /// Left, top, width, height in pixels.
    #[serde(borrow)]
    bbox: Option<&'a RawValue>,
    #[serde(borrow)]
    area: Option<&'a RawValue>,
    #[serde(borrow)]
    iscrowd: Option<&'a RawValue>,
}

/// A segment with its checked values.
struct PanopticSegment {
    id: u32,
    label: i64,
    /// Left, top, width, height in pixels.
    bbox: [f64; 4],
    area: f32,
    iscrowd: bool,
}

/// Reads an annotation file. `images` is the folder or URL below which its images are, and `segments`
/// that of the PNG files. The fields are those of [`coco::fields`] with masks.
///
/// # Errors
///
/// [`Error::Open`] for a file that cannot be read. [`Error::Config`] for a file that is not JSON of
/// this format, for ids that occur twice or do not exist, for images without an annotation, and for
/// invalid boxes.
pub fn open(
    images: &Path,
    annotations: &Path,
    segments: &Path,
    labels: CocoLabels,
    follow_links: bool,
) -> Result<BoxedImages, Error> {
    let room = AnnotationRoom::new();
    let text = entries::annotation_text(annotations, &room)?;
    let wrong =
        |problem: String| Error::config("source", format!("{}: {problem}", annotations.display()));
    let file: PanopticFile<'_> = serde_json::from_slice(&text)
        .map_err(|error| wrong(json::problem(&error, &text, EXPECTED)))?;
    let images = entries::list(images, file.images, &room, EXPECTED, follow_links);
    let images = images.map_err(|error| error.with(wrong))?;
    let named = entries::categories(file.categories, labels, &room, EXPECTED);
    let (numbers, classes) = named.map_err(wrong)?;
    let annotations = match file.annotations {
        Some(annotations) => json::list(annotations, &room, EXPECTED, with_id).map_err(wrong)?,
        None => Vec::new(),
    };
    let mut of_images = HashMap::with_capacity(annotations.len());
    for (id, annotation) in annotations {
        if of_images.insert(id, annotation).is_some() {
            return Err(wrong(format!("image {id} has two annotations; remove one")));
        }
    }
    let mut held = 0;
    let too_many = |problem| wrong(format!("it {problem}"));
    let mut found = Vec::with_capacity(images.ids.len());
    let mut names = Vec::with_capacity(images.ids.len());
    for (&id, size) in images.ids.iter().zip(&images.sizes) {
        let annotation = of_images.remove(&id).ok_or_else(|| {
            wrong(format!(
                "image {id} has no annotation; add it, or remove the image"
            ))
        })?;
        let segments = segments_of(id, &annotation, &numbers, &room).map_err(wrong)?;
        held += size_of_val(&segments[..]) as u64;
        room.check(held).map_err(too_many)?;
        found.push(segments);
        if !(1..=MAX_PIXELS).contains(&size.pixels()) {
            return Err(wrong(format!(
                "image {id} needs `height` and `width`, with at most {MAX_PIXELS} pixels; correct it"
            )));
        }
        let name = annotation.file_name.and_then(json::parse::<String>);
        names.push(name.ok_or_else(|| {
            wrong(format!(
                "the annotation of image {id} has no file_name that is a text; add it"
            ))
        })?);
    }
    if let Some(id) = of_images.keys().min() {
        return Err(wrong(format!(
            "an annotation belongs to image {id}, which is not in `images`; add the image, or remove \
             the annotation"
        )));
    }
    let fields = coco::fields(false, true);
    let source = BoxedImages::new(images.paths, fields, Some(images.ids), classes, room);
    let source = source.with_segments(Paths::of_names(segments, &names, follow_links)?);
    let mut source = source.with_sizes(images.sizes);
    for segments in found {
        for segment in segments {
            let [left, top, width, height] = segment.bbox;
            let pushed = source.push(
                [left, top, left + width, top + height],
                &[
                    &segment.label.to_le_bytes(),
                    &segment.area.to_le_bytes(),
                    &[u8::from(segment.iscrowd)],
                ],
            );
            let pushed = pushed.and_then(|()| source.push_segment(segment.id));
            pushed.map_err(too_many)?;
        }
        source.end_record();
    }
    source.finish()
}

/// Returns an annotation, the number `at` of the list, with the id of its image.
fn with_id(
    annotation: PanopticAnnotation<'_>,
    at: usize,
) -> Result<(i64, PanopticAnnotation<'_>), String> {
    let subject = || format!("annotation {} of the list", at + 1);
    let id = entries::parse_id(annotation.image_id, "image_id", subject)?;
    Ok((id, annotation))
}

/// Returns the checked segments of an image.
fn segments_of(
    image: i64,
    annotation: &PanopticAnnotation<'_>,
    numbers: &BTreeMap<i64, i64>,
    room: &AnnotationRoom,
) -> Result<Vec<PanopticSegment>, String> {
    let Some(segments) = annotation.segments_info else {
        return Err(format!(
            "the annotation of image {image} has no segments_info, which files of COCO for panoptic \
             segmentation have; add it"
        ));
    };
    let mut known = HashSet::new();
    json::list(segments, room, EXPECTED, |segment: SegmentInfo<'_>, at| {
        let subject = || format!("segment {} of the list of image {image}", at + 1);
        let number = entries::parse_id(segment.id, "id", subject)?;
        let wrong = |problem: String| {
            format!(
                "image {image} has the segment {number}, {problem}; correct it, or remove the segment"
            )
        };
        let id = u32::try_from(number)
            .ok()
            .filter(|id| (1..SEGMENTS).contains(id));
        let id = id.ok_or_else(|| wrong("which is not from 1 to 16777215".to_owned()))?;
        if !known.insert(id) {
            return Err(wrong("which occurs twice".to_owned()));
        }
        let subject = || format!("segment {number} of image {image}");
        let category = entries::parse_id(segment.category_id, "category_id", subject)?;
        let label = numbers.get(&category).copied().ok_or_else(|| {
            wrong(format!(
                "with category {category}, which is not in `categories`"
            ))
        })?;
        let shown = |value: Option<&RawValue>| value.map_or("null".to_owned(), json::show_value);
        let bbox = segment.bbox.and_then(entries::valid_box).ok_or_else(|| {
            wrong(format!(
                "with the bbox {}, which is not [left, top, width, height] in numbers",
                shown(segment.bbox)
            ))
        })?;
        let area = entries::area(segment.area, bbox).ok_or_else(|| {
            wrong(format!(
                "with the area {}, which is too large or no number",
                shown(segment.area)
            ))
        })?;
        let iscrowd = entries::crowd(segment.iscrowd).ok_or_else(|| {
            wrong(format!(
                "with iscrowd {}, which is neither 0 nor 1",
                shown(segment.iscrowd)
            ))
        })?;
        Ok(PanopticSegment {
            id,
            label,
            bbox,
            area,
            iscrowd,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Read, Source, read_one};
    use infeed_codec::instances::CocoMask;

    const GOOD: &str = r#"{"images": [
        {"id": 9, "file_name": "b.jpg", "height": 2, "width": 3},
        {"id": 3, "file_name": "a.jpg", "height": 2, "width": 3}],
        "annotations": [
        {"image_id": 9, "file_name": "b.png", "segments_info": [
            {"id": 65793, "category_id": 7, "bbox": [0, 0, 1, 2], "area": 2, "iscrowd": 0},
            {"id": 3, "category_id": 2, "bbox": [1, 0, 2, 1], "iscrowd": 1}]},
        {"image_id": 3, "file_name": "a.png", "segments_info": []}],
        "categories": [{"id": 7, "name": "dog", "isthing": 1}, {"id": 2, "name": "sky"}]}"#;

    /// A BMP file of 3 x 2 pixels, row by row from the top.
    fn bitmap(pixels: [u32; 6]) -> Vec<u8> {
        let mut file = b"BM\x4e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
        file.extend([3_u32, 2].iter().flat_map(|side| side.to_le_bytes()));
        file.extend(b"\x01\0\x18\0\0\0\0\0\x18\0\0\0");
        file.extend([0; 16]);
        for row in [&pixels[3..], &pixels[..3]] {
            for number in row {
                let [red, green, blue, _] = number.to_le_bytes();
                file.extend([blue, green, red]);
            }
            file.extend([0; 3]);
        }
        file
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new(second: [u32; 6]) -> Folder {
            let folder = Folder(tempfile::tempdir().expect("a folder"));
            for (name, bytes) in [
                ("a.jpg", b"a".to_vec()),
                ("b.jpg", b"b".to_vec()),
                ("a.png", bitmap([0; 6])),
                ("b.png", bitmap(second)),
            ] {
                std::fs::write(folder.0.path().join(name), bytes).expect("writes");
            }
            folder
        }

        fn open(&self, text: &str) -> Result<BoxedImages, Error> {
            let file = self.0.path().join("panoptic.json");
            std::fs::write(&file, text).expect("writes");
            open(self.0.path(), &file, self.0.path(), CocoLabels::Index, true)
        }
    }

    #[test]
    fn masks_are_the_pixels_with_the_number_of_the_segment() {
        let folder = Folder::new([65_793, 3, 3, 65_793, 0, 0]);
        let source = folder.open(GOOD).expect("a good file");

        let [none, both] = [0, 1].map(|at| read_one(&source, at).expect("a record").fields);
        assert_eq!((&none[0][..], &none[5][..]), (&b"a"[..], &b"[]"[..]));
        assert_eq!(both[2][..8], 1_i64.to_le_bytes());
        assert_eq!(both[4][..], [0, 1]);
        let masks: Vec<CocoMask> = serde_json::from_slice(&both[5]).expect("masks");
        let expected = r#"[{"size":[2,3],"counts":[0,2,4]},{"size":[2,3],"counts":[2,1,1,1,1]}]"#;
        assert_eq!(both[5], expected.as_bytes());
        assert!(masks.iter().all(|mask| mask.check().is_ok()));
        assert_eq!(source.files(1).len(), 2);
        let other = folder.open(&GOOD.replace("65793", "65794")).expect("good");
        assert_ne!(source.fingerprint(), other.fingerprint());
    }

    #[test]
    fn segments_that_do_not_fit_the_file_are_a_bad_record() {
        for (pixels, text) in [
            ([65_793, 3, 3, 5, 0, 0], "b.png has pixels of segment 5"),
            ([65_793, 0, 0, 0, 0, 0], "b.png has no pixels of segment 3"),
        ] {
            let source = Folder::new(pixels);
            let source = source.open(GOOD).expect("a good file");
            let read = Read {
                records: vec![(0, 1)],
                ..source.plan(&[1], u64::MAX).remove(0)
            };
            let mut found = None;
            let done = source.read(&read, &mut |_| Ok(()), &mut |_, record| {
                found = Some(record)
            });
            done.expect("reads");
            let error = found.expect("a record").expect_err("bad segments");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn wrong_annotations_name_the_image_the_segment_and_the_fix() {
        let folder = Folder::new([0; 6]);
        for (from, to, text) in [
            (
                "\"id\": 3, \"cat",
                "\"id\": 65793, \"cat",
                "65793, which occurs twice",
            ),
            ("\"id\": 3, \"cat", "\"id\": 0, \"cat", "from 1 to 16777215"),
            (
                "_id\": 2, \"bbox",
                "_id\": 4, \"bbox",
                "category 4, which is not in",
            ),
            (
                "\"area\": 2",
                "\"area\": 1e300",
                "segment 65793, with the area 1e300, which is too large",
            ),
            (
                "[1, 0, 2, 1]",
                "[1, 0, -2, 1]",
                "image 9 has the segment 3, with the bbox [1, 0, -2, 1]",
            ),
            (
                "\"image_id\": 3",
                "\"image_id\": 9",
                "image 9 has two annotations",
            ),
            (
                "\"image_id\": 3",
                "\"image_id\": 4",
                "image 3 has no annotation",
            ),
            (
                "{\"id\": 3, \"file_name\": \"a.jpg\"",
                "{\"id\": 3, \"file_name\": \"c\"}, {\"id\": 3, \"file_name\": \"a.jpg\"",
                "the same id 3",
            ),
            (
                "\"a.jpg\", \"height\": 2",
                "\"a.jpg\", \"height\": 0",
                "image 3 needs `height` and `width`",
            ),
            (
                ", \"segments_info\": []}",
                "}",
                "COCO for panoptic segmentation",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = folder.open(&GOOD.replacen(from, to, 1)).expect_err("wrong");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
