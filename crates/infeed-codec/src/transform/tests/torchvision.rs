//! Compares pixels, boxes and points with those that torchvision returned for the same draws.
//!
//! `testdata/transforms/make_torchvision.py` writes the files.

use super::golden::{Golden, Place, largest_difference};
use super::*;
use crate::transform::augment::{Change, Strength, Strengths, linspace};

fn golden() -> Golden {
    Golden::of_files("torchvision.json", "torchvision.bin")
}

/// A warp with its image and, for some, a mask and boxes.
#[derive(serde::Deserialize)]
struct WarpCase {
    filter: Filter,
    fill: Vec<f64>,
    image: Place,
    out: Place,
    mask: Option<Place>,
    mask_out: Option<Place>,
    #[serde(default)]
    boxes: Vec<[f64; 4]>,
    #[serde(default)]
    moved: Vec<[f64; 4]>,
    #[serde(default)]
    points: Vec<[f64; 2]>,
    #[serde(default)]
    points_moved: Vec<[f64; 2]>,
}

/// Moves points of an image of this size and compares their coordinates.
fn compare_points(
    step: &Step,
    image: Size,
    (points, expected): (&[[f64; 2]], &[[f64; 2]]),
    tolerance: f64,
) {
    let point = |&at: &[f64; 2]| MovingPoint {
        at,
        visibility: 1.0,
    };
    let mut moving = MovingPoints {
        points: points.iter().map(point).collect(),
        per_object: 1,
        pairs: &[],
        edges: false,
    };
    moving.follow(step, image);
    for (found, expected) in moving.points.iter().zip(expected) {
        let [x, y] = [0, 1].map(|side| (found.at[side] - expected[side]).abs());
        assert!(x.max(y) <= tolerance, "{step}: {found:?}, not {expected:?}");
    }
}

/// Share of the pixels that differ by more than one level.
fn share_apart(a: &Image, b: &Image) -> f64 {
    let pairs = a.data.iter().zip(&b.data);
    let apart = pairs.filter(|(a, b)| a.abs_diff(**b) > 1).count();
    apart as f64 / a.data.len() as f64
}

impl WarpCase {
    /// Compares images, masks and boxes. A nearest pixel may be the next one if the position is
    /// halfway between two, where torchvision rounds sums differently on each processor.
    fn compare(&self, golden: &Golden, map: WarpMap, tolerance: f64, what: &str) {
        let image = golden.image(&self.image);
        let expected = golden.image(&self.out);
        let step = Step::Warp(Warp {
            map,
            size: expected.size,
            filter: self.filter,
            fill: self.fill.clone(),
            mask_fill: vec![7.0],
            part: None,
        });
        let out = apply(&step, &image).expect("a valid warp");
        let most = if self.filter == Filter::Bilinear {
            0.0
        } else {
            0.002
        };
        let share = share_apart(&out, &expected);
        assert!(share <= most, "{what}: {share} of the values differ");
        if let (Some(mask), Some(mask_out)) = (&self.mask, &self.mask_out) {
            let mut out = Image::default();
            let mut scratch = TransformScratch::default();
            let mask = golden.image(mask);
            step.apply((&mask).into(), &mut out, true, &mut scratch)
                .expect("a valid warp");
            let share = share_apart(&out, &golden.image(mask_out));
            assert!(share <= 0.002, "{what}: {share} of the mask differs");
        }
        let points = (&self.points[..], &self.points_moved[..]);
        compare_points(&step, image.size, points, tolerance);
        for (corners, moved) in self.boxes.iter().zip(&self.moved) {
            let mut moving = MovingBox::new(*corners, image.size);
            moving.follow(&step, image.size);
            for (found, expected) in moving.visible().iter().zip(moved) {
                let difference = (found - expected).abs();
                assert!(difference <= tolerance, "{what}: {moving:?}, not {moved:?}");
            }
        }
    }
}

#[test]
fn points_move_as_those_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        points: Vec<[f64; 2]>,
        points_moved: Vec<[f64; 2]>,
    }
    let cases = golden().of::<Case>("points");
    assert_eq!(cases.len(), 5);
    for case in cases {
        let step = match case.name.as_str() {
            "flip_x" => Step::FlipX,
            "flip_y" => Step::FlipY,
            "resize" => Step::Resize {
                size: size(40, 17),
                filter: Filter::Bilinear,
                antialias: true,
            },
            "crop" => Step::Crop(region(2, 5, 12, 16)),
            "pad" => Step::zero_pad([1, 2, 3, 4]),
            name => panic!("{name}"),
        };
        let points = (&case.points[..], &case.points_moved[..]);
        compare_points(&step, size(23, 31), points, 1e-5);
    }
}

#[test]
fn affine_maps_are_within_one_level_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        angle: f64,
        translate: [f64; 2],
        scale: f64,
        shear: [f64; 2],
        center: Option<[f64; 2]>,
        #[serde(flatten)]
        warp: WarpCase,
    }
    let golden = golden();
    for case in golden.of::<Case>("affine") {
        let map = WarpMap::Affine {
            angle: case.angle,
            translate: case.translate,
            scale: case.scale,
            shear: case.shear,
            center: case.center,
        };
        let what = format!("{map} {:?} {:?}", case.warp.filter, case.warp.fill);
        case.warp.compare(&golden, map, 1e-4, &what);
    }
}

#[test]
fn rotations_have_the_sizes_and_pixels_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        angle: f64,
        expand: bool,
        center: Option<[f64; 2]>,
        #[serde(flatten)]
        warp: WarpCase,
    }
    let golden = golden();
    for case in golden.of::<Case>("rotate") {
        let (angle, expand) = (case.angle, case.expand);
        let rotation = Transform::from(RandomRotation {
            degrees: Jitter::Between([angle; 2]),
            expand,
            center: case.center,
            ..RandomRotation::new(0.0)
        });
        let image = golden.image(&case.warp.image);
        let steps = rotation.draw(image.size, &mut Rng::new(0, 0, 0, 0));
        let steps = steps.expect("a valid rotation");
        let [Step::Warp(drawn)] = &steps[..] else {
            panic!("{steps:?}")
        };
        let what = format!("{angle} {expand} {:?}", case.warp.filter);
        assert_eq!(drawn.size, golden.image(&case.warp.out).size, "{what}");
        // With `expand`, torchvision rounds the size up, centres the pixels, and leaves the boxes
        // at the upper left.
        let tolerance = if expand { 1.0 } else { 1e-4 };
        case.warp.compare(&golden, drawn.map, tolerance, &what);
    }
}

#[test]
fn perspectives_are_within_one_level_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        corners: [[f64; 2]; 4],
        #[serde(flatten)]
        warp: WarpCase,
    }
    let golden = golden();
    for case in golden.of::<Case>("perspective") {
        let map = WarpMap::Perspective {
            corners: case.corners,
        };
        let what = format!("{map} {:?}", case.warp.filter);
        case.warp.compare(&golden, map, 1e-4, &what);
    }
}

#[test]
fn elastic_maps_are_within_one_level_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        alpha: [f64; 2],
        sigma: [f64; 2],
        seed: u64,
        #[serde(flatten)]
        warp: WarpCase,
    }
    let golden = golden();
    for case in golden.of::<Case>("elastic") {
        let map = WarpMap::Elastic(ElasticField {
            alpha: case.alpha,
            sigma: case.sigma,
            seed: case.seed,
        });
        let what = format!("{map} {:?}", case.warp.filter);
        case.warp.compare(&golden, map, 1e-4, &what);
    }
}

#[test]
fn sums_of_changed_copies_are_those_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        image: Place,
        out: Place,
    }
    let golden = golden();
    for case in golden.of::<Case>("mixed") {
        let step = Step::Chains {
            own: 0.3,
            chains: vec![
                (0.45, vec![Step::Color(vec![ColorStep::Posterize(3)])]),
                (
                    0.25,
                    vec![
                        Step::Color(vec![ColorStep::Invert]),
                        Step::Color(vec![ColorStep::Autocontrast]),
                    ],
                ),
            ],
        };
        let out = apply(&step, &golden.image(&case.image)).expect("valid");
        let difference = largest_difference(&out, &golden.image(&case.out));
        assert!(difference <= 1, "{difference} levels");
    }
}

#[test]
fn colours_equal_those_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        draw: Vec<f64>,
        image: Place,
        out: Place,
    }
    let golden = golden();
    for case in golden.of::<Case>("colors") {
        let draw = &case.draw;
        let change = match case.name.as_str() {
            "invert" => ColorStep::Invert,
            "posterize" => ColorStep::Posterize(draw[0] as u32),
            "solarize" => ColorStep::Solarize(draw[0]),
            "autocontrast" => ColorStep::Autocontrast,
            "equalize" => ColorStep::Equalize,
            "sharpness" => ColorStep::Sharpness(draw[0]),
            "gray" => ColorStep::Gray,
            "jpeg" => ColorStep::Compress(draw[0] as u8),
            "permute" => ColorStep::Permute([0, 1, 2].map(|at| draw[at] as u8)),
            name => panic!("{name}"),
        };
        let out = apply(
            &Step::Color(vec![change.clone()]),
            &golden.image(&case.image),
        );
        let difference = largest_difference(&out.expect("valid"), &golden.image(&case.out));
        // torchvision's sums for sharpness have a rounding less on some processors.
        let most = i32::from(matches!(change, ColorStep::Sharpness(_) | ColorStep::Gray));
        assert!(difference <= most, "{change}: {difference} levels");
    }
}

#[test]
fn blurs_are_within_one_level_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        kernel: [u32; 2],
        sigma: f64,
        image: Place,
        out: Place,
    }
    let golden = golden();
    for case in golden.of::<Case>("blurs") {
        let (kernel, sigma) = (case.kernel, case.sigma);
        let change = ColorStep::Blur { kernel, sigma };
        let out = apply(
            &Step::Color(vec![change.clone()]),
            &golden.image(&case.image),
        );
        let difference = largest_difference(&out.expect("valid"), &golden.image(&case.out));
        assert!(difference <= 1, "{change}: {difference} levels");
    }
}

#[test]
fn strengths_of_augmentations_are_those_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        start: f32,
        end: f32,
        values: Vec<f32>,
    }
    for case in golden().of::<Case>("spaced") {
        let count = case.values.len() as u32;
        for (at, expected) in case.values.iter().enumerate() {
            let found = linspace(case.start, case.end, count, at as u32);
            assert!((found - expected).abs() <= 1e-6 * case.end.abs().max(1.0));
            // Shifts are truncated to pixels.
            assert_eq!(found.trunc(), expected.trunc(), "{at} of {count}");
        }
    }
}

#[test]
fn augmentations_keep_the_bits_of_torchvision() {
    #[derive(serde::Deserialize)]
    struct Case {
        bins: u32,
        most: u32,
        kept: u32,
        values: Vec<u32>,
    }
    let image = size(20, 20);
    for case in golden().of::<Case>("bits") {
        let found = (0..case.bins).map(|bin| {
            let strength = Strength {
                strongest: match (case.most, case.kept) {
                    (4, 8) => Strengths::of_series(image),
                    (6, 8) => Strengths::wide(),
                    _ => Strengths::of_mix(image),
                },
                bins: case.bins,
                bin,
                filter: Filter::Nearest,
                fill: &None,
                mask_fill: &ChannelValues::default(),
            };
            let mut rng = Rng::new(0, 0, 0, 0);
            let step = strength.step(Change::Posterize, image, &mut rng);
            match step {
                Some(Step::Color(changes)) => match changes[..] {
                    [ColorStep::Posterize(bits)] => bits,
                    _ => panic!("{changes:?}"),
                },
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(found.collect::<Vec<u32>>(), case.values);
    }
}
