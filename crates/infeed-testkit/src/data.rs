//! Small datasets for tests, in temporary folders.

use std::fs;
use std::path::{Path, PathBuf};

use infeed::{Batch, Loader, Options, Pipeline, Values};
use infeed_core::batch::Column;
use infeed_core::sample::{Depth, Image, Size};
use infeed_sample::{Subsampling, jpeg, png};
use tempfile::TempDir;

/// Number of classes of the masks that `pairs` writes.
pub const CLASSES: usize = 4;

/// Colours of the classes.
pub const COLOURS: [[u8; 3]; CLASSES] = [[0, 0, 0], [128, 64, 128], [64, 0, 64], [255, 0, 0]];

/// Returns an image of noise on a gradient. Each seed gives another image.
pub fn picture(seed: u64, height: u32, width: u32) -> Image {
    let mut image = Image::default();
    image.reset(Size { height, width }, 3, Depth::U8);
    let mut state = seed;
    for (at, byte) in image.data.iter_mut().enumerate() {
        state = infeed_core::random::mix(state.wrapping_add(at as u64));
        let gradient = (at / 3 % width as usize) * 160 / width as usize;
        *byte = (gradient + (state % 96) as usize) as u8;
    }
    image
}

/// Writes `count` JPEGs of different sizes into two class folders.
pub fn photos(count: u64) -> TempDir {
    photos_from(count, 40, 48)
}

/// Writes `count` JPEGs of at least this size into the folders `cat` and `dog`.
pub fn photos_from(count: u64, height: u32, width: u32) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for class in ["cat", "dog"] {
        fs::create_dir(root.path().join(class)).expect("a new folder");
    }
    for n in 0..count {
        let (height, width) = (height + (n * 7 % 30) as u32, width + (n * 11 % 40) as u32);
        let bytes = jpeg(&picture(n, height, width), 90, Subsampling::Quarter).expect("encodes");
        fs::write(photo(root.path(), n), bytes).expect("writes");
    }
    root
}

/// Returns the path of a photo. Even numbers are cats.
pub fn photo(root: &Path, n: u64) -> PathBuf {
    root.join(["cat", "dog"][(n % 2) as usize])
        .join(format!("{n:04}.jpg"))
}

/// Writes folders `images` and `masks` of PNGs, and `class_dict.csv`.
pub fn pairs(count: u64, height: u32, width: u32) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for folder in ["images", "masks"] {
        fs::create_dir(root.path().join(folder)).expect("a new folder");
    }
    let mut csv = String::from("name,r,g,b\n");
    for (n, [r, g, b]) in COLOURS.iter().enumerate() {
        csv += &format!("class {n},{r},{g},{b}\n");
    }
    fs::write(root.path().join("class_dict.csv"), csv).expect("writes");
    for n in 0..count {
        let image = png(&picture(n, height, width)).expect("encodes");
        fs::write(root.path().join(format!("images/{n:03}.png")), image).expect("writes");
        let mut mask = Image::default();
        mask.reset(Size { height, width }, 3, Depth::U8);
        for (at, pixel) in mask.data.chunks_exact_mut(3).enumerate() {
            pixel.copy_from_slice(&COLOURS[(at / 7 + n as usize) % CLASSES]);
        }
        let mask = png(&mask).expect("encodes");
        fs::write(root.path().join(format!("masks/{n:03}.png")), mask).expect("writes");
    }
    root
}

/// Opens a pipeline with a number of workers.
pub fn open(pipeline: &Pipeline, workers: usize) -> Loader {
    let mut options = Options::default();
    options.workers = Some(workers);
    pipeline
        .open(&options)
        .expect("a pipeline that fits its source")
}

/// Returns all batches of the next epoch.
pub fn epoch(loader: &Loader) -> Vec<Batch> {
    std::iter::from_fn(|| loader.next_batch().expect("no bad record")).collect()
}

/// Returns records and bytes of batches, to compare them bit by bit.
pub fn bits(batches: &[Batch]) -> Vec<(Vec<u64>, Vec<u8>)> {
    let column = |of: &Column| -> Vec<u8> {
        match &of.values {
            Values::Array(values) | Values::Ragged { values, .. } => values.bytes().to_vec(),
            Values::Bytes(rows) => rows.concat(),
            Values::Text(rows) => rows.concat().into_bytes(),
        }
    };
    let bytes = |batch: &Batch| {
        batch
            .columns
            .iter()
            .map(column)
            .collect::<Vec<_>>()
            .concat()
    };
    batches
        .iter()
        .map(|batch| (batch.records.clone(), bytes(batch)))
        .collect()
}
