//! Compares pixels and sizes with Pillow's, torchvision's and TensorFlow's.
//!
//! `testdata/transforms/make.py` writes the files and documents the method.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;

pub(super) struct Golden {
    cases: Value,
    pixels: Vec<u8>,
}

impl Golden {
    fn open() -> Golden {
        Golden::of_files("cases.json", "pixels.bin")
    }

    pub(super) fn of_files(cases: &str, pixels: &str) -> Golden {
        let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/transforms");
        let read = |name: &str| -> Vec<u8> {
            let path: PathBuf = at.join(name);
            fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        Golden {
            cases: serde_json::from_slice(&read(cases)).unwrap(),
            pixels: read(pixels),
        }
    }

    pub(super) fn of<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let cases: Vec<T> = serde_json::from_value(self.cases[kind].clone()).unwrap();
        assert!(!cases.is_empty(), "no cases of {kind}");
        cases
    }

    pub(super) fn image(&self, place: &Place) -> Image {
        let mut image = Image::default();
        image.reset(size(place.height, place.width), place.channels, place.depth);
        let bytes = &self.pixels[place.offset..place.offset + image.data.len()];
        match place.depth {
            Depth::U8 => image.data.copy_from_slice(bytes),
            Depth::U16 => {
                for (to, from) in image.data.chunks_exact_mut(2).zip(bytes.chunks_exact(2)) {
                    let value = u16::from_le_bytes([from[0], from[1]]);
                    to.copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
        image
    }
}

#[derive(serde::Deserialize)]
pub(super) struct Place {
    offset: usize,
    height: u32,
    width: u32,
    channels: usize,
    depth: Depth,
}

fn samples(image: &Image) -> Vec<i32> {
    match image.depth {
        Depth::U8 => image.data.iter().map(|&v| i32::from(v)).collect(),
        Depth::U16 => {
            let (samples, _) = image.data.as_chunks::<2>();
            samples
                .iter()
                .map(|&v| i32::from(u16::from_ne_bytes(v)))
                .collect()
        }
    }
}

pub(super) fn largest_difference(a: &Image, b: &Image) -> i32 {
    assert_eq!((a.size, a.channels, a.depth), (b.size, b.channels, b.depth));
    samples(a)
        .iter()
        .zip(samples(b))
        .map(|(a, b)| (a - b).abs())
        .max()
        .unwrap_or(0)
}

#[test]
fn resizes_are_within_one_level_of_pillow_and_nearest_is_equal() {
    #[derive(serde::Deserialize)]
    struct Case {
        input: Place,
        filter: Filter,
        output: Place,
        crop: Option<Region>,
    }
    let golden = Golden::open();
    let mut scratch = TransformScratch::default();
    let mut out = Image::default();

    for case in golden.of::<Case>("resize") {
        let input = golden.image(&case.input);
        let expected = golden.image(&case.output);
        let mut view = PixelView::from(&input);
        if let Some(crop) = case.crop {
            view = view.crop(crop).unwrap();
        }

        let step = Step::Resize {
            size: expected.size,
            filter: case.filter,
            antialias: true,
        };
        step.apply(view, &mut out, false, &mut scratch).unwrap();

        let most = if case.filter == Filter::Nearest { 0 } else { 1 };
        let difference = largest_difference(&out, &expected);
        let what = format!(
            "{:?} of {} to {} px, {} channels of {:?}, crop {:?}",
            case.filter, input.size, out.size, out.channels, out.depth, case.crop
        );
        assert!(difference <= most, "{what}: {difference} levels");
    }
}

#[test]
fn colours_are_those_of_the_torchvision_arithmetic() {
    #[derive(serde::Deserialize)]
    struct Case {
        input: Place,
        change: String,
        factor: f64,
        output: Place,
    }
    let golden = Golden::open();

    for case in golden.of::<Case>("color") {
        let input = golden.image(&case.input);
        let step = match case.change.as_str() {
            "brightness" => Step::Color(vec![ColorStep::Brightness(case.factor)]),
            "contrast" => Step::Color(vec![ColorStep::Contrast(case.factor)]),
            "saturation" => Step::Color(vec![ColorStep::Saturation(case.factor)]),
            "hue" => Step::Color(vec![ColorStep::Hue(case.factor)]),
            _ => Step::Gray {
                channels: case.factor as u32,
            },
        };

        let out = apply(&step, &input).unwrap();

        let difference = largest_difference(&out, &golden.image(&case.output));
        assert_eq!(difference, 0, "{step:?} of {} channels", input.channels);
    }
}

#[test]
fn added_pixels_are_those_of_numpy_in_every_mode() {
    #[derive(serde::Deserialize)]
    struct Case {
        input: Place,
        mode: PadMode,
        sides: [u32; 4],
        output: Place,
    }
    let golden = Golden::open();

    for case in golden.of::<Case>("pad") {
        let pad = Pad {
            padding_mode: case.mode,
            ..Pad::new(Padding::Sides(case.sides))
        };
        let input = golden.image(&case.input);
        let steps = Transform::from(pad)
            .draw(input.size, &mut Rng::new(0, 0, 0, 0))
            .unwrap();

        let out = apply(&steps[0], &input).unwrap();

        assert!(
            out == golden.image(&case.output),
            "{:?} {:?}",
            case.mode,
            case.sides
        );
    }
}

/// Returns the padding and crop of some steps: `[left, top, right, bottom]`, then the first row and
/// column that remain.
fn padding_and_crop(steps: &[Step]) -> ([u32; 4], [u32; 2]) {
    let mut found = ([0; 4], [0; 2]);
    for step in steps {
        match *step {
            Step::Pad {
                left,
                top,
                right,
                bottom,
                ..
            } => found.0 = [left, top, right, bottom],
            Step::Crop(region) => found.1 = [region.top, region.left],
            ref other => panic!("{other:?}"),
        }
    }
    found
}

#[test]
fn the_centre_is_that_of_torchvision() {
    for [h, w, ch, cw, left, top, right, bottom, y, x] in
        Golden::open().of::<[u32; 10]>("center_crop")
    {
        let crop = Transform::from(CenterCrop::new(size(ch, cw)));

        let steps = crop.draw(size(h, w), &mut Rng::new(0, 0, 0, 0)).unwrap();

        let found = padding_and_crop(&steps);
        assert_eq!(
            found,
            ([left, top, right, bottom], [y, x]),
            "{ch}x{cw} of {h}x{w}"
        );
    }
}

#[test]
fn crop_or_pad_equals_tensorflow() {
    for [h, w, th, tw, y, x, left, top, right, bottom] in
        Golden::open().of::<[u32; 10]>("crop_or_pad")
    {
        let crop = Transform::from(CropOrPad::new(th, tw));

        let steps = crop.draw(size(h, w), &mut Rng::new(0, 0, 0, 0)).unwrap();

        let found = padding_and_crop(&steps);
        assert_eq!(
            found,
            ([left, top, right, bottom], [y, x]),
            "{th}x{tw} of {h}x{w}"
        );
    }
}

#[test]
fn the_short_side_rule_is_that_of_torchvision() {
    type Case = (u32, u32, u32, Option<u32>, u32, u32);
    for (h, w, wanted, max_size, new_h, new_w) in Golden::open().of::<Case>("short_side") {
        let resize = Transform::from(Resize {
            max_size,
            ..Resize::new(wanted)
        });

        let found = resize.output_size(Some(size(h, w))).unwrap();

        // torchvision computes a side of 0 and fails; infeed keeps a side of 1.
        let expected = size(new_h.max(1), new_w.max(1));
        assert_eq!(
            found,
            Some(expected),
            "{h}x{w} to {wanted}, at most {max_size:?}"
        );
    }
}

#[derive(serde::Deserialize)]
struct Moments {
    height: u32,
    width: u32,
    /// Means of top, left, height and width.
    mean: [f64; 4],
    std: [f64; 4],
}

/// Compares mean and deviation of the draws with those of NumPy's simulation.
fn assert_moments(expected: &Moments, transform: &Transform) {
    const DRAWS: u64 = 40_000;
    let image = size(expected.height, expected.width);
    let (mut sum, mut squares) = ([0.0; 4], [0.0; 4]);
    for position in 0..DRAWS {
        let steps = transform
            .draw(image, &mut Rng::new(1, 0, position, 0))
            .unwrap();
        let drawn = steps.first().and_then(|step| match *step {
            Step::Crop(region) | Step::Erase { region, .. } => Some(region),
            _ => None,
        });
        let nothing = match transform {
            Transform::RandomErasing(_) => region(0, 0, 0, 0),
            _ => image.whole(),
        };
        let r = drawn.unwrap_or(nothing);
        for (at, v) in [r.top, r.left, r.size.height, r.size.width]
            .into_iter()
            .enumerate()
        {
            sum[at] += f64::from(v);
            squares[at] += f64::from(v).powi(2);
        }
    }
    for at in 0..4 {
        let mean = sum[at] / DRAWS as f64;
        let std = (squares[at] / DRAWS as f64 - mean * mean).max(0.0).sqrt();
        // Five standard errors of the difference of two means.
        let error = 5.0 * expected.std[at] * (1.0 / DRAWS as f64 + 1e-5).sqrt() + 1e-9;
        let what = format!("{} of {image} px, parameter {at}", transform.name());
        assert!((mean - expected.mean[at]).abs() <= error, "{what}: {mean}");
        assert!(
            (std - expected.std[at]).abs() <= 0.03 * expected.std[at] + 1e-6,
            "{what}: {std}"
        );
    }
}

#[test]
fn random_resized_crops_are_distributed_as_in_torchvision() {
    for expected in Golden::open().of::<Moments>("resized_crop") {
        assert_moments(&expected, &RandomResizedCrop::new(224).into());
    }
}

#[test]
fn erased_regions_are_distributed_as_in_torchvision() {
    for expected in Golden::open().of::<Moments>("erasing") {
        assert_moments(&expected, &RandomErasing::new(1.0).into());
    }
}
