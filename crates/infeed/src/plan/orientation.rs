//! Finds photographs that are decoded without their EXIF orientation next to boxes, points or masks.
//!
//! Annotation tools show an image turned, so annotations then do not fit the stored pixels. No error
//! would show it. Opening a loader reads the headers of a few images, so the check is cheap and
//! incomplete: it covers local files and shards only.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::headers::HeaderReader;
use crate::pipeline::Pipeline;
use infeed_codec::decode::ImageFrame;
use infeed_core::sample::{FieldKind, Pixels};
use infeed_source::{Read, Source};

/// Number of records whose headers are read, spread over the source.
const SAMPLE: u64 = 64;

/// Maximum bytes that all reads of a check bring.
const ALL_BYTES: u64 = 32 << 20;

/// Annotations next to images that a pipeline decodes as stored.
pub(super) struct Annotations {
    /// Names of the boxes and points, and whether they refer to the displayed image.
    coordinates: Vec<(String, bool)>,
    /// Number of the first image field among all fields.
    image: usize,
    /// Number and name of the first mask field.
    mask: Option<(usize, String)>,
}

impl Annotations {
    /// Returns the annotations that a turn would move. None if images are not decoded, or are turned.
    pub(super) fn of(pipeline: &Pipeline, source: &dyn Source) -> Option<Annotations> {
        let decode = pipeline.decode.as_ref()?;
        if decode.orient {
            return None;
        }
        let boxes = pipeline.declared_boxes().into_iter();
        let points = pipeline.declared_points().into_iter();
        let coordinates = boxes
            .map(|spec| (spec.field.clone(), spec.is_oriented()))
            .chain(points.map(|spec| (spec.field.clone(), spec.is_oriented())));
        let fields = source.fields();
        let of_kind = |wanted: fn(&FieldKind) -> bool| {
            let mut fields = fields.iter().enumerate();
            fields.find(|(_, field)| wanted(&field.kind))
        };
        let (image, _) = of_kind(|kind| matches!(kind, FieldKind::Image(Pixels::Encoded)))?;
        let mask = of_kind(|kind| matches!(kind, FieldKind::Mask(Pixels::Encoded)));
        let found = Annotations {
            coordinates: coordinates.collect(),
            image,
            mask: mask.map(|(at, field)| (at, field.name.clone())),
        };
        (!found.coordinates.is_empty() || found.mask.is_some()).then_some(found)
    }

    /// Returns a warning if some images have an orientation that their annotations need.
    pub(super) fn warning(&self, source: &dyn Source) -> Option<String> {
        let left = AtomicU64::new(ALL_BYTES);
        let mut reader = HeaderReader::new(&left);
        let (mut checked, mut turned) = (0_u64, 0_u64);
        let mut first = None;
        let count = source.len().min(SAMPLE);
        for nth in 0..count {
            // In 128 bits, because the product may exceed u64.
            let record = (u128::from(nth) * u128::from(source.len()) / u128::from(count)) as u64;
            let reads = source.plan(&[record], ALL_BYTES);
            // A source of trials repeats records and names them by their numbers in another source.
            let number = reads.first().and_then(|read| read.records.first());
            let Some(&(_, record)) = number else {
                continue;
            };
            let frames = self.frames(source, &mut reader, (record, &reads));
            let Some((image, mask)) = frames else {
                continue;
            };
            checked += 1;
            if self.are_turned(image, mask) {
                turned += 1;
                first.get_or_insert(record);
            }
        }
        let name = source.id(first?, Some(self.image)).name;
        let has = if turned == 1 { "has" } else { "have" };
        Some(format!(
            "{turned} of {checked} sampled images {has} an EXIF orientation, for example {name}; pixels \
             are decoded as stored, {}",
            self.advice()
        ))
    }

    /// Returns the frames of the image and the mask of a record. None if they cannot be read cheaply,
    /// or at all, which only decoding reports.
    fn frames(
        &self,
        source: &dyn Source,
        reader: &mut HeaderReader<'_>,
        (record, reads): (u64, &[Read]),
    ) -> Option<(ImageFrame, Option<ImageFrame>)> {
        let files = source.files(record);
        let mask = self.mask.as_ref().map(|(at, _)| *at);
        let mut frame_of_file = |path: &Path| Some(reader.head(path, true)?.header.frame());
        if let [image, rest @ ..] = &files[..] {
            let image = frame_of_file(image)?;
            let mask = rest.first().filter(|_| mask.is_some());
            return Some((image, mask.and_then(|mask| frame_of_file(mask))));
        }
        if source.local_files(record).is_empty() {
            return None;
        }
        let mut fields = None;
        reader.read(source, reads, |_, _, found| fields = Some(found));
        let fields = fields?;
        let mut frame = |at: usize| Some(reader.header(fields.get(at)?)?.frame());
        Some((frame(self.image)?, mask.and_then(frame)))
    }

    /// Whether the annotations of an image, or its mask, only fit after the turn of the image.
    fn are_turned(&self, image: ImageFrame, mask: Option<ImageFrame>) -> bool {
        if image.orientation == 1 {
            return false;
        }
        if !self.coordinates.is_empty() {
            return true;
        }
        // A mask with the same orientation, or with the size of the stored pixels, fits already.
        mask.is_some_and(|mask| {
            mask.orientation != image.orientation
                && (mask.size != image.stored_size() || image.size == image.stored_size())
        })
    }

    /// Returns the annotations' names and the fix.
    fn advice(&self) -> String {
        const FIX: &str = ".decode(orient=True)";
        let names = |oriented: bool| {
            let names = self.coordinates.iter().filter(|(_, is)| *is == oriented);
            let names: Vec<String> = names.map(|(name, _)| format!("`{name}`")).collect();
            names.join(" and ")
        };
        match (&self.mask, names(true), names(false)) {
            (Some((_, mask)), displayed, stored) if displayed.is_empty() && stored.is_empty() => {
                format!("but the masks in `{mask}` fit the image as viewers show it; use {FIX}")
            }
            (_, displayed, stored) if stored.is_empty() => {
                format!("but {displayed} refer to the image as viewers show it; use {FIX}")
            }
            (_, _, stored) => format!(
                "and {stored} are declared as coordinates of the stored pixels; if they refer to \
                 the image as viewers show it, use {FIX} and declare them with oriented=True; if \
                 not, {FIX} alone turns both"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{BoxesSpec, Decode, SourceSpec};
    use infeed_codec::decode::exif_block;
    use infeed_codec::transform::BoxFormat;
    use infeed_core::sample::{Depth, Image, Size};
    use infeed_source::repeated_records::RepeatedRecords;
    use std::fs;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A PNG of 13 rows and 18 columns with orientation 6.
    fn photo() -> Vec<u8> {
        let file = "../../testdata/conformance/orientation6.png";
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file")
    }

    fn upright(height: u32, width: u32) -> Vec<u8> {
        let mut image = Image::default();
        image.reset(Size { height, width }, 1, Depth::U8);
        infeed_sample::png(&image).expect("encodes")
    }

    /// Writes files, with their folders.
    fn folder(files: &[(&str, &[u8])]) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (name, bytes) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("creates");
            fs::write(path, bytes).expect("writes");
        }
        root
    }

    fn yolo(root: &Path) -> SourceSpec {
        SourceSpec::Yolo {
            images: root.join("images"),
            labels: None,
            classes: None,
            corners: false,
            follow_links: true,
        }
    }

    fn warning_for(pipeline: &Pipeline) -> Option<String> {
        let source = pipeline.open_source(&[]).expect("opens");
        warning(pipeline, &*source)
    }

    fn warning(pipeline: &Pipeline, source: &dyn Source) -> Option<String> {
        Annotations::of(pipeline, source)?.warning(source)
    }

    const BOX: &[u8] = b"0 0.5 0.5 0.1 0.1";

    const VOC: &[u8] = b"<annotation><filename>a.jpg</filename><size><width>13</width>\
        <height>18</height></size><object><name>dog</name><bndbox><xmin>1</xmin><ymin>1</ymin>\
        <xmax>5</xmax><ymax>8</ymax></bndbox></object></annotation>";

    const COCO: &[u8] =
        br#"{"images": [{"id": 1, "file_name": "a.png", "width": 13, "height": 18}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4]}]}"#;

    const LABELME: &[u8] = br#"{"imagePath": "a.png", "imageWidth": 13, "imageHeight": 18,
        "shapes": [{"label": "dog", "shape_type": "rectangle", "points": [[1, 1], [5, 5]]}]}"#;

    #[test]
    fn every_source_of_boxes_with_a_turned_image_names_it_and_the_fix() {
        let photo = photo();
        let root = folder(&[
            ("images/a.png", &photo),
            ("images/b.png", &upright(9, 9)),
            ("labels/a.txt", BOX),
            ("labels/b.txt", BOX),
            ("coco.json", COCO),
            ("labelme/a.png", &photo),
            ("labelme/a.json", LABELME),
            ("JPEGImages/a.jpg", &photo),
            ("Annotations/a.xml", VOC),
            ("ImageSets/Main/train.txt", b"a"),
        ]);
        let root = root.path();
        let sources: [(SourceSpec, &str); 4] = [
            (yolo(root), "1 of 2 sampled images"),
            (
                SourceSpec::Coco {
                    images: root.join("images"),
                    annotations: root.join("coco.json"),
                    labels: Default::default(),
                    keypoints: None,
                    masks: false,
                    panoptic: None,
                    follow_links: true,
                },
                "1 of 1 sampled images",
            ),
            (
                SourceSpec::Voc {
                    path: root.to_owned(),
                    image_set: "train".to_owned(),
                    classes: None,
                    follow_links: true,
                },
                "1 of 1 sampled images",
            ),
            (
                SourceSpec::LabelMe {
                    images: root.join("labelme"),
                    labels: None,
                    classes: None,
                    masks: false,
                    follow_links: true,
                },
                "1 of 1 sampled images",
            ),
        ];
        for (source, count) in sources {
            let pipeline = Pipeline::new(source).decode();
            let text = warning_for(&pipeline).expect("a warning");
            assert!(text.starts_with(count), "{text}");
            for part in [
                "a.",
                "`boxes` refer to the image as viewers show it",
                "use .decode(orient=True)",
            ] {
                assert!(text.contains(part), "{text}");
            }
            let turned = Pipeline {
                decode: Some(Decode {
                    orient: true,
                    ..Decode::default()
                }),
                ..pipeline.clone()
            };
            assert_eq!(warning_for(&turned), None);
            let encoded = Pipeline {
                decode: None,
                ..pipeline
            };
            assert_eq!(warning_for(&encoded), None);
        }
    }

    #[test]
    fn only_coordinates_that_are_declared_for_the_stored_pixels_have_both_fixes() {
        let root = folder(&[("images/a.png", &photo()), ("labels/a.txt", BOX)]);
        let boxes = |oriented| BoxesSpec {
            normalized: true,
            oriented,
            ..BoxesSpec::new("boxes", BoxFormat::Cxcywh)
        };
        let found = |oriented| {
            let pipeline = Pipeline::new(yolo(root.path())).decode();
            warning_for(&pipeline.boxes(boxes(oriented))).expect("a warning")
        };

        let (stored, as_source) = (found(Some(false)), found(None));

        assert!(stored.contains("oriented=True; if not"), "{stored}");
        assert!(
            as_source.contains("refer to the image as viewers show it"),
            "{as_source}"
        );
    }

    #[test]
    fn images_without_orientation_or_annotations_have_no_warning() {
        let root = folder(&[("images/a.png", &upright(9, 9)), ("labels/a.txt", BOX)]);
        assert_eq!(
            warning_for(&Pipeline::new(yolo(root.path())).decode()),
            None
        );
        let root = folder(&[("a/a.png", &photo())]);
        let images = SourceSpec::folder(root.path());
        assert_eq!(warning_for(&Pipeline::new(images).decode()), None);
    }

    #[test]
    fn a_mask_that_fits_the_stored_pixels_has_no_warning() {
        let photo = photo();
        let square = [&photo[..16], &[0, 0, 0, 13, 0, 0, 0, 13], &photo[24..]].concat();
        let cases: [(&[u8], Vec<u8>, bool); 4] = [
            (&photo, upright(18, 13), true),
            (&photo, upright(13, 18), false),
            (&photo, photo.clone(), false),
            (&square, upright(13, 13), true),
        ];
        for (image, mask, warns) in cases {
            let root = folder(&[("images/a.png", image), ("masks/a.png", &mask)]);
            let path = |name: &str| -> PathBuf { root.path().join(name) };
            let pipeline = Pipeline::new(SourceSpec::pairs(path("images"), path("masks"))).decode();
            let text = warning_for(&pipeline);
            assert_eq!(text.is_some(), warns, "{text:?}");
            assert!(text.is_none_or(|text| text.contains("masks in `mask`")));
        }
    }

    #[test]
    fn metadata_before_a_distant_header_are_found() {
        let photo = photo();
        let exif = [b"Exif\0\0", &exif_block(6)[..]].concat();
        let segment = |kind: u8, payload: &[u8]| {
            let length = (payload.len() as u16 + 2).to_be_bytes();
            [&[0xFF, kind], &length[..], payload].concat()
        };
        let file = "../../testdata/conformance/rgb.jpg";
        let jpeg = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("a file");
        let profile = segment(0xE2, &[0; 60_000]);
        let jpeg = [
            &jpeg[..2],
            &segment(0xE1, &exif),
            &profile,
            &profile,
            &jpeg[2..],
        ]
        .concat();
        let root = folder(&[
            ("images/a.jpg", &jpeg),
            ("images/b.png", &photo),
            ("labels/a.txt", BOX),
            ("labels/b.txt", BOX),
        ]);

        let text = warning_for(&Pipeline::new(yolo(root.path())).decode()).expect("a warning");

        assert!(text.starts_with("2 of 2"), "{text}");
    }

    #[test]
    fn repeated_records_are_sampled_by_their_numbers_in_the_original() {
        let root = folder(&[("images/a.png", &photo()), ("labels/a.txt", BOX)]);
        let pipeline = Pipeline::new(yolo(root.path())).decode();
        let source = pipeline.open_source(&[]).expect("opens");

        let text = warning(&pipeline, &RepeatedRecords::new(source, vec![0], 100));

        let text = text.expect("a warning");
        assert!(text.starts_with("64 of 64"), "{text}");
    }

    #[test]
    fn shards_with_declared_boxes_are_sampled() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().join("a.tar");
        let mut tar = tar::Builder::new(fs::File::create(&path).expect("creates"));
        for (name, bytes) in [("0.png", &photo()[..]), ("0.boxes.json", b"[[1, 1, 5, 5]]")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, name, bytes).expect("writes");
        }
        tar.finish().expect("writes");
        let pipeline = Pipeline::from_toml(&format!(
            "[source]\nkind = \"webdataset\"\nshards = [{path:?}]\n[decode]\n"
        ));
        let boxes = BoxesSpec::new("boxes", BoxFormat::Xyxy);
        let pipeline = pipeline.expect("a pipeline").boxes(boxes);

        let text = warning_for(&pipeline).expect("a warning");

        assert!(text.starts_with("1 of 1 sampled images has"), "{text}");
    }
}
