//! Lossless records give the samples of their files. Masks become classes without their colours.

use std::path::Path;

use infeed::pipeline::SourceSpec;
use infeed::{Options, Pipeline};
use infeed_codec::decode::{ColorMode, Decoder};
use infeed_codec::lossless;
use infeed_codec::transform::{
    ChannelValues, ClassIndex, Crop, CropOrPad, OneHot, Pad, RandomCrop, RandomHorizontalFlip,
    RandomResizedCrop, RandomRotation, RandomVerticalFlip, Resize, Transform,
};
use infeed_core::sample::{DType, Image, Size};
use infeed_sample::png as encoded;
use png::{BitDepth, ColorType};
use tempfile::TempDir;

use crate::data::{bits, picture};

const SIZE: Size = Size {
    height: 120,
    width: 150,
};

/// Colours of the classes, and one without a class.
const COLOURS: [[u8; 3]; 5] = [
    [0, 0, 0],
    [128, 64, 128],
    [9, 9, 9],
    [255, 0, 7],
    [70, 71, 72],
];

/// A mask file in which area `n` of a record has value `n`.
#[derive(Clone, Copy, Debug)]
enum MaskEncoding {
    Colours,
    /// As many colours as no table of a record holds.
    ManyColours,
    Palette,
    Gray,
    Gray16,
}

impl MaskEncoding {
    const ALL: [MaskEncoding; 5] = [
        MaskEncoding::Colours,
        MaskEncoding::ManyColours,
        MaskEncoding::Palette,
        MaskEncoding::Gray,
        MaskEncoding::Gray16,
    ];

    fn png(self, record: usize) -> Vec<u8> {
        let (height, width) = (SIZE.height as usize, SIZE.width as usize);
        let value = |at: usize| (at % width / 22 + at / width / 18 + record) % 4;
        let pixel = |at: usize| match self {
            MaskEncoding::ManyColours if value(at) == 3 => {
                vec![(at % 251) as u8, (at / 251) as u8, 200]
            }
            MaskEncoding::Colours | MaskEncoding::ManyColours => COLOURS[value(at)].to_vec(),
            MaskEncoding::Palette | MaskEncoding::Gray => vec![value(at) as u8],
            MaskEncoding::Gray16 => vec![value(at) as u8 / 2, value(at) as u8],
        };
        let mut file = Vec::new();
        let mut png = png::Encoder::new(&mut file, SIZE.width, SIZE.height);
        match self {
            MaskEncoding::Colours | MaskEncoding::ManyColours => png.set_color(ColorType::Rgb),
            MaskEncoding::Palette => {
                png.set_color(ColorType::Indexed);
                // Two indices have one colour.
                let colours = [COLOURS[0], COLOURS[1], COLOURS[3], COLOURS[1]];
                png.set_palette(colours.as_flattened().to_vec());
            }
            MaskEncoding::Gray => {}
            MaskEncoding::Gray16 => png.set_depth(BitDepth::Sixteen),
        }
        let data: Vec<u8> = (0..height * width).flat_map(pixel).collect();
        png.write_header()
            .and_then(|mut png| png.write_image_data(&data))
            .expect("encodes");
        file
    }

    fn mode(self) -> ColorMode {
        match self {
            MaskEncoding::Gray16 => ColorMode::Stored16,
            _ => ColorMode::Stored,
        }
    }
}

/// Pairs in `files`, and the same in `records` with their masks as lossless records.
fn pairs(stored: MaskEncoding) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    for folder in [
        "files/images",
        "files/masks",
        "records/images",
        "records/masks",
    ] {
        std::fs::create_dir_all(root.path().join(folder)).expect("a new folder");
    }
    let classes = "name,r,g,b\na,0,0,0\nb,128,64,128\nc,9,9,9\nd,255,0,7\n";
    std::fs::write(root.path().join("all.csv"), classes).expect("writes");
    let some = "name,r,g,b\nb,128,64,128\na,0,0,0\n";
    std::fs::write(root.path().join("some.csv"), some).expect("writes");
    for n in 0..5 {
        let image: Image = picture(n, SIZE.height, SIZE.width);
        let image = encoded(&image).expect("encodes");
        let mask = stored.png(n as usize);
        let record = lossless::encode(&mask, &mut Decoder::new())
            .expect("a record")
            .bytes;
        for (folder, mask) in [("files", &mask), ("records", &record)] {
            let path = |part: &str| root.path().join(format!("{folder}/{part}/{n:03}.png"));
            std::fs::write(path("images"), &image).expect("writes");
            std::fs::write(path("masks"), mask).expect("writes");
        }
    }
    root
}

/// Batches of two epochs and the number of pixels without a class, or the error.
type Outcome = Result<(Vec<(Vec<u64>, Vec<u8>)>, u64), String>;

fn run(
    root: &Path,
    mode: Option<ColorMode>,
    transforms: &[Transform],
    last: &Transform,
) -> Outcome {
    let source = SourceSpec::pairs(root.join("images"), root.join("masks"));
    let mut pipeline = Pipeline::new(source).shuffle(1).decode();
    if let (Some(decode), Some(mode)) = (&mut pipeline.decode, mode) {
        decode.modes.insert("mask".to_owned(), mode);
    }
    for transform in transforms.iter().chain([last]) {
        pipeline = pipeline.transform(transform.clone());
    }
    let mut options = Options::default();
    options.workers = Some(1);
    let text = |error: infeed::Error| error.chain().replace(&root.display().to_string(), "");
    let loader = pipeline.batch(1).open(&options).map_err(text)?;
    let mut batches = Vec::new();
    for _ in 0..2 {
        while let Some(batch) = loader.next_batch().map_err(text)? {
            batches.push(batch);
        }
    }
    let unknown = loader.stats().expect("open").unknown_pixels;
    Ok((bits(&batches), unknown))
}

#[test]
fn classes_of_records_are_those_of_the_files() {
    let plans: [Vec<Transform>; 7] = [
        vec![],
        vec![
            Crop::new(40, 33).into(),
            RandomHorizontalFlip::new(0.5).into(),
        ],
        vec![
            RandomResizedCrop::new(24).into(),
            RandomVerticalFlip::new(0.5).into(),
        ],
        vec![
            RandomVerticalFlip::new(0.5).into(),
            Resize::new([31, 90]).into(),
            RandomCrop::new(20).into(),
        ],
        vec![CropOrPad::new(70, 50).into()],
        vec![
            Pad {
                mask_fill: ChannelValues::All(9.0),
                ..Pad::new(3)
            }
            .into(),
            RandomHorizontalFlip::new(0.5).into(),
        ],
        vec![
            RandomRotation {
                mask_fill: ChannelValues::All(9.0),
                ..RandomRotation::new(30.0)
            }
            .into(),
        ],
    ];
    let (mut samples, mut errors, mut unknowns) = (0, 0, 0);
    for stored in MaskEncoding::ALL {
        let root = pairs(stored);
        let csv = |name: &str| root.path().join(name).display().to_string();
        let bytes = |one_hot: OneHot| OneHot {
            dtype: DType::UInt8,
            ..one_hot
        };
        let ends: Vec<(Option<ColorMode>, Transform)> = match stored {
            MaskEncoding::Colours | MaskEncoding::ManyColours | MaskEncoding::Palette => vec![
                (None, bytes(OneHot::from_palette(csv("all.csv"))).into()),
                (None, OneHot::from_palette(csv("some.csv")).into()),
                (
                    None,
                    bytes(OneHot::from_palette(csv("some.csv")).ignoring_unknown()).into(),
                ),
                (None, ClassIndex::new(csv("all.csv")).into()),
                (
                    None,
                    ClassIndex::new(csv("some.csv")).ignoring_unknown().into(),
                ),
                (
                    None,
                    ClassIndex {
                        ignore_index: Some(-7),
                        dtype: DType::Int64,
                        ..ClassIndex::new(csv("some.csv"))
                    }
                    .into(),
                ),
                (Some(ColorMode::Gray), ClassIndex::from_indices(200).into()),
            ],
            MaskEncoding::Gray | MaskEncoding::Gray16 => vec![
                (Some(stored.mode()), bytes(OneHot::from_indices(4)).into()),
                (
                    Some(stored.mode()),
                    bytes(OneHot::from_values([257, 0, 2, 258, 1, 259, 3])).into(),
                ),
                (Some(stored.mode()), ClassIndex::from_values([0, 3]).into()),
                (
                    Some(stored.mode()),
                    ClassIndex {
                        ignore_index: Some(1),
                        ..ClassIndex::from_values([0, 2, 3])
                    }
                    .into(),
                ),
                (
                    Some(stored.mode()),
                    ClassIndex {
                        dtype: DType::Int64,
                        ..ClassIndex::from_values([258, 3]).ignoring_unknown()
                    }
                    .into(),
                ),
            ],
        };
        for transforms in &plans {
            for (mode, last) in &ends {
                let of_files = run(&root.path().join("files"), *mode, transforms, last);
                let of_records = run(&root.path().join("records"), *mode, transforms, last);
                assert_eq!(
                    of_records, of_files,
                    "{stored:?} {mode:?} {last:?} {transforms:?}"
                );
                match of_files {
                    Ok((batches, unknown)) => {
                        samples += batches.len();
                        unknowns += unknown;
                    }
                    Err(_) => errors += 1,
                }
            }
        }
    }
    assert!(
        samples > 800 && errors > 20 && unknowns > 10_000,
        "{samples} samples, {errors} errors, {unknowns} pixels without a class"
    );
}

/// With damage that no checksum shows, because it is not verified.
#[test]
fn a_position_outside_the_table_is_the_same_error_with_and_without_colours() {
    let root = pairs(MaskEncoding::Colours);
    let masks = root.path().join("records/masks");
    for mask in std::fs::read_dir(&masks).expect("masks") {
        let path = mask.expect("a mask").path();
        let mut record = std::fs::read(&path).expect("reads");
        // The number of pixels in the table less 1, and the last of them.
        let at = record
            .windows(2)
            .position(|at| at == [3, 3])
            .expect("a table");
        record[at + 1] = 2;
        record.drain(at + 2 + 9..at + 2 + 12);
        std::fs::write(&path, record).expect("writes");
    }
    let one = |last: Transform| {
        let source = SourceSpec::pairs(root.path().join("records/images"), &masks);
        let mut pipeline = Pipeline::new(source).decode().transform(last);
        if let Some(decode) = &mut pipeline.decode {
            decode.verify = false;
            decode.modes.insert("mask".to_owned(), ColorMode::Rgb);
        }
        let mut options = Options::default();
        options.workers = Some(1);
        let loader = pipeline.batch(1).open(&options).expect("opens");
        loader.next_batch().expect_err("damage").chain()
    };
    let csv = root.path().join("all.csv").display().to_string();

    let colours = one(Crop::new(120, 150).into());
    let classes = one(ClassIndex::new(csv).into());

    assert!(
        colours.contains("a pixel's index is not in the palette"),
        "{colours}"
    );
    assert_eq!(classes, colours);
}
