//! Parsers of annotations and of text that describes a dataset, and the memory that each may take.
//!
//! Each parser has a fuzz target with its name. An ordinary test of `infeed` includes this file and
//! runs the seeds and inputs that take the most memory per byte.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use infeed::pipeline::SourceSpec;
use infeed_codec::instances::{CocoMask, clear, segments};
use infeed_core::sample::{Depth, Image, Size};
use infeed_source::class_names::ClassNames;
use infeed_source::{Source, read_one};
use peak_alloc::PeakAlloc;

use crate::shards::{file, read_all, tar, tfrecord};

/// Counts the bytes that Rust code allocates.
#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that a parser may allocate in addition, for threads that list folders and for buffers of
/// files.
const CONSTANT: usize = 128 << 10;

/// Largest number of pixels of a mask that is painted.
const MAX_PAINTED: u64 = 1 << 16;

/// A parser of bytes from a dataset.
pub struct AnnotationParser {
    /// Name of the fuzz target.
    pub name: &'static str,
    /// Bytes that the parser may allocate per byte of its input, in addition to [`CONSTANT`]. A list
    /// that grows exists twice, up to three times as large as its values.
    pub factor: usize,
    run: fn(&[u8]),
}

/// All parsers.
#[rustfmt::skip]
pub const PARSERS: [AnnotationParser; 17] = [
    AnnotationParser { name: "class_names", factor: 48, run: class_names },
    AnnotationParser { name: "data_yaml", factor: 48, run: data_yaml },
    AnnotationParser { name: "list_csv", factor: 64, run: list_csv },
    AnnotationParser { name: "yolo_lines", factor: 12, run: yolo_lines },
    AnnotationParser { name: "yolo_corners", factor: 16, run: yolo_corners },
    AnnotationParser { name: "yolo_poses", factor: 48, run: yolo_poses },
    AnnotationParser { name: "voc_list", factor: 192, run: voc_list },
    AnnotationParser { name: "voc_xml", factor: 40, run: voc_xml },
    AnnotationParser { name: "coco_boxes", factor: 16, run: coco_boxes },
    AnnotationParser { name: "coco_masks", factor: 24, run: coco_masks },
    AnnotationParser { name: "coco_panoptic", factor: 16, run: coco_panoptic },
    AnnotationParser { name: "mask_json", factor: 40, run: mask_json },
    AnnotationParser { name: "segment_pixels", factor: 64, run: segment_pixels },
    AnnotationParser { name: "labelme", factor: 20, run: labelme },
    AnnotationParser { name: "index_tar", factor: 32, run: index_tar },
    AnnotationParser { name: "index_tfrecord", factor: 12, run: index_tfrecord },
    AnnotationParser { name: "shard_mds", factor: 24, run: shard_mds },
];

/// Runs the parser of this name. Any result is right.
///
/// # Panics
///
/// If the values contradict each other, or if the parser allocates more memory than it may.
pub fn run(name: &str, bytes: &[u8]) {
    let parser = PARSERS.iter().find(|parser| parser.name == name);
    let parser = parser.expect("a parser of this name");
    // Shards that all inputs share.
    if name.starts_with("index_") {
        shards();
    }
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    (parser.run)(bytes);
    let used = ALLOCATOR.peak_usage().saturating_sub(before);
    let most = parser.factor * bytes.len() + CONSTANT;
    assert!(
        used <= most,
        "{name} allocates {used} bytes for an input of {} bytes, and may allocate {most}",
        bytes.len()
    );
}

fn class_names(bytes: &[u8]) {
    check_names(&file("class_names/classes.txt", bytes));
}

fn data_yaml(bytes: &[u8]) {
    check_names(&file("data_yaml/data.yaml", bytes));
}

/// Checks that accepted names of classes are distinct texts.
fn check_names(path: &Path) {
    if let Ok(names) = ClassNames::Path(path.to_owned()).read() {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort();
        assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(sorted.first().is_some_and(|name| !name.is_empty()));
    }
}

/// Checks that a list names files in the folder, and no others.
fn list_csv(bytes: &[u8]) {
    let outside = file("list_csv/outside.jpg", b"outside");
    let inside = file("list_csv/photos/a.jpg", b"inside");
    file("list_csv/photos/cat/b.jpg", b"inside");
    let spec = SourceSpec::Folder {
        path: parent(&inside),
        labels: file("list_csv/labels.csv", bytes).display().to_string(),
        classes: None,
        allow_empty: false,
        follow_links: false,
    };
    let Ok(source) = spec.open(&[]) else {
        return;
    };
    for record in 0..source.len().min(100) {
        let _ = (
            source.id(record, None),
            source.name(record),
            source.label(record),
        );
        for path in source.local_files(record) {
            let whole = path.canonicalize();
            assert!(
                whole.is_ok_and(|whole| whole != outside) || !path.exists(),
                "{path:?}"
            );
        }
        if let Ok(found) = read_one(&*source, record) {
            assert_eq!(&found.fields[0][..], b"inside");
        }
    }
}

fn yolo_lines(bytes: &[u8]) {
    yolo("yolo_lines", bytes, false);
}

fn yolo_corners(bytes: &[u8]) {
    yolo("yolo_corners", bytes, true);
}

/// Reads lines of numbers from 0 to 1: the first byte is how many a line has, and each other byte is
/// one of them.
fn yolo_poses(bytes: &[u8]) {
    let Some((&first, numbers)) = bytes.split_first() else {
        return;
    };
    let mut text = String::new();
    for line in numbers.chunks(usize::from(first % 32).max(4)) {
        text.push('0');
        for number in line {
            // Marks of visibility are whole numbers.
            let number = match number {
                253.. => (number - 253).to_string(),
                _ => (f32::from(*number) / 252.0).to_string(),
            };
            text.extend([" ", &*number]);
        }
        text.push('\n');
    }
    yolo("yolo_poses", text.as_bytes(), false);
}

fn yolo(folder: &str, bytes: &[u8], corners: bool) {
    let image = file(&format!("{folder}/images/a.jpg"), b"inside");
    file(&format!("{folder}/labels/a.txt"), bytes);
    let spec = SourceSpec::Yolo {
        images: parent(&image),
        labels: None,
        classes: None,
        corners,
        follow_links: true,
    };
    let Ok(source) = spec.open(&[]) else {
        return;
    };
    let more: &[_] = if corners { &[(3, 32)] } else { &[] };
    let count = boxes(&*source, more);
    assert!(count > 0, "an image without boxes");
}

/// Reads a list of records, each with the same annotation.
fn voc_list(bytes: &[u8]) {
    let annotation = b"<annotation><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin>\
        <xmax>2</xmax><ymax>2</ymax></bndbox></object></annotation>";
    voc("voc_list", annotation, bytes);
}

fn voc_xml(bytes: &[u8]) {
    voc("voc_xml", bytes, b"a\n");
}

fn voc(folder: &str, annotation: &[u8], list: &[u8]) {
    let image = file(&format!("{folder}/JPEGImages/a.jpg"), b"inside");
    file(&format!("{folder}/ImageSets/Main/train.txt"), list);
    file(&format!("{folder}/Annotations/a.xml"), annotation);
    let spec = SourceSpec::Voc {
        path: parent(&parent(&image)),
        image_set: "train".to_owned(),
        classes: None,
        follow_links: true,
    };
    if let Ok(source) = spec.open(&[]) {
        boxes(&*source, &[(3, 1)]);
    }
}

fn coco_boxes(bytes: &[u8]) {
    if let Some(source) = coco("coco_boxes", bytes, Some(1), false, None) {
        boxes(&*source, &[(3, 4), (4, 1), (5, 12)]);
    }
}

fn coco_masks(bytes: &[u8]) {
    if let Some(source) = coco("coco_masks", bytes, None, true, None) {
        let count = boxes(&*source, &[(3, 4), (4, 1)]);
        masks_of_record(&*source, 5, count);
    }
}

/// Reads a panoptic file next to an image of 3 x 2 pixels with the segments 1 and 2.
fn coco_panoptic(bytes: &[u8]) {
    let pixels = b"P6 3 2 255\n\x01\0\0\x01\0\0\x02\0\0\x02\0\0\x02\0\0\x01\0\0";
    let segments = file("coco_panoptic/segments/a.png", pixels);
    if let Some(source) = coco("coco_panoptic", bytes, None, false, Some(parent(&segments))) {
        let count = boxes(&*source, &[(3, 4), (4, 1)]);
        masks_of_record(&*source, 5, count);
    }
}

fn coco(
    folder: &str,
    bytes: &[u8],
    keypoints: Option<usize>,
    masks: bool,
    panoptic: Option<PathBuf>,
) -> Option<Arc<dyn Source>> {
    let image = file(&format!("{folder}/images/a.jpg"), b"inside");
    let spec = SourceSpec::Coco {
        images: parent(&image),
        annotations: file(&format!("{folder}/annotations.json"), bytes),
        labels: Default::default(),
        keypoints,
        masks,
        panoptic,
        follow_links: true,
    };
    spec.open(&[]).ok()
}

fn labelme(bytes: &[u8]) {
    let image = file("labelme/images/a.jpg", b"inside");
    let labels = file("labelme/labels/a.json", bytes);
    let spec = SourceSpec::LabelMe {
        images: parent(&image),
        labels: Some(parent(&labels)),
        classes: None,
        masks: true,
        follow_links: true,
    };
    if let Ok(source) = spec.open(&[]) {
        let count = boxes(&*source, &[]);
        masks_of_record(&*source, 3, count);
    }
}

/// Reads the first record. Checks that its boxes are finite numbers, and that it has a label for
/// each box and the bytes of `more` fields: number of the field, and bytes per box. Returns the number
/// of boxes.
fn boxes(source: &dyn Source, more: &[(usize, usize)]) -> usize {
    let Ok(found) = read_one(source, 0) else {
        return 0;
    };
    let (numbers, rest) = found.fields[1].as_chunks::<4>();
    assert!(rest.is_empty() && numbers.len().is_multiple_of(4));
    let are_finite = |number: &[u8; 4]| f32::from_le_bytes(*number).is_finite();
    assert!(numbers.iter().all(are_finite), "a box without an end");
    let count = numbers.len() / 4;
    for (field, bytes) in more.iter().copied().chain([(2, 8)]) {
        assert_eq!(found.fields[field].len(), bytes * count, "field {field}");
    }
    count
}

/// Checks that a record has a valid mask for each box.
fn masks_of_record(source: &dyn Source, field: usize, count: usize) {
    let Ok(found) = read_one(source, 0) else {
        return;
    };
    let masks: Vec<CocoMask> = serde_json::from_slice(&found.fields[field]).expect("masks");
    assert_eq!(masks.len(), count);
    for mask in masks {
        mask.check().expect("a valid mask");
        paint(&mask);
    }
}

/// Reads masks of any text. Accepted ones can be painted, and no others.
fn mask_json(bytes: &[u8]) {
    if let Ok(found) = serde_json::from_slice::<Vec<CocoMask>>(bytes) {
        found.iter().for_each(paint);
    }
}

/// Paints a mask into an image of its size, or of 9 x 7 pixels.
fn paint(mask: &CocoMask) {
    let (mut plane, mut scratch) = (Image::default(), Vec::new());
    let size = mask.size().filter(|size| size.pixels() <= MAX_PAINTED);
    let (height, width) = (9, 7);
    let size = size.unwrap_or(Size { height, width });
    clear(&mut plane, size);
    let painted = mask.paint(&mut plane, 2, &mut scratch);
    let fits = mask.size().is_none_or(|own| own == size);
    assert_eq!(painted.is_ok(), fits && mask.check().is_ok());
    assert!(plane.data.iter().all(|pixel| pixel & !2 == 0));
}

/// Checks that the masks of segments of any pixels are those of the pixels.
fn segment_pixels(bytes: &[u8]) {
    let (pixels, _) = bytes.as_chunks::<3>();
    let pixels = &pixels[..pixels.len().min(64) / 8 * 8];
    let mut image = Image::default();
    let (height, width) = (8, pixels.len() as u32 / 8);
    image.reset(Size { height, width }, 3, Depth::U8);
    image.data.copy_from_slice(pixels.as_flattened());
    let number = |pixel: &[u8; 3]| u32::from_le_bytes([pixel[0], pixel[1], pixel[2], 0]);
    let mut ids: Vec<u32> = pixels.iter().map(number).filter(|&id| id > 0).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = segments(&image, &ids).expect("all segments are listed");
    let (mut plane, mut scratch) = (Image::default(), Vec::new());
    for (id, mask) in ids.iter().zip(found) {
        clear(&mut plane, image.size);
        mask.paint(&mut plane, 1, &mut scratch)
            .expect("a mask of this size");
        let inside = pixels.iter().map(|pixel| u8::from(number(pixel) == *id));
        assert!(plane.data.iter().copied().eq(inside));
    }
}

/// A tar and a TFRecord file that are whole, each with the name of its text index.
fn shards() -> &'static [(SourceSpec, &'static str); 2] {
    static SHARDS: OnceLock<[(SourceSpec, &str); 2]> = OnceLock::new();
    SHARDS.get_or_init(|| {
        let members: [(&str, &[u8]); 3] =
            [("a.txt", b"one"), ("b.txt", b"two"), ("c.txt", b"three")];
        let archive = file("index/members.tar", &tar(&members));
        let example = b"\x0a\x0d\x0a\x0b\x0a\x01x\x12\x06\x0a\x04\x0a\x02hi";
        let examples = file("index/examples.tfrecord", &tfrecord(&[example, example]));
        let name = |path: PathBuf| path.display().to_string();
        let shards = [
            (SourceSpec::webdataset(name(archive)), "index/members.idx"),
            (SourceSpec::tfrecord(name(examples)), "index/examples.idx"),
        ];
        for (spec, _) in &shards {
            assert!(!spec.open(&[]).expect("a whole shard").is_empty());
        }
        shards
    })
}

fn index_tar(bytes: &[u8]) {
    index(&shards()[0], bytes);
}

fn index_tfrecord(bytes: &[u8]) {
    index(&shards()[1], bytes);
}

/// Reads a shard with a text index of any content next to it.
fn index((spec, index): &(SourceSpec, &str), bytes: &[u8]) {
    let path = file(index, bytes);
    read_all(spec);
    let _ = std::fs::remove_file(path);
}

/// Reads an `index.json`, a zero byte and the file `s` that it may name.
fn shard_mds(bytes: &[u8]) {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let index = file("mds/index.json", parts.next().unwrap_or_default());
    file("mds/s", parts.next().unwrap_or_default());
    read_all(&SourceSpec::mds(parent(&index).display().to_string()));
}

/// Folder of a file.
fn parent(path: &Path) -> PathBuf {
    path.parent().expect("a folder").to_owned()
}
