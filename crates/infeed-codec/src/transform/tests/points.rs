//! Points move with the pixels under them. Expected values are those of torchvision's keypoints.

use super::*;
use infeed_core::sample::Depth;

fn moving(points: &[[f64; 2]]) -> MovingPoints<'static> {
    let point = |&at: &[f64; 2]| MovingPoint {
        at,
        visibility: 2.0,
    };
    MovingPoints {
        points: points.iter().map(point).collect(),
        per_object: points.len(),
        pairs: &[],
        edges: false,
    }
}

#[test]
fn points_on_edges_flip_as_the_corners_of_boxes() {
    let image = size(100, 200);
    for (step, expected) in [
        (Step::FlipX, [[190.0, 20.0], [0.0, 100.0]]),
        (Step::FlipY, [[10.0, 80.0], [200.0, 0.0]]),
        (Step::zero_pad([3, 4, 5, 6]), [[13.0, 24.0], [203.0, 104.0]]),
    ] {
        let mut points = moving(&[[10.0, 20.0], [200.0, 100.0]]);
        points.edges = true;
        points.follow(&step, image);

        let found: Vec<[f64; 2]> = points.points.iter().map(|point| point.at).collect();
        assert_eq!(found, expected, "{step}");
        assert!(
            points.points.iter().all(|point| point.visibility == 2.0),
            "{step}"
        );
    }
}

#[test]
fn each_step_moves_a_point_as_torchvision_does() {
    let image = size(100, 200);
    let point = [10.0, 20.0];
    let resize = Step::Resize {
        size: size(50, 50),
        filter: Filter::Nearest,
        antialias: true,
    };
    for (step, expected, visibility) in [
        (Step::FlipX, [189.0, 20.0], 2.0),
        (Step::FlipY, [10.0, 79.0], 2.0),
        (resize, [2.5, 10.0], 2.0),
        (Step::zero_pad([3, 4, 5, 6]), [13.0, 24.0], 2.0),
        (Step::Crop(region(5, 4, 40, 100)), [6.0, 15.0], 2.0),
        (Step::Crop(region(30, 20, 40, 100)), [-10.0, -10.0], 0.0),
        (Step::Crop(region(0, 0, 20, 200)), [10.0, 20.0], 0.0),
        (Step::Gray { channels: 1 }, point, 2.0),
    ] {
        let mut points = moving(&[point]);
        points.follow(&step, image);

        assert_eq!(points.points[0].at, expected, "{step}");
        assert_eq!(points.points[0].visibility, visibility, "{step}");
    }
}

#[test]
fn a_point_that_a_crop_removed_stays_invisible_after_a_pad() {
    let mut points = moving(&[[10.0, 20.0], [50.0, 20.0]]);
    points.follow(&Step::Crop(region(0, 20, 100, 100)), size(100, 200));
    points.follow(&Step::zero_pad([20, 0, 0, 0]), size(100, 100));

    assert_eq!(points.points[0].at, [10.0, 20.0]);
    let found = [0, 1].map(|number| points.points[number].visibility);
    assert_eq!(found, [0.0, 2.0]);
}

#[test]
fn pairs_change_places_in_every_object_when_the_image_is_mirrored() {
    let image = size(10, 10);
    let given = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]];
    let mut points = moving(&[given, given].concat());
    points.per_object = 3;
    points.pairs = &[[1, 2]];
    let column = |points: &MovingPoints<'_>| -> Vec<f64> {
        points.points.iter().map(|point| point.at[0]).collect()
    };

    points.follow(&Step::FlipX, image);
    assert_eq!(column(&points), [9.0, 7.0, 8.0, 9.0, 7.0, 8.0]);
    // Two flips are a turn by 180 degrees, after which left is left.
    points.follow(&Step::FlipY, image);
    assert_eq!(column(&points), [9.0, 8.0, 7.0, 9.0, 8.0, 7.0]);
}

#[test]
fn a_bright_pixel_and_its_point_stay_together_through_exact_geometry() {
    let kinds: [Transform; 6] = [
        Crop::new(20, 22).into(),
        RandomCrop {
            padding: Some(Padding::All(3)),
            ..RandomCrop::new(24)
        }
        .into(),
        CropOrPad::new(26, 40).into(),
        Pad::new(2).into(),
        RandomHorizontalFlip::new(0.7).into(),
        RandomVerticalFlip::new(0.7).into(),
    ];
    let mut rng = Rng::new(3, 0, 0, 0);
    let mut visible = 0;
    for sample in 0..500 {
        let from = size(24 + rng.below(20), 24 + rng.below(20));
        let (x, y) = (rng.below(from.width), rng.below(from.height));
        let mut image = Image::default();
        image.reset(from, 1, Depth::U8);
        image.data.fill(0);
        image.row_mut(y as usize)[x as usize] = 200;
        let mut points = moving(&[[f64::from(x), f64::from(y)]]);
        for number in 0..3 {
            let transform = &kinds[rng.below(kinds.len() as u32) as usize];
            let draw = transform.draw(image.size, &mut Rng::new(4, 0, sample, number));
            for step in draw.iter().flatten() {
                points.follow(step, image.size);
                image = apply(step, &image).expect("a step that fits");
            }
        }

        let found = image.data.iter().position(|value| *value == 200);
        let point = points.points[0];
        assert_eq!(found.is_some(), point.visibility > 0.0, "{point:?}");
        if let Some(found) = found {
            let at = [found % image.width(), found / image.width()];
            assert_eq!(point.at, at.map(|n| n as f64));
            visible += 1;
        }
    }
    assert!(visible > 250, "{visible}");
}
