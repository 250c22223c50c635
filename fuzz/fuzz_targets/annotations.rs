//! Annotations of any text, as YOLO lines and as Pascal VOC: they open or raise an error.
#![no_main]

use infeed::pipeline::SourceSpec;
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
    let specs = [
        SourceSpec::Yolo {
            images: root(&image),
            labels: None,
            classes: None,
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
