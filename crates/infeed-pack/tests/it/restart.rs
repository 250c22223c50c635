//! JPEGs packed with restart markers give the batches of their originals, and crops read tiles.

use std::fs;
use std::path::Path;

use infeed::pipeline::{Pipeline, SourceSpec};
use infeed_codec::transform::{CenterCrop, RandomHorizontalFlip, RandomResizedCrop};
use infeed_core::error::Error;
use infeed_pack::{Encoding, MANIFEST, PackOptions, PackedDataset, TILE, Target, pack};
use infeed_sample::{Subsampling, jpeg, png};
use tempfile::TempDir;

use crate::data;

fn pack_with(
    pipeline: &Pipeline,
    out: &Path,
    change: impl FnOnce(&mut PackOptions),
) -> Result<PackedDataset, Error> {
    let mut options = PackOptions::new(Target::Folder);
    options.restart = Some(TILE);
    change(&mut options);
    pack(pipeline, &[], None, out, &options, &|_| true)
}

/// JPEGs of every subsampling, and one PNG.
fn photos() -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let subsamplings = [
        Subsampling::None,
        Subsampling::Half,
        Subsampling::HalfRows,
        Subsampling::Quarter,
        Subsampling::Gray,
    ];
    for (n, subsampling) in subsamplings.into_iter().cycle().take(15).enumerate() {
        let (height, width) = (150 + 13 * n as u32, 180 + 29 * n as u32);
        let picture = data::picture(n as u64, height, width);
        let bytes = jpeg(&picture, 90, subsampling).expect("encodes");
        fs::write(root.path().join(format!("{n:02}.jpg")), bytes).expect("writes");
    }
    let bytes = png(&data::picture(99, 200, 210)).expect("encodes");
    fs::write(root.path().join("99.png"), bytes).expect("writes");
    root
}

fn random_crops(root: &TempDir) -> Pipeline {
    Pipeline::new(SourceSpec::Folder {
        path: root.path().to_owned(),
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

fn has_markers(path: &Path) -> bool {
    let bytes = fs::read(path).expect("a file");
    bytes.windows(2).any(|pair| pair == [0xFF, 0xD0])
}

#[test]
fn random_crops_of_files_with_restart_markers_are_those_of_the_originals_bit_for_bit() {
    let root = photos();
    let pipeline = random_crops(&root);
    let expected = epoch(&pipeline);
    for width in [1, TILE, 1000] {
        let out = tempfile::tempdir().expect("a temporary folder");

        let done = pack_with(&pipeline, out.path(), |o| o.restart = Some(width)).expect("packs");

        assert_eq!((done.records, done.unchanged), (16, 0));
        assert!(has_markers(&out.path().join("03.jpg")));
        let twin = |name: &str| fs::read(root.path().join(name)).expect("an original");
        let copy = fs::read(out.path().join("99.png")).expect("a copy");
        assert_eq!(copy, twin("99.png"), "a file that is not a JPEG is copied");
        assert_eq!(epoch(&done.pipeline), expected, "{width} MCUs");
    }
}

#[test]
fn a_jpeg_that_cannot_be_rewritten_without_loss_is_copied_and_counted() {
    let root = photos();
    let conformance = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/conformance");
    let bytes = fs::read(format!("{conformance}/s420p.jpg")).expect("a progressive file");
    let starts = |(_, pair): &(usize, &[u8])| *pair == [0xFF, 0xDA];
    let third = bytes.windows(2).enumerate().filter(starts).nth(2);
    let (third, _) = third.expect("a third scan");
    let fewer = [&bytes[..third], &[0xFF, 0xD9]].concat();
    fs::write(root.path().join("50.jpg"), &fewer).expect("writes");
    let out = tempfile::tempdir().expect("a temporary folder");

    let done = pack_with(&random_crops(&root), out.path(), |_| {}).expect("packs");

    assert_eq!((done.records, done.unchanged), (17, 1));
    let copy = fs::read(out.path().join("50.jpg")).expect("a copy");
    assert_eq!(copy, fewer);
}

#[test]
fn a_jpeg_that_is_encoded_again_gets_its_markers_in_that_pass() {
    let root = photos();
    let pipeline = random_crops(&root);
    let out = tempfile::tempdir().expect("a temporary folder");
    let (with, without) = (out.path().join("with"), out.path().join("without"));
    let quality = |o: &mut PackOptions| o.image = Encoding::Jpeg { quality: 80 };

    let tiles = pack_with(&pipeline, &with, quality).expect("packs");
    let plain = pack_with(&pipeline, &without, |o| {
        quality(o);
        o.restart = None;
    })
    .expect("packs");

    assert!(has_markers(&with.join("99.jpg")));
    assert!(!has_markers(&without.join("99.jpg")));
    assert_eq!(epoch(&tiles.pipeline), epoch(&plain.pipeline));
    let cut = pack_with(&pipeline, &out.path().join("cut"), |o| {
        o.transforms = vec![CenterCrop::new([140, 160]).into()];
    });
    cut.expect("packs");
    assert!(has_markers(&out.path().join("cut/03.jpg")));
}

#[test]
fn the_tile_width_is_part_of_the_pack_options() {
    let root = photos();
    let pipeline = random_crops(&root);
    let out = root.path().with_extension("packed");

    pack_with(&pipeline, &out, |_| {}).expect("packs");
    let again = pack_with(&pipeline, &out, |_| {}).expect("is complete");
    let other = pack_with(&pipeline, &out, |o| o.restart = None).expect_err("packed differently");

    let text = fs::read_to_string(out.join(MANIFEST)).expect("a manifest");
    fs::remove_dir_all(&out).expect("ours");
    assert!(text.contains("\"restart\": 4"), "{text}");
    assert_eq!(again.reused, 16);
    assert!(other.chain().contains("restart: 4 there"), "{other}");
}

#[test]
fn markers_are_rejected_for_formats_without_jpegs() {
    let root = photos();
    let pipeline = random_crops(&root);
    let out = root.path().with_extension("refused");

    for (change, part) in [
        (
            &(|o: &mut PackOptions| o.to = Target::Arrays) as &dyn Fn(&mut PackOptions),
            "arrays hold pixels",
        ),
        (
            &|o: &mut PackOptions| o.image = Encoding::WebpLossless,
            "webp-lossless has none",
        ),
        (&|o: &mut PackOptions| o.restart = Some(0), "not 0"),
    ] {
        let error = pack_with(&pipeline, &out, |o| change(o)).expect_err("no markers");

        assert!(error.chain().contains(part), "{}", error.chain());
    }
    assert!(!out.exists());
}

#[test]
fn a_lossless_webp_gives_the_same_batches_and_no_mask_becomes_one() {
    let root = photos();
    let pipeline = random_crops(&root);
    let out = root.path().with_extension("webp");
    let webp = |o: &mut PackOptions| {
        o.restart = None;
        o.image = Encoding::WebpLossless;
    };

    let done = pack_with(&pipeline, &out, webp).expect("packs");
    let same = epoch(&done.pipeline) == epoch(&pipeline);
    let named = out.join("03.webp").is_file();
    fs::remove_dir_all(&out).expect("ours");
    assert!(same && named, "same batches {same}, named {named}");

    let pairs = data::pairs(2, 24, 32);
    let source = SourceSpec::pairs(pairs.path().join("images"), pairs.path().join("masks"));
    let masks = pack_with(&Pipeline::new(source).decode(), &out, |o| {
        o.restart = None;
        o.mask = Encoding::WebpLossless;
    });
    let error = masks.expect_err("no single channel").chain();
    assert!(error.contains("use png"), "{error}");
}
