//! Images of a folder or bucket, with the panoptic segmentation of a COCO annotation file.
//!
//! Source: "Data format" of <https://cocodataset.org>, panoptic segmentation. An image has a PNG file,
//! whose pixels are numbers of segments, and `segments_info` with the category of each segment. Masks
//! are read from the PNG file when a record is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde::Deserialize;

use super::boxed::BoxedImages;
use super::coco::{self, Category, CocoLabels, ImageEntry, ListError};
use super::listing::Tree;
use infeed_codec::transform::MAX_PIXELS;
use infeed_core::error::Error;
use infeed_core::sample::Size;

/// One past the largest number of a segment: a pixel has 24 bits.
const SEGMENTS: u32 = 1 << 24;

#[derive(Deserialize)]
struct PanopticFile {
    images: Vec<ImageEntry>,
    annotations: Vec<PanopticAnnotation>,
    categories: Vec<Category>,
}

#[derive(Deserialize)]
struct PanopticAnnotation {
    image_id: i64,
    file_name: String,
    segments_info: Vec<SegmentInfo>,
}

#[derive(Deserialize)]
struct SegmentInfo {
    id: u32,
    category_id: i64,
    /// Left, top, width, height in pixels.
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
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
) -> Result<BoxedImages, Error> {
    let text = coco::annotation_text(annotations)?;
    let wrong =
        |problem: String| Error::config("source", format!("{}: {problem}", annotations.display()));
    let file: PanopticFile = serde_json::from_slice(&text).map_err(|error| {
        let text = coco::json(&error).replace("object detection", "panoptic segmentation");
        wrong(text)
    })?;
    let sizes: HashMap<i64, Size> = file
        .images
        .iter()
        .filter_map(|image| Some((image.id, size_of(image)?)))
        .collect();
    let (paths, image_ids) = coco::list(images, file.images).map_err(|error| match error {
        ListError::Problem(problem) => wrong(problem),
        ListError::Other(error) => error,
    })?;
    let (numbers, classes) = coco::categories(file.categories, labels).map_err(wrong)?;
    let mut of_images = HashMap::with_capacity(file.annotations.len());
    for annotation in file.annotations {
        let id = annotation.image_id;
        if of_images.insert(id, annotation).is_some() {
            return Err(wrong(format!("image {id} has two annotations; remove one")));
        }
    }
    let mut found = Vec::with_capacity(image_ids.len());
    let mut in_order = Vec::with_capacity(image_ids.len());
    for id in &image_ids {
        let annotation = of_images.remove(id).ok_or_else(|| {
            wrong(format!(
                "image {id} has no annotation; add it, or remove the image"
            ))
        })?;
        checked(&annotation, &numbers).map_err(wrong)?;
        let size = sizes.get(id).copied().ok_or_else(|| {
            wrong(format!(
                "image {id} needs `height` and `width`, with at most {MAX_PIXELS} pixels; correct it"
            ))
        })?;
        in_order.push(size);
        found.push(annotation);
    }
    if let Some(id) = of_images.keys().min() {
        return Err(wrong(format!(
            "an annotation belongs to image {id}, which is not in `images`; add the image, or remove \
             the annotation"
        )));
    }
    let names: Vec<String> = found.iter().map(|of| of.file_name.clone()).collect();
    let fields = coco::fields(false, true);
    let source = BoxedImages::new(paths, fields, Some(image_ids), classes);
    let mut source = source.with_segments(Tree::named(segments, &names)?, in_order);
    for annotation in found {
        for segment in annotation.segments_info {
            let [left, top, width, height] = segment.bbox;
            let label = numbers.get(&segment.category_id).copied().unwrap_or(0);
            let area = segment.area.unwrap_or(width * height) as f32;
            if !area.is_finite() {
                return Err(wrong(format!(
                    "segment {} of image {} has an area that is too large; correct it",
                    segment.id, annotation.image_id
                )));
            }
            source.push(
                [left, top, left + width, top + height],
                &[
                    &label.to_le_bytes(),
                    &area.to_le_bytes(),
                    &[u8::from(segment.iscrowd != 0)],
                ],
            );
            source.push_segment(segment.id);
        }
        source.end_record();
    }
    source.finished()
}

/// Returns the size of an image. None if it is absent or not allowed.
fn size_of(image: &ImageEntry) -> Option<Size> {
    let (height, width) = (image.height?, image.width?);
    let size = Size { height, width };
    (1..=MAX_PIXELS).contains(&size.pixels()).then_some(size)
}

/// Checks the segments of an image.
fn checked(annotation: &PanopticAnnotation, numbers: &BTreeMap<i64, i64>) -> Result<(), String> {
    let mut known = HashSet::with_capacity(annotation.segments_info.len());
    for SegmentInfo {
        id,
        category_id,
        bbox,
        ..
    } in &annotation.segments_info
    {
        let problem = if !(1..SEGMENTS).contains(id) {
            "which is not from 1 to 16777215".to_owned()
        } else if !known.insert(*id) {
            "which occurs twice".to_owned()
        } else if !numbers.contains_key(category_id) {
            format!("with category {category_id}, which is not in `categories`")
        } else if !bbox.iter().all(|x| (*x as f32).is_finite()) || bbox[2] < 0.0 || bbox[3] < 0.0 {
            format!("with the box {bbox:?}, which is not left, top, width, height")
        } else {
            continue;
        };
        let image = annotation.image_id;
        return Err(format!(
            "image {image} has the segment {id}, {problem}; correct it, or remove the segment"
        ));
    }
    Ok(())
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
            open(self.0.path(), &file, self.0.path(), CocoLabels::Index)
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
                "segment 65793 of image 9 has an area that is too large",
            ),
            (
                "[1, 0, 2, 1]",
                "[1, 0, -2, 1]",
                "image 9 has the segment 3, with the box",
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
