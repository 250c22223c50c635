//! Lossless records give the batches of their originals, and restore the files.

use std::fs;
use std::path::Path;

use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::transform::{CenterCrop, RandomHorizontalFlip, RandomResizedCrop};
use infeed_core::error::Error;
use infeed_pack::{Encoding, PackOptions, PackedDataset, Target, pack};
use infeed_sample::{Subsampling, jpeg, png};
use tempfile::TempDir;

use crate::data;

fn pack_lossless(
    pipeline: &Pipeline,
    out: &Path,
    change: impl FnOnce(&mut PackOptions),
) -> Result<PackedDataset, Error> {
    let mut options = PackOptions::new(Target::Folder);
    options.image = Encoding::Lossless;
    change(&mut options);
    pack(pipeline, &[], None, out, &options, &|_| true)
}

/// Photographs as JPEGs of every subsampling, and one file that is no image that can be recoded.
fn photos() -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let subsamplings = [
        Subsampling::None,
        Subsampling::Half,
        Subsampling::HalfRows,
        Subsampling::Quarter,
        Subsampling::Gray,
    ];
    for (n, subsampling) in subsamplings.into_iter().cycle().take(10).enumerate() {
        let (height, width) = (250 + 13 * n as u32, 280 + 29 * n as u32);
        let picture = data::picture(n as u64, height, width);
        let bytes = jpeg(&picture, 90, subsampling).expect("encodes");
        fs::write(root.path().join(format!("{n:02}.JPEG")), bytes).expect("writes");
    }
    let cmyk = "../../testdata/conformance/cmyk.jpg";
    let cmyk = Path::new(env!("CARGO_MANIFEST_DIR")).join(cmyk);
    fs::copy(cmyk, root.path().join("99.jpg")).expect("copies");
    root
}

fn random_crops(root: &Path) -> Pipeline {
    Pipeline::new(SourceSpec::Folder {
        path: root.to_owned(),
        labels: "none".to_owned(),
        classes: None,
        allow_empty: false,
        follow_links: true,
    })
    .shuffle(3)
    .decode()
    .transform(RandomResizedCrop::new(64))
    .transform(RandomHorizontalFlip::new(0.5))
    .batch(4)
}

fn epoch(pipeline: &Pipeline) -> Vec<(Vec<u64>, Vec<u8>)> {
    data::bits(&data::epoch(&data::open(pipeline, 2)))
}

#[test]
fn random_crops_of_lossless_records_are_those_of_the_originals_bit_for_bit() {
    let root = photos();
    // Shards are shuffled within windows, so their order is another one.
    let pipeline = Pipeline {
        shuffle: None,
        ..random_crops(root.path())
    };
    let expected = epoch(&pipeline);
    for to in [
        Target::Folder,
        Target::WebDataset,
        Target::TfRecord,
        Target::Arrow,
    ] {
        let out = tempfile::tempdir().expect("a temporary folder");

        let done = pack_lossless(&pipeline, out.path(), |o| o.to = to).expect("packs");

        assert_eq!((done.records, done.unchanged), (11, 1), "{to:?}");
        assert!(done.bytes_out < done.bytes_in, "{to:?}");
        assert!(epoch(&done.pipeline) == expected, "{to:?}");
    }
}

#[test]
fn the_files_of_lossless_records_are_restored_byte_for_byte() {
    let root = photos();
    let out = tempfile::tempdir().expect("a temporary folder");
    let (records, files) = (out.path().join("records"), out.path().join("files"));

    pack_lossless(&random_crops(root.path()), &records, |_| {}).expect("packs");
    assert!(records.join("03.ifl").is_file());
    assert!(
        records.join("99.jpg").is_file(),
        "a file that is kept keeps its format"
    );
    let restore = |o: &mut PackOptions| o.image = Encoding::Restore;
    pack_lossless(&random_crops(&records), &files, restore).expect("restores");

    for n in 0..10 {
        let original = fs::read(root.path().join(format!("{n:02}.JPEG"))).expect("an original");
        let restored = fs::read(files.join(format!("{n:02}.jpg"))).expect("a restored file");
        assert!(original == restored, "{n:02}");
    }
    let kept = fs::read(files.join("99.jpg")).expect("a kept file");
    assert!(kept == fs::read(root.path().join("99.jpg")).expect("an original"));
}

#[test]
fn records_that_would_change_and_names_that_would_collide_are_rejected() {
    let root = photos();
    let out = tempfile::tempdir().expect("a temporary folder");

    let cropped = pack_lossless(
        &random_crops(root.path()),
        &out.path().join("cropped"),
        |o| {
            o.transforms = vec![CenterCrop::new([100, 100]).into()];
        },
    );
    let text = cropped.expect_err("a transform changes pixels").chain();
    assert!(text.contains("leave out the transforms"), "{text}");

    let picture = data::picture(5, 60, 70);
    fs::write(root.path().join("03.png"), png(&picture).expect("encodes")).expect("writes");
    let twins = pack_lossless(
        &random_crops(root.path()),
        &out.path().join("twins"),
        |_| {},
    );
    let text = twins.expect_err("two files with one name").chain();
    assert!(
        text.contains("03.JPEG") && text.contains("03.png"),
        "{text}"
    );
    assert!(text.contains("would both become"), "{text}");
}
