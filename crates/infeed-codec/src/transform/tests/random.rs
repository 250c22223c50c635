//! Warps, crops around boxes, noise and random choices.

use super::*;
use infeed_core::sample::Depth;

/// Draws the steps of a transform for one sample.
fn draw_steps(transform: &Transform, image: Size, boxes: &[[f64; 4]], position: u64) -> Vec<Step> {
    let mut rng = Rng::new(1, 0, position, 0);
    transform
        .draw_around(image, boxes, &mut rng)
        .expect("a valid draw")
}

#[test]
fn half_a_turn_moves_every_kind_of_pixel_without_a_change() {
    for filter in [Filter::Nearest, Filter::Bilinear] {
        for (channels, depth) in [
            (1, Depth::U8),
            (2, Depth::U16),
            (3, Depth::U8),
            (4, Depth::U16),
        ] {
            let image = numbered_image(size(7, 10), channels, depth);
            let turn = Transform::from(RandomRotation {
                degrees: Jitter::Between([180.0; 2]),
                interpolation: filter,
                ..RandomRotation::new(0.0)
            });

            let steps = draw_steps(&turn, image.size, &[], 0);

            let turned = apply(&steps[0], &image).expect("a valid step");
            let [x, y] = [Step::FlipX, Step::FlipY];
            let expected = apply(&y, &apply(&x, &image).expect("a flip")).expect("a flip");
            assert_eq!(turned, expected, "{filter:?} {channels} {depth:?}");
        }
    }
}

/// Returns a region that fits a size.
fn any_region(of: Size, rng: &mut Rng) -> Region {
    let part = size(1 + rng.below(of.height), 1 + rng.below(of.width));
    Region {
        top: rng.below(of.height - part.height + 1),
        left: rng.below(of.width - part.width + 1),
        size: part,
    }
}

#[test]
fn a_part_of_a_warp_is_the_crop_of_the_whole_and_reads_only_its_source_region() {
    let warps = |filter| -> [Transform; 5] {
        [
            RandomAffine {
                scale: Some([0.5, 1.5]),
                perspective: Some(0.004),
                interpolation: filter,
                fill: ChannelValues::All(9.0),
                ..RandomAffine::new(60.0)
            }
            .into(),
            RandomAffine {
                translate: Some([0.4, 0.4]),
                scale: Some([0.3, 3.0]),
                shear: Some(Shear::By(15.0)),
                interpolation: filter,
                fill: ChannelValues::All(9.0),
                ..RandomAffine::new(60.0)
            }
            .into(),
            RandomRotation {
                expand: true,
                interpolation: filter,
                ..RandomRotation::new(180.0)
            }
            .into(),
            RandomPerspective {
                interpolation: filter,
                ..RandomPerspective::new(1.0)
            }
            .into(),
            ElasticTransform {
                alpha: ValuePair::Each([10.0, 40.0]),
                sigma: ValuePair::Each([0.2, 0.25]),
                interpolation: filter,
                ..ElasticTransform::default()
            }
            .into(),
        ]
    };
    let (mut smaller, mut empty) = (0, 0);
    for sample in 0..600 {
        let mut rng = Rng::new(3, 0, sample, 0);
        let filter = [Filter::Nearest, Filter::Bilinear][sample as usize % 2];
        let transform = &warps(filter)[sample as usize / 2 % 4];
        let image = numbered_image(
            size(2 + rng.below(40), 2 + rng.below(40)),
            1 + rng.below(4) as usize,
            [Depth::U8, Depth::U16][rng.below(2) as usize],
        );
        let steps = draw_steps(transform, image.size, &[], sample);
        let [Step::Warp(warp)] = &steps[..] else {
            continue;
        };
        let whole = apply(&steps[0], &image).expect("a warp");
        let first = any_region(whole.size, &mut rng);
        let second = any_region(first.size, &mut rng);
        let part = warp.crop(first).crop(second);
        let crops = [Step::Crop(first), Step::Crop(second)];
        let expected = crops
            .iter()
            .fold(whole, |image, crop| apply(crop, &image).expect("a crop"));

        let found = apply(&Step::Warp(part.clone()), &image).expect("a part");

        assert_eq!(found, expected, "{part:?}");
        let moved = |steps: &[Step]| {
            let mut size = image.size;
            steps.iter().fold([3.25, 4.5], |at, step| {
                let moved = step.move_point(at, size);
                size = step.output_size(size);
                moved
            })
        };
        let [x, y] = moved(&[steps[0].clone(), crops[0].clone(), crops[1].clone()]);
        let [part_x, part_y] = moved(&[Step::Warp(part.clone())]);
        assert!((x - part_x).abs() < 1e-9 && (y - part_y).abs() < 1e-9);

        let source = part.source_region(image.size);
        let mut other = image.clone();
        let pixel = image.channels * image.depth.bytes();
        for y in 0..image.height() {
            let is_row = (source.top as usize..source.bottom() as usize).contains(&y);
            let columns = source.left as usize * pixel..source.right() as usize * pixel;
            for (at, byte) in other.row_mut(y).iter_mut().enumerate() {
                if !(is_row && columns.contains(&at)) {
                    *byte ^= 0x55;
                }
            }
        }
        smaller += u32::from(source.size.pixels() * 2 < image.size.pixels());
        empty += u32::from(source.size.pixels() == 0);
        let same = apply(&Step::Warp(part), &other).expect("a part");
        assert_eq!(same, expected, "outside of {source:?}");
    }
    assert!(smaller > 60 && empty > 3, "{smaller} {empty}");
}

#[test]
fn a_warped_rectangle_stays_in_its_box() {
    let kinds: [Transform; 4] = [
        RandomAffine {
            translate: Some([0.1, 0.1]),
            scale: Some([0.7, 1.3]),
            shear: Some(Shear::By(15.0)),
            ..RandomAffine::new(60.0)
        }
        .into(),
        RandomRotation::new(180.0).into(),
        RandomRotation {
            expand: true,
            ..RandomRotation::new(180.0)
        }
        .into(),
        RandomPerspective::new(1.0).into(),
    ];
    let mut compared = 0;
    for sample in 0..400 {
        let mut rng = Rng::new(8, 0, sample, 0);
        let mut image = Image::default();
        image.reset(size(60 + rng.below(20), 60 + rng.below(20)), 1, Depth::U8);
        image.data.fill(0);
        let (left, top) = (20 + rng.below(10), 20 + rng.below(10));
        let (right, bottom) = (left + 4 + rng.below(12), top + 4 + rng.below(12));
        for y in top..bottom {
            image.row_mut(y as usize)[left as usize..right as usize].fill(200);
        }
        let mut moving = MovingBox::new([left, top, right, bottom].map(f64::from), image.size);
        let transform = &kinds[sample as usize % kinds.len()];
        let Some(step) = draw_steps(transform, image.size, &[], sample).pop() else {
            continue;
        };
        moving.follow(&step, image.size);

        let out = apply(&step, &image).expect("a valid step");

        let [x1, y1, x2, y2] = moving.visible();
        let is_whole = moving.visibility() > 0.999;
        let rows = (0..out.height()).filter(|&y| out.row(y).contains(&200));
        let columns = (0..out.width()).filter(|&x| (0..out.height()).any(|y| out.row(y)[x] == 200));
        let (rows, columns): (Vec<usize>, Vec<usize>) = (rows.collect(), columns.collect());
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            assert!(!is_whole, "{step} lost {moving:?}");
            continue;
        };
        let found = [columns[0], *first, columns[columns.len() - 1] + 1, last + 1];
        let inside = [(found[0], x1), (found[1], y1)];
        assert!(
            inside.iter().all(|(found, low)| *found as f64 > low - 1.0),
            "{step}"
        );
        let inside = [(found[2], x2), (found[3], y2)];
        assert!(
            inside
                .iter()
                .all(|(found, high)| (*found as f64) < high + 1.0),
            "{step}"
        );
        if is_whole {
            compared += 1;
            // A sharp corner may lie between the centres of pixels.
            for (found, expected) in found.into_iter().zip([x1, y1, x2, y2]) {
                assert!(
                    (found as f64 - expected).abs() < 3.0,
                    "{step} {found} {moving:?}"
                );
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn a_warp_that_changes_nothing_draws_no_step() {
    let image = size(20, 30);
    let still: [Transform; 3] = [
        RandomAffine::new(0.0).into(),
        RandomRotation::new(0.0).into(),
        RandomPerspective {
            distortion_scale: 0.0,
            ..RandomPerspective::new(1.0)
        }
        .into(),
    ];
    for transform in still {
        assert_eq!(draw_steps(&transform, image, &[], 0), [], "{transform:?}");
    }
    let line = size(1, 30);
    let perspective = RandomPerspective::new(1.0).into();
    assert_eq!(
        draw_steps(&perspective, line, &[], 0),
        [],
        "corners on a line"
    );
}

#[test]
fn a_crop_around_boxes_keeps_the_overlap_and_drops_boxes_by_their_centre() {
    let image = size(100, 120);
    let boxes = [
        [10.0, 10.0, 40.0, 50.0],
        [60.0, 30.0, 110.0, 90.0],
        [90.0, 5.0, 118.0, 25.0],
    ];
    let crop = Transform::from(RandomIoUCrop {
        sampler_options: vec![0.5],
        ..RandomIoUCrop::default()
    });
    let mut crops = 0;
    for position in 0..300 {
        let steps = draw_steps(&crop, image, &boxes, position);
        let [keep @ Step::KeepCentres(region), cut @ Step::Crop(cropped)] = &steps[..] else {
            assert_eq!(steps, [], "no region was found");
            continue;
        };
        crops += 1;
        assert_eq!(region, cropped);
        let ratio = f64::from(region.size.width) / f64::from(region.size.height);
        assert!(
            (0.5..=2.0).contains(&ratio) && region.fits(image),
            "{region:?}"
        );
        let edges = [
            f64::from(region.left),
            f64::from(region.top),
            region.right() as f64,
            region.bottom() as f64,
        ];
        let mut most = 0.0_f64;
        for corners in boxes {
            let mut moving = MovingBox::new(corners, image);
            moving.follow(keep, image);
            moving.follow(cut, image);
            let [x, y] = [0, 1].map(|side| (corners[side] + corners[side + 2]) / 2.0);
            let inside = edges[0] < x && x < edges[2] && edges[1] < y && y < edges[3];
            assert_eq!(moving.is_left(), inside, "{corners:?} {region:?}");
            if inside {
                let width = corners[2].min(edges[2]) - corners[0].max(edges[0]);
                let height = corners[3].min(edges[3]) - corners[1].max(edges[1]);
                let area = |c: [f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
                most = most.max(width * height / (area(corners) + area(edges) - width * height));
            }
        }
        assert!(most >= 0.5, "{most} of {region:?}");
    }
    assert!(crops > 100, "{crops}");
    assert!(crop.needs_boxes());
    assert_eq!(draw_steps(&crop, image, &[], 0), [], "no boxes");
    let never = Transform::from(RandomIoUCrop {
        sampler_options: vec![1.0],
        ..RandomIoUCrop::default()
    });
    assert_eq!(draw_steps(&never, image, &boxes, 0), []);
}

#[test]
fn a_crop_draws_one_of_several_interpolations_and_keeps_its_region() {
    let crop = |interpolation| {
        Transform::from(RandomResizedCrop {
            interpolation,
            ..RandomResizedCrop::new(16)
        })
    };
    let any = crop(FilterChoice::Any(vec![Filter::Bilinear, Filter::Bicubic]));
    let one = crop(Filter::Bilinear.into());
    let mut bicubic = 0;
    for seed in 0..200 {
        let [found, plain] = [&any, &one].map(|crop| draw_steps(crop, size(90, 120), &[], seed));

        let (Some(Step::Resize { filter, .. }), [region, _]) = (found.last(), &plain[..]) else {
            panic!("{found:?} {plain:?}");
        };
        assert_eq!(&found[0], region);
        bicubic += usize::from(*filter == Filter::Bicubic);
    }
    assert!((70..130).contains(&bicubic), "{bicubic}");
}

#[test]
fn sizes_for_detection_are_those_of_the_formulas() {
    let image = size(300, 400);
    let resized = |transform: Transform| match &draw_steps(&transform, image, &[], 3)[..] {
        [Step::Resize { size, .. }] => *size,
        steps => panic!("{steps:?}"),
    };
    assert_eq!(
        resized(LongestMaxSize::new(150).into()),
        size(112, 150),
        "112.5 to even"
    );
    let up = LongestMaxSize {
        round_up: true,
        ..LongestMaxSize::new(151)
    };
    assert_eq!(resized(up.into()), size(114, 151), "113.25 up");
    assert_eq!(
        resized(RandomShortestSize::new([150]).into()),
        size(150, 200)
    );
    let limited = RandomShortestSize {
        max_size: Some(150),
        ..RandomShortestSize::new([150])
    };
    assert_eq!(
        resized(limited.into()),
        size(112, 150),
        "112.5 is truncated"
    );
    let exact = ScaleJitter {
        scale_range: [0.5; 2],
        ..ScaleJitter::new([200, 120])
    };
    assert_eq!(resized(exact.into()), size(60, 80), "120 high at scale 1");
    for position in 0..200 {
        let steps = draw_steps(&RandomZoomOut::new(1.0).into(), image, &[], position);
        let [
            Step::Pad {
                left,
                top,
                right,
                bottom,
                ..
            },
        ] = &steps[..]
        else {
            panic!("{steps:?}")
        };
        let canvas = size(300 + top + bottom, 400 + left + right);
        assert!(canvas.width <= 1600 && canvas.height <= 1200, "{canvas}");
        let ratio = f64::from(canvas.width) / f64::from(canvas.height);
        assert!((ratio - 4.0 / 3.0).abs() < 0.01, "{canvas}");
    }
}

#[test]
fn noise_has_its_mean_and_deviation_and_depends_on_the_seed_only() {
    let mut gray = Image::default();
    gray.reset(size(200, 200), 3, Depth::U8);
    gray.data.fill(100);
    let noisy = |mean: f64, sigma: f64, clip: bool, seed: u64| {
        let noise = ColorStep::Noise {
            mean,
            sigma,
            clip,
            seed,
        };
        apply(&Step::Color(vec![noise]), &gray).expect("valid")
    };
    let count = gray.data.len() as f64;

    let one = noisy(0.1, 0.05, true, 5);

    let mean = one.data.iter().map(|&v| f64::from(v)).sum::<f64>() / count - 100.0;
    let squares = one
        .data
        .iter()
        .map(|&v| (f64::from(v) - 100.0 - mean).powi(2));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    // Positive noise is truncated by half a level on average.
    assert!((mean - (25.5 - 0.5)).abs() < 0.15, "{mean}");
    assert!((deviation - 12.75).abs() < 0.15, "{deviation}");
    assert_eq!(noisy(0.1, 0.05, true, 5), one);
    assert_ne!(noisy(0.1, 0.05, true, 6), one);
    assert_eq!(noisy(0.0, 0.0, true, 5), gray);
    assert!(noisy(-0.5, 0.0, true, 1).data.iter().all(|&v| v == 0));
    // 100 - 127.5, truncated to 127, wraps to 229.
    assert!(noisy(-0.5, 0.0, false, 1).data.iter().all(|&v| v == 229));
    let wide = noisy(0.0, 4.0, true, 9);
    assert!(wide.data.contains(&0) && wide.data.contains(&255));
}

#[test]
fn a_blur_needs_more_pixels_than_half_its_filter() {
    let blur = Transform::from(GaussianBlur::new([5, 9]));
    let error = blur.draw(size(4, 30), &mut Rng::new(0, 0, 0, 0));

    let error = error.expect_err("4 rows").to_string();

    assert!(error.starts_with("GaussianBlur needs 3x5 px"), "{error}");
    assert!(error.contains("smaller kernel_size"), "{error}");
    assert!(blur.draw(size(5, 3), &mut Rng::new(0, 0, 0, 0)).is_ok());
}

#[test]
fn choices_are_as_frequent_as_their_weights() {
    const DRAWS: u64 = 8000;
    let image = size(9, 9);
    let tones: Vec<Transform> = vec![
        RandomInvert::new(1.0).into(),
        RandomEqualize::new(1.0).into(),
        RandomAutocontrast::new(1.0).into(),
    ];
    let first = |transform: Transform| {
        let mut counts = [0.0; 4];
        for position in 0..DRAWS {
            let steps = draw_steps(&transform, image, &[], position);
            let at = match steps.first() {
                Some(Step::Color(changes)) => match changes[0] {
                    ColorStep::Invert => 0,
                    ColorStep::Equalize => 1,
                    _ => 2,
                },
                _ => 3,
            };
            counts[at] += 1.0 / DRAWS as f64;
        }
        counts
    };
    let close = |found: [f64; 4], expected: [f64; 4]| {
        let pairs = found.iter().zip(expected);
        let is_close = pairs.into_iter().all(|(a, b)| (a - b).abs() < 0.02);
        assert!(is_close, "{found:?} instead of {expected:?}");
    };
    close(
        first(RandomApply::new(tones.clone(), 0.3).into()),
        [0.3, 0.0, 0.0, 0.7],
    );
    let third = 1.0 / 3.0;
    close(
        first(RandomChoice::new(tones.clone()).into()),
        [third, third, third, 0.0],
    );
    let weighted = RandomChoice {
        p: Some(vec![1.0, 0.0, 3.0]),
        ..RandomChoice::new(tones.clone())
    };
    close(first(weighted.into()), [0.25, 0.0, 0.75, 0.0]);
    let order = Transform::from(RandomOrder::new(tones.clone()));
    assert_eq!(draw_steps(&order, image, &[], 1).len(), 3);
    close(first(order), [third, third, third, 0.0]);
}

#[test]
fn the_result_of_a_choice_has_a_size_if_each_transform_has_it() {
    let series = |p| {
        let short = RandomChoice::new(vec![Resize::new(40).into(), Resize::new(50).into()]);
        let crop = RandomSizedCrop::new(32, [30, 50]);
        Transform::from(RandomApply::new(vec![short.into(), crop.into()], p))
    };
    let choice = |list| Transform::from(RandomChoice::new(list));
    let square: Transform = Resize::new(size(32, 32)).into();
    let other: Transform = Resize::new(size(32, 33)).into();
    let flip: Transform = RandomHorizontalFlip::new(0.5).into();
    for (transform, expected) in [
        (
            choice(vec![square.clone(), series(1.0)]),
            Some(size(32, 32)),
        ),
        (choice(vec![square.clone(), series(0.5)]), None),
        (choice(vec![square.clone(), other.clone()]), None),
        (choice(vec![square.clone(), flip.clone()]), None),
        (series(1.0), Some(size(32, 32))),
        (series(0.9), None),
        (RandomOrder::new(vec![square, flip]).into(), None),
    ] {
        transform.validate().unwrap();
        for image in [None, Some(size(300, 400))] {
            assert_eq!(
                transform.output_size(image).unwrap(),
                expected,
                "{transform:?}"
            );
        }
    }
}

#[test]
fn a_sized_crop_draws_each_side_and_position_equally() {
    const DRAWS: u64 = 12_000;
    let crop = Transform::from(RandomSizedCrop::new(9, [4, 6]));
    let (mut sides, mut tops) = ([0.0; 3], [0.0; 3]);
    for position in 0..DRAWS {
        let steps = draw_steps(&crop, size(6, 20), &[], position);
        let [Step::Crop(region), Step::Resize { size: resized, .. }] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!(
            (region.size.width, *resized),
            (region.size.height, size(9, 9))
        );
        sides[region.size.height as usize - 4] += 1.0 / DRAWS as f64;
        if region.size.height == 4 {
            tops[region.top as usize] += 3.0 / DRAWS as f64;
        }
    }
    for share in sides.into_iter().chain(tops) {
        assert!((share - 1.0 / 3.0).abs() < 0.03, "{sides:?} {tops:?}");
    }

    let small = draw_steps(&crop, size(3, 5), &[], 1);
    let [Step::Crop(region), _] = &small[..] else {
        panic!("{small:?}");
    };
    assert_eq!(region.size, size(3, 3), "the image limits the side");
}

#[test]
fn augmentations_draw_each_change_with_both_signs() {
    let image = size(50, 70);
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for position in 0..4000 {
        let wide = TrivialAugmentWide::default().into();
        for step in draw_steps(&wide, image, &[], position) {
            let text: String = step
                .to_string()
                .chars()
                .filter(|c| c.is_alphabetic())
                .collect();
            *seen.entry(text).or_default() += 1;
        }
        let two = draw_steps(&RandAugment::default().into(), image, &[], position);
        assert!(two.len() <= 2);
        for step in two {
            if let Step::Color(changes) = &step {
                let factor = match changes[0] {
                    ColorStep::Brightness(f) | ColorStep::Sharpness(f) => f,
                    _ => continue,
                };
                // 0.9 * 9 / 30 in both directions.
                let by = (factor - 1.0).abs();
                assert!((by - 0.27).abs() < 1e-6, "{factor}");
            }
        }
    }
    // Affine maps have two texts, with and without a centre; identity draws nothing.
    assert_eq!(seen.len(), 10, "{seen:?}");
    let least = seen.values().min().expect("changes");
    assert!(*least > 200, "{seen:?}");
}

#[test]
fn learned_pairs_are_drawn_with_their_probabilities_and_strengths() {
    let image = size(50, 70);
    let auto = AutoAugment {
        policy: AugmentPolicy::Svhn,
        ..AutoAugment::default()
    };
    let (mut inverted, mut rotated, mut count) = (0, 0, 0);
    const DRAWS: u64 = 10_000;
    for position in 0..DRAWS {
        let steps = draw_steps(&auto.clone().into(), image, &[], position);
        assert!(steps.len() <= 2);
        count += steps.len();
        for step in steps {
            match step {
                Step::Color(changes) if changes == [ColorStep::Invert] => inverted += 1,
                Step::Warp(warp) if warp.map == WarpMap::rotation(10.0, None) => rotated += 1,
                _ => {}
            }
        }
    }
    // Sums of the probabilities in the paper's table of 25 pairs. Ten degrees: index 3 of 0 to 30 in
    // ten steps, in two pairs, with either sign.
    let close = |found: usize, sum: f64| {
        let (found, expected) = (found as f64 / DRAWS as f64, sum / 25.0);
        assert!((found - expected).abs() < 0.02, "{found}, not {expected}");
    };
    close(inverted, 7.6);
    close(rotated, 2.0 * 0.9 / 2.0);
    close(count, 32.9);
}

#[test]
fn mixed_copies_have_weights_with_the_sum_one_and_changes_of_their_strengths() {
    let image = size(50, 70);
    let mix = AugMix {
        severity: 2,
        ..AugMix::default()
    };
    let (mut depths, mut total) = ([0; 4], 0.0);
    const DRAWS: u64 = 3_000;
    for position in 0..DRAWS {
        let steps = draw_steps(&mix.clone().into(), image, &[], position);
        let [Step::Chains { own, chains }] = &steps[..] else {
            panic!("{steps:?}");
        };
        let sum: f64 = chains.iter().map(|chain| chain.0).sum();
        assert!((own + sum - 1.0).abs() < 1e-9 && *own >= 0.0);
        total += own;
        assert_eq!(chains.len(), 3);
        for (_, steps) in chains {
            depths[steps.len()] += 1;
            for step in steps {
                match step {
                    Step::Warp(Warp {
                        map: WarpMap::Affine { angle, .. },
                        ..
                    }) => assert!(angle.abs() < 3.34, "{step}"),
                    Step::Color(changes) => match changes[0] {
                        ColorStep::Posterize(bits) => assert_eq!(bits, 4),
                        ColorStep::Brightness(factor) => assert!((factor - 1.0).abs() < 0.11),
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
    }
    let mean = total / DRAWS as f64;
    assert!((mean - 0.5).abs() < 0.03, "{mean}");
    // A change of strength 0 draws no step.
    assert!(depths.iter().all(|count| *count > 500), "{depths:?}");
}

#[test]
fn an_elastic_map_needs_more_pixels_than_half_its_filter() {
    let elastic = Transform::from(ElasticTransform::default());
    let mut rng = Rng::new(0, 0, 0, 0);
    assert_eq!(elastic.needs_at_least(), size(21, 21));
    assert_eq!(
        elastic.draw(size(21, 30), &mut rng).expect("enough").len(),
        1
    );
    let error = elastic
        .draw(size(20, 30), &mut rng)
        .unwrap_err()
        .to_string();
    assert!(error.contains("sigma"), "{error}");
    // A step that was drawn for a larger image.
    let field = ElasticField {
        alpha: [50.0; 2],
        sigma: [5.0; 2],
        seed: 1,
    };
    let warp = Step::Warp(Warp {
        map: WarpMap::Elastic(field),
        size: size(9, 9),
        filter: Filter::Bilinear,
        fill: vec![0.0],
        mask_fill: vec![0.0],
        part: None,
    });
    assert!(apply(&warp, &numbered_image(size(9, 9), 3, Depth::U8)).is_err());
    assert!(warp.move_point([3.0, 3.0], size(9, 9))[0].is_nan());
}

#[test]
fn compression_rejects_images_that_no_jpeg_holds() {
    let mut rng = Rng::new(0, 0, 0, 0);
    let error = Transform::from(JPEG::new(50))
        .draw(size(2, 70_000), &mut rng)
        .unwrap_err()
        .to_string();
    assert!(error.contains("65500"), "{error}");
}

#[test]
fn lists_reject_transforms_that_pad_or_change_types_or_channels() {
    for wrong in [
        Transform::from(Pad::new(8)),
        RandomCrop {
            pad_if_needed: true,
            ..RandomCrop::new(8)
        }
        .into(),
        Mosaic::new(8).into(),
        ImageMixUp::default().into(),
        CopyPaste::default().into(),
        MirroredPaste::default().into(),
        ToFloat::default().into(),
        Grayscale::new(1).into(),
        RandomErasing::new(0.5).into(),
        RandomIoUCrop::default().into(),
    ] {
        let name = wrong.name();
        let error = Transform::from(RandomOrder::new(vec![wrong])).validate();

        let error = error.expect_err(name).to_string();

        assert!(
            error.contains("transforms is") && error.contains(name),
            "{error}"
        );
    }
    let inner = RandomApply::new(vec![RandomPosterize::new(9, 0.5).into()], 0.5);
    let error = Transform::from(inner).validate().expect_err("9 bits");
    assert!(
        error.to_string().starts_with("RandomPosterize: bits is 9"),
        "{error}"
    );
    let none = Transform::from(RandomChoice::new(vec![])).validate();
    assert!(none.is_err());
}

#[test]
fn a_tilt_divides_lengths_by_their_distance_from_the_centre() {
    let image = size(60, 80);
    let tilted = Transform::from(RandomAffine {
        scale: Some([2.0, 2.0]),
        perspective: Some(0.004),
        ..RandomAffine::new(0.0)
    });
    let (mut low, mut high) = ([f64::MAX; 2], [f64::MIN; 2]);
    for position in 0..200 {
        let steps = draw_steps(&tilted, image, &[], position);
        let moved = |x: f64, y: f64| {
            let [x, y] = steps[0].move_point([40.0 + x, 30.0 + y], image);
            [x - 40.0, y - 30.0]
        };
        let tilt = [
            2.0 / moved(1.0, 0.0)[0] - 1.0,
            2.0 / moved(0.0, 1.0)[1] - 1.0,
        ];
        for axis in 0..2 {
            low[axis] = tilt[axis].min(low[axis]);
            high[axis] = tilt[axis].max(high[axis]);
        }
        let by = 1.0 - 35.0 * tilt[0] + 20.0 * tilt[1];
        let [x, y] = moved(-35.0, 20.0);
        assert!((x * by + 70.0).abs() < 1e-6 && (y * by - 40.0).abs() < 1e-6);
    }
    for axis in 0..2 {
        assert!((-0.004..-0.0037).contains(&low[axis]), "{low:?}");
        assert!((0.0037..0.004).contains(&high[axis]), "{high:?}");
    }
}
