//! Every kind of source through the suite.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use infeed::pipeline::{MemoryField, SourceSpec};
use infeed_core::sample::{Depth, Image};
use infeed_sample::png;

use super::conformance::{TestDataset, WriteDataset, holds, write_selection};
use super::write;

/// Records per shard.
const PER_SHARD: usize = 13;

/// Returns a damaged image: the first half of its bytes.
fn cut(image: &[u8]) -> Vec<u8> {
    image[..image.len() / 2].to_vec()
}

/// Returns the images, with those of the given numbers truncated.
fn with_cut(images: &[Vec<u8>], damaged: &[u64]) -> Vec<Vec<u8>> {
    let one = |(number, image): (usize, &Vec<u8>)| match damaged.contains(&(number as u64)) {
        true => cut(image),
        false => image.clone(),
    };
    images.iter().enumerate().map(one).collect()
}

fn dataset(spec: SourceSpec) -> TestDataset {
    TestDataset {
        spec,
        handles: Vec::new(),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn folder(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    for (number, image) in with_cut(images, damaged).iter().enumerate() {
        fs::write(root.join(format!("{number:03}.jpg")), image).expect("writes");
    }
    dataset(SourceSpec::folder(root))
}

fn pairs(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    for name in ["image", "mask"] {
        fs::create_dir(root.join(name)).expect("a new folder");
    }
    let mut decoder = infeed_codec::decode::Decoder::new();
    for (number, image) in with_cut(images, damaged).iter().enumerate() {
        fs::write(root.join(format!("image/{number:03}.jpg")), image).expect("writes");
        let limits = infeed_codec::decode::Limits::default();
        let size = decoder
            .header(&images[number], false, &limits)
            .expect("a JPEG")
            .size;
        let mut mask = Image::default();
        mask.reset(size, 1, Depth::U8);
        let mask = png(&mask).expect("encodes");
        fs::write(root.join(format!("mask/{number:03}.png")), mask).expect("writes");
    }
    dataset(SourceSpec::pairs(root.join("image"), root.join("mask")))
}

fn memory(_: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    let images = with_cut(images, damaged);
    let mut offsets = vec![0_u64];
    for image in &images {
        offsets.push(offsets[offsets.len() - 1] + image.len() as u64);
    }
    let offsets: Vec<u8> = offsets
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect();
    let field = MemoryField {
        name: "image".to_owned(),
        kind: "image".to_owned(),
        dtype: None,
        shape: Vec::new(),
        handle: Some(0),
        offsets: Some(1),
        files: false,
        path: None,
        offset: 0,
        records: None,
    };
    TestDataset {
        spec: SourceSpec::Memory {
            fields: vec![field],
        },
        handles: vec![
            Bytes::from(images.concat()).into(),
            Bytes::from(offsets).into(),
        ],
    }
}

/// Tar shards; a damaged record has an invalid label or a truncated image.
fn tar(root: &Path, images: &[Vec<u8>], damaged: &[u64]) -> TestDataset {
    for (shard, images) in images.chunks(PER_SHARD).enumerate() {
        let mut files = Vec::new();
        for (at, image) in images.iter().enumerate() {
            let number = shard * PER_SHARD + at;
            let is_damaged = damaged.contains(&(number as u64));
            let (image, label) = match is_damaged {
                true if number.is_multiple_of(2) => (cut(image), number.to_string()),
                true => (image.clone(), "cat".to_owned()),
                false => (image.clone(), number.to_string()),
            };
            files.push((format!("train/{number:04}.jpg"), image));
            files.push((format!("train/{number:04}.cls"), label.into_bytes()));
        }
        fs::write(
            root.join(format!("train-{shard:02}.tar")),
            write::tar(&files),
        )
        .expect("writes");
    }
    dataset(SourceSpec::webdataset(text(&root.join("train-*.tar"))))
}

/// TFRecord shards; a damaged record has a flipped bit.
pub(super) fn tfrecord(
    root: &Path,
    images: &[Vec<u8>],
    damaged: &[u64],
    gzip: bool,
) -> TestDataset {
    for (shard, images) in images.chunks(PER_SHARD).enumerate() {
        let mut file = Vec::new();
        for (at, image) in images.iter().enumerate() {
            let number = shard * PER_SHARD + at;
            let mut record = write::frame_record(&write::example(image, number as u8));
            if damaged.contains(&(number as u64)) {
                let middle = record.len() / 2;
                record[middle] ^= 4;
            }
            file.extend(record);
        }
        if gzip {
            file = write::gzip(&file);
        }
        fs::write(root.join(format!("train-{shard:05}-of-00005")), file).expect("writes");
    }
    dataset(SourceSpec::tfrecord(text(&root.join("train-*"))))
}

/// MDS shards; a damaged record has a truncated image.
fn mds(root: &Path, images: &[Vec<u8>], damaged: &[u64], zstd: bool) -> TestDataset {
    let records: Vec<(Vec<u8>, i64)> = with_cut(images, damaged).into_iter().zip(0..).collect();
    let shards: Vec<_> = records.chunks(PER_SHARD).map(<[_]>::to_vec).collect();
    write::mds(root, &shards, zstd);
    dataset(SourceSpec::mds(text(root)))
}

#[test]
fn a_folder_meets_the_source_contract() {
    holds(folder);
}

#[test]
fn pairs_meet_the_source_contract() {
    holds(pairs);
}

#[test]
fn memory_meets_the_source_contract() {
    holds(memory);
}

#[test]
fn tar_shards_meet_the_source_contract() {
    holds(tar);
}

#[test]
fn tfrecord_shards_meet_the_source_contract() {
    holds(|root, images, damaged| tfrecord(root, images, damaged, false));
}

#[test]
fn tfrecord_shards_in_gzip_meet_the_source_contract() {
    holds(|root, images, damaged| tfrecord(root, images, damaged, true));
}

#[test]
fn mds_shards_meet_the_source_contract() {
    holds(|root, images, damaged| mds(root, images, damaged, false));
}

#[test]
fn mds_shards_in_zstd_meet_the_source_contract() {
    holds(|root, images, damaged| mds(root, images, damaged, true));
}

#[test]
fn selections_of_files_memory_and_shards_meet_the_source_contract() {
    holds(|root, images, damaged| write_selection(folder, root, images, damaged));
    holds(|root, images, damaged| write_selection(memory, root, images, damaged));
    holds(|root, images, damaged| write_selection(tar, root, images, damaged));
    holds(|root, images, damaged| {
        let plain: WriteDataset = |root, images, damaged| tfrecord(root, images, damaged, false);
        write_selection(plain, root, images, damaged)
    });
    holds(|root, images, damaged| {
        let plain: WriteDataset = |root, images, damaged| mds(root, images, damaged, false);
        write_selection(plain, root, images, damaged)
    });
}

#[test]
fn selections_of_shards_that_are_read_whole_meet_the_source_contract() {
    holds(|root, images, damaged| {
        let gzip: WriteDataset = |root, images, damaged| tfrecord(root, images, damaged, true);
        write_selection(gzip, root, images, damaged)
    });
}
