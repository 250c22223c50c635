//! Annotations of any text, as YOLO lines, as Pascal VOC and as COCO with masks: they open or raise an
//! error, and so do masks of any text.
#![no_main]

use infeed::instances::{CocoMask, clear};
use infeed::pipeline::SourceSpec;
use infeed::sample::{Image, Size};
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
    };
    if let Ok(source) = coco.open(&[])
        && let Ok(found) = read_one(&*source, 0)
    {
        masks(&found.fields[6]);
    }
    let specs = [
        SourceSpec::Yolo {
            images: root(&image),
            labels: None,
            classes: None,
            corners: false,
        },
        SourceSpec::Voc {
            path: root(&root(&annotation)),
            image_set: "train".to_owned(),
            classes: None,
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
