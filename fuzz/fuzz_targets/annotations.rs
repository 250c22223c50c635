//! Annotations of any text, as YOLO lines, as Pascal VOC and as COCO with masks: they open or raise an
//! error, and so do masks of any text.
#![no_main]

use infeed::instances::{CocoMask, clear};
use infeed::pipeline::SourceSpec;
use infeed::sample::{Depth, Image, Size};
use infeed::source::read_one;
use infeed_fuzz::shards::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let image = file("boxed/images/a.jpg", b"inside");
    file("boxed/labels/a.txt", bytes);
    file("voc/JPEGImages/a.jpg", b"inside");
    file("voc/ImageSets/Main/train.txt", b"a\n");
    let annotation = file("voc/Annotations/a.xml", bytes);
    let root = |path: &std::path::Path| path.parent().expect("a folder").to_owned();
    masks(bytes);
    let coco = SourceSpec::Coco {
        images: root(&image),
        annotations: file("boxed/coco.json", bytes),
        labels: Default::default(),
        keypoints: Some(1),
        masks: true,
        panoptic: None,
        follow_links: true,
    };
    if let Ok(source) = coco.open(&[])
        && let Ok(found) = read_one(&*source, 0)
    {
        masks(&found.fields[6]);
    }
    let panoptic = SourceSpec::Coco {
        images: root(&image),
        annotations: file("boxed/coco.json", bytes),
        labels: Default::default(),
        keypoints: None,
        masks: false,
        panoptic: Some(root(&file("boxed/segments/a.png", bytes))),
        follow_links: true,
    };
    if let Ok(source) = panoptic.open(&[])
        && let Ok(found) = read_one(&*source, 0)
    {
        masks(&found.fields[5]);
    }
    segments(bytes);
    let specs = [
        SourceSpec::Yolo {
            images: root(&image),
            labels: None,
            classes: None,
            corners: false,
            follow_links: true,
        },
        SourceSpec::Voc {
            path: root(&root(&annotation)),
            image_set: "train".to_owned(),
            classes: None,
            follow_links: true,
        },
        SourceSpec::LabelMe {
            images: root(&file("labelme/a.jpg", b"inside")),
            labels: Some(root(&file("labelme/labels/a.json", bytes))),
            classes: None,
            masks: true,
            follow_links: true,
        },
    ];
    for spec in specs {
        let Ok(source) = spec.open(&[]) else {
            continue;
        };
        let found = read_one(&*source, 0).expect("a file that exists");
        let boxes = found.fields[1].chunks_exact(4);
        assert!(boxes.map(|x| f32::from_le_bytes(x.try_into().unwrap())).all(f32::is_finite));
        assert_eq!(found.fields[1].len(), 2 * found.fields[2].len());
    }
});

/// Checks that the masks of segments of any pixels are those of the pixels.
fn segments(bytes: &[u8]) {
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
    let found = infeed::instances::segments(&image, &ids).expect("all segments are listed");
    let (mut plane, mut scratch) = (Image::default(), Vec::new());
    for (id, mask) in ids.iter().zip(found) {
        clear(&mut plane, image.size);
        mask.paint(&mut plane, 1, &mut scratch).expect("a mask of this size");
        let inside = pixels.iter().map(|pixel| u8::from(number(pixel) == *id));
        assert!(plane.data.iter().copied().eq(inside));
    }
}

/// Checks that accepted masks can be painted, and no others.
fn masks(text: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Vec<CocoMask>>(text) else {
        return;
    };
    let (mut plane, mut scratch) = (Image::default(), Vec::new());
    for mask in found {
        let size = mask.size().filter(|size| size.pixels() <= 1 << 16);
        let size = size.unwrap_or(Size {
            height: 9,
            width: 7,
        });
        clear(&mut plane, size);
        let painted = mask.paint(&mut plane, 2, &mut scratch);
        let fits = mask.size().is_none_or(|own| own == size);
        assert_eq!(painted.is_ok(), fits && mask.check().is_ok());
        assert!(plane.data.iter().all(|pixel| pixel & !2 == 0));
    }
}
