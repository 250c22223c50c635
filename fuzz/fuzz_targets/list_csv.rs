//! A list of labels of any text: it names files in the folder, and no others.
#![no_main]

use infeed::pipeline::SourceSpec;
use infeed::source::read_one;
use infeed_fuzz::shards::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let outside = file("outside.jpg", b"outside");
    let inside = file("photos/a.jpg", b"inside");
    file("photos/cat/b.jpg", b"inside");
    let root = inside.parent().expect("a folder").to_owned();
    let spec = SourceSpec::Folder {
        path: root,
        labels: file("labels.csv", bytes).display().to_string(),
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
});
