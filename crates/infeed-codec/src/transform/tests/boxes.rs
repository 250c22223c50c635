//! Boxes move with the pixels under them. Expected values are those of torchvision's formulas.

use super::*;
use infeed_core::sample::Depth;

const ALL: BoxFilter = BoxFilter {
    min_size: 1.0,
    min_area: 1.0,
    min_visibility: 0.0,
};

/// Moves a box through steps. Returns the box and the size of the result.
fn move_box(corners: [f64; 4], mut image: Size, steps: &[Step]) -> (MovingBox, Size) {
    let mut moving = MovingBox::new(corners, image);
    for step in steps {
        moving.follow(step, image);
        image = step.output_size(image);
    }
    (moving, image)
}

fn visible(corners: [f64; 4], image: Size, steps: &[Step]) -> [f64; 4] {
    move_box(corners, image, steps).0.visible()
}

fn resize_to(height: u32, width: u32) -> Step {
    Step::Resize {
        size: size(height, width),
        filter: Filter::Nearest,
        antialias: true,
    }
}

#[test]
fn three_formats_describe_the_same_corners() {
    let corners = [10.0, 20.0, 50.0, 30.0];
    for (format, values) in [
        (BoxFormat::Xyxy, [10.0, 20.0, 50.0, 30.0]),
        (BoxFormat::Xywh, [10.0, 20.0, 40.0, 10.0]),
        (BoxFormat::Cxcywh, [30.0, 25.0, 40.0, 10.0]),
    ] {
        assert_eq!(format.corners(values), corners, "{format:?}");
        assert_eq!(format.values(corners), values, "{format:?}");
    }
}

#[test]
fn each_step_moves_a_box_as_torchvision_does() {
    let image = size(100, 200);
    let corners = [10.0, 20.0, 50.0, 60.0];
    let pad = Step::zero_pad([3, 4, 5, 6]);
    for (step, expected) in [
        (Step::FlipX, [150.0, 20.0, 190.0, 60.0]),
        (Step::FlipY, [10.0, 40.0, 50.0, 80.0]),
        (resize_to(50, 50), [2.5, 10.0, 12.5, 30.0]),
        (pad, [13.0, 24.0, 53.0, 64.0]),
        (Step::Crop(region(30, 20, 40, 100)), [0.0, 0.0, 30.0, 30.0]),
        (Step::Crop(region(0, 0, 40, 40)), [10.0, 20.0, 40.0, 40.0]),
        (Step::Gray { channels: 1 }, corners),
    ] {
        assert_eq!(
            visible(corners, image, std::slice::from_ref(&step)),
            expected,
            "{step}"
        );
    }
}

#[test]
fn a_part_that_a_crop_removed_does_not_return_with_a_pad() {
    let steps = [
        Step::Crop(region(0, 20, 100, 100)),
        Step::zero_pad([20, 0, 0, 0]),
    ];

    let (moving, _) = move_box([10.0, 20.0, 50.0, 60.0], size(100, 200), &steps);

    assert_eq!(moving.visible(), [20.0, 20.0, 50.0, 60.0]);
    assert_eq!(moving.visibility(), 0.75);
}

#[test]
fn small_and_hidden_boxes_are_dropped() {
    let image = size(100, 100);
    let crop = [Step::Crop(region(0, 0, 50, 50))];
    let keeps = |corners, filter: BoxFilter| filter.keeps(&move_box(corners, image, &crop).0);
    let outside = [60.0, 60.0, 90.0, 90.0];
    let quarter = [40.0, 40.0, 60.0, 60.0];
    let none = BoxFilter {
        min_size: 0.0,
        min_area: 0.0,
        min_visibility: 0.0,
    };

    assert!(!keeps(outside, ALL) && !keeps(outside, none));
    assert!(keeps(quarter, ALL));
    for (share, kept) in [(0.25, true), (0.26, false)] {
        let filter = BoxFilter {
            min_visibility: share,
            ..ALL
        };
        assert_eq!(keeps(quarter, filter), kept);
    }
    assert!(!keeps([49.5, 0.0, 90.0, 40.0], ALL), "half a pixel wide");
    assert!(keeps([49.5, 0.0, 90.0, 40.0], none));
    let large = BoxFilter {
        min_area: 401.0,
        ..ALL
    };
    assert!(!keeps([0.0, 0.0, 20.0, 20.0], large));
    assert!(keeps([5.0, 5.0, 5.0, 5.0], none), "a box without area");
}

#[test]
fn a_drawn_rectangle_and_its_box_stay_together_through_all_geometry() {
    let kinds: [Transform; 9] = [
        Crop::new(20, 22).into(),
        CenterCrop::new(size(40, 24)).into(),
        RandomCrop {
            padding: Some(Padding::All(3)),
            ..RandomCrop::new(24)
        }
        .into(),
        CropOrPad::new(26, 40).into(),
        Pad::new(2).into(),
        RandomHorizontalFlip::new(0.7).into(),
        RandomVerticalFlip::new(0.7).into(),
        Resize {
            interpolation: Filter::Nearest,
            ..Resize::new(size(48, 60))
        }
        .into(),
        RandomResizedCrop {
            interpolation: Filter::Nearest.into(),
            ..RandomResizedCrop::new(size(40, 50))
        }
        .into(),
    ];
    let mut rng = Rng::new(3, 0, 0, 0);
    let mut visible = 0;
    for sample in 0..500 {
        let from = size(24 + rng.below(20), 24 + rng.below(20));
        let (left, top) = (rng.below(from.width - 4), rng.below(from.height - 4));
        let right = left + 2 + rng.below(from.width - left - 2);
        let bottom = top + 2 + rng.below(from.height - top - 2);
        let mut image = Image::default();
        image.reset(from, 1, Depth::U8);
        image.data.fill(0);
        for y in top..bottom {
            image.row_mut(y as usize)[left as usize..right as usize].fill(200);
        }
        let corners = [left, top, right, bottom].map(f64::from);
        let mut moving = MovingBox::new(corners, from);
        let mut scale = 1.0_f64;
        for number in 0..3 {
            let transform = &kinds[rng.below(kinds.len() as u32) as usize];
            let draw = transform.draw(image.size, &mut Rng::new(4, 0, sample, number));
            for step in draw.iter().flatten() {
                moving.follow(step, image.size);
                if let Step::Resize { size, .. } = step {
                    let y = f64::from(size.height) / f64::from(image.size.height);
                    let x = f64::from(size.width) / f64::from(image.size.width);
                    scale = scale.max(x).max(y) + 1.0;
                }
                image = apply(step, &image).expect("a step that fits");
            }
        }

        let rows: Vec<usize> = (0..image.height())
            .filter(|&y| image.row(y).contains(&200))
            .collect();
        let columns: Vec<usize> = (0..image.width())
            .filter(|&x| (0..image.height()).any(|y| image.row(y)[x] == 200))
            .collect();
        let [x1, y1, x2, y2] = moving.visible();
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else {
            // Nearest neighbour may leave out what is narrower than a pixel.
            assert!((x2 - x1).min(y2 - y1) < scale, "{moving:?}");
            continue;
        };
        visible += 1;
        let found = [columns[0], first, columns[columns.len() - 1] + 1, last + 1];
        // Without a resize the edges are equal; a resize rounds them to the new pixels.
        let tolerance = if scale > 1.0 { scale } else { 0.0 };
        for (found, expected) in found.into_iter().zip([x1, y1, x2, y2]) {
            let difference = (found as f64 - expected).abs();
            assert!(difference <= tolerance, "{found:?} {moving:?} {scale}");
        }
    }
    assert!(visible > 250, "{visible}");
}

#[test]
fn transforms_that_repeat_the_image_cannot_move_points() {
    let reflect = PadMode::Reflect;
    let mirrored = Pad {
        padding_mode: reflect,
        ..Pad::new(4)
    };
    let unpadded = RandomCrop {
        padding_mode: reflect,
        ..RandomCrop::new(8)
    };
    let padded = RandomCrop {
        pad_if_needed: true,
        ..unpadded.clone()
    };
    assert!(Transform::from(Pad::new(4)).moves_points());
    assert!(Transform::from(unpadded).moves_points());
    assert!(!Transform::from(mirrored).moves_points());
    assert!(!Transform::from(padded).moves_points());
    assert!(!Transform::from(ColorJitter::default()).moves_points());
}

#[test]
fn a_box_outside_the_image_never_returns() {
    let image = size(100, 200);
    let turn = Step::Warp(Warp {
        map: WarpMap::rotation(30.0, None),
        size: size(100, 100),
        filter: Filter::Bilinear,
        fill: Vec::new(),
        mask_fill: Vec::new(),
        part: None,
    });
    let crop = Step::Crop(region(0, 0, 100, 100));
    let is_left = |corners, steps: &[Step]| move_box(corners, image, steps).0.is_left();
    for outside in [
        // Outside, at the edge, and flat boxes outside.
        [120.0, 10.0, 150.0, 90.0],
        [100.0, 10.0, 150.0, 90.0],
        [120.0, 10.0, 120.0, 90.0],
    ] {
        assert!(
            !is_left(outside, std::slice::from_ref(&crop)),
            "{outside:?}"
        );
        assert!(
            !is_left(outside, &[crop.clone(), turn.clone()]),
            "{outside:?}"
        );
    }
    for inside in [[99.0, 10.0, 150.0, 90.0], [60.0, 10.0, 60.0, 90.0]] {
        assert!(is_left(inside, std::slice::from_ref(&crop)), "{inside:?}");
    }
    assert!(!is_left([220.0, 10.0, 220.0, 50.0], &[]));
}
